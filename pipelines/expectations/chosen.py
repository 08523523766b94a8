"""What an expectations file says: other severities and thresholds of rules, and expectations of one's own.

The file is TOML, `conf/expectations.toml` or the one that `--expectations` names. Whatever in it is not understood is
refused in one sentence that names the file and the key.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pipelines.expectations.own import own_rule
from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipelines.expectations.rules import TableRule
    from schemas.model import Table

OFF: Final = "off"
SEVERITIES: Final = ("error", "warning", OFF)
_KEYS: Final = ("severity", "max_rows", "max_share")
_OWN_KEYS: Final = ("name", "table", "rule", "meaning", "answer", *_KEYS)
_REQUIRED: Final = ("name", "table", "rule", "meaning")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")


def applied(
    rules: Sequence[TableRule], said: Mapping[str, Any], tables: Sequence[Table], source: str | None = None
) -> list[TableRule]:
    """Return the rules as the file sets them, without those that are off, and its own expectations.

    InputError for anything in it that is not known, or not possible; `source`: the file.
    """
    for name in said:
        if name not in {"rules", "expectation"}:
            raise _refusal(f"there is no setting '{name}': write [rules.TABLE.RULE] or [[expectation]]", source)
    by_name, severities = {rule.named: rule for rule in rules}, {}
    for name, keys in _told(said.get("rules", {}), source).items():
        if name not in by_name:
            table = name.partition(".")[0]
            known = sorted(rule.name for rule in rules if rule.table == table)
            there = f"{table} has {', '.join(known)}" if known else f"there is no table '{table}' with rules"
            raise _refusal(f"rules.{name}: there is no such rule: {there}", source)
        by_name[name] = _as_said(by_name[name], keys, f"rules.{name}", source)
        severities[name] = keys.get("severity")
    own = said.get("expectation", [])
    if not isinstance(own, list) or not all(isinstance(one, dict) for one in own):
        raise _refusal("expectation is not a list of tables: write each under [[expectation]]", source)
    for number, keys in enumerate(own, start=1):
        where = f"expectation {number}"
        rule = _own(keys, where, tables, source)
        if rule.named in by_name:
            raise _refusal(f"{where}: name: there is a rule {rule.named} already", source)
        by_name[rule.named] = _as_said(rule, {k: v for k, v in keys.items() if k in _KEYS}, where, source)
        severities[rule.named] = keys.get("severity")
    off = {name for name, severity in severities.items() if severity == OFF}
    return [rule for name, rule in by_name.items() if name not in off]


def _told(said: object, source: str | None) -> dict[str, Mapping[str, Any]]:
    """Return what is said of each rule, by its name."""
    if not isinstance(said, dict) or not all(isinstance(of_table, dict) for of_table in said.values()):
        raise _refusal("rules: write [rules.TABLE.RULE], and below it severity, max_rows or max_share", source)
    told = {f"{table}.{name}": keys for table, of_table in said.items() for name, keys in of_table.items()}
    for name, keys in told.items():
        if not isinstance(keys, dict):
            raise _refusal(f"rules.{name} is {keys!r}: write [rules.{name}], and below it {', '.join(_KEYS)}", source)
    return told


def _as_said(rule: TableRule, keys: Mapping[str, Any], where: str, source: str | None) -> TableRule:
    """Return the rule with the severity and the thresholds that the file gives it."""
    for name, value in keys.items():
        if name not in _KEYS:
            raise _refusal(f"{where}: there is no '{name}': {', '.join(_KEYS)}", source)
        if name == "severity" and value not in SEVERITIES:
            raise _refusal(f"{where}: severity is {value!r}, and should be one of {', '.join(SEVERITIES)}", source)
        if name == "max_rows" and (type(value) is not int or value < 0):
            raise _refusal(f"{where}: max_rows is {value!r}, and should be a whole number, 0 or more", source)
        if name == "max_share" and (type(value) not in {int, float} or not 0 <= value <= 1):
            raise _refusal(f"{where}: max_share is {value!r}, and should be a number from 0 to 1", source)
    severity = keys.get("severity", rule.severity)
    if rule.name == "columns":
        if keys.keys() - {"severity"}:
            raise _refusal(f"{where}: it is about columns, not rows, so that it has a severity only", source)
        return replace(rule, severity=severity)
    allowed = {"allowed_rows": keys.get("max_rows", 0), "allowed_share": float(keys.get("max_share", 0.0))}
    return replace(rule, severity=severity, **allowed).counted() if keys else rule


def _own(keys: Mapping[str, Any], where: str, tables: Sequence[Table], source: str | None) -> TableRule:
    """Return the rule that somebody wrote."""
    for name in keys:
        if name not in _OWN_KEYS:
            raise _refusal(f"{where}: there is no '{name}': {', '.join(_OWN_KEYS)}", source)
    for name in (*_REQUIRED, *(("answer",) if "answer" in keys else ())):
        if not isinstance(keys.get(name), str) or not keys[name].strip():
            raise _refusal(f"{where}: {name} is missing, or not a text", source)
    if not _NAME.fullmatch(keys["name"]):
        raise _refusal(f"{where}: name is {keys['name']!r}: use small letters, digits and underscores", source)
    table = next((table for table in tables if table.name == keys["table"]), None)
    if table is None:
        known = ", ".join(table.name for table in tables)
        raise _refusal(f"{where}: table is {keys['table']!r}, and should be one of {known}", source)
    try:
        return own_rule(table, keys["name"], keys["rule"], keys["meaning"], keys.get("answer", ""))
    except ValueError as error:
        raise _refusal(f"{where} ({keys['name']}): rule: {error}", source) from error


def _refusal(message: str, source: str | None) -> InputError:
    return InputError(message, source=source) if source else InputError(message)
