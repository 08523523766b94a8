"""The switches of the profile: at which versions of Kafka each of them turns."""

from __future__ import annotations

from typing import Any

import pytest

from replay.protocol.profile import Profile, parse_version, profile_named, profile_of

SWITCHES: dict[str, list[tuple[str, int]]] = {
    "hw_over_maximal_isr": [("2.6.3", 0), ("2.7.0", 1), ("4.1.0", 1)],
    "hw_caught_up_by_leo": [("3.2.3", 0), ("3.3.0", 1)],
    "hw_caught_up_eligible": [("3.5.2", 0), ("3.6.0", 1)],
    "hw_needs_min_isr": [("3.6.2", 0), ("3.7.0", 1)],
    "min_isr_within_replicas": [("3.6.2", 0), ("3.7.0", 1)],
    "verifies_transactions": [("3.5.2", 0), ("3.6.0", 1)],
    "past_end_completes": [("3.7.2", 0), ("3.8.0", 1)],
    "hw_after_isr_commit": [("2.6.3", 1), ("2.7.0", 0), ("3.0.2", 0), ("3.1.0", 1)],
    "isr_change_pending": [("2.6.3", 0), ("2.7.0", 1)],
    "asks_controller": [("2.6.3", 0), ("2.7.0", 1)],
    "expiry_twice_per_lag": [("0.10.1", 0), ("0.10.2", 1)],
    "expiry_spares_equal_leo": [("2.0.1", 0), ("2.1.0", 1)],
    "expand_needs_unfenced": [("3.2.3", 0), ("3.3.0", 1)],
    "expand_needs_broker_epoch": [("3.4.1", 0), ("3.5.0", 1)],
    "remembered_leo_max": [("3.2.3", 0), ("3.3.0", 1)],
    "hw_over_caught_up": [("0.10.1.1", 0), ("0.10.2.0", 1)],
    "caught_up_at_previous": [("0.10.1.1", 0), ("0.10.2.0", 1)],
    "caught_up_at_start": [("0.10.1.1", 0), ("0.10.2.0", 1)],
    "truncate_to_hw": [("0.8.2.2", 1), ("0.10.2.2", 1), ("0.11.0.0", 0)],
    "log_start_follows": [("0.10.2.2", 0), ("0.11.0.0", 1)],
    "answer_after_update": [
        ("0.11.0.3", 0),
        ("1.0.0", 1),
        ("1.0.1", 1),
        ("1.0.2", 0),
        ("1.1.0", 1),
        ("1.1.1", 0),
        ("2.0.0", 0),
    ],
    "epoch_end_names_epoch": [("1.1.1", 0), ("2.0.0", 1)],
    "refollow_on_missed_epoch": [("1.1.1", 0), ("2.0.0", 1), ("2.0.1", 1), ("2.1.0", 0)],
    "refollow_on_new_epoch": [("2.0.1", 0), ("2.1.0", 1)],
    "fetch_names_epoch": [("2.0.1", 0), ("2.1.0", 1)],
    "session_keeps_epoch": [("2.4.1", 0), ("2.5.0", 1)],
    "expand_needs_epoch_start": [("2.0.0", 0), ("2.0.1", 1)],
    "epoch_cached_at_start": [("2.0.0", 0), ("2.0.1", 1)],
    "hw_on_every_fetch": [("2.3.1", 1), ("2.4.0", 0)],
    "failed_read_resets": [("2.3.1", 1), ("2.4.0", 0)],
    "hw_from_log_start": [("2.3.1", 0), ("2.4.0", 1)],
    "truncation_lowers_hw": [("2.3.1", 0), ("2.4.0", 1)],
    "truncation_cleans_epochs": [("2.6.0", 0), ("2.6.1", 1)],
    "hw_told_at_once": [("2.3.1", 0), ("2.4.0", 1), ("2.5.1", 1), ("2.6.0", 0)],
    "truncate_on_fetch": [("2.7.2", 0), ("2.8.0", 1)],
    "leader_reset_by_epoch": [("3.2.3", 0), ("3.3.0", 1)],
    "update_on_diverging": [("2.7.1", 1), ("2.7.2", 0), ("2.8.0", 1), ("2.8.1", 0), ("3.0.0", 0)],
    "partition_fails_alone": [("2.2.2", 0), ("2.3.0", 1)],
    "thread_waits_too": [("3.0.2", 1), ("3.1.0", 0)],
    "follows_nobody": [("3.2.3", 0), ("3.3.0", 1)],
    "fenced_by_same_epoch": [("2.4.1", 0), ("2.5.0", 1)],
    "preferred_in_isr": [("3.3.1", 0), ("3.3.2", 1)],
    "throttled_by_default": [("3.8.1", 0), ("3.9.0", 1)],
    "samples_kept_by_last_event": [("3.7.2", 0), ("3.8.0", 1)],
    "cuts_as_it_follows": [("0.10.2.2", 1), ("0.11.0.0", 0)],
    "starts_fetcher_first": [("2.8.2", 0), ("3.0.0", 1)],
    "builds_tier_state": [("3.4.1", 0), ("3.5.0", 1)],
    "deletes_without_policy": [("4.1.0", 0), ("4.2.0", 1)],
    "groups_ask_all": [("3.9.2", 1), ("4.0.0", 0)],
}


@pytest.mark.parametrize(("switch", "edges"), SWITCHES.items(), ids=SWITCHES)
def test_switch_turns_at_the_versions_where_kafka_changed(switch: str, edges: list[tuple[str, int]]) -> None:
    found = [(text, getattr(profile_of(parse_version(text) or (0, 0, 0)), switch)) for text, _ in edges]
    assert found == edges


@pytest.mark.parametrize(
    ("protocol", "switches"),
    [
        ("0.10.2", {"truncate_to_hw": 1, "epoch_end_names_epoch": 0, "truncate_on_fetch": 0}),
        ("1.1", {"truncate_to_hw": 0, "epoch_end_names_epoch": 0, "truncate_on_fetch": 0}),
        ("2.1-IV1", {"fetch_names_epoch": 0}),
        ("2.1-IV2", {"fetch_names_epoch": 1}),
        ("2.7-IV0", {"epoch_end_names_epoch": 1, "truncate_on_fetch": 0}),
        ("2.7-IV1", {"truncate_on_fetch": 1}),
    ],
)
def test_what_brokers_say_to_each_other_follows_the_inter_broker_protocol(
    protocol: str, switches: dict[str, int]
) -> None:
    found = profile_named("3.0.0", protocol)
    assert {name: getattr(found, name) for name in switches} == switches
    assert found.hw_over_maximal_isr == 1  # what a broker does by itself does not


@pytest.mark.parametrize(
    ("protocol", "requests"),
    [("0.10.2", 0), ("2.6", 0), ("2.7-IV1", 0), ("2.7-IV2", 1), ("2.7", 1), ("2.8-IV1", 1), (None, 1)],
)
def test_isr_changes_are_requests_from_protocol_2_7_iv2_on(protocol: str | None, requests: int) -> None:
    assert profile_named("2.7.2", protocol).isr_change_pending == requests


def test_isr_written_to_zookeeper_is_pending_too_from_2_8_on() -> None:
    assert profile_named("2.8.2", "0.10.2").isr_change_pending
    assert not profile_named("2.8.2", "0.10.2").asks_controller


@pytest.mark.parametrize(("protocol", "attempts"), [("2.6", 1), ("2.8", 0)])
def test_an_isr_written_to_zookeeper_is_followed_by_an_hw_attempt(protocol: str, attempts: int) -> None:
    assert profile_named("2.8.2", protocol).hw_after_isr_commit == attempts


def test_every_switch_has_its_versions_here() -> None:
    assert set(SWITCHES) == set(Profile._fields)


@pytest.mark.parametrize(
    ("text", "version"),
    [("4.1.0", (4, 1, 0)), ("3.9-IV0", (3, 9, 0)), ("v2.8", (2, 8, 0)), ("", None), (None, None), ("trunk", None)],
)
def test_version_is_read_as_far_as_it_is_one(text: str | None, version: Any) -> None:
    assert parse_version(text) == version
