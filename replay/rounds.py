"""Rows of `fetch_rounds` and `commit_latency`: what left the purgatories, beside what the events themselves tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay import encoding as c
from replay import purgatory as w
from replay.columns import milliseconds, numbers, offsets, stamps, words
from replay.encode import EVIDENCE_CODE, codes, indices
from replay.fetch_chains import TIMING
from replay.state import BOUNDED, DERIVED, NONE, UNSET, Ints
from replay.windows import STAMP_EARLY_US, STAMP_LATE_US
from schemas.model import EVIDENCE
from schemas.rounds import COMMIT_CAUSES, COMPLETIONS, QUOTAS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.profile import Profile

FOREVER_US = 1 << 40  # a wait that no line tells
ANSWER = ("seq", "ts", "client_id", "error_code", *TIMING)
ASKED = (
    "kind", "seq", "ts", "broker_id", "replica_id", "leader_id", "leader_epoch", "client_id", "fetch_offset",
    "next_offset", "response_hw", "last_stable_offset", "log_start_offset", "error_code", "bytes", "request_bytes",
    "request_forced", "max_wait_ms", "min_bytes", "run_count", "run_timeouts", "diverging_epoch",
    "preferred_read_replica", "isolation_level", "evidence", *TIMING,
)  # fmt: skip
ISOLATION = ("read_uncommitted", "read_committed")


class Topic(NamedTuple):
    """Settings of the topic that its fetches depend on."""

    remote_storage: bool = False
    leader_throttled: bool = False


def fetches_in(batch: pa.Table, saw: Ints) -> pa.Table:
    """The fetch events (`ASKED`) that the rows of `saw` (`ROUND_ROW`) tell of, in their order."""
    return batch.select(ASKED).take(np.searchsorted(batch.column("seq").to_numpy(), saw[:, w.W_SEQ]))


def asked_of(fetches: pa.Table, topic: Topic) -> Ints:
    """Fetch events -> what each asked and was answered (`purgatory.A_*`), a row each."""

    def of(name: str, missing: int) -> Ints:
        return numbers(fetches.column(name), missing)

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
    out[:, w.A_LEFT_OUT] = codes(fetches.column("kind"), c.KIND, UNSET) == c.FETCH_LEFT_OUT
    out[:, w.A_REMOTE_STORAGE] = topic.remote_storage
    out[:, w.A_LEADER_THROTTLED] = topic.leader_throttled
    out[:, w.A_TS] = of("ts", 0)
    return out


def rounds_of(fetches: pa.Table, saw: Ints, profile: Profile, topic: Topic) -> Ints:
    """What completed each fetch, how that is known, the wait expected and the wait measured: a row each."""
    found: Ints = w.completions(profile, asked_of(fetches, topic), saw)
    return found


def round_columns(fetches: pa.Table, saw: Ints, found: Ints) -> dict[str, pa.Array]:
    """`fetch_rounds`: fetch events, what the leader held (`ROUND_ROW`), and what `rounds_of` found."""
    kind = codes(fetches.column("kind"), c.KIND, UNSET)
    left_out = kind == c.FETCH_LEFT_OUT
    completed, throttle = found[:, 0], numbers(fetches.column("throttle_us"), 0)
    quota = np.where(
        left_out, QUOTAS.index("follower"), np.where(throttle > 0, QUOTAS.index("client"), QUOTAS.index("leader"))
    )
    kept_back = left_out | (completed == w.THROTTLED)
    isolation = numbers(fetches.column("isolation_level"), UNSET)
    reads = (numbers(fetches.column("replica_id"), NONE) < 0) & (isolation >= 0)
    handed = numbers(fetches.column("bytes"), 0)
    evidence = np.maximum(found[:, 1], codes(fetches.column("evidence"), EVIDENCE_CODE, BOUNDED))
    same = (
        "ts", "broker_id", "replica_id", "leader_epoch", "client_id", "fetch_offset", "request_bytes", "max_wait_ms",
        "min_bytes", "run_count", "run_timeouts",
    )  # fmt: skip
    columns = {name: fetches.column(name) for name in same} | phase_columns(fetches)
    for name in ("response_hw", "last_stable_offset", "log_start_offset"):
        columns[name] = offsets(numbers(fetches.column(name), NONE))
    return columns | {
        "seq": pa.array(saw[:, w.W_SEQ]),
        "bytes": pa.array(handed, mask=left_out),
        "leader_leo": offsets(saw[:, w.W_LEO]),
        "error_code": fetches.column("error_code"),
        "isolation": words(np.where(reads, isolation, 0), ISOLATION, missing=~reads),
        "delayed": pa.array(numbers(fetches.column("remote_us"), 0) > 0),
        "wait_ms": milliseconds(numbers(fetches.column("remote_us"), NONE)),
        "completed_by": words(completed, COMPLETIONS),
        "quota": words(np.where(kept_back, quota, 0), QUOTAS, missing=~kept_back),
        "evidence": words(evidence, EVIDENCE),
    }


def round_checks(fetches: pa.Table, saw: Ints, found: Ints, brokers: Sequence[int]) -> Ints:
    """Whether each fetch waited as the replayed state lets it (`CHECK_ROW`); what a follower served is not compared."""
    compared = (found[:, 2] != UNSET) & (numbers(fetches.column("leader_id"), NONE) == NONE)
    broker = indices(fetches.column("broker_id"), brokers)
    what = np.full(len(saw), c.CHECK_FETCH_COMPLETION)
    rows: Ints = np.column_stack([saw[:, w.W_SEQ], what, broker, found[:, 2], found[:, 3]])[compared]
    return rows


def phase_columns(requests: pa.Table) -> dict[str, pa.Array]:
    """Where the time of each request went."""
    return {f"{name.removesuffix('_us')}_ms": milliseconds(numbers(requests.column(name), NONE)) for name in TIMING}


def answers_in(batch: pa.Table, kept: pa.Table | None) -> pa.Table:
    """The answers to acks=all batches among events, after those kept from before; by seq."""
    acks = pc.and_(pc.equal(batch.column("kind"), "ack"), pc.equal(batch.column("acks"), -1))
    found = batch.select(ANSWER).filter(acks)
    return found if kept is None else pa.concat_tables([kept, found])


def answers_to(ack_seq: Ints, answers: pa.Table) -> pa.Table:
    """The answer to each batch, a row each, all null where there is none."""
    if not len(answers):
        return pa.Table.from_arrays([pa.nulls(len(ack_seq), f.type) for f in answers.schema], schema=answers.schema)
    seqs = answers.column("seq").to_numpy()
    place = np.minimum(np.searchsorted(seqs, ack_seq), len(seqs) - 1)
    return answers.take(pa.array(place, mask=seqs[place] != ack_seq))


def commit_columns(at: dict[str, Ints], answers: pa.Table) -> dict[str, pa.Array]:
    """`commit_latency` but for the brokers: batches that left (`COMMIT_ROW`) beside their answers.

    A commit's time is an estimate; the append came before it, and an answer without error was ready after it.
    """
    answer = answers_to(at["ack_seq"], answers)
    acked, error = numbers(answer.column("ts"), UNSET), numbers(answer.column("error_code"), UNSET)
    committed = at["commit_seq"] != UNSET
    latest = np.where(error == 0, ready_at(answer), at["commit_ts"])
    commit = np.maximum(np.minimum(at["commit_ts"], latest), at["ts"])
    stated = committed & (at["cause"] == w.BY_STATEMENT)
    raced = committed & (error == 0) & (at["commit_seq"] > at["ack_seq"])
    evidence = np.maximum(np.maximum(at["evidence"], DERIVED), np.where(stated | raced, BOUNDED, DERIVED))
    parts = [numbers(answer.column(name), 0) for name in TIMING if name != "throttle_us"]
    return phase_columns(answer) | {
        "seq": pa.array(at["seq"]),
        "leader_epoch": pa.array(at["epoch"]),
        "client_id": answer.column("client_id"),
        "base_offset": pa.array(at["base"]),
        "last_offset": pa.array(at["end"] - 1),
        "append_ts": stamps(at["ts"]),
        "commit_ts": stamps(commit, missing=~committed),
        "ack_ts": answer.column("ts"),
        "commit_ms": milliseconds(np.where(committed, commit - at["ts"], NONE)),
        "commit_seq": offsets(at["commit_seq"]),
        "committed_by": words(np.where(committed, at["cause"], 0), COMMIT_CAUSES, missing=~committed),
        "error_code": answer.column("error_code"),
        "total_ms": milliseconds(np.where(acked == UNSET, NONE, np.sum(parts, axis=0))),
        "evidence": words(evidence, EVIDENCE),
    }


def ready_at(answer: pa.Table) -> Ints:
    """When an answer left purgatory, or its handler."""
    sent: Ints = numbers(answer.column("response_queue_us"), 0) + numbers(answer.column("send_us"), 0)
    return numbers(answer.column("ts"), 0) - sent


def commit_checks(at: dict[str, Ints], answers: pa.Table) -> Ints:
    """Whether each batch answered without error was committed between its append and its answer (`CHECK_ROW`).

    What committed it has an interval of its own; the time stated is the nearest to it that lies between the two.
    """
    answer = answers_to(at["ack_seq"], answers)
    good = numbers(answer.column("error_code"), UNSET) == 0
    first, last = at["ts"] - STAMP_LATE_US, ready_at(answer) + STAMP_LATE_US + STAMP_EARLY_US
    within = np.minimum(at["commit_ts"], np.maximum(last, at["commit_lo"]))
    nearest = np.clip(within, first, last)
    what = np.full(len(nearest), c.CHECK_COMMIT_BEFORE_ACK)
    rows: Ints = np.column_stack([at["seq"], what, at["broker"], within, nearest])[good]
    return rows
