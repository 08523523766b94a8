"""The space-time diagram of an incident: who told whom what around the loss, message by message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipelines.page import replica_lanes as lanes
from pipelines.page.marks import LETTER, WIDTH, bounded_table, clock, colour, count, key_of, layer, name_of, sentences
from pipelines.page.messages import LOOSE, PRODUCER, Step, story_of
from pipelines.page.picture import Picture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipelines.page.partition_rows import PartitionRows

    Row = Mapping[str, Any]

MOST_BROKERS: Final = 6
GUTTER: Final = 88  # for the times
HEAD: Final = 26
STEP: Final = 29  # height of a step
GAP: Final = 22  # of what is left out
ROOM: Final = 20  # for what is said of the doom
_CAPTION: Final = (
    "Read it from top to bottom: each column is a broker, each arrow a message, with the time that its line "
    "has on the left, "
    "by the clock of whoever wrote it. The distances mean nothing: steps follow each other in the order in "
    "which they happened, and lines in italics say how much "
    "time passed and what is not drawn. A thick column leads, a thin one is in the ISR, a dotted one is "
    "fenced or out of the ISR. "
    "The red line is where the records were doomed: whoever leads from there on does not have them. Dashed "
    "arrows are bounded or not known."
)


class Place(NamedTuple):
    """A step with its height in the picture."""

    step: Step
    y: int


def space_time(incident: Row, rows: PartitionRows) -> Picture | None:
    """Return the diagram; None: the recording has no message or decision near the loss."""
    steps = story_of(incident, rows)
    taking_part = {one for step in steps for one in (step.sender, step.receiver) if one is not None and one >= 0}
    shown = lanes.most_telling(sorted(taking_part), incident, MOST_BROKERS)
    drawn = [one for one in steps if {one.sender, one.receiver} <= {*shown, PRODUCER, None}]
    if not any(step.receiver is not None for step in drawn):
        return None
    columns = _columns(shown, with_producer=any(PRODUCER in {one.sender, one.receiver} for one in drawn))
    places, height = _places(drawn)
    layers = [
        *_lifelines(places, columns, height, rows),
        *_gaps(places),
        *_doom(places),
        *_arrows(places, columns),
        *_moments(places, columns),
        *_heads(columns),
    ]
    table, more = bounded_table([_told(one) for one in steps])
    return Picture(
        key=key_of(incident, "messages"),
        title=f"{name_of(incident)}: who told whom what",
        caption=_CAPTION,
        spec={"width": WIDTH, "height": height, "layer": layers},
        columns=("Time (UTC)", "From", "To", "What", "Evidence"),
        rows=table,
        left_out=sentences(
            "It shows the messages and decisions that tell the story, not all; what is left out between them "
            "is counted there.",
            f"{count(len(steps) - len(drawn), 'step')} of further brokers are only in the table."
            if len(drawn) < len(steps)
            else None,
            more,
        ),
    )


def _columns(shown: Sequence[int], *, with_producer: bool) -> dict[int, int]:
    """Return where each column stands."""
    names = [*([PRODUCER] if with_producer else []), *shown]
    left, right = GUTTER + 52, WIDTH - 60
    return {one: left + (right - left) * place // max(1, len(names) - 1) for place, one in enumerate(names)}


def _places(steps: Sequence[Step]) -> tuple[list[Place], int]:
    y = HEAD + 6
    made: list[Place] = []
    for step in steps:
        y += STEP + (GAP if step.skipped else 0) + (ROOM if made and made[-1].step.is_doom else 0)
        made.append(Place(step, y))
    return made, y + 22


def _xy(*, to: bool = False) -> dict[str, Any]:
    """Return the encoding of marks that are placed in pixels."""
    pixels = {"type": "quantitative", "axis": None}
    x = {"x": {"field": "x", **pixels, "scale": {"domain": [0, WIDTH], "range": [0, WIDTH]}}}
    y = {"y": {"field": "y", **pixels, "scale": {"domain": [0, 10_000], "range": [0, 10_000]}}}
    return {**x, **y, **({"x2": {"field": "x2"}, "y2": {"field": "y2"}} if to else {})}


def text(values: Sequence[Mapping[str, Any]], **how: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """Return words with a rim in the ground's colour, so that they can be read over lines."""
    if not values:
        return []
    plain = [{name: value for name, value in one.items() if name != "told"} for one in values]
    encoding = {**_xy(), "text": {"field": "words"}}
    shared = {"baseline": "middle", "fontSize": 11.5, **how}
    rim = {"stroke": colour("card"), "strokeWidth": 4, "strokeJoin": "round", "color": colour("card")}
    return [layer("text", plain, encoding, **{**shared, **rim}), layer("text", plain, encoding, **shared)]


def _lifelines(
    places: Sequence[Place], columns: Mapping[int, int], height: int, rows: PartitionRows
) -> list[dict[str, Any]]:
    """Return the columns, as thick as what the broker was at each step."""
    looks: dict[str, list[dict[str, Any]]] = {}
    for broker, x in columns.items():
        seq = 0
        for place, (step, y) in enumerate(places):
            seq = max(seq, step.seq) if step.what not in LOOSE else seq
            top = HEAD if place == 0 else y
            foot = height if place + 1 == len(places) else places[place + 1].y
            state = lanes.state_at(broker, rows, seq, step.time) if broker >= 0 else ""
            looks.setdefault(state, []).append({"x": x, "x2": x, "y": top, "y2": foot})
    made = []
    for state, values in looks.items():
        how: dict[str, Any] = {"strokeWidth": 1.5, "color": colour("faint")}
        if state == lanes.LEADER:
            how = {"strokeWidth": 7, "color": colour("calm"), "opacity": 0.6}
        elif state in {lanes.OUT, lanes.FENCED, lanes.NOT_KNOWN}:
            how["strokeDash"] = [1.5, 4]
        made.append(layer("rule", _joined(values), _xy(to=True), **how))
    return made


def _joined(values: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for one in values:
        if made and made[-1]["x"] == one["x"] and made[-1]["y2"] == one["y"]:
            made[-1] = {**made[-1], "y2": one["y2"]}
        else:
            made.append(one)
    return made


def _heads(columns: Mapping[int, int]) -> list[dict[str, Any]]:
    names = [
        {"x": x, "y": 14, "words": "producer" if one == PRODUCER else f"broker {one}"} for one, x in columns.items()
    ]
    return text(names, fontWeight="bold", fontSize=13)


def _gaps(places: Sequence[Place]) -> list[dict[str, Any]]:
    values = [{"x": GUTTER, "y": y - STEP + 2, "words": step.skipped} for step, y in places if step.skipped]
    return text(values, align="left", fontStyle="italic", color=colour("muted"))


def _doom(places: Sequence[Place]) -> list[dict[str, Any]]:
    lines = [{"x": 0, "x2": WIDTH, "y": y + 15, "y2": y + 15} for step, y in places if step.is_doom]
    words = [
        {"x": WIDTH, "y": y + 27, "words": "doomed: from here on, whoever leads does not have them"}
        for step, y in places
        if step.is_doom
    ]
    if not lines:
        return []
    return [
        layer("rule", lines, _xy(to=True), color=colour("lost"), strokeWidth=2, strokeDash=[7, 3]),
        *text(words, align="right", color=colour("lost"), fontWeight="bold"),
    ]


def _arrows(places: Sequence[Place], columns: Mapping[int, int]) -> list[dict[str, Any]]:
    """Return the messages: a shaft, a head that says in which direction it goes, and its words in the middle."""
    made: list[dict[str, Any]] = []
    words, times = [], []
    for is_unsure in (False, True):
        shafts, heads = [], {True: [], False: []}  # type: ignore[var-annotated]
        for step, y in places:
            if step.receiver is None or step.is_unsure != is_unsure:
                continue
            start, end = columns[step.sender], columns[step.receiver]
            is_right = end > start
            shafts.append({"x": start, "y": y - 5, "x2": end, "y2": y + 5, "told": _said(step)})
            heads[is_right].append({"x": end + (-6 if is_right else 6), "y": y + 5})
            words.append({"x": _middle(start, end, step.words), "y": y - 9, "words": step.words})
            times.append({"x": 0, "y": y, "words": clock(step.time)})
        dash = {"strokeDash": [4, 3]} if is_unsure else {}
        if shafts:
            made.append(layer("rule", shafts, _xy(to=True), color=colour("ink"), strokeWidth=1.5, **dash))
        for is_right, values in heads.items():
            if values:
                shape = "triangle-right" if is_right else "triangle-left"
                made.append(
                    layer("point", values, _xy(), shape=shape, filled=True, size=70, color=colour("ink"), opacity=1)
                )
    times.extend({"x": 0, "y": y, "words": clock(step.time)} for step, y in places if step.receiver is None)
    return [*made, *text(words), *text(times, align="left", color=colour("muted"))]


def _middle(start: int, end: int, words: str) -> float:
    """Return where words stand whose middle is the arrow's, if they have room there."""
    half = len(words) * LETTER / 2
    return min(max((start + end) / 2, GUTTER + half), WIDTH - half)


_SHAPES: Final[Mapping[str, tuple[str, str]]] = {
    "elected": ("diamond", "accent"),
    "role": ("diamond", "accent"),
    "isr": ("circle", "calm"),
    "fenced": ("cross", "lost"),
    "unfenced": ("circle", "safe"),
    "started": ("square", "safe"),
    "registered": ("square", "faint"),
    "cut": ("triangle-down", "lost"),
}


def _moments(places: Sequence[Place], columns: Mapping[int, int]) -> list[dict[str, Any]]:
    """Return what happened at one broker: a sign, and words on the side that has room."""
    made: list[dict[str, Any]] = []
    for what, (shape, name) in _SHAPES.items():
        values = [{"x": columns[step.sender], "y": y, "told": _said(step)} for step, y in places if step.what == what]
        if values:
            made.append(
                layer("point", values, _xy(), shape=shape, filled=True, size=130, color=colour(name), opacity=1)
            )
    for is_left in (False, True):
        words = [
            {"x": columns[step.sender] + (-12 if is_left else 12), "y": y, "words": step.words}
            for step, y in places
            if step.receiver is None and is_left == (columns[step.sender] + 12 + len(step.words) * LETTER > WIDTH)
        ]
        made.extend(text(words, align="right" if is_left else "left"))
    return made


def _who(column: int | None) -> str:
    if column is None:
        return ""
    return "the producer" if column == PRODUCER else f"broker {column}"


def _said(step: Step) -> str:
    to = f" to {_who(step.receiver)}" if step.receiver is not None else ""
    return f"{clock(step.time)}: {_who(step.sender)}{to}: {step.words} ({step.evidence})"


def _told(step: Step) -> list[str]:
    return [clock(step.time), _who(step.sender), _who(step.receiver), step.words, step.evidence]
