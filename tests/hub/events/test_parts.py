"""What enters as a part: its type, its size, its name, its address (L-02)."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub import Audio, ContentPart, Document, Image, Message
from hubbub.channels.http.wire.parts import PartBody, parts_shown
from hubbub.hub.errors import BadValue
from hubbub.hub.events import HistoryMessage
from hubbub.hub.events.files import kept_contents
from hubbub.hub.events.history import history_problem, read_history
from hubbub.hub.events.media_types import MAX_BYTES, TYPES, type_of_content
from hubbub.hub.events.parts import MAX_PARTS, part_problem, read_parts
from hubbub.hub.message import opening_event, session_message

PNG = b"\x89PNG\r\n\x1a\n picture"
CONTENTS = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0 picture",
    "image/gif": b"GIF89a picture",
    "image/webp": b"RIFF\x10\x00\x00\x00WEBPVP8 ",
    "application/pdf": b"\n%PDF-1.7 document",
    "audio/wav": b"RIFF\x10\x00\x00\x00WAVEfmt ",
    "audio/mpeg": b"ID3\x04 sound",
    "audio/ogg": b"OggS sound",
    "audio/flac": b"fLaC sound",
    "audio/mp4": b"\x00\x00\x00\x20ftypM4A sound",
}
CLASSES: dict[str, Any] = {"image": Image, "document": Document, "audio": Audio}


@pytest.mark.parametrize("media_type", CONTENTS)
def test_a_content_says_itself_what_it_is(media_type: str) -> None:
    kind = next(kind for kind, types in TYPES.items() if media_type in types)
    made = CLASSES[kind](CONTENTS[media_type])
    assert (made.part.kind, made.part.media_type) == (kind, media_type)
    assert part_problem(made.part) == ""
    assert CLASSES[kind](bytearray(CONTENTS[media_type])) == made


def test_an_address_may_be_said_to_be_something_else_than_it_ends_like() -> None:
    assert Image.from_url("http://x/y.pdf", media_type="image/png").part.url == "http://x/y.pdf"
    assert Image.from_url("http://x/a.b/y").part.name == ""
    assert Image.from_url("http://x/y.pdf/page.jpg").part.media_type == ""


def test_an_address_with_a_password_that_is_on_record_can_still_be_read() -> None:
    old = ContentPart(kind="image", url="https://u:p@h/x")
    assert part_problem(old) == ""
    assert history_problem([HistoryMessage(role="user", content="x", parts=(old,))]) == ""


def test_every_type_has_a_content_here() -> None:
    assert {*CONTENTS} == {*frozenset().union(*TYPES.values())}
    assert type_of_content(b"\xff\xfb\x90\x00 frame") == "audio/mpeg"


@given(st.binary(max_size=40))
def test_any_bytes_are_a_part_or_refused(content: bytes) -> None:
    for make in CLASSES.values():
        with suppress(BadValue):
            assert part_problem(make(content).part) == ""


@pytest.mark.spec("L-02")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        pytest.param(lambda: Image(b""), "it is empty", id="empty"),
        pytest.param(lambda: Image(b"<svg/>"), "no picture of a known type", id="svg"),
        pytest.param(lambda: Image(CONTENTS["application/pdf"]), "use Document", id="other kind"),
        pytest.param(
            lambda: Image(PNG, "image/jpeg"), "it holds image/png, not image/jpeg", id="claim"
        ),
        pytest.param(lambda: Image(PNG, "text/html"), "no model takes 'text/html'", id="no type"),
        pytest.param(lambda: Image(PNG, 7), "media_type is a text", id="type of what"),  # type: ignore[arg-type]
        pytest.param(lambda: Image("a.png"), "use from_file", id="a path"),  # type: ignore[arg-type]
        pytest.param(lambda: Image(PNG, name="a\0b"), "NUL", id="NUL in the name"),
        pytest.param(lambda: Image(PNG, name="\ud83d"), "surrogate", id="half a name"),
        pytest.param(lambda: Image(PNG, name="n" * 256), "at most 255", id="long name"),
        pytest.param(lambda: Image(PNG, name="a\nb"), "printable", id="two lines of name"),
        pytest.param(
            lambda: Image.from_url("file:///etc/passwd"), "use from_file", id="file address"
        ),
        pytest.param(lambda: Image.from_url("shot.png"), "use from_file", id="no address"),
        pytest.param(
            lambda: Image.from_url("data:image/png;base64,AA"), "pass bytes", id="data address"
        ),
        pytest.param(lambda: Image.from_url("ftp://host/a.png"), "http or https", id="ftp"),
        pytest.param(lambda: Image.from_url("https://"), "names no host", id="no host"),
        pytest.param(lambda: Image.from_url("https://u:sesame@h/x"), "no password", id="password"),
        pytest.param(lambda: Image.from_url("https://sesame@h/x"), "no user name", id="user name"),
        pytest.param(
            lambda: Image.from_url("https://u:sesame@[h/x"), "no address", id="broken, a password"
        ),
        pytest.param(
            lambda: Image.from_url("https://u:sesame@\u2100/x"), "no address", id="odd, a password"
        ),
        pytest.param(
            lambda: Image.from_url("https://u:sesame@/x"), "no host", id="no host, a password"
        ),
        pytest.param(
            lambda: session_message(
                Message("x", parts=(ContentPart(kind="image", url="https://u:sesame@h/x"),))
            ),
            "no password",
            id="password of a part",
        ),
        pytest.param(
            lambda: read_history(
                [HistoryMessage(parts=(ContentPart(kind="image", url="http://a:sesame@h/"),))]
            ),
            "no password",
            id="password in a history",
        ),
        pytest.param(
            lambda: parts_shown([PartBody(kind="image", url="https://u:sesame@h/x")]),
            "no password",
            id="password over HTTP",
        ),
        pytest.param(
            lambda: Image.from_url("http://x/y.pdf"), "use Document", id="address of a PDF"
        ),
        pytest.param(
            lambda: Document.from_url("http://x/a/y%2Epng?z=1"), "use Image", id="of a picture"
        ),
        pytest.param(lambda: Image.from_url("https://a/\nb"), "control", id="line in an address"),
        pytest.param(lambda: Image.from_url("https://[a"), "no address", id="broken address"),
        pytest.param(
            lambda: Image.from_url("https://a/" + "b" * 8000), "at most 8,000", id="long address"
        ),
        pytest.param(
            lambda: Image.from_url("https://a/b", media_type="audio/wav"),
            "no type of picture",
            id="other type",
        ),
        pytest.param(lambda: Image.from_url(None), "expected a str", id="None"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_part_is_refused_where_it_is_made(make: Callable[[], object], why: str) -> None:
    with pytest.raises(BadValue, match=why) as refused:
        make()
    assert "sesame" not in str(refused.value)


@pytest.mark.spec("L-02")
def test_a_picture_of_a_hundred_megabytes_is_refused_with_what_to_do() -> None:
    with pytest.raises(BadValue, match=r"100,000,000 bytes; .*20 MiB.*smaller.*as a file"):
        Image(PNG + bytes(100_000_000 - len(PNG)))
    with pytest.raises(BadValue, match=r"a recording has at most"):
        Audio(CONTENTS["audio/wav"] + bytes(MAX_BYTES["audio"]))


NAMED: dict[str, Callable[[Path, str], Any]] = {
    "bytes": lambda folder, name: Image(PNG, name=name),
    "a file": lambda folder, name: Image.from_file(_written(folder / name)),
    "an address": lambda folder, name: Image.from_url("https://h/x", name=name),
    "an address of a type": lambda folder, name: Image.from_url(
        "https://h/x", media_type="image/png", name=name
    ),
    "the HTTP API": lambda folder, name: parts_shown([PartBody(kind="image", data=PNG, name=name)]),
}


def _written(path: Path) -> Path:
    path.write_bytes(PNG)
    return path


@pytest.mark.spec("L-02")
@pytest.mark.parametrize("way", NAMED)
def test_a_name_that_contradicts_the_content_is_refused_however_it_comes(
    way: str, tmp_path: Path
) -> None:
    for name in ("shot.png", "SHOT.PNG", "shot", "shot.txt", "report.v2"):
        NAMED[way](tmp_path, name)
    for name in ("x.pdf", "x.PDF", "x.mp3"):
        with pytest.raises(BadValue, match=r"its name says .*, but it holds .*; rename"):
            NAMED[way](tmp_path, name)
    if way != "an address":  # What is there is not known.
        with pytest.raises(BadValue, match=r"says image/jpeg, but it holds image/png"):
            NAMED[way](tmp_path, "x.jpg")


@pytest.mark.spec("L-02")
def test_a_file_is_what_its_name_says_or_is_refused(tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    shot.write_bytes(PNG)
    made = Image.from_file(shot)
    assert made.part == Image(PNG, name="shot.png").part
    liar = tmp_path / "liar.jpg"
    liar.write_bytes(PNG)
    with pytest.raises(BadValue, match=r"its name says image/jpeg, but it holds image/png; rename"):
        Image.from_file(str(liar))
    with pytest.raises(BadValue, match="use Image"):
        Document.from_file(shot)
    with (tmp_path / "huge.png").open("wb") as file:
        file.write(PNG)
        file.truncate(100_000_000)
    with pytest.raises(BadValue, match="100,000,000 bytes"):
        Image.from_file(tmp_path / "huge.png")
    with pytest.raises(FileNotFoundError):
        Image.from_file(tmp_path / "none.png")
    with pytest.raises(BadValue, match="expected a path"):
        Image.from_file(PNG)  # type: ignore[arg-type]


def test_a_part_shows_neither_content_nor_digest() -> None:
    assert repr(Image(PNG, name="a.png")) == "<Image image a.png (image/png, 16 bytes)>"
    assert Image(PNG).part.words == "image (image/png, 16 bytes)"
    far = Document.from_url("https://example.com/a.pdf")
    assert far.part.words == "document https://example.com/a.pdf"
    big = ContentPart(kind="image", media_type="image/png", digest="0" * 64, size=2_500_000)
    assert big.words == "image (image/png, 2.5 MB)"


@pytest.mark.parametrize(
    "part",
    [
        ContentPart(kind="video"),  # type: ignore[arg-type]
        ContentPart(kind="image"),
        ContentPart(kind="image", digest="x" * 64, media_type="image/png", size=3),
        ContentPart(kind="image", digest="0" * 64, media_type="image/png"),
        ContentPart(kind="image", digest="0" * 64, media_type="audio/wav", size=3),
        ContentPart(kind="image", digest="0" * 64, media_type="image/png", size=1 << 40),
        ContentPart(kind="image", url="https://a/b", digest="0" * 64),
        ContentPart(kind="image", url="ftp://a/b"),
        ContentPart(kind="image", url="https://a/b", name="\0"),
        ContentPart(kind=7),  # type: ignore[arg-type]
        ContentPart(kind="image", digest=7),  # type: ignore[arg-type]
        ContentPart(kind="image", url=7),  # type: ignore[arg-type]
    ],
)
def test_a_part_that_somebody_has_built_is_checked_where_it_is_sent(part: ContentPart) -> None:
    assert part_problem(part)
    with pytest.raises(BadValue, match=r"message\.parts"):
        session_message(Message("look", parts=[part]))
    said = HistoryMessage(content="look", parts=(part,))
    with pytest.raises(BadValue, match="history"):
        read_history([said])
    assert "parts" in history_problem([said])


def test_a_message_takes_parts_alone_beside_its_text() -> None:
    said = session_message(["What is on it?", Image(PNG), "Say it briefly."])
    assert said.content == "What is on it?\n\nSay it briefly."
    assert said.parts == (Image(PNG).part,)
    alone = session_message(Message("", parts=(Image(PNG), Image.from_url("https://a/b"))))
    assert [each.digest for each in kept_contents(alone)] == [Image(PNG).part.digest]
    for wrong in (["a", b"b"], [Image(PNG), 7], ["a"], [], PNG):
        with pytest.raises(BadValue):
            session_message(wrong)  # type: ignore[arg-type]
    for parts in ("a.png", [PNG], 7, [Image]):
        with pytest.raises(BadValue, match=r"message\.parts"):
            session_message(Message("look", parts=parts))  # type: ignore[arg-type]
    with pytest.raises(BadValue, match=f"{MAX_PARTS + 1} parts; at most {MAX_PARTS}"):
        read_parts("parts", [Image(PNG)] * (MAX_PARTS + 1))


def test_a_history_has_parts_of_the_users() -> None:
    (said, _) = read_history(
        [
            {"role": "user", "content": "", "parts": [Image(PNG)]},
            {"role": "assistant", "content": "A picture."},
        ]
    )
    assert said == HistoryMessage(parts=(Image(PNG).part,))
    assert read_history([HistoryMessage(content="a", parts=(Image(PNG),))])[0].parts == said.parts  # type: ignore[arg-type]
    assert history_problem([said]) == ""
    spoken = HistoryMessage(role="assistant", content="a", parts=said.parts)
    assert "only a user's message" in history_problem([spoken])
    with pytest.raises(BadValue, match="have no 'parts'"):
        read_history([{"role": "assistant", "content": "a", "parts": []}])
    opened = opening_event(
        "a", ["b", Image(PNG)], run_id="", session_key="", correlation_id="", name="", once=False,
        timeout=None, descriptor=None, env=None, source="", history=[said],
    )  # fmt: skip
    assert [each.digest for each in kept_contents(opened)] == [Image(PNG).part.digest] * 2
