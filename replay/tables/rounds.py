"""Rows of `fetch_rounds` and `commit_latency`: what left the purgatories, beside what the events themselves tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from replay.arrays.columns import codes, milliseconds, offsets, places, stamps, words
from replay.engine import codes as c
from replay.engine import purgatory as w
from replay.engine.encode import EVIDENCE_CODE, indices
from replay.engine.events import known_in, texts_in
from replay.engine.stamps import STAMP_EARLY_US, STAMP_LATE_US
from replay.order.fetch_chains import TIMING
from replay.protocol.state import BOUNDED, DERIVED, NONE, UNSET
from schemas.model import EVIDENCE
from schemas.rounds import COMMIT_CAUSES, COMPLETIONS, QUOTAS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.columns import Names
    from replay.arrays.ints import Flags, Ints
    from replay.engine.events import Batch, Events, Picked
    from replay.protocol.profile import Profile

FOREVER_US = 1 << 40  # a wait that no line tells
# Of the answer to a batch: what is read of the event, and what stands for null.
ANSWERED = (("seq", NONE), ("ts", UNSET), ("error_code", UNSET), *((name, NONE) for name in TIMING))
ANSWER = (*(name for name, _ in ANSWERED), "client_id")
ANSWER_ROW = (*(name for name, _ in ANSWERED), "client")
UNANSWERED = np.array([*(missing for _, missing in ANSWERED), NONE], np.int64)
SAME = (  # columns of fetch_rounds that are the event's own
    "ts", "broker_id", "replica_id", "leader_epoch", "client_id", "fetch_offset", "request_bytes", "max_wait_ms",
    "min_bytes", "run_count", "run_timeouts", "error_code",
)  # fmt: skip
ISOLATION = ("read_uncommitted", "read_committed")


class Topic(NamedTuple):
    """Settings of the topic that its fetches depend on."""

    remote_storage: bool = False
    leader_throttled: bool = False


def fetches_in(events: Events, saw: Ints) -> Picked:
    """The fetch events that the rows of `saw` (`ROUND_ROW`) tell of, in their order."""
    return events.at(np.searchsorted(events.numbers("seq"), saw[:, w.W_SEQ]))


def asked_of(fetches: Picked, topic: Topic) -> Ints:
    """Fetch events -> what each asked and was answered (`purgatory.A_*`), a row each."""
    of = fetches.numbers
    out = np.full((len(fetches), w.ASKED_WIDTH), UNSET, np.int64)
    wait, least = of("max_wait_ms", UNSET), of("min_bytes", UNSET)
    out[:, w.A_FOLLOWER] = of("replica_id", NONE) >= 0
    out[:, w.A_OFFSET] = of("fetch_offset", NONE)
    out[:, w.A_BYTES] = of("bytes", 0)
    out[:, w.A_REQUEST_BYTES] = of("request_bytes", UNSET)
    out[:, w.A_REQUEST_FORCED] = of("request_forced", 0)
    out[:, w.A_MAX_WAIT] = np.where(wait == UNSET, FOREVER_US, wait * 1000)
    out[:, w.A_MIN_BYTES] = np.where(least == UNSET, 1, least)
    out[:, w.A_LOCAL] = of("local_us", 0)
    out[:, w.A_WAIT] = of("remote_us", 0)
    out[:, w.A_THROTTLE] = of("throttle_us", 0)
    out[:, w.A_ERROR] = of("error_code", 0)
    out[:, w.A_DIVERGING] = of("diverging_epoch", UNSET) != UNSET
    out[:, w.A_PREFERRED] = of("preferred_read_replica", NONE)
    out[:, w.A_RUN] = of("run_count", UNSET)
    out[:, w.A_RUN_TIMEOUTS] = of("run_timeouts", UNSET)
    out[:, w.A_LEFT_OUT] = fetches.kinds == c.FETCH_LEFT_OUT
    out[:, w.A_REMOTE_STORAGE] = topic.remote_storage
    out[:, w.A_LEADER_THROTTLED] = topic.leader_throttled
    out[:, w.A_TS] = of("ts", 0)
    return out


def rounds_of(fetches: Picked, saw: Ints, profile: Profile, topic: Topic) -> Ints:
    """What completed each fetch, how that is known, the wait expected and the wait measured: a row each."""
    found: Ints = w.completions(profile, asked_of(fetches, topic), saw)
    return found


def round_columns(fetches: Picked, saw: Ints, found: Ints) -> dict[str, pa.Array]:
    """`fetch_rounds`: fetch events, what the leader held (`ROUND_ROW`), and what `rounds_of` found."""
    of, told = fetches.numbers, fetches.table(SAME)
    left_out = fetches.kinds == c.FETCH_LEFT_OUT
    completed = found[:, 0]
    quota = np.where(
        left_out,
        QUOTAS.index("follower"),
        np.where(of("throttle_us", 0) > 0, QUOTAS.index("client"), QUOTAS.index("leader")),
    )
    kept_back = left_out | (completed == w.THROTTLED)
    isolation = of("isolation_level", UNSET)
    reads = (of("replica_id", NONE) < 0) & (isolation >= 0)
    evidence = np.maximum(found[:, 1], fetches.read(evidence_in))
    columns = dict(zip(SAME, told.columns, strict=True)) | phase_columns({name: of(name, NONE) for name in TIMING})
    for name in ("response_hw", "last_stable_offset", "log_start_offset"):
        columns[name] = offsets(of(name, NONE))
    return columns | {
        "seq": pa.array(saw[:, w.W_SEQ]),
        "bytes": pa.array(of("bytes", 0), mask=left_out),
        "leader_leo": offsets(saw[:, w.W_LEO]),
        "isolation": words(np.where(reads, isolation, 0), ISOLATION, missing=~reads),
        "delayed": pa.array(of("remote_us", 0) > 0),
        "wait_ms": milliseconds(of("remote_us", NONE)),
        "completed_by": words(completed, COMPLETIONS),
        "quota": words(np.where(kept_back, quota, 0), QUOTAS, missing=~kept_back),
        "evidence": words(evidence, EVIDENCE),
    }


def evidence_in(batch: Batch) -> Ints:
    """How each event is known, as codes."""
    return codes(batch.table.column("evidence"), EVIDENCE_CODE, BOUNDED)


def round_checks(fetches: Picked, saw: Ints, found: Ints, brokers: Sequence[int]) -> Ints:
    """Whether each fetch waited as the replayed state lets it (`CHECK_ROW`); what a follower served is not compared."""
    compared = (found[:, 2] != UNSET) & (fetches.numbers("leader_id", NONE) == NONE)
    broker = indices(fetches.numbers("broker_id", NONE), brokers)
    what = np.full(len(saw), c.CHECK_FETCH_COMPLETION)
    rows: Ints = np.column_stack([saw[:, w.W_SEQ], what, broker, found[:, 2], found[:, 3]])[compared]
    return rows


def phase_columns(phases: dict[str, Ints]) -> dict[str, pa.Array]:
    """Where the time of each request went; `phases`: the columns `TIMING`, -1 where it is not known."""
    return {f"{name.removesuffix('_us')}_ms": milliseconds(found) for name, found in phases.items()}


def is_answer_to_all(batch: Batch) -> Flags:
    """Answers to acks=all batches."""
    found: Flags = (batch.events.kinds == c.ACK) & (batch.events.numbers("acks") == -1)
    return found


def answers_in(events: Events, clients: Names[str]) -> Ints:
    """The answers to acks=all batches among events, by seq (`ANSWER_ROW`)."""
    found = events.among(is_answer_to_all, ANSWER)
    numbered = [found.numbers(name, missing) for name, missing in ANSWERED]
    return np.column_stack([*numbered, found.batch.once(clients_in, clients)[found.where]])


def clients_in(batch: Batch, clients: Names[str]) -> Ints:
    """The codes of the events' client ids among `clients`, NONE where there is none."""
    each, found = batch.once(texts_in, "client_id")
    place = np.array([clients.code_of(name) for name in found], np.int64)
    return np.where(known_in(batch, "client_id"), place[each], NONE) if len(each) else each


def answers_to(ack_seq: Ints, answers: Ints) -> Ints:
    """The answer to each batch, a row each (`ANSWER_ROW`), as `UNANSWERED` where there is none."""
    known = np.append(answers, [UNANSWERED], axis=0)
    place = np.searchsorted(answers[:, 0], ack_seq)
    return known[np.where(known[place, 0] == ack_seq, place, -1)]


def commit_columns(rows: Ints, answer: Ints, clients: Names[str]) -> dict[str, pa.Array]:
    """`commit_latency` but for the brokers: batches that left (`COMMIT_ROW`) beside their answers (`ANSWER_ROW`).

    A commit's time is an estimate; the append came before it, and an answer without error was ready after it.
    """
    at, told = places(rows, w.COMMIT_ROW), places(answer, ANSWER_ROW)
    acked, error = told["ts"], told["error_code"]
    committed = at["commit_seq"] != UNSET
    latest = np.where(error == 0, ready_at(told), at["commit_ts"])
    commit = np.maximum(np.minimum(at["commit_ts"], latest), at["ts"])
    stated = committed & (at["cause"] == w.BY_STATEMENT)
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
        "commit_ms": milliseconds(np.where(committed, commit - at["ts"], NONE)),
        "commit_seq": offsets(at["commit_seq"]),
        "committed_by": words(np.where(committed, at["cause"], 0), COMMIT_CAUSES, missing=~committed),
        "error_code": pa.array(error, mask=error == UNSET),
        "total_ms": milliseconds(np.where(acked == UNSET, NONE, np.sum(parts, axis=0))),
        "evidence": words(evidence, EVIDENCE),
    }


def ready_at(answer: dict[str, Ints]) -> Ints:
    """When an answer left purgatory, or its handler."""
    sent: Ints = np.maximum(answer["response_queue_us"], 0) + np.maximum(answer["send_us"], 0)
    return np.where(answer["ts"] == UNSET, 0, answer["ts"]) - sent


def commit_checks(rows: Ints, answer: Ints) -> Ints:
    """Whether each batch answered without error was committed between its append and its answer (`CHECK_ROW`).

    What committed it has an interval of its own; the time stated is the nearest to it that lies between the two.
    """
    at, told = places(rows, w.COMMIT_ROW), places(answer, ANSWER_ROW)
    good = told["error_code"] == 0
    first, last = at["ts"] - STAMP_LATE_US, ready_at(told) + STAMP_LATE_US + STAMP_EARLY_US
    within = np.minimum(at["commit_ts"], np.maximum(last, at["commit_lo"]))
    nearest = np.clip(within, first, last)
    what = np.full(len(nearest), c.CHECK_COMMIT_BEFORE_ACK)
    found: Ints = np.column_stack([at["seq"], what, at["broker"], within, nearest])[good]
    return found
