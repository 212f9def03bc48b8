"""What holds over crashes and restarts on SQLite holds on PostgreSQL, too: see
``support/same_tests.py``, whose tests are collected beside this one."""

from support.same_tests import ELSEWHERE, FILES, TESTS


def test_what_is_left_out_is_there_to_be_left_out() -> None:
    text = "".join((TESTS / f"{name}.py").read_text() for name in FILES)
    assert [name for name in ELSEWHERE if f"def {name}(" not in text] == []
