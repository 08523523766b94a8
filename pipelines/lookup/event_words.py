"""What an event says, in one sentence, and where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pipelines.lookup.reading import Row

ACKS: Final = {-1: "acks=all", 0: "acks=0", 1: "acks=1"}
# Kafka's error codes that answers to clients, brokers and the controller carry most often.
ERRORS: Final = {
    1: "OFFSET_OUT_OF_RANGE", 3: "UNKNOWN_TOPIC_OR_PARTITION", 5: "LEADER_NOT_AVAILABLE", 6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT", 19: "NOT_ENOUGH_REPLICAS", 20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND", 45:
    "OUT_OF_ORDER_SEQUENCE_NUMBER", 46: "DUPLICATE_SEQUENCE_NUMBER", 47: "INVALID_PRODUCER_EPOCH",
    56: "KAFKA_STORAGE_ERROR", 74: "FENCED_LEADER_EPOCH", 75: "UNKNOWN_LEADER_EPOCH", 107: "INELIGIBLE_REPLICA",
}  # fmt: skip
CUT_BY: Final = {
    "leader_epoch": "to where its leader says that its epoch ends",
    "high_watermark": "to its own high watermark",
    "diverging_fetch": "to where its leader's log parts from it",
    "out_of_range": "because its offset is out of its leader's range",
    "recovery": "as its log was loaded",
    "tiered_storage": "to start again behind what its leader has in the remote tier",
}


def error_words(code: int | None) -> str:
    """Return an error's name."""
    if code is None:
        return "an unknown outcome"
    return ERRORS.get(code, f"error {code}") if code else "no error"


def acks_words(acks: int | None) -> str:
    """Return `acks=all`."""
    return "acks unknown" if acks is None else ACKS.get(acks, f"acks={acks}")


def offsets_words(first: int | None, end: int | None) -> str:
    """Return the offsets from `first` up to before `end`."""
    if first is None:
        return "unknown offsets"
    if end is None:
        return f"offset {first} and an unknown number after it"
    if end <= first:
        return f"nothing at {first}"
    return f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"


def source_words(row: Row) -> str | None:
    """Return where an event was read; None: no line states it."""
    if row["source_file"] is None:
        return None
    return f"{row['source_file']}" + ("" if row["source_line"] is None else f":{row['source_line']}")


def event_words(event: Row) -> str:
    """Return what happened."""
    return WORDS.get(event["kind"], _other)(event)


def _other(event: Row) -> str:
    who = "" if event["broker_id"] is None else f" on broker {event['broker_id']}"
    return f"{event['kind']}{who}"


def _client(event: Row) -> str:
    return f"client {event['client_id']}" if event["client_id"] else "a client without a name"


def _brokers(ids: Sequence[int] | None) -> str:
    return "unknown" if ids is None else f"[{', '.join(map(str, ids))}]"


def _append(event: Row) -> str:
    what = offsets_words(event["base_offset"], event["next_offset"])
    if event["duplicate"]:
        return f"broker {event['broker_id']} takes a retry of {what} for a duplicate, and appends nothing"
    if event["is_control"]:
        return f"broker {event['broker_id']} appends {what}: a transaction marker ({event['transaction'] or 'unknown'})"
    by = f", {acks_words(event['acks'])}, of {_client(event)}" if event["source_file"] else ""
    return f"broker {event['broker_id']} appends {what}{by}"


def _ack(event: Row) -> str:
    what = offsets_words(event["base_offset"], event["next_offset"])
    if event["error_code"]:
        said = f"answers {error_words(event['error_code'])} for {what}"
    elif event["error_code"] is None:
        said = f"answers {what} in a way that no line tells"
    elif event["acks"] == 0:
        said = f"took {what} with acks=0, which is never answered"
    else:
        said = f"acknowledges {what} ({acks_words(event['acks'])})"
    late = ", to a client that may have given up" if event["unconfirmed"] else ""
    return f"broker {event['broker_id']} {said} to {_client(event)}{late}"


def _produce_refused(event: Row) -> str:
    asked = f"a produce of {_client(event)} ({acks_words(event['acks'])})"
    if event["is_control"]:
        asked = "a transaction marker"
    return (
        f"broker {event['broker_id']} refuses {asked} before anything is appended: {error_words(event['error_code'])}"
    )


def _delete_records(event: Row) -> str:
    asked, low = event["requested_offset"], event["low_watermark"]
    what = "all that is committed" if asked is not None and asked < 0 else f"records before {asked}"
    text = f"{_client(event)} asks broker {event['broker_id']} to delete {what}"
    if event["error_code"]:
        return f"{text}: {error_words(event['error_code'])}"
    return f"{text}; the answer: all live replicas start at {low} or later"


def _segment_change(event: Row) -> str:
    who, what = f"broker {event['broker_id']}", event["cause"]
    segment = offsets_words(event["base_offset"], event["next_offset"])
    if what == "local_log_start":
        return f"{who}'s own log starts at {event['log_start_offset']}; what lies before it is in the remote tier alone"
    why = "" if event["state"] is None else f" ({event['state'].replace('_', ' ')})"
    if what == "rolled":
        where = "" if event["base_offset"] is None else f" at {event['base_offset']}"
        return f"{who} begins a segment{where}{why}"
    done = {"copied": "copies", "cleaned": "cleans", "deleted": "deletes", "remote_deleted": "deletes"}[what]
    where = " to the remote tier" if what == "copied" else " in the remote tier" if what == "remote_deleted" else ""
    return f"{who} {done} the segment with {segment}{where}{why}"


def _fetch_update(event: Row) -> str:
    text = f"broker {event['replica_id']} fetches from broker {event['broker_id']} at {event['fetch_offset']}"
    if event["error_code"]:
        return f"{text}: {error_words(event['error_code'])}"
    if event["diverging_epoch"] is not None and event["diverging_epoch"] >= 0:
        ends = f"epoch {event['diverging_epoch']} ends at {event['diverging_end_offset']}"
        return f"{text}, and is told that the logs part: {ends}"
    count = event["run_count"] or 1
    return f"{text}, {count:,} times" if count > 1 else text


def _fetch_read(event: Row) -> str:
    hw = "" if event["response_hw"] is None else f", hw {event['response_hw']}"
    size = "" if event["bytes"] is None else f", {event['bytes']:,} bytes"
    return f"broker {event['broker_id']} reads the answer for broker {event['replica_id']}{size}{hw}"


def _fetch_apply(event: Row) -> str:
    taken = offsets_words(event["fetch_offset"], event["next_offset"])
    hw = "" if event["response_hw"] is None else f", hw {event['response_hw']}"
    return f"broker {event['replica_id']} takes the answer of broker {event['broker_id']}: {taken}{hw}"


def _consumer_read(event: Row) -> str:
    taken = offsets_words(event["fetch_offset"], event["next_offset"])
    if event["error_code"]:
        taken = f"at {event['fetch_offset']}: {error_words(event['error_code'])}"
    elif event["next_offset"] is None:
        taken = f"at {event['fetch_offset']}" + (": nothing" if event["bytes"] == 0 else "")
    return f"{_client(event)} reads from broker {event['broker_id']} {taken}"


def _epoch_end_offset(event: Row) -> str:
    who = _client(event) if (event["replica_id"] or 0) < 0 else f"broker {event['replica_id']}"
    ends = f"epoch {event['diverging_epoch']} ends at {event['diverging_end_offset']}"
    return f"broker {event['broker_id']} tells {who} that {ends}"


def _partition_change(event: Row) -> str:
    isr = f"ISR {_brokers(event['isr'])}"
    if event["election"] is None:
        return f"the controller commits {isr} ({event['change'] or 'unknown why'})"
    leader = event["leader_id"]
    leads = "no leader" if leader is None or leader < 0 else f"broker {leader} as leader"
    why = f": {event['trigger']}" if event["trigger"] else ""
    return f"the controller elects {leads} of epoch {event['leader_epoch']}, {isr} ({event['election']}{why})"


def _isr_request(event: Row) -> str:
    asked = "" if event["isr"] is None else f" ISR {_brokers(event['isr'])}"
    error = f" ({error_words(event['error_code'])})" if event["error_code"] else ""
    cause = (event["cause"] or "").replace("_", " ")
    return f"broker {event['broker_id']}'s ISR change: {cause}{asked}{error}"


def _broker_change(event: Row) -> str:
    if event["in_controlled_shutdown"]:
        return f"broker {event['broker_id']} asks to shut down in order"
    said = {True: "is fenced", False: "is unfenced", None: "changes its registration"}[event["fenced"]]
    return f"broker {event['broker_id']} {said}"


def _config_change(event: Row) -> str:
    named = (
        ("min.insync.replicas", event["min_insync_replicas"] or None),
        ("Kafka", event["kafka_version"]),
        ("inter.broker.protocol.version", event["inter_broker_protocol"]),
        ("segment.bytes", event.get("segment_bytes") or None),
    )
    return "in force: " + (", ".join(f"{name} {value}" for name, value in named if value is not None) or "unknown")


def _role_change(event: Row) -> str:
    offsets = "".join(f", {name} {event[name]}" for name in ("leo", "hw") if event[name] is not None)
    if event["role"] == "leader":
        return f"broker {event['broker_id']} leads epoch {event['leader_epoch']}{offsets}"
    of = "nobody" if event["leader_id"] is None or event["leader_id"] < 0 else f"broker {event['leader_id']}"
    return f"broker {event['broker_id']} follows {of} in epoch {event['leader_epoch']}{offsets}"


def _log_load(event: Row) -> str:
    offsets = "".join(f", {name} {event[name]}" for name in ("leo", "hw") if event[name] is not None)
    return f"broker {event['broker_id']} loads its log{offsets}"


def _truncation(event: Row) -> str:
    to = "" if event["truncate_to"] is None else f" to {event['truncate_to']}"
    return f"broker {event['broker_id']} cuts its log{to} ({CUT_BY.get(event['cause'], event['cause'])})"


def _log_start_change(event: Row) -> str:
    why = (event["cause"] or "for an unknown reason").replace("_", " ")
    return f"broker {event['broker_id']}'s log starts at {event['log_start_offset']} ({why})"


def _topic_change(event: Row) -> str:
    return f"the topic: {event['cause'] or 'changed'}"


def _observation(event: Row) -> str:
    named = ("leo", "hw", "state", "note")
    stated = ", ".join(f"{name} {event[name]}" for name in named if event[name] is not None)
    if event["cause"] == "isr_answered":
        return f"broker {event['broker_id']}'s request for another ISR is answered: {error_words(event['error_code'])}"
    if event["cause"] == "broker_epoch":
        return f"the controller has broker {event['broker_id']} under broker epoch {event['broker_epoch']}"
    what = (event["cause"] or "states").replace("_", " ")
    return f"broker {event['broker_id']}'s line: {what}{f', {stated}' if stated else ''}"


def _log_dump(event: Row) -> str:
    what = offsets_words(event["base_offset"], event["next_offset"])
    held = f"holds {what} of epoch {event['leader_epoch']}"
    return f"broker {event['broker_id']}'s segments, dumped at the end: {event['cause'] or 'unknown'}: {held}"


def _fetch_left_out(event: Row) -> str:
    return f"broker {event['replica_id']} leaves the partition out of a fetch from broker {event['broker_id']}"


WORDS: Final[dict[str, Callable[[Row], str]]] = {
    "append": _append,
    "ack": _ack,
    "produce_refused": _produce_refused,
    "delete_records": _delete_records,
    "segment_change": _segment_change,
    "fetch_update": _fetch_update,
    "fetch_read": _fetch_read,
    "fetch_apply": _fetch_apply,
    "consumer_read": _consumer_read,
    "epoch_end_offset": _epoch_end_offset,
    "partition_change": _partition_change,
    "isr_request": _isr_request,
    "broker_change": _broker_change,
    "config_change": _config_change,
    "topic_change": _topic_change,
    "role_change": _role_change,
    "log_load": _log_load,
    "truncation": _truncation,
    "log_start_change": _log_start_change,
    "observation": _observation,
    "fetch_left_out": _fetch_left_out,
    "log_dump": _log_dump,
}
