"""The documentation builds as a site without a network, and no link in it leads nowhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).parent.parent.parent
# What a browser would fetch by itself; a link that somebody has to click is not among it.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "srcset", "link": "href"}


class Built(NamedTuple):
    site: Path
    said: str
    code: int


def build(config: Path, site: Path) -> Built:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(site)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    return Built(site, done.stdout + done.stderr, done.returncode)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(REPOSITORY / "mkdocs.yml", tmp_path_factory.mktemp("site"))


def test_every_link_and_anchor_leads_somewhere(built: Built) -> None:
    warnings = [line for line in built.said.splitlines() if line.startswith(("WARNING", "ERROR"))]
    assert not warnings, "\n".join(warnings)
    assert built.code == 0, built.said


def without_a_place(built: Built) -> list[str]:
    _, _, omitted = built.said.partition('not included in the "nav" configuration:\n')
    return re.findall(r"^  - (.+)$", omitted, re.MULTILINE)


def test_every_page_has_its_place_in_the_navigation(built: Built) -> None:
    pages = without_a_place(built)
    assert not pages, (
        f"{', '.join(pages)}: no reader of the site finds it. Add it to `nav` in mkdocs.yml, in the section of those "
        "who read it, or to `not_in_nav` if another page lists it."
    )


class Requests(HTMLParser):
    """Collects what a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name == FETCHED.get(tag) and value]


def test_no_page_asks_another_server_for_anything(built: Built) -> None:
    pages = list(built.site.rglob("*.html"))
    assert pages
    for page in pages:
        requests = Requests()
        requests.feed(page.read_text())
        assert requests.found, page
        assert not [url for url in requests.found if re.match(r"(?:\w+:)?//", url)], page


def test_a_dead_link_is_told_whether_to_a_page_an_anchor_a_file_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "docs" / "site").mkdir(parents=True)
    for name in ("docs/site/pages.py", "docs/site/wide.css", "mkdocs.yml"):
        (tmp_path / name).write_text((REPOSITORY / name).read_text())
    config = tmp_path / "mkdocs.yml"
    config.write_text(config.read_text().partition("\nnav:")[0] + "\nnav: [README.md]\n")
    (tmp_path / "code.py").touch()
    (tmp_path / "README.md").write_text("# Here\n\n[page](docs/page.md#words), [file](code.py), [folder](docs/site)\n")
    (tmp_path / "docs" / "page.md").write_text("# There\n\n## Words\n\n[home](../README.md#here)\n")
    good = build(config, tmp_path / "good")
    assert good.code == 0, good.said
    assert without_a_place(good) == ["docs/page.md"]
    assert (good.site / "code.py").exists()
    assert "wide.css" in (good.site / "docs" / "site" / "index.html").read_text()

    dead = ["docs/none.md", "docs/page.md#none", "none.py", "none/folder", "none.svg"]
    (tmp_path / "README.md").write_text("# Here\n\n" + "".join(f"[dead]({target})\n" for target in dead))
    bad = build(config, tmp_path / "bad")
    assert bad.code != 0
    assert not [target for target in dead if target not in bad.said]
