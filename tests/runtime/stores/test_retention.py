"""Which trees that have ended go, against a plain model."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hubbub.hub.errors import BadValue
from hubbub.runtime.stores.retention.retention import EndedTree, Retention, trees_to_go

SECOND = 1_000_000


def tree(number: int, ended_at: int) -> EndedTree:
    name = f"run-{number}"
    return EndedTree(
        root_run_id=name, agent="bot", run_ids=(name,), events=1, ended_at=ended_at * SECOND,
        place=number,
    )  # fmt: skip


@given(
    st.lists(st.integers(0, 20)),
    st.one_of(st.none(), st.integers(1, 20)),
    st.one_of(st.none(), st.integers(1, 8)),
    st.integers(0, 25),
)
def test_a_tree_goes_when_neither_limit_keeps_it_and_the_oldest_go_first(
    ends: list[int], ended: int | None, keep_last: int | None, now: int
) -> None:
    if ended is None and keep_last is None:
        return
    trees = [tree(number, end) for number, end in enumerate(ends)]
    retention = Retention(ended=ended, keep_last=keep_last)
    gone = trees_to_go(trees, retention, now * SECOND)
    newest = sorted(trees, key=lambda x: (x.ended_at, x.place))[::-1]
    for place, each in enumerate(newest):
        is_among_last = keep_last is not None and place < keep_last
        is_young = ended is not None and each.ended_at > (now - ended) * SECOND
        assert (each in gone) is not (is_among_last or is_young)
    assert [x.ended_at for x in gone] == sorted(x.ended_at for x in gone)
    # What stays would stay again.
    kept = [x for x in trees if x not in gone]
    assert trees_to_go(kept, retention, now * SECOND) == []


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 50))),
    st.one_of(st.none(), st.integers(1, 20)),
    st.one_of(st.none(), st.integers(1, 8)),
    st.integers(1, 400),
    st.integers(0, 100),
)
def test_beyond_a_size_the_oldest_go_until_the_rest_fits_and_no_more_than_these(
    ends: list[tuple[int, int]], ended: int | None, keep_last: int | None, max_bytes: int,
    others: int,
) -> None:  # fmt: skip
    trees = [
        structs.replace(tree(number, end), size=size) for number, (end, size) in enumerate(ends)
    ]
    size = others + sum(x.size for x in trees)
    retention = Retention(ended=ended, keep_last=keep_last, max_bytes=max_bytes)
    gone = trees_to_go(trees, retention, 25 * SECOND, size)
    oldest = sorted(trees, key=lambda x: (x.ended_at, x.place))
    candidates = oldest[: max(0, len(trees) - (keep_last or 0))]
    assert gone == candidates[: len(gone)]
    old = [x for x in candidates if ended is not None and x.ended_at <= (25 - ended) * SECOND]
    assert gone[: len(old)] == old
    left = size - sum(x.size for x in gone)
    assert left <= max_bytes or gone == candidates
    assert len(gone) == len(old) or left + gone[-1].size > max_bytes


def test_a_time_is_a_span_or_seconds() -> None:
    assert Retention(ended=timedelta(days=2)) == Retention(ended=172_800.0)
    assert Retention(ended=60) == Retention(ended=timedelta(minutes=1)) == Retention(ended="1min")
    assert Retention(silent="30d") == Retention(silent=30 * 86_400)
    assert Retention(max_bytes="1.5GB") == Retention(max_bytes=1_500_000_000)


def test_what_only_ends_what_is_silent_lets_nothing_go() -> None:
    retention = Retention(silent="1d")
    assert not retention.removes and Retention(silent=1, keep_last=1).removes
    assert trees_to_go([tree(1, 1)], retention, 10**15) == []


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({}, "it says nothing; give ended, silent, keep_last or max_bytes"),
        ({"ended": 0}, "ended: expected seconds above 0"),
        ({"ended": timedelta()}, "ended: expected seconds above 0"),
        ({"ended": timedelta(days=-1)}, "ended: expected seconds from 0"),
        ({"ended": -1.5}, "ended: expected seconds from 0"),
        ({"ended": float("nan")}, "ended: expected seconds from 0"),
        ({"ended": float("inf")}, "ended: expected seconds from 0"),
        ({"ended": timedelta(days=100_000)}, "ended: expected seconds from 0"),
        ({"ended": "month"}, "ended month: expected how long, above 0 and below 10 years: 30d"),
        ({"ended": "0d"}, "ended 0d: expected how long"),
        ({"ended": "-1d"}, "ended -1d: expected how long"),
        ({"ended": "9999999999999999999999w"}, "expected how long"),
        ({"silent": 0}, "silent: expected seconds above 0"),
        ({"silent": "a" * 5_000}, "expected how long"),
        ({"max_bytes": "5"}, "max_bytes 5: expected how much, above 0: 500MB, 10GB"),
        ({"max_bytes": "0GB"}, "max_bytes 0GB: expected how much, above 0: 500MB"),
        ({"max_bytes": "9999999999TB"}, "expected how much, above 0"),
        ({"ended": None, "silent": None}, "it says nothing"),
        ({"ended": True}, "ended: expected a number of seconds"),
        ({"max_bytes": 0}, "max_bytes: expected a whole number of at least 1"),
        ({"max_bytes": 1e9}, "max_bytes: expected a whole number of at least 1"),
        ({"keep_last": 0}, "keep_last: expected a whole number of at least 1"),
        ({"keep_last": -1}, "keep_last: expected a whole number of at least 1"),
        ({"keep_last": 1.5}, "keep_last: expected a whole number of at least 1"),
        ({"keep_last": True}, "keep_last: expected a whole number of at least 1"),
    ],
)
def test_a_limit_that_is_none_is_refused_in_one_line(limits: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue) as refused:
        Retention(**limits)
    assert words in str(refused.value) and "\n" not in str(refused.value)
