"""The assistant of ``hubbub chat``: a few real tools, and a model for when there is none.

``list_files`` and ``read_file`` see one folder, the one its user named: no name leads out of it,
not by ``..``, not by a link, and hidden files (where keys tend to lie) are not shown.  They read
through ``Offload``, and the time comes from ``Clock``.

``offline_model`` answers without a network: it follows simple rules, calls the tools when asked
to, and says what it is.
"""

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from hubbub.agents.definitions import AgentDefinition, PromptDefinition, SideConfig
from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    Model,
    ModelReply,
    ModelRequest,
    UserMessage,
)
from hubbub.agents.tools import Tool, ToolError, tool
from hubbub.hub.ports import Ports
from hubbub.runtime.document_folder import list_documents, printable, read_text
from hubbub.runtime.scripted_model import FunctionModel, call, reply

__all__ = ["SYSTEM", "assistant", "assistant_tools", "model_of_environment", "offline_model"]

SYSTEM: Final = "You are a helpful assistant in a terminal. Answer briefly, in plain text."

DEFAULT_MODELS: Final = (
    ("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-4-5"),
    ("OPENAI_API_KEY", "openai:gpt-5-mini"),
)
"""What is talked to when only a key is given; the first one counts."""

MAX_LISTED: Final = 200
MAX_READ: Final = 64 * 1024
"""Bytes of a file that ``read_file`` shows."""


def assistant(
    model: str | Model, ports: Ports, *, system: str = "", folder: Path | None = None
) -> AgentDefinition:
    """The default agent of ``hubbub chat``; with ``folder`` it may read the files there."""
    prompt = PromptDefinition(
        name="assistant",
        prompt=system or SYSTEM,
        model=model,
        tools=assistant_tools(ports, folder),
    )
    return AgentDefinition(name="assistant", side_a=SideConfig(prompt=prompt))


def model_of_environment(environ: Mapping[str, str]) -> str | None:
    """The default model of the first provider that ``environ`` has a key for."""
    for variable, model in DEFAULT_MODELS:
        if environ.get(variable, "").strip():
            return model
    return None


# ── tools ────────────────────────────────────────────────────────────────────────────────────


def assistant_tools(ports: Ports, folder: Path | None = None) -> tuple[Tool[..., Any], ...]:
    """``current_time``, and with a folder ``list_files`` and ``read_file``."""

    @tool
    async def current_time() -> str:
        """The current date and time, in UTC."""
        now = datetime.fromtimestamp(ports.clock.now() / 1_000_000, UTC)
        return now.strftime("%A, %Y-%m-%d %H:%M:%S UTC")

    if folder is None:
        return (current_time,)
    root = os.path.realpath(folder)

    @tool
    async def list_files() -> list[str]:
        """The names of the text files in the user's folder and below it."""
        listing = await ports.offload.run(partial(list_documents, Path(root)))
        names = [document.path for document in listing.documents[:MAX_LISTED]]
        more = len(listing.documents) - len(names)
        return [*names, f"(and {more} more)"] if more else names

    @tool
    async def read_file(name: str) -> str:
        """Read a text file of the user's folder; name is one of those that list_files gives."""
        return await ports.offload.run(partial(_read_below, root, name))

    return current_time, list_files, read_file


def _read_below(root: str, name: str) -> str:
    """The text of a file below ``root``; raises ``ToolError`` for every other name."""
    if "\0" in name:
        raise ToolError("a name cannot hold a NUL character")
    path = os.path.realpath(os.path.join(root, name))
    below = os.path.relpath(path, root)
    if below == os.pardir or below.startswith(os.pardir + os.sep) or os.path.isabs(below):
        raise ToolError(f"{name!r} lies outside of the folder; use a name that list_files gives")
    if any(part.startswith(".") and part != "." for part in below.split(os.sep)):
        raise ToolError(f"{name!r} is hidden; hidden files are not shown")
    try:
        text, is_whole = read_text(path, MAX_READ)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise ToolError(f"{name!r} cannot be read: {problem}; use list_files") from None
    return text if is_whole else f"{text}\n[cut: only the first {MAX_READ:,} bytes are shown]"


# ── a model without a network ────────────────────────────────────────────────────────────────

_read_wish = re.compile(
    r"\b(?:read|open|show|cat)\s+(?:me\s+)?(?:the\s+)?(?:file\s+)?[\"'“]?([^\s\"'”?!,]+)", re.I
)
_list_wish = re.compile(
    r"\b(?:ls|(?:list|what|which|show)\b.*\b(?:files?|documents?|folder))\b", re.I
)
_time_wish = re.compile(r"\b(?:time|date|day|clock)\b", re.I)
_who_wish = re.compile(r"\b(?:who|what) (?:are|r) you\b|\bhelp\b|\bwhat can you\b", re.I)


def offline_model(ports: Ports, *, latency: float = 0.0) -> FunctionModel:
    """A model that converses by a few rules; ``latency`` in seconds is spread over its words."""
    return FunctionModel(_converse, name="offline", latency=latency, clock=ports.clock)


def _converse(request: ModelRequest) -> ModelReply:
    last = request.messages[-1]
    if isinstance(last, AssistantMessage):
        return reply("\n".join(map(_relate, last.calls)) or "What else?")
    said = [m.content for m in request.messages if isinstance(m, UserMessage)]
    text = last.content.strip()
    tools = {spec.name for spec in request.tools}
    wish = _read_wish.search(text) if "read_file" in tools else None
    name = wish[1].rstrip(".;:") if wish is not None else ""
    if "list_files" in tools and _list_wish.search(text) and not {".", "/"} & {*name}:
        return reply("", call("list_files"))
    if name:
        return reply("", call("read_file", name=name))
    if "current_time" in tools and _time_wish.search(text):
        return reply("", call("current_time"))
    if _who_wish.search(text):
        return reply(_introduction(tools))
    return reply(_echo(text, len(said)))


def _relate(done: AnsweredCall) -> str:
    """What a tool came to, in words."""
    output = done.output
    if done.is_error:
        return f"That did not work: {output}"
    match done.name:
        case "current_time":
            return f"It is {output}."
        case "list_files":
            names = msgspec.json.decode(output, type=list[str])
            return "\n".join(["I see these text files:", *(f"  {name}" for name in names)])
        case _:
            lines = output.splitlines()
            begin = "\n".join(f"  {printable(line)}" for line in lines[:5])
            more = "\n  …" if len(lines) > 5 else ""
            return (
                f"{len(output.split()):,} words in {len(lines):,} lines. It begins:\n{begin}{more}"
            )


def _introduction(tools: set[str]) -> str:
    files = ' Ask me to "list files" or to "read README.md".' if "read_file" in tools else ""
    return (
        "I am hubbub's offline model: a few rules that stand in for a language model, so that "
        "you can see messages, tools and streaming at work without a key."
        f"{files} Ask me for the time. Anything else I count the words of."
    )


def _echo(text: str, turns: int) -> str:
    words = len(text.split())
    hint = ' Say "help" to hear what I am.' if turns == 1 else ""
    if not words:
        return f"You said nothing.{hint}"
    count = "1 word" if words == 1 else f"{words:,} words"
    shown = text if len(text) <= 200 else text[:200] + "…"
    return f"You said “{shown}”: {count}.{hint}"
