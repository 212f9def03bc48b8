"""``@path`` in a line that is typed: what goes along, and what does not (L-02)."""

import os
from pathlib import Path

import anyio
import pytest
from support.agents import model_agent

from hubbub import Message
from hubbub.agents.model import ModelRequest, UserMessage
from hubbub.channels.console.attached import attach
from hubbub.hub.errors import BadValue
from hubbub.runtime.models.scripted import FunctionModel

pytestmark = pytest.mark.spec("L-02")

PNG = b"\x89PNG\r\n\x1a\n picture"


@pytest.fixture
def shot(tmp_path: Path) -> Path:
    place = tmp_path / "my shot.png"
    place.write_bytes(PNG)
    (tmp_path / "shot.png").write_bytes(PNG)
    (tmp_path / "notes.txt").write_text("a note")
    (tmp_path / "liar.pdf").write_bytes(PNG)
    return place


def seen(found: list[ModelRequest]) -> FunctionModel:
    def answer(request: ModelRequest) -> str:
        found.append(request)
        return "I see."

    return FunctionModel(answer)


@pytest.mark.anyio
async def test_a_file_that_a_line_names_is_shown(converse, terminal, shot):
    requests: list[ModelRequest] = []
    async with converse(terminal, model_agent(seen(requests), name="bot")) as _:
        terminal.type(f'What is on it? @"{shot}"')
        await anyio.sleep(1)
    (said,) = requests[0].messages
    assert isinstance(said, UserMessage)
    assert said.content == f'What is on it? @"{shot}"'
    assert [part.name for part in said.parts] == ["my shot.png"]
    assert "attached image my shot.png (image/png, 16 bytes)" in terminal.screen


@pytest.mark.anyio
async def test_a_file_that_is_not_there_sends_nothing(converse, terminal, shot):
    requests: list[ModelRequest] = []
    async with converse(terminal, model_agent(seen(requests), name="bot")) as _:
        terminal.type(f"Look: @{shot.parent}/none.png")
        await anyio.sleep(1)
    assert requests == []
    assert any("there is no such file" in line for line in terminal.screen)


def test_words_with_an_at_are_words_like_any_other(shot: Path) -> None:
    for line in ("mail ada@example.com", "ask @ada", "@", "@ada.png.exe", 'say @"', "a@b.png"):
        assert attach(line) == line
    said = attach(f"@{shot.parent}/shot.png and @{shot.parent}/shot.png")
    assert isinstance(said, Message)
    assert len(said.parts) == 2


def test_what_no_model_could_be_shown_is_refused_with_what_to_do(shot: Path) -> None:
    with pytest.raises(BadValue, match="only pictures, PDFs and recordings"):
        attach(f"@{shot.parent}/notes.txt")
    with pytest.raises(BadValue, match="its name says application/pdf, but it holds image/png; r"):
        attach(f"@{shot.parent}/liar.pdf")
    (shot.parent / "text.png").write_text("no picture")
    with pytest.raises(BadValue, match="its name says image/png, but it holds no such thing"):
        attach(f"@{shot.parent}/text.png")
    (shot.parent / "empty.png").touch()
    with pytest.raises(BadValue, match="it is empty"):
        attach(f"@{shot.parent}/empty.png")
    with (shot.parent / "large.png").open("wb") as file:
        file.truncate(21 << 20)
    with pytest.raises(
        BadValue, match=r"22,020,096 bytes; at most 20,971,520 \(20 MiB\) can be sh"
    ):
        attach(f"@{shot.parent}/large.png")
    for name in ("liar.pdf", "text.png", "empty.png", "large.png"):
        with pytest.raises(BadValue) as refused:
            attach(f"@{shot.parent}/{name}")
        words = str(refused.value)
        assert not [each for each in ("Image", "Document", "as a file") if each in words]


def test_what_is_no_plain_file_is_refused_as_such(shot: Path) -> None:
    (shot.parent / "folder.png").mkdir()
    os.mkfifo(shot.parent / "pipe.png")
    for name in ("folder.png", "pipe.png"):
        with pytest.raises(BadValue, match="no file but a folder, a pipe or a device"):
            attach(f"@{shot.parent}/{name}")
