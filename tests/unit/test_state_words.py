"""A partition's state in words: each part of a broker's line."""

from __future__ import annotations

from small_partition import EPOCH, LATEST, A, B, C, at, led

from replay.engine.state_words import as_offsets, broker_in_words, partition_in_words
from replay.protocol.isr import ASKED
from replay.protocol.log import epoch_assign, move_log_start
from replay.protocol.state import DERIVED, ROLE_NONE, State
from replay.protocol.steps import follower_append, leader_append

NAMES = ("A", "B", "C")


def replicated() -> State:
    """A leads with three records, of which B has two and C none."""
    s = led(isr=0b011)
    leader_append(s, LATEST, A, 3, DERIVED, 0)
    follower_append(s, A, B, 2, DERIVED)
    s.remote_leo[A, B] = 2
    return s


def test_each_assigned_broker_has_a_line() -> None:
    assert partition_in_words(replicated(), NAMES) == [
        f"A leads {EPOCH}: leo 3 hw 0 isr A,B [B 2 C ?] ({EPOCH}: 0-2)",
        f"B follows {EPOCH}: leo 2 hw 0 ({EPOCH}: 0-1)",
        f"C follows {EPOCH}: leo 0 hw 0",
    ]


def test_brokers_are_shown_by_their_ids_where_they_have_no_other_names() -> None:
    assert broker_in_words(replicated(), A, (101, 102, 103)).endswith(f"isr 101,102 [102 2 103 ?] ({EPOCH}: 0-2)")


def test_broker_outside_the_assignment_is_not_shown() -> None:
    s = replicated()
    s.partition[0].assigned = 0b011
    lines = partition_in_words(s, NAMES)
    assert [line[0] for line in lines] == ["A", "B"]
    assert "[B 2]" in lines[0]


def test_where_no_assignment_is_known_every_broker_is_shown() -> None:
    s = replicated()
    s.partition[0].assigned = 0
    assert [line[0] for line in partition_in_words(s, NAMES)] == ["A", "B", "C"]


def test_isr_says_who_is_asked_in_and_that_a_shrink_is_pending() -> None:
    s = replicated()
    s.maximal_isr[A], s.pending[A] = 0b111, ASKED
    assert "isr A,B+C " in broker_in_words(s, A, NAMES)
    s.maximal_isr[A] = s.isr[A]
    assert "isr A,B pending " in broker_in_words(s, A, NAMES)


def test_log_that_begins_later_has_its_start_and_its_leaders_low_watermark() -> None:
    s = at(replicated(), leo=3, hw=3)
    move_log_start(s, A, 2)
    s.remote_start[A, B], s.remote_start[A, C] = 1, 2
    assert broker_in_words(s, A, NAMES) == (
        f"A leads {EPOCH}: leo 3 hw 3 start 2 isr A,B [B 2 C ?] low watermark 1 ({EPOCH}: 2)"
    )


def test_broker_that_is_down_or_has_no_role_says_so_and_what_it_holds() -> None:
    s = replicated()
    assert broker_in_words(s, A, NAMES, is_down=True) == f"A is down: leo 3 hw 0 ({EPOCH}: 0-2)"
    s.role[B] = ROLE_NONE
    assert broker_in_words(s, B, NAMES) == f"B has no role: leo 2 hw 0 ({EPOCH}: 0-1)"


def test_epoch_without_records_is_not_shown() -> None:
    s = replicated()
    epoch_assign(s, A, EPOCH + 1, 3)
    assert broker_in_words(s, A, NAMES).endswith(f"({EPOCH}: 0-2)")


def test_records_may_be_shown_by_other_names_than_their_offsets() -> None:
    s = replicated()
    assert broker_in_words(s, B, NAMES, records=lambda b, first, end: f"{b}/{first}/{end}").endswith(
        f"({EPOCH}: {B}/0/2)"
    )
    assert (as_offsets(A, 4, 5), as_offsets(A, 4, 4)) == ("4", "")
