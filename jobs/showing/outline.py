"""What a recording contains, as indented lines."""

from __future__ import annotations

from typing import Any


def outline(finding: dict[str, Any], depth: int = 0) -> list[str]:
    """A nested finding as indented lines: names in words, lists of words on one line."""
    lines = []
    for name, value in finding.items():
        label = f"{'  ' * depth}{str(name).replace('_', ' ')}:"
        if isinstance(value, dict):
            lines += [label, *outline(value, depth + 1)]
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            lines.append(label)
            for item in value:
                lines.append(f"{'  ' * (depth + 1)}- {', '.join(f'{key} {part}' for key, part in item.items())}")
        elif isinstance(value, list) and any(" " in str(item) for item in value):
            lines += [label, *(f"{'  ' * (depth + 1)}- {item}" for item in value)]
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            lines.append(f"{label} {'-' if shown in (None, '') else shown}")
    return lines
