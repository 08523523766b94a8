"""What a follower's fetcher does after each answer and event."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from replay.engine.events import EventBatch
from replay.protocol.profile import LATEST, parse_version, profile_of
from replay.tables.follower_states import COLUMNS, FollowerStates
from schemas.events import REPLICATION_EVENTS
from schemas.tables import TABLES

START = datetime(2026, 11, 21, tzinfo=UTC)
LEADER, FOLLOWER = 1, 2


def event(kind: str, **fields: Any) -> dict[str, Any]:
    acts = LEADER if kind in ("fetch_update", "fetch_left_out", "epoch_end_offset") else FOLLOWER
    return {
        **dict.fromkeys(COLUMNS),
        "kind": kind,
        "broker_id": acts,
        "replica_id": FOLLOWER if acts == LEADER else None,
        "leader_epoch": 5,
        "evidence": "observed",
        **fields,
    }


SCHEMA = pa.schema([REPLICATION_EVENTS.arrow_schema.field(name) for name in COLUMNS])
BECOMES = event("role_change", role="follower")


def moves(*events: dict[str, Any], version: str = "4.1.0") -> list[dict[str, Any]]:
    rows = [{**e, "seq": n, "ts": START + timedelta(milliseconds=n)} for n, e in enumerate(events)]
    states = FollowerStates()
    profile = profile_of(parse_version(version) or LATEST)
    states.take_all(EventBatch(pa.Table.from_pylist(rows, schema=SCHEMA)).events, lambda _broker, _seq: profile)
    return states.moves


def states(*events: dict[str, Any], version: str = "4.1.0") -> list[tuple[str | None, str]]:
    return [(m["state"], m["cause"]) for m in moves(*events, version=version)]


def after(*answers: dict[str, Any], version: str = "4.1.0") -> list[tuple[str | None, str]]:
    return states(BECOMES, *answers, version=version)[1:]


def fetch(**fields: Any) -> dict[str, Any]:
    return event("fetch_update", **{"error_code": 0, **fields})


def test_up_to_2_7_a_new_follower_truncates_until_it_has_cut() -> None:
    asked = event("epoch_end_offset", error_code=0)
    assert states(BECOMES, asked, event("truncation", cause="leader_epoch"), version="2.7.2") == [
        ("truncating", "became_follower"),
        ("fetching", "cut"),
    ]


def test_up_to_2_7_a_follower_with_nothing_to_cut_fetches_next() -> None:
    assert states(BECOMES, event("epoch_end_offset", error_code=0), fetch(), version="2.7.2") == [
        ("truncating", "became_follower"),
        ("fetching", "fetched"),
    ]


def test_from_2_8_a_new_follower_fetches_at_once() -> None:
    assert states(BECOMES, fetch()) == [("fetching", "became_follower")]


def test_a_role_told_anew_in_the_same_epoch_leaves_the_fetcher_as_it_is() -> None:
    assert after(fetch(error_code=6), BECOMES, fetch()) == [("delayed", "error"), ("fetching", "fetched")]


def test_a_diverging_fetch_is_cut_in_place_and_goes_on_fetching() -> None:
    assert after(fetch(diverging_epoch=4), event("truncation", cause="diverging_fetch"), fetch()) == [
        ("fetching", "diverging_fetch")
    ]


OUT_OF_RANGE, IN_TIER = 1, 109


def test_offset_out_of_range_is_mended_in_place_and_goes_on_fetching() -> None:
    for version in ("0.11.0", "2.7.2", "4.1.0"):
        told = moves(BECOMES, fetch(error_code=OUT_OF_RANGE, fetch_offset=9), fetch(fetch_offset=4), version=version)
        assert [(m["state"], m["cause"], m["evidence"]) for m in told[1:]][:1] == [
            ("fetching", "out_of_range", "derived")
        ]


def test_whether_a_follower_out_of_range_was_told_the_same_offset_or_nothing_is_not_certain() -> None:
    told = moves(BECOMES, fetch(error_code=OUT_OF_RANGE, fetch_offset=9), fetch(fetch_offset=9))
    assert [(m["state"], m["evidence"]) for m in told[1:]] == [("fetching", "bounded")]


def test_a_fetch_for_records_in_the_remote_tier_alone_starts_the_log_behind_them() -> None:
    asked = event("epoch_end_offset", error_code=0)  # where the epoch before the leader's local log ends
    told = moves(
        BECOMES, fetch(error_code=IN_TIER, fetch_offset=3), asked, event("truncation", cause="tiered_storage"), fetch()
    )
    assert [(m["state"], m["cause"], m["evidence"]) for m in told[1:]] == [
        ("fetching", "moved_to_tiered_storage", "derived")
    ]


def test_a_tier_state_that_could_not_be_built_delays() -> None:
    moved = fetch(error_code=IN_TIER, fetch_offset=3)
    told = moves(BECOMES, moved, moved, fetch(fetch_offset=7))
    assert [(m["state_before"], m["state"], m["evidence"]) for m in told[1:]] == [
        ("fetching", "delayed", "derived"),
        ("delayed", "fetching", "derived"),
    ]


def test_what_became_of_a_question_is_not_told_by_a_later_role() -> None:
    newer = event("role_change", role="follower", leader_epoch=6)
    told = moves(BECOMES, fetch(error_code=IN_TIER, fetch_offset=3), newer, fetch(fetch_offset=7))
    assert told[1]["evidence"] == "bounded"


def test_up_to_3_4_records_in_the_remote_tier_are_an_error_like_any_other() -> None:
    assert after(fetch(error_code=IN_TIER, fetch_offset=3), version="3.4.1") == [("delayed", "error")]


def test_other_errors_delay_by_one_backoff() -> None:
    for error in (2, 3, 6, 56, 75, 100):
        assert after(fetch(error_code=error), fetch()) == [("delayed", "error"), ("fetching", "fetched")]


def test_every_error_is_a_row() -> None:
    assert [m["error_code"] for m in moves(BECOMES, fetch(error_code=6), fetch(error_code=3))] == [None, 6, 3]


def test_an_error_for_the_end_of_an_epoch_delays() -> None:
    assert after(event("epoch_end_offset", error_code=6)) == [("delayed", "error")]


def test_a_fenced_follower_has_failed_until_it_is_added_anew() -> None:
    newer = event("role_change", role="follower", leader_epoch=6)
    assert after(fetch(error_code=74), newer) == [("failed", "fenced_leader_epoch"), ("fetching", "became_follower")]


def test_up_to_2_2_a_fenced_follower_is_dropped() -> None:
    assert after(fetch(error_code=74), version="2.2.2") == [(None, "fenced_leader_epoch")]


def test_a_follower_whose_epoch_has_moved_since_is_not_fenced() -> None:
    newer = event("role_change", role="follower", leader_epoch=6)
    late = fetch(error_code=74, leader_epoch=5)
    assert after(newer, late) == [("delayed", "fenced_leader_epoch")]
    assert after(newer, late, version="2.7.2") == []  # it truncates first, and takes no answer meanwhile


def test_a_storage_error_at_the_follower_is_failed() -> None:
    assert after(event("observation", cause="storage_failure")) == [("failed", "storage_error")]


def test_up_to_2_2_a_storage_error_at_the_follower_delays() -> None:
    assert after(event("observation", cause="storage_failure"), version="2.2.2") == [("delayed", "storage_error")]


def test_a_request_that_leaves_the_partition_out_is_throttled_if_the_follower_goes_on() -> None:
    left_out = event("fetch_left_out")
    assert after(left_out, left_out, fetch()) == [("throttled", "quota"), ("fetching", "fetched")]
    assert after(left_out, event("log_load")) == [(None, "started")]


def test_a_leader_and_a_started_broker_have_no_fetcher() -> None:
    assert after(event("role_change", role="leader")) == [(None, "became_leader")]
    assert states(event("log_load")) == []


def test_consumers_and_other_replicas_move_nothing() -> None:
    assert after(fetch(replica_id=-1, error_code=6)) == []


def test_rows_fit_the_table() -> None:
    table = TABLES["follower_states"]
    for move in moves(BECOMES, fetch(error_code=6), fetch(), event("log_load")):
        assert set(move) <= {column.name for column in table.columns}
        assert move["cause"] in (table.column("cause").values or ())
