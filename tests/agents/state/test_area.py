"""What a run keeps: which names may be used, and how files come and go (T-07, A-01)."""

from collections.abc import Iterable
from pathlib import PurePosixPath, PureWindowsPath
from posixpath import normpath
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hubbub.agents.state.area import (
    NO_AREA,
    attachment_note,
    find_files,
    key_problem,
    place_files,
    place_problem,
    unshowable,
    with_file,
    with_files,
    with_key,
)
from hubbub.hub.events import AgentFile, AgentKey, FileRef
from hubbub.hub.events.files import path_problem
from hubbub.hub.values import decode_value, encode_value

part = st.text("abzAZ019.-_ é日", min_size=1, max_size=12).filter(lambda p: p not in (".", ".."))
good_paths = st.lists(part, min_size=1, max_size=4).map("/".join)
not_drives = good_paths.filter(lambda path: path[1:2] != ":")


def _inserted(path: str, at: int, what: str) -> str:
    at %= len(path) + 1
    return path[:at] + what + path[at:]


def _with_part(parts: Iterable[str], at: int, what: str) -> str:
    made = list(parts)
    made.insert(at % (len(made) + 1), what)
    return "/".join(made)


parts = st.lists(part, min_size=1, max_size=4)
position = st.integers(0, 50)
strange = [*map(chr, range(32)), "\x7f", "\x85", "\u2028", "\u202e", "\u200b", "\ufffd", "\\"]
bad_paths = st.one_of(
    st.builds(_with_part, parts, position, st.sampled_from(["..", ".", ""])),
    st.builds(_inserted, good_paths, position, st.sampled_from(strange)),
    st.builds(_inserted, good_paths, position, st.characters(categories=["Cs"])),
    st.builds(
        lambda lead, path: lead + path, st.sampled_from(["/", "//", "\\", "../"]), good_paths
    ),
    st.builds(lambda drive, path: f"{drive}:{path}", st.sampled_from("CcZz"), good_paths),
    st.builds(lambda drive, path: f"{drive}:/{path}", st.sampled_from("CcZz"), good_paths),
    st.sampled_from(["", "/", "..", ".", "x" * 256, "x/" * 600 + "x", "C:", "\0"]),
    st.sampled_from([None, 3, b"bytes", ["a"], PurePosixPath("a")]),
)


def ref(path: str, content: str = "") -> FileRef:
    return FileRef(path=path, digest=f"digest of {content or path}", size=len(content))


# ── names ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-07")
@given(not_drives)
def test_plain_relative_names_are_names(path: str) -> None:
    assert path_problem(path) == ""


@pytest.mark.spec("T-07")
@given(bad_paths)
@example("a/../../b")
@example("..\\b")
@example("C:\\b")
@example("a\0b")
def test_names_that_lead_elsewhere_are_none_and_the_reason_is_given(path: Any) -> None:
    problem = path_problem(path)
    assert problem.startswith(("a path ", "a part "))


@pytest.mark.spec("T-07")
@given(st.one_of(st.text(), st.text("./\\:aC \0"), good_paths, bad_paths))
def test_what_is_accepted_stays_below_any_folder_it_is_put_in(path: Any) -> None:
    if path_problem(path):
        return
    assert normpath(f"/area/{path}") == f"/area/{path}"
    assert PureWindowsPath("D:/area", path).is_relative_to("D:/area")
    assert not PureWindowsPath(path).drive and not PureWindowsPath(path).root
    assert path.encode().decode() == path
    assert "\0" not in path


@pytest.mark.spec("T-01")
def test_a_key_is_a_short_text_that_can_be_written_down() -> None:
    assert key_problem("a key, with spaces / and 日") == ""
    for key in ("", "x" * 256, None, 3, b"k", "half \ud800 a pair", "a\0b"):
        assert key_problem(key)


# ── files that come and go ───────────────────────────────────────────────────────────────────


class AreaBesideADict(RuleBasedStateMachine):
    """The area folds its events; a dict is told the same in plain words."""

    names = st.sampled_from(["a", "b.txt", "f/a", "f/b.txt", "f", "a/c", "a/c/d"])

    def __init__(self) -> None:
        super().__init__()
        self.area = NO_AREA
        self.files: dict[str, str] = {}
        self.keys: dict[str, Any] = {}

    @rule(path=names, content=st.text(max_size=3))
    def write(self, path: str, content: str) -> None:
        if place_problem(self.area.files, path):
            return
        self.area = with_file(self.area, AgentFile(files=(ref(path, content),)))
        self.files[path] = ref(path, content).digest

    @rule(path=names)
    def delete(self, path: str) -> None:
        self.area = with_file(self.area, AgentFile(deleted=(path,)))
        self.files.pop(path, None)

    @rule(coming=st.lists(names, max_size=3, unique=True))
    def receive(self, coming: list[str]) -> None:
        placed = place_files(self.area, [ref(path, "theirs") for path in coming])
        assert not {each.path for each in placed} & set(self.files), "nothing is overwritten"
        self.area = with_files(self.area, placed)
        self.files.update((each.path, each.digest) for each in placed)

    @rule(key=st.sampled_from(["k", "l"]), value=st.none() | st.integers() | st.lists(st.text()))
    def set(self, key: str, value: Any) -> None:
        event = AgentKey(key=key, value_json=encode_value("value", value))
        self.area = with_key(self.area, event)
        self.keys[key] = value

    @rule(key=st.sampled_from(["k", "l"]))
    def unset(self, key: str) -> None:
        self.area = with_key(self.area, AgentKey(key=key, deleted=True))
        self.keys.pop(key, None)

    @invariant()
    def no_name_is_a_file_and_a_folder(self) -> None:
        assert not unshowable(self.area.files)

    @invariant()
    def they_agree(self) -> None:
        assert {path: each.digest for path, each in self.area.files.items()} == self.files
        assert all(path == each.path for path, each in self.area.files.items())
        assert {key: decode_value(value) for key, value in self.area.keys.items()} == self.keys


TestAreaBesideADict = pytest.mark.spec("T-01", "T-07", "A-01")(AreaBesideADict.TestCase)


def test_an_area_that_was_is_not_changed_by_what_comes_after() -> None:
    before = with_file(NO_AREA, AgentFile(files=(ref("a"),)))
    with_file(before, AgentFile(deleted=("a",)))
    with_files(before, (ref("b"),))
    with_key(before, AgentKey(key="k", value_json=encode_value("k", 1)))
    assert set(before.files) == {"a"}
    assert before.keys == {}
    assert NO_AREA.files == {} and NO_AREA.keys == {}


@pytest.mark.spec("A-01")
@pytest.mark.parametrize(
    ("name", "second", "third"),
    [
        ("report.txt", "report-2.txt", "report-3.txt"),
        ("a/b/report.txt", "a/b/report-2.txt", "a/b/report-3.txt"),
        ("archive.tar.gz", "archive.tar-2.gz", "archive.tar-3.gz"),
        ("README", "README-2", "README-3"),
        (".env", ".env-2", ".env-3"),
        ("a.b/c", "a.b/c-2", "a.b/c-3"),
    ],
)
def test_a_name_that_is_taken_is_numbered_before_its_ending(
    name: str, second: str, third: str
) -> None:
    area = NO_AREA
    for expected in (name, second, third):
        (placed,) = place_files(area, [ref(name)])
        assert placed.path == expected
        assert placed.digest == ref(name).digest
        area = with_files(area, (placed,))


@pytest.mark.spec("A-01")
def test_files_that_come_together_do_not_take_each_others_names() -> None:
    area = with_files(NO_AREA, (ref("a.txt"),))
    placed = place_files(area, [ref("a-2.txt"), ref("a.txt", "one"), ref("a.txt", "two")])
    assert [each.path for each in placed] == ["a-2.txt", "a-3.txt", "a-4.txt"]


@pytest.mark.spec("A-01", "T-07")
def test_a_file_that_comes_gets_a_name_beside_a_folder_and_a_folder_beside_a_file() -> None:
    area = with_files(NO_AREA, (ref("a"), ref("f/b.txt"), ref("g.d/c")))
    coming = ["a/b", "f", "a/c/d", "g.d", "f/b.txt/x", "a-2"]
    placed = place_files(area, [ref(path, "theirs") for path in coming])
    names = ["a-2/b", "f-2", "a-2/c/d", "g-2.d", "f/b-2.txt/x", "a-2-2"]
    assert [each.path for each in placed] == names


@pytest.mark.spec("T-07")
@pytest.mark.parametrize("part", ["x" * 255, "é" * 127, "日" * 85, "😀" * 63])
def test_no_part_of_a_new_name_is_longer_in_bytes_than_a_file_system_takes(part: str) -> None:
    for path in (part, f"a/{part}", f"{part}/a"):
        assert place_problem({}, path) == ""
        too_long = path.replace(part, f"{part}{part[0] * 3}")
        assert place_problem({}, too_long) == "a part of a path has at most 255 bytes (UTF-8)"
        assert place_problem({too_long}, too_long) == "", "one that is there can be written anew"


def test_what_a_disk_can_only_show_some_of_is_a_file_and_what_is_below_its_name() -> None:
    assert unshowable(["a", "b/c", "b/d", "b-c"]) == frozenset()
    both = {"a", "a/b", "c/d", "c/d/e/f"}
    assert unshowable([*both, "a.b", "c/g"]) == both


@pytest.mark.spec("A-01", "T-07")
@pytest.mark.parametrize(
    "name",
    ["x" * 255, "x" * 251 + ".txt", "a." + "x" * 253, "/".join(["y" * 255] * 3 + ["z" * 255])],
)
def test_a_numbered_name_is_a_name_however_long_it_was(name: str) -> None:
    area = with_files(NO_AREA, (ref(name),))
    for _ in range(12):
        (placed,) = place_files(area, [ref(name)])
        assert placed.path not in area.files
        assert path_problem(placed.path) == ""
        area = with_files(area, (placed,))


@pytest.mark.spec("A-01")
def test_files_are_found_in_the_order_named_each_once_and_what_is_missing_is_listed() -> None:
    area = with_files(NO_AREA, (ref("a"), ref("b")))
    found, missing = find_files(area, ["b", "ghost", "a", "b", "../a", "ghost"])
    assert [each.path for each in found] == ["b", "a"]
    assert missing == ("ghost", "../a")


@pytest.mark.spec("A-01")
def test_a_note_about_files_is_there_only_if_files_are() -> None:
    assert attachment_note(()) == ()
    assert attachment_note(("a", "f/b")) == ("Attachments:\n- a\n- f/b",)


@pytest.mark.spec("T-07")
def test_attachments_of_a_relative_path_is_the_area_where_no_folder_of_that_name_has_the_file() -> (
    None
):
    area = with_files(NO_AREA, [ref(name) for name in ("a", "f/b", "attachments/b", "b")])
    found, missing = find_files(area, ["attachments/a", "attachments/b", "attachments/f/b"])
    assert [each.path for each in found] == ["a", "attachments/b", "f/b"]
    assert missing == ()
    assert find_files(area, ["attachments/", "attachments/ghost", "attachments"])[1] == (
        "attachments/", "attachments/ghost", "attachments",
    )  # fmt: skip
    found, missing = find_files(area, ["a", "attachments/a", "/attachments/a"])
    assert [each.path for each in found] == ["a"], "one file, however often it is named"
