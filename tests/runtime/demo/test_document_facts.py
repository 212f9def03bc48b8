"""Facts about documents: counted as CommonMark reads them, whatever the file is."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.runtime.demo.documents import document_facts, is_document, list_documents, path_of
from hubbub.runtime.demo.facts import MAX_TARGETS, markdown_facts, text_facts
from hubbub.runtime.text import decode, printable

ODD = os.fsdecode(b"caf\xe9 \x1b[31mred.txt")


def everything(path: str) -> bool:
    return True


def nothing(path: str) -> bool:
    return False


def counted(text: str) -> tuple[int, int, int]:
    facts = markdown_facts(text, everything)
    return facts.headings, facts.links, facts.images


# ── Markdown ─────────────────────────────────────────────────────────────────────────────────

# A piece of Markdown, and how many headings, links and images it holds.
PIECES = [
    ("Some plain words, * not a list, # not a heading.", (0, 0, 0)),
    ("# Title", (1, 0, 0)),
    ("###### Sixth ######", (1, 0, 0)),
    ("####### seven is too many", (0, 0, 0)),
    ("#no space", (0, 0, 0)),
    ("Setext\n===", (1, 0, 0)),
    ("Setext [with](link.md)\n---", (1, 1, 0)),
    ("***", (0, 0, 0)),
    ("> ## Quoted\n> [link](a.md)", (1, 1, 0)),
    ("- # In a list", (1, 0, 0)),
    ("```\n# no\n[no](no.md)\n===\n```", (0, 0, 0)),
    ("~~~ python\n![no](no.png)\n~~~", (0, 0, 0)),
    ("    # indented code [no](no.md)", (0, 0, 0)),
    ("`[no](no.md)` and ``![no](`no.png)``", (0, 0, 0)),
    ("\\[no](no.md) and [no] (no.md)", (0, 0, 0)),
    ("<!-- # no [no](no.md) -->", (0, 0, 0)),
    ("[yes](yes.md) and [title](t.md 'words') and [odd](<a b.md>)", (0, 3, 0)),
    ("[multi\nline](yes.md)", (0, 1, 0)),
    ("<https://example.org> and <me@example.org>", (0, 2, 0)),
    ("![image](i.png) and [![badge](b.svg)](b.md)", (0, 1, 2)),
    ("![see [inside](no.md)](i.png)", (0, 0, 1)),
    ("[full][known], [collapsed][], [Known] and [unknown][missing]", (0, 3, 0)),
    ("| a | b |\n|---|---|\n| [x](x.md) | `[no](no.md)` |", (0, 1, 0)),
]
REFERENCES = "\n\n[known]: known.md\n[collapsed]: collapsed.md 'title'\n"


@pytest.mark.parametrize(("piece", "expected"), PIECES, ids=range(len(PIECES)))
def test_each_construct_counts_as_commonmark_reads_it(
    piece: str, expected: tuple[int, int, int]
) -> None:
    assert counted(piece + REFERENCES) == expected


@given(st.lists(st.sampled_from(PIECES)), st.sampled_from(["\n", "\r\n", "\r"]))
def test_counts_add_up_over_any_sequence_of_pieces(
    pieces: list[tuple[str, tuple[int, int, int]]], newline: str
) -> None:
    # A comment line between them, so that indented code never continues a list.
    text = "\n\n<!-- -->\n\n".join(text for text, _ in pieces) + REFERENCES
    expected = tuple(map(sum, zip(*(counts for _, counts in pieces), strict=True))) or (0, 0, 0)
    assert counted(text.replace("\n", newline)) == expected


def test_a_yaml_block_at_the_beginning_is_no_heading() -> None:
    assert counted("---\ntitle: A\ntags:\n  - b\n-x: y\n---\n# One\n") == (1, 0, 0)
    assert counted("---\n\ntext, not YAML\n\nSetext\n---\n") == (1, 0, 0)
    assert counted("# One\n\n---\na: b\n---\n") == (2, 0, 0), "only at the very beginning"


def test_a_link_is_broken_when_its_relative_path_leads_nowhere() -> None:
    asked: list[str] = []

    def exists(path: str) -> bool:
        asked.append(path)
        return path == "there is.md"

    text = (
        "[a](there%20is.md#part) [b](there%20is.md?raw=1) [c](gone.md) [d](gone.md#part) "
        "![e](no.png) [f](#anchor) [g](?query) [h](https://example.org/gone.md) [i](//host/x.md) "
        "[j](/from/the/root.md) [k](mailto:a@b.c) [l](<http://[>) [m]() [n](data:,x) [o](%ff.md)"
    )
    facts = markdown_facts(text, exists)
    assert facts.links + facts.images == 15
    assert facts.broken == ("gone.md", "gone.md#part", "no.png", "%ff.md")
    assert facts.broken_links == 4
    assert asked == ["there is.md", "gone.md", "no.png", "\udcff.md"], "each path once"


def test_only_so_many_broken_targets_are_named_but_all_are_counted() -> None:
    text = " ".join(f"[x]({number}.md)" for number in range(100))
    facts = markdown_facts(text, nothing)
    assert facts.broken_links == 100
    assert len(facts.broken) == MAX_TARGETS


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_any_text_at_all_can_be_read_as_markdown(text: str) -> None:
    facts = markdown_facts(text, nothing)
    assert 0 <= facts.broken_links <= facts.links + facts.images


# ── lines and words ──────────────────────────────────────────────────────────────────────────

lines_of_text = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))
)


@given(lines_of_text, st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_lines_words_and_the_longest_line(lines: list[str], newline: str, ends: bool) -> None:
    lines = lines if ends or not lines else [*lines[:-1], lines[-1] + "."]
    facts = text_facts("".join(line + newline for line in lines) if ends else newline.join(lines))
    assert facts.lines == len(lines)
    assert facts.words == sum(len(line.split()) for line in lines)
    longest = max(lines, key=len, default="")
    assert facts.longest_length == len(longest)
    assert facts.longest_line == (lines.index(longest) + 1 if lines else 0)


def test_an_empty_text_has_no_line_and_an_empty_line_is_one() -> None:
    assert (text_facts("").lines, text_facts("").longest_line) == (0, 0)
    assert (text_facts("\n").lines, text_facts("\n").longest_line) == (1, 1)


# ── encodings ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1"])
def test_text_is_read_in_its_encoding(encoding: str) -> None:
    assert decode("Füße\n".encode(encoding)) == ("Füße\n", encoding)


def test_a_character_cut_in_two_at_the_limit_is_left_out() -> None:
    data = "aé".encode()[:-1]
    assert decode(data, is_whole=False) == ("a", "utf-8")
    assert decode(data, is_whole=True) == ("aÃ", "latin-1"), "no cut: then it is no UTF-8"


@given(st.text())
def test_what_is_shown_is_printable_on_one_line(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()


# ── folders ──────────────────────────────────────────────────────────────────────────────────


def listed(folder: Path) -> tuple[list[str], dict[str, str]]:
    listing = list_documents(folder)
    return [d.path for d in listing.documents], {s.path: s.reason for s in listing.skipped}


def facts_of(path: Path) -> dict[str, object]:
    (document,) = list_documents(path.parent, wanted=lambda name: name == path.name).documents
    facts = document_facts(document)
    return {name: getattr(facts, name) for name in facts.__struct_fields__}


def test_files_are_found_at_every_depth_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.md", "a/b/c/d.rst", "Makefile", "empty"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("" if name == "empty" else "text\n")
    for name in (".git/x.md", ".hidden.md", "node_modules/x.md", "env/pyvenv.cfg", "env/x.md",
                 "p.egg-info/SOURCES.txt", "__pycache__/x.txt"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("not looked at")
    assert listed(tmp_path) == (["Makefile", "b.txt", "empty", "a/z.md", "a/b/c/d.rst"], {})


def test_what_is_no_text_is_skipped_with_its_reason_and_never_blocks(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text\n")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (tmp_path / "noise").write_bytes(bytes(range(1, 256)))
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "up").symlink_to(tmp_path)
    (tmp_path / "link.txt").symlink_to("a.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        documents, skipped = listed(tmp_path)
    assert documents == ["a.txt", "link.txt"]
    loop = skipped.pop("loop")
    assert loop.startswith("cannot be read: ") and "symbolic links" in loop
    assert skipped == {
        "image.png": "binary",
        "noise": "binary",
        "dangling": "a link to nothing",
        "up": "a link to a folder",
        "pipe.txt": "not a regular file",
        "socket": "not a regular file",
    }


def test_names_of_any_bytes_are_shown_safely_and_addressed_exactly(tmp_path: Path) -> None:
    for name in (ODD, "new\nline.md", "\u202etxt.exe", "100%.md", "[red]markup.md"):
        (tmp_path / name).write_text(name, errors="surrogateescape")
    listing = list_documents(tmp_path)
    shown = {document.path for document in listing.documents}
    assert shown == {
        "caf\\xe9 \\x1b[31mred.txt", "new\\nline.md", "\\u202etxt.exe", "100%.md",
        "[red]markup.md",
    }  # fmt: skip
    names = {os.path.basename(path_of(document.uri)) for document in listing.documents}
    assert names == set(os.listdir(tmp_path))
    assert all(document_facts(document).words for document in listing.documents)
    assert all(document.uri.isascii() for document in listing.documents)


def test_bounds_are_kept_and_told(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text("x")
    few = list_documents(tmp_path, max_documents=4)
    assert len(few.documents) == 4
    assert few.notes == ("there are more than 4 text files; the others are not read",)
    assert list_documents(tmp_path, max_documents=6).notes == ()
    assert list_documents(tmp_path, max_entries=3).notes == (
        "only the first 3 files were looked at",
    )


def test_of_a_huge_file_only_the_beginning_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.write(b"word word\n" * 200_000)
        file.truncate(200 * 1024 * 1024)
    facts = facts_of(path)
    assert facts["size"] == 200 * 1024 * 1024
    assert facts["bytes_read"] == 1024 * 1024
    assert facts["truncated"] is True
    assert facts["lines"] == 104_858, "104,857 whole lines and the beginning of one"


@pytest.mark.skipif(not Path("/proc/sys/kernel/random/uuid").exists(), reason="needs Linux")
def test_a_file_that_lies_about_its_size_is_read_whole() -> None:
    (document,) = list_documents(Path("/proc/sys/kernel/random"), wanted="uuid".__eq__).documents
    facts = document_facts(document)
    assert facts.bytes_read == facts.size == 37
    assert facts.truncated is False


def test_links_are_looked_up_beside_the_file_that_has_them(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a b.md").write_text("[up](../top.md) [self](a%20b.md) [bad](top.md)")
    (tmp_path / "top.md").write_text(
        "# Top\n\n[down](docs/a%20b.md) [folder](docs/) [x](docs/a+b.md)\n"
    )
    facts = {d.path: document_facts(d) for d in list_documents(tmp_path).documents}
    assert facts["docs/a b.md"].broken == ("top.md",)
    assert facts["top.md"].broken == ("docs/a+b.md",)
    assert facts["top.md"].kind == "markdown"


def test_only_markdown_has_headings_and_links(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("# Title\n\n[x](gone.md)\n")
    facts = facts_of(path)
    assert (facts["kind"], facts["headings"], facts["links"]) == ("text", 0, 0)
    assert (facts["lines"], facts["words"]) == (3, 3)


def test_a_file_that_vanished_or_became_a_pipe_raises_instead_of_waiting(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x")
    (document,) = list_documents(tmp_path).documents
    path.unlink()
    with pytest.raises(FileNotFoundError):
        document_facts(document)
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        document_facts(document)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("README.md", True),
        ("notes.TXT", True),
        ("LICENSE", True),
        ("setup.py", False),
        ("x", False),
    ],
)
def test_a_projects_documents_are_told_by_their_names(name: str, expected: bool) -> None:
    assert is_document(name) is expected
