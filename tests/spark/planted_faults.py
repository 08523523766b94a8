"""Faults in the rows of `recorded_tables`: one for each kind of rule that schemas demand, and for each other rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import recorded_tables as recorded

from schemas.runs import SAID

Plant = Callable[[dict[str, list[dict[str, Any]]]], object]


def put(table: str, index: int, **values: object) -> Plant:
    """A fault: a row that has these values instead."""
    return lambda rows: rows[table][index].update(values)


def twice(table: str) -> Plant:
    """A fault: a row that is there twice."""
    return lambda rows: rows[table].append(dict(rows[table][-1]))


def flap(rows: dict[str, list[dict[str, Any]]], **values: object) -> dict[str, Any]:
    """A row of `isr_flaps`."""
    place = {name: rows["isr_timeline"][0][name] for name in ("recording_id", "topic", "incarnation", "partition")}
    return {**place, "broker_id": 2, "leader_epoch": 0, "times": 1, "evidence": "observed", **values}


def incident(**values: object) -> Plant:
    """A fault: an incident that has these values instead, and was reported so."""

    def plant(rows: dict[str, list[dict[str, Any]]]) -> None:
        rows["data_loss_incidents"][0].update(values)
        rows["incident_reports"][0].update({name: value for name, value in values.items() if name in SAID})

    return plant


REVISED = {"revised": recorded.at(30), "revised_run_id": "later", "revision": 1}
LOST_ELSEWHERE = [{"leader_epoch": 0, "first_offset": 4, "last_offset": 6}]

# By the name of the rule that each fault breaks, and no other.
FAULTS: dict[str, Plant] = {
    "isr_timeline.evidence_not_null": put("isr_timeline", 0, evidence=None),
    "conformance.check_not_null": put("conformance", 1, check=None),
    "hw_timeline.role_known": put("hw_timeline", 1, role="observer"),
    "data_loss_incidents.evidence_known": lambda rows: (
        rows["data_loss_incidents"][0].update(evidence="surely"),
        rows["incident_reports"][0].update(evidence=None),
    ),
    "conformance.matched": put("conformance", 1, matched=51),
    "rejected_lines.key_unique": lambda rows: (twice("rejected_lines")(rows), rows["files"][0].update(rejected=2)),
    "facts.key_unique": twice("facts"),
    "hw_timeline.hw_within_leo": put("hw_timeline", 2, hw=11),
    "hw_timeline.leader_hw_never_back": put("hw_timeline", 2, hw=4),
    "leo_timeline.local_leo_not_negative": lambda rows: (rows["leo_timeline"][2].update(leo=-1, evidence="bounded"),),
    "isr_timeline.isr_within_assignment": put("isr_timeline", 1, isr=[2, 9]),
    "isr_timeline.leader_in_isr": put("isr_timeline", 1, isr=[1]),
    "isr_timeline.leader_epoch_never_back": put("isr_timeline", 1, leader_epoch=-1),
    "isr_timeline.partition_epoch_only_up": put("isr_timeline", 1, partition_epoch=0),
    "log_truncations.truncation_cuts": lambda rows: (
        rows["log_truncations"][0].update(leo_before=6, leo_after=7, records_removed=-1),
    ),
    "data_loss_incidents.loss_within_cut": lambda rows: (
        incident(ranges=LOST_ELSEWHERE, first_offset=4, last_offset=6)(rows),
        rows["consumer_effects"][0].update(first_offset=4, last_offset=6),
    ),
    "data_loss_incidents.loss_totals": incident(records=4, unacked=1),
    "data_loss_incidents.loss_accounted": incident(unacked=1),
    "replica_divergences.divergence_below_hw": put("replica_divergences", 0, hw_b=3),
    "partition_risk.risk_spans_apart": put("partition_risk", 0, end_seq=6),
    "partition_risk.names_incident": put("partition_risk", 0, incident_id="nowhere"),
    "consumer_effects.names_incident": put("consumer_effects", 0, incident_id="nowhere"),
    "coverage.coverage_disjoint": put("coverage", 0, end_ts=recorded.at(6)),
    "coverage.lossy_counted": put("coverage", 1, lines_missing=0),
    "commit_latency.commit_raises_hw": put("commit_latency", 0, commit_seq=2),
    "fetch_rounds.at_once_did_not_wait": put("fetch_rounds", 0, completed_by="no_wait"),
    "replication_events.rows_join_events": put("log_truncations", 0, seq=60),
    "replication_events.named_places_join_events": put(
        "conformance", 1, matched=11, compared=12, first_mismatch_seq=60
    ),
    "replication_events.partitions_have_isr": lambda rows: rows["isr_timeline"].clear(),
    "set_aside.rows_are_whole": lambda rows: rows["set_aside"].append(recorded.set_aside("error")),
    "set_aside.rows_hold_checks": lambda rows: rows["set_aside"].append(recorded.set_aside("warning")),
    "conformance.engine_conforms": put("conformance", 0, matched=190),
    "incident_reports.status_known": put("incident_reports", 0, status="lost", **REVISED),
    "replication_events.broker_is_covered": put("replication_events", 0, broker_id=99, source_file="r.log"),
    "facts.time_is_covered": put("facts", 1, ts=recorded.at(3600)),
    "coverage.holes_have_reasons": put("coverage", 1, reason=None),
    "facts.lines_of_known_files": put("facts", 3, source_line=10),
    "rejected_lines.lines_of_known_files": put("files", 0, rejected=0),
    "replication_events.events_counted": put("event_windows", 0, events=7),
    "log_truncations.counts_what_it_cut": put("log_truncations", 0, records_removed=4),
    "log_start_timeline.counts_what_went": put("log_start_timeline", 0, records_removed=3),
    "replica_divergences.counts_offsets": put("replica_divergences", 0, records=2),
    "consumer_effects.counts_offsets": put("consumer_effects", 0, records=2),
    "conformance.mismatch_is_named": put("conformance", 1, first_mismatch_seq=3),
    "leadership_timeline.committed_among_records_at_risk": put(
        "leadership_timeline", 1, records_at_risk=3, committed_at_risk=4
    ),
    "replication_events.rows_fit_events": put("fetch_rounds", 0, seq=2),
    "isr_timeline.isr_follows": put("isr_timeline", 1, isr_before=[1, 2, 3]),
    "isr_timeline.isr_sorted": lambda rows: (
        rows["isr_timeline"][0].update(isr=[2, 1]),
        rows["isr_timeline"][1].update(isr_before=[2, 1]),
    ),
    "leadership_timeline.terms_follow": put("leadership_timeline", 0, end_ts=recorded.at(4)),
    "state_transitions.moves_follow": lambda rows: rows["state_transitions"].append(
        {**rows["state_transitions"][0], "seq": 5, "state_before": "Online", "state": "Offline"}
    ),
    "follower_states.moves_follow": lambda rows: rows["follower_states"].append(
        {**rows["follower_states"][0], "seq": 5, "state_before": "failed", "state": "fetching"}
    ),
    "partition_risk.terms_are_known": put("partition_risk", 0, leader_epoch=7),
    "isr_flaps.returns_join_isr": lambda rows: rows["isr_flaps"].append(flap(rows, seq=1, back_seq=3)),
    "isr_flaps.time_out_not_negative": lambda rows: rows["isr_flaps"].append(flap(rows, seq=1, back_seq=5, out_ms=-92)),
    "data_loss_incidents.ranges_within": incident(
        last_offset=None,
        records=None,
        ranges=[
            {"leader_epoch": 0, "first_offset": 7, "last_offset": None},
            {"leader_epoch": 1, "first_offset": 9, "last_offset": 8},
        ],
    ),
    "data_loss_incidents.slots_lost_once": incident(
        last_offset=9,
        records=5,
        acked_one=5,
        ranges=[
            {"leader_epoch": 0, "first_offset": 7, "last_offset": 9},
            {"leader_epoch": 0, "first_offset": 8, "last_offset": 9},
        ],
    ),
    "data_loss_incidents.chain_has_sources": incident(chain_sources=[]),
    "data_loss_incidents.clients_are_named": incident(producers=[]),
    "data_loss_incidents.acknowledged_in_order": incident(last_ack_ts=recorded.at(1)),
    "data_loss_incidents.leaders_led": incident(old_leader_id=3),
    "consumer_effects.read_range_is_lost": put("consumer_effects", 0, first_offset=6, records=4),
    "cluster_metrics.meters_add_up": put("cluster_metrics", 0, lowest=0),
    "cluster_metrics.value_between": put("cluster_metrics", 0, value=2),
    "partition_meters.highest_not_below": put("partition_meters", 0, highest=0),
    "incident_reports.withdrawn_is_gone": put("incident_reports", 0, status="withdrawn", **REVISED),
    "incident_reports.reported_stands": lambda rows: rows["incident_reports"].append(
        {**rows["incident_reports"][0], "incident_id": "elsewhere"}
    ),
    "incident_reports.says_what_stands": put("incident_reports", 0, mechanism="unclean_election"),
    "data_loss_incidents.is_reported": lambda rows: (
        rows["incident_reports"].clear(),
        rows["runs"][0].update(new_incidents=[]),
    ),
    "incident_reports.revisions_counted": put("incident_reports", 0, revision=2),
    "incident_reports.revised_or_as_first_told": put("incident_reports", 0, **REVISED),
    "runs.ends_after_it_began": put("runs", 0, finished=recorded.at(19)),
    "runs.new_incidents_told": put("runs", 0, new_incidents=["nowhere"]),
}
