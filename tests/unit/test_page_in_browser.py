"""The incident page in Chromium, Debian's package `chromium`: it needs nothing, runs nothing hostile, and shows all."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Self

import pytest
from pages import HOSTILE, QUOTE, findings, incident, page_of, tables

from pipelines.page.page_file import MOST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

CHROMIUM = os.environ.get("TIDEMARK_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
pytestmark = pytest.mark.skipif(
    not os.path.exists(CHROMIUM),  # noqa: PTH110 - a string from the environment
    reason="NO CHROMIUM: the incident page is not looked at in a browser; apt-get install chromium",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where there is a browser

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    other = incident(1, "orders", incident_id="b" * 24, acked_all=900, severity="S2")
    third = incident(2, "payments", incident_id="c" * 24, acked_all=50)
    pages = {
        "plain": page_of(
            findings(incident(), other, third), tables(), {("logs/orders/server.log", 17): "a quoted line"}
        ),
        "hostile": page_of(
            findings(incident(0, HOSTILE), name=HOSTILE), tables(HOSTILE), {(f"logs/{HOSTILE}/server.log", 17): QUOTE}
        ),
        "healthy": page_of(findings(), tables()),
    }
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page)
    return {name: folder / f"{name}.html" for name in pages}


class Opened:
    """A page in the browser, with all that it asked for and complained of."""

    def __init__(self, browser: Browser, path: Path, **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.goto(path.as_uri())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.mark.parametrize("name", ["plain", "hostile", "healthy"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_asks_for_nothing_but_itself_and_the_browser_has_nothing_to_complain_of(
    browser: Browser, files: dict[str, Path], name: str, scheme: str
) -> None:
    with Opened(browser, files[name], color_scheme=scheme) as opened:
        opened.page.wait_for_load_state("networkidle")
        assert opened.requests == [files[name].as_uri()]
        assert opened.complaints == []
        assert opened.page.title() != "run"
        assert files[name].stat().st_size <= MOST_BYTES


def test_what_somebody_puts_into_the_page_is_not_run(browser: Browser, files: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    script = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
    attack = f"{script}<style>h1{{display:none}}</style>"
    broken.write_text(files["plain"].read_text().replace("<h1", f"{attack}<h1", 1))
    with Opened(browser, broken) as opened:
        opened.page.wait_for_load_state("networkidle")
        assert opened.page.title() != "run"
        assert opened.page.locator("h1").is_visible()
        assert len(opened.complaints) >= 3


@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_pictures_show_something_and_fit_in_light_in_dark_and_on_a_phone(
    browser: Browser, files: dict[str, Path], name: str
) -> None:
    drawn = """() => Array.from(document.querySelectorAll('.drawing svg')).map((svg) => {
        const box = svg.getBoundingClientRect();
        const marks = Array.from(svg.querySelectorAll('path, rect, line, text')).filter((one) => {
            const style = getComputedStyle(one), size = one.getBoundingClientRect();
            return (style.fill !== 'none' || style.stroke !== 'none') && size.width + size.height > 0;
        });
        return [box.width, box.height, marks.length];
    })"""
    for width, scheme in ((1280, "light"), (1280, "dark"), (400, "light")):
        with Opened(browser, files[name], color_scheme=scheme, viewport={"width": width, "height": 900}) as opened:
            found = opened.page.evaluate(drawn)
            assert len(found) >= 7
            assert [one for one in found if one[0] < 100 or one[1] < 30 or one[2] < 6] == []
            assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_in_the_dark_a_picture_is_light_on_dark(browser: Browser, files: dict[str, Path]) -> None:
    bright = """() => {
        const sum = (colour) => colour.match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b);
        const letters = Array.from(document.querySelectorAll('.drawing text'))
            .map((one) => sum(getComputedStyle(one).fill));
        return [sum(getComputedStyle(document.body).backgroundColor), Math.min(...letters), Math.max(...letters)];
    }"""
    with Opened(browser, files["plain"], color_scheme="dark") as opened:
        ground, darkest, _ = opened.page.evaluate(bright)
        assert ground < 100
        assert darkest > 300
        opened.page.get_by_role("button", name="Light").click()
        ground, _, lightest = opened.page.evaluate(bright)
        assert ground > 700
        assert lightest < 450
        assert opened.complaints == []


def test_without_a_script_all_of_it_is_there_to_read(browser: Browser, files: dict[str, Path]) -> None:
    with Opened(browser, files["plain"], java_script_enabled=False) as opened:
        page = opened.page
        for text in ("a quoted line", "the partition would have waited without a leader", "orders-0 lost 10 records."):
            assert page.get_by_text(text).first.is_visible()
        assert page.locator("table.incidents tbody tr").count() == 3
        assert page.locator(".drawing svg").first.is_visible()
        table = page.locator("figure details").first
        table.locator("summary").click()
        assert table.locator("table").is_visible()
        assert not page.locator("#theme").is_visible()


def test_printed_it_is_dark_on_white_and_whole(browser: Browser, files: dict[str, Path], tmp_path: Path) -> None:
    with Opened(browser, files["plain"], color_scheme="dark") as opened:
        opened.page.emulate_media(media="print")
        ink = opened.page.evaluate("getComputedStyle(document.body).color")
        assert ink == "rgb(28, 37, 48)"
        assert not opened.page.locator("nav").is_visible()
        assert opened.page.get_by_text("a quoted line").first.is_visible()
        opened.page.pdf(path=tmp_path / "page.pdf")
        assert (tmp_path / "page.pdf").stat().st_size > 20_000


def test_by_keyboard_one_gets_everywhere_and_sees_where_one_is(browser: Browser, files: dict[str, Path]) -> None:
    at = """() => { const one = document.activeElement, style = getComputedStyle(one);
        return [one.tagName, one.textContent.trim().slice(0, 40), style.outlineStyle, one.className]; }"""
    with Opened(browser, files["plain"]) as opened:
        page = opened.page
        page.keyboard.press("Tab")
        assert page.evaluate(at)[1] == "Skip to what was found"
        seen = []
        for _ in range(150):
            page.keyboard.press("Tab")
            seen.append(page.evaluate(at))
            if seen[-1][0] == "BODY":
                break
        reached = [one for one in seen if one[0] != "BODY"]
        assert all(outline != "none" for _, _, outline, _ in reached)
        words = [text for _, text, _, _ in reached]
        assert {"Dark", "orders-0", "Severity"} <= set(words)
        assert sum(tag == "SUMMARY" for tag, *_ in reached) == page.locator("summary").count()
        assert sum(name == "drawing" for *_, name in reached) == page.locator(".drawing").count()


def test_a_mark_says_what_it_is_by_the_arrow_keys(browser: Browser, files: dict[str, Path]) -> None:
    with Opened(browser, files["plain"]) as opened:
        drawing = opened.page.locator("#at-risk .drawing")
        drawing.focus()
        opened.page.keyboard.press("ArrowRight")
        assert "orders-0: one of several replicas in the ISR" in opened.page.locator(".told").inner_text()


def test_whoever_listens_hears_names_for_everything(browser: Browser, files: dict[str, Path]) -> None:
    with Opened(browser, files["plain"]) as opened:
        page = opened.page
        headings = page.get_by_role("heading").all()
        assert page.get_by_role("heading", level=1).count() == 1
        assert all(one.inner_text().strip() for one in headings)
        figures = page.get_by_role("figure")
        assert figures.count() == page.locator("figure").count() >= 7
        titles = page.evaluate("Array.from(document.querySelectorAll('figure h4')).map((one) => one.textContent)")
        assert all(page.get_by_role("figure", name=title, exact=True).count() for title in titles)
        nameless = """Array.from(document.querySelectorAll('a, button, input, [role=region], [role=group]'))
            .filter((one) =>
            !(one.textContent.trim() || one.getAttribute('aria-label') || one.getAttribute('aria-labelledby')
              || document.querySelector(`label[for="${one.id}"]`))).length"""
        assert page.evaluate(nameless) == 0
        assert page.evaluate("document.documentElement.lang") == "en"


def test_the_table_can_be_sorted_and_a_row_leads_to_its_section(browser: Browser, files: dict[str, Path]) -> None:
    first = "document.querySelector('table.incidents tbody td:nth-of-type(2)').textContent"
    with Opened(browser, files["plain"]) as opened:
        page = opened.page
        assert page.evaluate(first).startswith("7 (acks=all)")
        head = page.get_by_role("button", name="Acknowledged")
        head.click()
        head.click()
        assert page.evaluate(first).startswith("900 (acks=all)")
        assert page.locator("th[aria-sort=descending]").count() == 1
        page.get_by_role("link", name="payments-2", exact=True).click()
        assert page.locator("article:target h2").inner_text().startswith("payments-2")
        assert opened.complaints == []
