"""Rows of `fetch_rounds` and `commit_latency`: what left the purgatories, with what the events themselves state."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from replay.arrays.columns import codes, milliseconds, offsets, stamps, words
from replay.arrays.records import blank, together
from replay.engine import codes as c
from replay.engine.completions import THROTTLED, Asked, Completion, completions
from replay.engine.emit import CheckRow
from replay.engine.encode import EVIDENCE_CODE, indices
from replay.engine.events import known_in, texts_in
from replay.engine.purgatory import BY_STATEMENT
from replay.engine.stamps import STAMP_EARLY_US, STAMP_LATE_US
from replay.evidence.request_times import TIMING
from replay.protocol.state import BOUNDED, DERIVED, NONE, UNSET
from replay.tables.answer_sizes import LIMIT_COLUMNS, Sizes, limits_of, numbers_in, size_checks, turn_checks, turns_in
from schemas.model import EVIDENCE
from schemas.rounds import COMMIT_CAUSES, COMPLETIONS, LIMITS, QUOTAS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.columns import Names
    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records
    from replay.engine.events import EventBatch, Events, Picked
    from replay.engine.purgatory import Held, OpenBatch
    from replay.protocol.profile import Profile
    from replay.tables.rolls import Rolls

FOREVER_US = 1 << 40  # a wait that no line states
WAITED = ("max_wait_ms", "request_timed_out", "stood_still_us")  # older events do not have all of these
ANSWERED = ("seq", "ts", "error_code", *TIMING, "client_id", *WAITED)  # columns of the event that answers a batch
SAME = (  # columns of fetch_rounds that are the event's own
    "ts", "broker_id", "replica_id", "leader_epoch", "client_id", "fetch_offset", "request_bytes", "max_wait_ms",
    "min_bytes", "run_count", "run_timeouts", "error_code",
)  # fmt: skip
ISOLATION = ("read_uncommitted", "read_committed")


class BatchAnswer:
    """The answer to a produce: its phases in microseconds, NONE if its line does not state them."""

    seq: int
    ts: int  # UNSET: no answer is known
    error_code: int
    queue_us: int
    local_us: int
    remote_us: int
    throttle_us: int
    response_queue_us: int
    send_us: int
    allowed_us: int  # the request's timeout; NONE: not known
    timed_out: int  # 1: some partition of the request was answered REQUEST_TIMED_OUT
    still_us: int  # for how long the broker stood still in a wait beyond the timeout; NONE: it did not
    client: int  # among the output's client ids


class Topic(NamedTuple):
    """Settings of the topic that its fetches depend on."""

    remote_storage: bool = False
    leader_throttled: bool = False


def fetches_in(events: Events, saw: Records[Held]) -> Picked:
    """The fetch events behind `saw`, in order."""
    return events.at(np.searchsorted(events.numbers("seq"), saw["seq"]))


def asked_of(fetches: Picked, saw: Records[Held], topic: Topic, rolls: Rolls) -> Records[Asked]:
    """Fetch events -> what each asked for and was answered, and where its offset lies."""
    of = fetches.numbers
    out = blank(len(fetches), Asked)
    wait, least = of("max_wait_ms", UNSET), of("min_bytes", UNSET)
    out["is_follower"] = of("replica_id", NONE) >= 0
    out["offset"] = of("fetch_offset", NONE)
    out["bytes"] = of("bytes", 0)
    out["request_bytes"] = of("request_bytes", UNSET)
    out["request_forced"] = of("request_forced", 0)
    out["max_wait_us"] = np.where(wait == UNSET, FOREVER_US, wait * 1000)
    out["min_bytes"] = np.where(least == UNSET, 1, least)
    out["local_us"] = of("local_us", 0)
    out["wait_us"] = of("remote_us", 0)
    out["throttle_us"] = of("throttle_us", 0)
    out["error_code"] = of("error_code", 0)
    out["is_diverging"] = of("diverging_epoch", UNSET) != UNSET
    out["preferred_replica"] = of("preferred_read_replica", NONE)
    out["run_count"] = of("run_count", UNSET)
    out["run_timeouts"] = of("run_timeouts", UNSET)
    out["is_left_out"] = fetches.kinds == c.FETCH_LEFT_OUT
    out["remote_storage"] = topic.remote_storage
    out["leader_throttled"] = topic.leader_throttled
    out["older_segment"], out["later_segment"] = rolls.between(fetches, saw)
    out["read_from"] = rolls.starts.read_from(fetches)
    committed = of("isolation_level", UNSET) == ISOLATION.index("read_committed")
    out["stable"] = np.where(committed, of("last_stable_offset", UNSET), UNSET)
    out["ts"] = of("ts", 0)
    return out


def rounds_of(fetches: Picked, saw: Records[Held], profile: Profile, topic: Topic, rolls: Rolls) -> Records[Completion]:
    """What completed each fetch, and how long it waited."""
    found = blank(len(fetches), Completion)
    completions(profile, asked_of(fetches, saw, topic, rolls), saw, found)
    return found


def round_columns(fetches: Picked, saw: Records[Held], found: Records[Completion]) -> dict[str, pa.Array]:
    """Columns of `fetch_rounds`, from fetch events, what the leader held, and the results of `rounds_of`."""
    of, told = fetches.numbers, fetches.table(SAME)
    left_out = fetches.kinds == c.FETCH_LEFT_OUT
    completed = found["completed_by"]
    quota = np.where(
        left_out,
        QUOTAS.index("follower"),
        np.where(of("throttle_us", 0) > 0, QUOTAS.index("client"), QUOTAS.index("leader")),
    )
    kept_back = left_out | (completed == THROTTLED)
    isolation = of("isolation_level", UNSET)
    reads = (of("replica_id", NONE) < 0) & (isolation >= 0)
    sizes = Sizes(fetches, saw, found)
    limited, guessed = limits_of(sizes)
    evidence = np.maximum(np.maximum(found["evidence"], fetches.read(evidence_in)), np.where(guessed, BOUNDED, 0))
    columns = dict(zip(SAME, told.columns, strict=True)) | phase_columns({name: of(name, NONE) for name in TIMING})
    for name in ("response_hw", "last_stable_offset", "log_start_offset"):
        columns[name] = offsets(of(name, NONE))
    for name in LIMIT_COLUMNS:
        columns[name] = offsets(numbers_in(fetches, name))
    return columns | {
        "seq": pa.array(saw["seq"]),
        "bytes_before": offsets(turns_in(fetches)),
        "bytes": pa.array(of("bytes", 0), mask=left_out),
        "leader_leo": offsets(saw["leo"]),
        "isolation": words(np.where(reads, isolation, 0), ISOLATION, missing=~reads),
        "delayed": pa.array(of("remote_us", 0) > 0),
        "wait_ms": milliseconds(of("remote_us", NONE)),
        "completed_by": words(completed, COMPLETIONS),
        "limited_by": words(np.maximum(limited, 0), LIMITS, missing=limited < 0),
        "quota": words(np.where(kept_back, quota, 0), QUOTAS, missing=~kept_back),
        "quota_rate": offsets(found["quota_rate"]),
        "quota_limit": offsets(found["quota_limit"]),
        "evidence": words(evidence, EVIDENCE),
    }


def evidence_in(batch: EventBatch) -> Ints:
    """Evidence of each event, as codes."""
    return codes(batch.table.column("evidence"), EVIDENCE_CODE, BOUNDED)


def round_checks(
    fetches: Picked, saw: Records[Held], found: Records[Completion], brokers: Sequence[int]
) -> Records[CheckRow]:
    """Whether each fetch waited as the replayed state implies, and was answered within its limits.

    Fetches served by a follower are not compared.
    """
    compared: Flags = (found["expected_wait"] != UNSET) & (fetches.numbers("leader_id", NONE) == NONE)
    rows = blank(len(saw), CheckRow, c.CHECK_FETCH_COMPLETION)
    rows["seq"], rows["broker"] = saw["seq"], indices(fetches.numbers("broker_id", NONE), brokers)
    rows["computed"], rows["stated"] = found["expected_wait"], found["measured_wait"]
    sizes = Sizes(fetches, saw, found)
    return together([rows[compared], size_checks(sizes, fetches, brokers), turn_checks(sizes, fetches, brokers)])


def phase_columns(phases: dict[str, Ints]) -> dict[str, pa.Array]:
    """Phases of each request in milliseconds; `phases`: the columns `TIMING`, -1 if unknown."""
    return {f"{name.removesuffix('_us')}_ms": milliseconds(found) for name, found in phases.items()}


def is_answer_to_all(batch: EventBatch) -> Flags:
    """Which events are answers to acks=all batches."""
    found: Flags = (batch.events.kinds == c.ACK) & (batch.events.numbers("acks") == -1)
    return found


def answers_in(events: Events, clients: Names[str]) -> Records[BatchAnswer]:
    """The answers to acks=all batches among events, by seq."""
    found = events.among(is_answer_to_all, ANSWERED)
    out = blank(len(found), BatchAnswer)
    for name in ("seq", *TIMING):
        out[name] = found.numbers(name, NONE)
    for name in ("ts", "error_code"):
        out[name] = found.numbers(name, UNSET)
    allowed = found.numbers("max_wait_ms", NONE)
    out["allowed_us"] = np.where(allowed < 0, NONE, allowed * 1000)
    out["timed_out"], out["still_us"] = (found.numbers(name, NONE) for name in WAITED[1:])
    out["client"] = found.batch.once(clients_in, clients)[found.where]
    return out


def clients_in(batch: EventBatch, clients: Names[str]) -> Ints:
    """The codes of the events' client ids among `clients`; NONE if there is no client id."""
    each, found = batch.once(texts_in, "client_id")
    place = np.array([clients.code_of(name) for name in found], np.int64)
    return np.where(known_in(batch, "client_id"), place[each], NONE) if len(each) else each


def answers_to(ack_seq: Ints, answers: Records[BatchAnswer]) -> Records[BatchAnswer]:
    """The answer to each batch; if there is none, an answer with all fields unknown."""
    none = blank(1, BatchAnswer, NONE)
    none["ts"] = none["error_code"] = UNSET
    known = together([answers, none])
    place = np.searchsorted(answers["seq"], ack_seq)
    return known[np.where(known["seq"][place] == ack_seq, place, -1)]


def commit_columns(at: Records[OpenBatch], told: Records[BatchAnswer], clients: Names[str]) -> dict[str, pa.Array]:
    """Columns of `commit_latency` except the brokers, from completed batches and their answers.

    The time of a commit is an estimate; it is limited by the append before it and, without an error, by when the answer
    was ready.
    """
    acked, error = told["ts"], told["error_code"]
    committed = at["commit_seq"] != UNSET
    latest = np.where(error == 0, ready_at(told), at["commit_ts"])
    commit = np.maximum(np.minimum(at["commit_ts"], latest), at["ts"])
    stated = committed & (at["cause"] == BY_STATEMENT)
    raced = committed & (error == 0) & (at["commit_seq"] > at["ack_seq"])
    evidence = np.maximum(np.maximum(at["evidence"], DERIVED), np.where(stated | raced, BOUNDED, DERIVED))
    parts = [np.maximum(told[name], 0) for name in TIMING if name != "throttle_us"]
    return phase_columns({name: told[name] for name in TIMING}) | {
        "seq": pa.array(at["seq"]),
        "leader_epoch": pa.array(at["epoch"]),
        "client_id": clients.named(told["client"]),
        "base_offset": pa.array(at["base"]),
        "last_offset": pa.array(at["end"] - 1),
        "append_ts": stamps(at["ts"]),
        "commit_ts": stamps(commit, missing=~committed),
        "ack_ts": stamps(acked, missing=acked == UNSET),
        "timeout_ms": milliseconds(told["allowed_us"]),
        "commit_ms": milliseconds(np.where(committed, commit - at["ts"], NONE)),
        "commit_seq": offsets(at["commit_seq"]),
        "committed_by": words(np.where(committed, at["cause"], 0), COMMIT_CAUSES, missing=~committed),
        "error_code": pa.array(error, mask=error == UNSET),
        "total_ms": milliseconds(np.where(acked == UNSET, NONE, np.sum(parts, axis=0))),
        "evidence": words(evidence, EVIDENCE),
    }


def ready_at(answer: Records[BatchAnswer]) -> Ints:
    """When an answer left purgatory, or its handler."""
    sent: Ints = np.maximum(answer["response_queue_us"], 0) + np.maximum(answer["send_us"], 0)
    return np.where(answer["ts"] == UNSET, 0, answer["ts"]) - sent


def commit_checks(at: Records[OpenBatch], told: Records[BatchAnswer]) -> Records[CheckRow]:
    """Whether each successfully answered batch was committed between its append and its answer.

    The event that committed it has an interval of its own; the stated time is the nearest to it that lies between the
    two.
    """
    good: Flags = told["error_code"] == 0
    first, last = at["ts"] - STAMP_LATE_US, ready_at(told) + STAMP_LATE_US + STAMP_EARLY_US
    within = np.minimum(at["commit_ts"], np.maximum(last, at["commit_lo"]))
    nearest = np.clip(within, first, last)
    rows = blank(len(nearest), CheckRow, c.CHECK_COMMIT_BEFORE_ACK)
    rows["seq"], rows["broker"], rows["computed"], rows["stated"] = at["seq"], at["broker"], within, nearest
    return rows[good]
