"""Draws the diagrams of losing-records.md, as SVG files beside this one (`python docs/diagrams/draw.py`).

A story is a series of moments; in each, the logs of the brokers stand below each other, with their offsets above. An
exchange is what two parties say to each other and do, numbered, from top to bottom. What they tell is in `stories.py`.

The files need no font, script or network. They follow the reader's choice of light or dark, nothing in them is told by
colour alone, and the same is in their description as text.
"""

from __future__ import annotations

import textwrap
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

from stories import EXCHANGE, STORIES, Broker, Exchange, Moment, Story

WIDTH = 860
MARGIN = 20
LOG_X, CELL, ROW, NOTE_X = 236, 50, 50, 530
LINE = 18
STYLE = """
svg{--paper:#fff;--ink:#1f2328;--soft:#59636e;--line:#d1d9e0;--a:#ddf4ff;--a-edge:#0969da;--b:#fff8c5;--b-edge:#9a6700;--lost:#ffebe9;--lost-edge:#cf222e;--hw:#1a7f37}
@media (prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;--a:#10243e;--a-edge:#4493f8;--b:#2e2405;--b-edge:#d29922;--lost:#3b1219;--lost-edge:#f85149;--hw:#3fb950}}
text{font:14px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:var(--ink)}
.soft{fill:var(--soft);font-size:12.5px}.bold{font-weight:600}.middle{text-anchor:middle}.end{text-anchor:end}.hw{fill:var(--hw);font-size:12px;font-weight:600}.lost{fill:var(--lost-edge)}
.paper{fill:var(--paper);stroke:var(--line)}.rule{stroke:var(--line)}.wire{stroke:var(--soft);stroke-width:1.5;fill:none}.mark{stroke:var(--hw);stroke-width:3}
.number{fill:var(--ink)}.figure{fill:var(--paper);font-size:13px;font-weight:600;text-anchor:middle}
.cell-a{fill:var(--a);stroke:var(--a-edge)}.cell-b{fill:var(--b);stroke:var(--b-edge);stroke-width:2}.cell-lost{fill:var(--lost);stroke:var(--lost-edge);stroke-dasharray:4 3;stroke-width:1.5}.away{opacity:.5}
"""  # noqa: E501 - one rule a line


@dataclass
class Sheet:
    """An SVG that grows downwards."""

    title: str
    says: list[str]
    y: float = MARGIN
    body: ET.Element = field(default_factory=lambda: ET.Element("g"))

    def add(self, tag: str, text: str = "", **attributes: object) -> ET.Element:
        """An element; `class_` and `stroke_width` are named as Python can."""
        named = {name.rstrip("_").replace("_", "-"): _short(value) for name, value in attributes.items()}
        element = ET.SubElement(self.body, tag, named)
        element.text = text or None
        return element

    def write(self, text: str, x: float, y: float, looks: str = "") -> None:
        """One line of text, with its classes in `looks`."""
        self.add("text", text, x=x, y=y, class_=looks) if looks else self.add("text", text, x=x, y=y)

    def numbered(self, number: str, text: str, width: int) -> None:
        """A number in a disc, and what it says beside it, from `y` on."""
        self.disc(number, MARGIN + 12, self.y + 12)
        for line in textwrap.wrap(text, width):
            self.write(line, MARGIN + 36, self.y + 17, "bold")
            self.y += LINE + 2
        self.y += 10

    def disc(self, number: str, x: float, y: float) -> None:
        """A number in a disc."""
        self.add("circle", cx=x, cy=y, r=12, class_="number")
        self.write(number, x, y + 4.5, "figure")

    def svg(self) -> str:
        """The file."""
        height = self.y + MARGIN
        root = ET.Element(
            "svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {_short(height)}", role="img"
        )
        root.set("aria-labelledby", "title says")
        ET.SubElement(root, "title", id="title").text = self.title
        ET.SubElement(root, "desc", id="says").text = " ".join(self.says)
        ET.SubElement(root, "style").text = STYLE
        paper = {"x": "1", "y": "1", "width": str(WIDTH - 2), "height": _short(height - 2), "rx": "8", "class": "paper"}
        ET.SubElement(root, "rect", paper)
        root.append(self.body)
        ET.indent(root, " ")
        return ET.tostring(root, encoding="unicode") + "\n"


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def drawn_story(story: Story) -> str:
    """Its moments, one below the other."""
    sheet = Sheet(story.title, [])
    for number, moment in enumerate(story.moments, 1):
        if number > 1:
            sheet.add("line", x1=MARGIN, x2=WIDTH - MARGIN, y1=sheet.y, y2=sheet.y, class_="rule")
            sheet.y += 16
        sheet.says.append(f"{number}. {moment.says} {' '.join(map(told, moment.brokers))}")
        sheet.numbered(str(number), moment.says, 92)
        _moment(sheet, moment)
    sheet.y -= 8
    return sheet.svg()


def _moment(sheet: Sheet, moment: Moment) -> None:
    for offset in range(max(len(broker.log.split()) for broker in moment.brokers)):
        sheet.write(str(offset), LOG_X + CELL * offset + CELL / 2, sheet.y + 8, "soft middle")
    sheet.write("offset", LOG_X - 12, sheet.y + 8, "soft end")
    sheet.y += 16
    for broker in moment.brokers:
        _row(sheet, broker)
        sheet.y += ROW
    sheet.y += 10


def _row(sheet: Sheet, broker: Broker) -> None:
    """A broker: its name and role, its log, the high watermark that it knows, and what it does."""
    faded = " away" if broker.is_away else ""
    sheet.write(f"broker {broker.id}: {broker.role}", MARGIN + 36, sheet.y + 15, "bold" + faded)
    sheet.write("in the ISR" if broker.in_isr else "not in the ISR", MARGIN + 36, sheet.y + 32, "soft" + faded)
    for offset, record in enumerate(broker.log.split()):
        kind = "lost" if record.endswith("!") else "b" if record.startswith("n") else "a"
        x = LOG_X + CELL * offset
        sheet.add("rect", x=x + 2, y=sheet.y, width=CELL - 4, height=32, rx=4, class_=f"cell-{kind}{faded}")
        name = record.rstrip("!")
        sheet.write(
            f"✕ {name}" if kind == "lost" else name,
            x + CELL / 2,
            sheet.y + 21,
            f"middle{' lost' * (kind == 'lost')}{faded}",
        )
    if broker.hw is not None:
        x = LOG_X + CELL * broker.hw
        sheet.add("line", x1=x, x2=x, y1=sheet.y - 3, y2=sheet.y + 35, class_="mark" + faded)
        sheet.write(
            f"HW {broker.hw}", x + 6, sheet.y + (21 if broker.hw >= len(broker.log.split()) else 43), "hw" + faded
        )
    for place, line in enumerate(textwrap.wrap(broker.note, 38)):
        sheet.write(line, NOTE_X, sheet.y + 13 + LINE * place)


def told(broker: Broker) -> str:
    """The row as a sentence."""
    records = broker.log.split()
    kept = [record for record in records if not record.endswith("!")]
    gone = [record.rstrip("!") for record in records if record.endswith("!")]
    isr = "in the ISR" if broker.in_isr else "not in the ISR"
    parts = [f"Broker {broker.id} ({broker.role}, {isr}) has {', '.join(kept) or 'nothing'}"]
    parts += [f"cut {', '.join(gone)} away"] if gone else []
    parts += [f"knows high watermark {broker.hw}"] if broker.hw is not None else []
    return f"{', '.join(parts)}{f': {broker.note}' if broker.note else ''}."


def drawn_exchange(exchange: Exchange) -> str:
    """A line downwards for each party, and the steps between them."""
    sheet = Sheet(exchange.title, [])
    places = dict(zip(exchange.parties, exchange.places, strict=True))
    for party, x in places.items():
        sheet.write(party, x, sheet.y + 14, "bold middle")
    top = sheet.y + 26
    sheet.y += 44
    for step in exchange.steps:
        _step(sheet, step, places)
    for x in places.values():
        line = ET.Element(
            "line", {"x1": str(x), "x2": str(x), "y1": _short(top), "y2": _short(sheet.y), "class": "rule"}
        )
        sheet.body.insert(0, line)
    return sheet.svg()


def _step(sheet: Sheet, step: tuple[str, ...], places: dict[str, int]) -> None:
    number, origin, target, text, after = step
    who = origin if origin == target else f"{origin} to {target}"
    sheet.says.append(f"{f'Step {number}, ' if number else ''}{who}: {text}{f' ({after})' if after else ''}.")
    x, far = places[origin], places[target]
    if origin == target:
        lines = [
            *((line, "bold") for line in textwrap.wrap(text, 30)),
            *((line, "soft") for line in textwrap.wrap(after, 33)),
        ]
        sheet.disc(number, x, sheet.y + 10)
        for place, (line, looks) in enumerate(lines):
            sheet.write(line, x + 20, sheet.y + 14 + LINE * place, looks)
        sheet.y += LINE * len(lines) + 16
        return
    sheet.write(text, (x + far) / 2, sheet.y + 8, "bold middle")
    sheet.write(after, (x + far) / 2, sheet.y + 36, "soft middle")
    way = 1 if far > x else -1
    start = x + way * (14 if number else 4)
    sheet.add(
        "path",
        d=f"M{start} {_short(sheet.y + 18)}H{far - way * 4}m{-way * 9} -5l{way * 9} 5l{-way * 9} 5",
        class_="wire",
    )
    if number:
        sheet.disc(number, x, sheet.y + 18)
    sheet.y += 56


def drawn() -> dict[str, str]:
    """Every diagram, by the name of its file."""
    return {f"{story.name}.svg": drawn_story(story) for story in STORIES} | {
        f"{EXCHANGE.name}.svg": drawn_exchange(EXCHANGE)
    }


if __name__ == "__main__":
    for name, svg in drawn().items():
        Path(__file__).with_name(name).write_text(svg)
