"""``write_skill`` puts skills that ``load_skills`` reads into a folder, and nothing elsewhere."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from hubbub.hub.ports import Ports
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.activities.call_tool import call_tool
from hubbub.runtime.loading.skills import load_skills
from hubbub.runtime.loading.write_skill import SkillFolder, skill_text, write_skill_tool

SHELF = {"tools": ("current_time", "use_agent"), "agents": ("research",), "taken": ("ours",)}


async def write(folder: Path, ports: Ports | None = None, /, **given: Any) -> tuple[str, bool]:
    """Call the tool; returns what the model reads, and whether as an error."""
    ports = ports or virtual_ports()
    arguments = {"name": "greet", "description": "Greets.", "instructions": "Say hello."} | given
    wanted = write_skill_tool(ports, SkillFolder(folder=folder, **SHELF))  # type: ignore[arg-type]
    text = json.dumps(arguments, ensure_ascii=False)
    result = await call_tool(wanted, text, None, ports.offload)  # type: ignore[arg-type]
    return result.content, result.is_error


@pytest.mark.anyio
async def test_a_skill_is_written_into_a_folder_that_is_made_and_can_be_loaded(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "a" / "skills"
    told, is_error = await write(folder, tools=["use_agent", "current_time"])
    assert not is_error
    assert told == f"wrote {folder}/greet.md; the next `hubbub chat` offers the skill 'greet'"
    (skill,) = load_skills(folder)
    assert (skill.name, skill.description) == ("greet", "Greets.")
    assert skill.instructions == "Say hello."
    assert skill.tools == ("use_agent", "current_time")
    assert skill.agents == ("research",)
    assert os.listdir(folder) == ["greet.md"], "nothing else is left there"


@pytest.mark.anyio
async def test_what_is_not_asked_for_is_not_given(tmp_path: Path) -> None:
    await write(tmp_path)
    (skill,) = load_skills(tmp_path)
    assert skill.tools == ()


@pytest.mark.anyio
async def test_a_file_that_is_there_is_replaced_only_when_the_call_says_so(tmp_path: Path) -> None:
    await write(tmp_path)
    before = (tmp_path / "greet.md").read_bytes()
    told, is_error = await write(tmp_path, instructions="Say goodbye.")
    assert is_error and "exists already; ask the user" in told
    assert (tmp_path / "greet.md").read_bytes() == before
    assert await write(tmp_path, instructions="Say goodbye.", replace=True) != (told, is_error)
    assert load_skills(tmp_path)[0].instructions == "Say goodbye."


@pytest.mark.anyio
@pytest.mark.parametrize(
    "name",
    ["", " ", ".", "..", "../up", "a/b", "/etc/x", "a\\b", ".hidden", "-x", "x.md", "a b", "a\0b",
     "é", "x" * 65, "~", "ours"],
)  # fmt: skip
async def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "skills"
    told, is_error = await write(folder, name=name)
    assert is_error and ("wanted" in told or "rename it" in told)
    assert os.listdir(tmp_path) == []


@pytest.mark.anyio
async def test_a_link_in_the_place_of_the_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    folder.mkdir()
    (tmp_path / "precious.md").write_text("mine")
    (folder / "greet.md").symlink_to(tmp_path / "precious.md")
    assert (await write(folder))[1]
    assert not (await write(folder, replace=True))[1]
    assert (tmp_path / "precious.md").read_text() == "mine"
    assert not (folder / "greet.md").is_symlink()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"description": " "}, "description: required"),
        ({"instructions": ""}, "the text below the front matter"),
        ({"instructions": "a\0b"}, "NUL character"),
        ({"instructions": "é" * 600_000}, "longer than 1 MiB"),
        ({"tools": ["read_file"]}, "there is no 'read_file'; there are: current_time, use_agent"),
        ({"tools": ["use_skill"]}, "there is no 'use_skill'"),
    ],
)
async def test_what_would_be_no_skill_is_not_written(
    tmp_path: Path, given: dict[str, Any], problem: str
) -> None:
    told, is_error = await write(tmp_path, **given)
    assert is_error and problem in told
    assert os.listdir(tmp_path) == []


@pytest.mark.anyio
async def test_two_files_are_never_the_same_skill(tmp_path: Path) -> None:
    (tmp_path / "greet").mkdir()
    (tmp_path / "greet" / "SKILL.md").write_text(skill_text("Greets.", "Say hello."))
    told, is_error = await write(tmp_path)
    assert is_error and "choose another name" in told
    assert len(load_skills(tmp_path)) == 1


@pytest.mark.anyio
async def test_what_cannot_be_written_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "skills").write_text("a file")
    told, is_error = await write(tmp_path / "skills")
    assert is_error and "skills/greet.md cannot be written" in told
    (tmp_path / "greet.md").mkdir()
    told, is_error = await write(tmp_path, replace=True)
    assert is_error and "cannot be written" in told


@pytest.mark.anyio
async def test_a_folder_with_something_wrong_in_it_can_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "wrong.md").write_text("no front matter")
    assert not (await write(tmp_path))[1]


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1)
    .filter(str.strip),
)  # fmt: skip
@settings(deadline=None, max_examples=examples(60))
def test_what_is_written_is_read_back_whatever_it_says(description: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "greet.md").write_text(skill_text(description.strip(), text), newline="")
        (skill,) = load_skills(folder)
    assert skill.description == description.strip()
    assert skill.instructions == text.strip()
