"""``write_skill``: a tool that puts a skill into a folder, as a file that ``load_skills`` reads.

    write_skill(name, description, instructions, …)  ─►  FOLDER/NAME.md

* What is put there has been read by ``load_skills`` from the very file that is moved into place:
  a reader sees the skill whole or not at all, and never one that is none.
* A file that is there is replaced when the call says so, and refused otherwise.
* A name is letters, digits, ``-`` and ``_``: none leads out of the folder, none is hidden.
* Everything here blocks, and runs through ``Offload``.  Refusals are for the model to read.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from hubbub.agents.built_in import USE_AGENT
from hubbub.agents.definitions.tools import Tool, ToolError, tool
from hubbub.hub.errors import MissingExtra
from hubbub.hub.ports import Ports
from hubbub.runtime.loading.skills import BadSkills, load_skills

__all__ = ["SkillFolder", "skill_text", "write_skill_tool"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class SkillFolder(Struct, frozen=True, kw_only=True):
    """Where skills are put, and what they may name.

    ``tools`` and ``agents`` are those known where the folder is loaded: a skill naming others could
    not be used.  A skill with ``use_agent`` may call these agents.  ``taken`` are names of skills
    that come from elsewhere.  ``command`` is what to start for the skill to be there.
    """

    folder: Path
    tools: Sequence[str] = (USE_AGENT,)
    agents: Sequence[str] = ()
    taken: Sequence[str] = ()
    command: str = "hubbub chat"


class _Draft(Struct, frozen=True, kw_only=True):
    """The arguments of a call."""

    name: str
    description: str
    instructions: str
    tools: Sequence[str]
    replace: bool


def write_skill_tool(ports: Ports, shelf: SkillFolder) -> Tool[..., Any]:
    """``write_skill`` for the folder of ``shelf``, which is made if there is none."""
    known = ", ".join(shelf.tools)

    async def write_skill(
        name: str,
        description: str,
        instructions: str,
        tools: list[str] | None = None,
        replace: bool = False,
    ) -> str:
        draft = _Draft(
            name=name.strip(), description=description.strip(), instructions=instructions,
            tools=tuple(tools or ()), replace=replace,
        )  # fmt: skip
        return await ports.offload.run(partial(_write, shelf, draft))

    about = (
        "Write a skill into the user's folder of skills. name: letters, digits and '-'. "
        "description: one line that says when to use the skill. instructions: for the "
        f"agent that carries it out. tools: which of these it may use: {known}. replace: true only "
        "if the user has agreed that the file of that name is replaced."
    )
    return tool(write_skill, description=about)


def skill_text(
    description: str, instructions: str, tools: Sequence[str] = (), agents: Sequence[str] = ()
) -> str:
    """A skill as the text of a file."""
    try:
        import yaml
    except ImportError:
        raise MissingExtra("writing skills", "skills") from None
    front: dict[str, Any] = {"description": description, "tools": list(tools)}
    if USE_AGENT in tools:
        front["agents"] = list(agents)
    text = yaml.safe_dump(
        front, allow_unicode=True, sort_keys=False, width=100, default_flow_style=None
    )
    return f"---\n{text}---\n\n{instructions.strip()}\n"


def _write(shelf: SkillFolder, draft: _Draft) -> str:
    """Check the draft, put it into the folder and say so; raises ``ToolError``."""
    _demand_names(shelf, draft)
    root = os.path.realpath(shelf.folder)
    path = os.path.join(root, f"{draft.name}.md")
    shown = os.path.join(shelf.folder, f"{draft.name}.md")
    beside = ""
    try:
        _demand_free(root, path, shown, draft)
        os.makedirs(root, exist_ok=True)
        # Hidden: it is no skill yet.  Another call may be writing a skill of this name.
        beside = tempfile.mkdtemp(prefix=f".{draft.name}.", suffix=".hubbub-tmp", dir=root)
        new = os.path.join(beside, f"{draft.name}.md")
        _write_text(
            new, skill_text(draft.description, draft.instructions, draft.tools, shelf.agents)
        )
        load_skills(beside)
        _put(new, path, shown, draft.replace)
    except BadSkills as error:
        raise ToolError(f"not written: {'; '.join(error.problems)}") from None
    except OSError as error:
        raise ToolError(f"{shown} cannot be written: {error.strerror or error}") from None
    finally:
        if beside:
            shutil.rmtree(beside, ignore_errors=True)
    return f"wrote {shown}; the next `{shelf.command}` offers the skill {draft.name!r}"


def _demand_names(shelf: SkillFolder, draft: _Draft) -> None:
    """Refuse what would be no skill, or one that could not be loaded."""
    if not _NAME.fullmatch(draft.name):
        wanted = "1 to 64 letters, digits, '-' and '_', a letter or digit first"
        raise ToolError(f"{draft.name!r} cannot be the name of a skill: {wanted}, are wanted")
    if draft.name in shelf.taken:
        raise ToolError(f"{draft.name!r} is a skill already, and not one of the user's; rename it")
    if unknown := sorted(set(draft.tools) - set(shelf.tools)):
        there = ", ".join(shelf.tools) or "none"
        raise ToolError(f"tools: there is no {', '.join(map(repr, unknown))}; there are: {there}")


def _demand_free(root: str, path: str, shown: str, draft: _Draft) -> None:
    """Refuse a name that is taken, by this file or by another one."""
    if os.path.lexists(path):
        if not draft.replace:
            raise _Exists(shown)
        return
    with suppress(BadSkills):  # Then its user learns of it when it is loaded.
        if draft.name in (skill.name for skill in load_skills(root)):
            other = f"another file of that folder is the skill {draft.name!r}"
            raise ToolError(f"not written: {other}; choose another name")


def _put(new: str, path: str, shown: str, replace: bool) -> None:
    """Move the file into its place, at once."""
    if replace:
        os.replace(new, path)
        return
    try:
        os.link(new, path)  # Unlike a rename it fails where somebody was faster.
    except FileExistsError:
        raise _Exists(shown) from None
    except OSError:  # A file system without links.
        os.rename(new, path)


def _write_text(path: str, text: str) -> None:
    with open(path, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


class _Exists(ToolError):
    """The file is there."""

    def __init__(self, shown: str) -> None:
        super().__init__(
            f"not written: {shown} exists already; ask the user, then replace it "
            "(replace=true) or choose another name"
        )
