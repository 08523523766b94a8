"""Data Docs that work offline: Great Expectations' own pages without anything that they would load from elsewhere.

As rendered by Great Expectations, a page loads style sheets and scripts from five content networks, and a logo that
reports the context's id. We take out scripts, links and images and put in one small style sheet.
"""

from __future__ import annotations

import html
import re
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.view.view import DefaultJinjaPageView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from great_expectations.core import ExpectationSuiteValidationResult

    from pipelines.warehouse.delta_io import Warehouse

# Elements that load, run or report something, or that do nothing without their script.
_FOREIGN: Final = re.compile(
    r"<script\b.*?</script>|<link\b[^>]*>|<img\b[^>]*>|<meta http-equiv[^>]*>"
    r'|<div class="card mb-3">\s*<div class="card-header p-2">\s*<strong>Actions</strong>.*?'
    r'(?=<div class="card d-md-block)',
    re.DOTALL | re.IGNORECASE,
)
_FOREIGN_ADDRESS: Final = re.compile(r"""\s(?:href|src|onclick)=(?:"(?!#|[\w./]+index\.html)[^"]*"|'[^'#]*')""")
_GX_STYLE: Final = re.compile(r"<style>.*?</style>", re.DOTALL)
_BODY: Final = re.compile(r"<body\b[^>]*>")
_HOME: Final = re.compile(r'"(?:\.\./)+index\.html"')

_STYLE: Final = """<style>
body{font:15px/1.45 system-ui,sans-serif;color:#1d2733;margin:0 auto;max-width:76rem;padding:1rem 1.5rem}
.about{color:#4a5868;border-bottom:1px solid #d8dee6;padding-bottom:.5rem}
h1,h2,h3,h4,h5{font-weight:600;line-height:1.25}
a{color:#0b5cad}
nav ol,nav ul,.ge-breadcrumbs{list-style:none;padding:0;margin:0}
.ge-breadcrumbs li{display:inline;margin-right:.6rem;font-weight:600}
.ge-navigation-sidebar-content li{display:inline-block;margin:0 .9rem .2rem 0}
table{border-collapse:collapse;width:100%;margin:.5rem 0 1.2rem}
th,td{border-bottom:1px solid #d8dee6;padding:.35rem .6rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}
th{background:#f2f5f8}
th:first-child{width:4rem;white-space:nowrap}
td *{white-space:normal;overflow-wrap:anywhere}
td table{margin:.4rem 0}
nav{height:auto!important}
h5{margin:1rem 0 .2rem}
code,pre,.code-snippet{font-family:ui-monospace,monospace;font-size:.9em}
.modal,.walkthrough-card,.card-header+.collapse .card-title{display:none}
.fa-check-circle::before,.holds::before{content:"\\2713";color:#17803d;font-weight:700;font-style:normal}
.fa-times::before,.breaks::before{content:"\\2717";color:#b3261e;font-weight:700;font-style:normal}
.fa-exclamation-triangle::before,.fa-question-circle::before{content:"!";color:#9a6700;font-weight:700;font-style:normal}
.badge,.cooltip .top,.tooltip{font-weight:600}
.cooltip .top{display:none}
</style>"""


@dataclass(frozen=True, slots=True)
class Shown:
    """What the pages are about."""

    recording_id: str
    run_id: str
    when: datetime  # the run validated the tables

    @property
    def header(self) -> str:
        """The line that every page begins with: recording, run and time, and the ways back."""
        when = f"{self.when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        report = quote(f"../../reports/{self.recording_id}", safe="/.")
        return (
            f'<p class="about">Recording <b>{html.escape(self.recording_id)}</b>, validated {when} by run '
            f'{html.escape(self.run_id)}. <a href="index.html">All tables</a> &middot; '
            f'<a href="{report}.html">Report</a> &middot; <a href="{report}.md">Report as text</a></p>'
        )


def escaped(text: str) -> str:
    """Escape text from logs for Great Expectations' templates: they escape nothing and expand dollar signs."""
    return html.escape(text).replace("$", "&#36;")


def publish_docs(suites: Sequence[ExpectationSuiteValidationResult], warehouse: Warehouse, shown: Shown) -> str:
    """Write a page per suite and an index into the warehouse, replacing the last run's; return the index's path."""
    view = DefaultJinjaPageView()  # one for all pages: it compiles its templates
    with tempfile.TemporaryDirectory() as folder:
        for suite in suites:
            document = ValidationResultsPageRenderer(run_info_at_end=True).render(suite)
            page = view.render(document)  # type: ignore[no-untyped-call]
            Path(folder, f"{suite.suite_name}.html").write_text(self_contained(page, shown.header), encoding="utf-8")
        Path(folder, "index.html").write_text(_index_page(suites, shown), encoding="utf-8")
        published = warehouse.publish(folder, "_data_docs/" + quote(shown.recording_id, safe=""))
    return f"{published}/index.html"


def self_contained(page: str, header: str = "") -> str:
    """Return the page with our header and style sheet, and without anything that a browser would load or run."""
    page = _GX_STYLE.sub("", _FOREIGN.sub("", page))
    page = _HOME.sub('"index.html"', _FOREIGN_ADDRESS.sub("", page))
    page = _BODY.sub(lambda found: found.group() + header, page, count=1)
    return page.replace("</head>", f"{_STYLE}</head>", 1)


def _index_page(suites: Sequence[ExpectationSuiteValidationResult], shown: Shown) -> str:
    lines = []
    for suite in suites:
        failed = [outcome for outcome in suite.results if not outcome.success]
        mark, said = ("breaks", f"{len(failed)} do not hold") if failed else ("holds", "all hold")
        name = html.escape(suite.suite_name)
        lines.append(
            f'<tr><td><i class="{mark}"></i></td><td><a href="{quote(suite.suite_name)}.html">{name}</a></td>'
            f"<td>{len(suite.results)}</td><td>{said}</td></tr>"
        )
    title = f"Expectations on {html.escape(shown.recording_id)}"
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="UTF-8"><title>{title}</title>{_STYLE}</head><body>'
        f"<h1>{title}</h1>{shown.header}<table><tr><th></th><th>Table</th><th>Expectations</th><th>Result</th></tr>"
        f"{''.join(lines)}</table></body></html>"
    )
