"""``hubbub chat``: a conversation with an agent in the terminal."""

import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import anyio
from msgspec import Struct

from hubbub.hub.errors import OperatorError
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports
from hubbub.runtime.cli.printing import Backend, CommandScreen, existing_folder
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.stores.open import DEFAULT_STORE
from hubbub.runtime.text import printable

if TYPE_CHECKING:
    from hubbub.agents.definitions.skills import Skill
    from hubbub.runtime.loading.agents import LoadedAgents

__all__ = ["Converse", "chat_command"]

SPEECH_SECONDS: Final = 0.4
"""What an answer of the offline model takes in a terminal."""

CLOSING_SECONDS: Final = 1.0
"""What a conversation that ends with the chat may take for that."""

Converse: TypeAlias = Callable[[Hub, str, str | None], Awaitable[int]]
"""Takes a hub, an agent's name and a session key; its result is an exit code."""

Work: TypeAlias = Callable[[], Coroutine[Any, Any, int]]


def chat_command(screen: CommandScreen, converse: Converse) -> Callable[..., int]:
    """``converse`` lets a person talk with an agent of a hub."""
    from cyclopts import Parameter

    def chat(
        agent: Annotated[str | None, Parameter(name="MODULE:AGENT")] = None,
        /,
        *,
        model: str | None = None,
        system: Annotated[str, Parameter(show_default=False)] = "",
        folder: Path | None = None,
        skills: Path | None = None,
        session: Annotated[str, Parameter(show_default=False)] = "",
        store: str = DEFAULT_STORE,
        backend: Backend = "asyncio",
    ) -> int:
        """Talk with an agent in the terminal. Ctrl-C interrupts it, twice leaves.

        Without MODULE:AGENT the agent is a small assistant, main, on --model, or else on a model
        of the provider whose key is in the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY), or
        else on an offline model that follows a few rules. It can let others take the conversation
        over: research, which reads files, skill-writer, which writes skills, and your own skills.
        /back returns it to the caller, /stop to main.

        Parameters
        ----------
        agent
            An agent of your own, such as my_agents:assistant.
        model
            provider:name[@url], such as anthropic:claude-sonnet-4-5, openai:gpt-5-mini or
            openai:llama3.2@http://localhost:11434/v1.
        system
            The assistant's instructions.
        folder
            Research may list and read the text files of this folder, and of no other.
        skills
            The folder of your skills: Markdown files that load_skills reads. They are offered to
            the assistant, and new ones are written there. Default: skills, if there is one.
        session
            A name for the conversation: it is kept, and the same name continues it.
        store
            What keeps it: sqlite:FOLDER, postgresql://…, or memory.
        backend
            The event loop.
        """
        own = _Own(model=model, system=system, folder=folder, skills=skills)
        work = _chat(screen, converse, agent, own, _Kept(session, store))
        return screen.loop(work, backend)

    return chat


class _Kept(Struct, frozen=True):
    """Under which name, and in what, a conversation is kept."""

    session: str
    store: str

    @property
    def session_key(self) -> str | None:
        """Connector, channel and user; ``None`` for a conversation that ends with the chat."""
        if self.session and not re.fullmatch(r"[A-Za-z0-9.-]{1,64}", self.session):
            raise OperatorError("--session: expected 1 to 64 letters, digits, '-' and '.'")
        return f"console_{self.session}_local" if self.session else None


class _Own(Struct, frozen=True, kw_only=True):
    """What was asked for besides: the last three are for the agents that come with hubbub."""

    model: str | None
    system: str
    folder: Path | None
    skills: Path | None


def _chat(
    screen: CommandScreen, converse: Converse, spec: str | None, own: _Own, kept: _Kept
) -> Work:
    from hubbub.runtime.loading.agents import load_agents, with_model

    ports = Ports()
    if spec is None:
        notes: list[str] = []
        assistant = _assistant(screen, notes, ports, own)
        return _conversation(converse, assistant, ports, kept, lambda: _say(screen, notes))
    if own.system or own.folder is not None or own.skills is not None:
        options = "--system, --folder and --skills"
        raise OperatorError(f"{options} are for the assistant; leave them out, or MODULE:AGENT")
    loaded = load_agents(spec)
    if own.model is not None:
        loaded = with_model(loaded, own.model)
    return _conversation(converse, loaded, ports, kept)


def _say(screen: CommandScreen, notes: Iterable[str]) -> None:
    for note in notes:
        screen.notice(note)


def _assistant(screen: CommandScreen, notes: list[str], ports: Ports, own: _Own) -> "LoadedAgents":
    """The agents that come with hubbub, on the model that is there.

    ``notes`` is given what its user should know, once nothing refuses what was asked for.
    """
    from hubbub.runtime.demo.chat.agents import (
        DEFAULT_SKILLS,
        ChatModels,
        chat_agents,
        model_of_environment,
    )  # fmt: skip
    from hubbub.runtime.demo.chat.model import offline_models

    folder, model = own.folder, own.model
    if folder is not None:
        folder = existing_folder(folder, "name the folder that research may read: --folder FOLDER")
    if model is not None and not model.strip():
        raise OperatorError("--model is empty; write provider:name, for example anthropic:NAME")
    skills = _skills(notes, own.skills, Path(DEFAULT_SKILLS))
    chosen = model or model_of_environment(os.environ)
    if chosen is None:
        notes.append("no API key in the environment, so this is the offline model; see --model")
        latency = SPEECH_SECONDS if screen.is_interactive() else 0.0
        models = offline_models(ports, latency=latency)
        folder = folder or Path.cwd()  # Nothing that is read leaves this machine.
    else:
        models = ChatModels(chosen, chosen, "")
        if model is None:
            notes.append(f"talking to {chosen}; see --model")
    return chat_agents(
        models, ports, system=own.system, folder=folder, skills=skills,
        skills_folder=own.skills or Path(DEFAULT_SKILLS),
    )  # fmt: skip


def _skills(notes: list[str], named: Path | None, usual: Path) -> "tuple[Skill, ...]":
    """The user's skills; a folder that was not asked for is left out rather than complained of."""
    from hubbub.runtime.loading.skills import BadSkills, load_skills

    if named is not None and not os.path.lexists(named):
        shown = printable(str(named))
        notes.append(f"{shown} does not exist; skill-writer makes it for its first skill")
        return ()
    if named is not None:
        remedy = "name the folder of your skills: --skills FOLDER"
        return load_skills(existing_folder(named, remedy))
    try:
        return load_skills(usual) if usual.is_dir() else ()
    except BadSkills as error:
        text = printable(" ".join(str(error).split()))
        notes.append(f"{text}; going on without; --skills FOLDER names another folder")
        return ()


def _conversation(
    converse: Converse,
    loaded: "LoadedAgents",
    ports: Ports,
    kept: _Kept,
    begins: Callable[[], object] = lambda: None,
) -> Work:
    """A conversation with an agent, from the opening of its store to its end.

    ``begins`` is called when nothing hinders it any more.
    """
    session_key = kept.session_key

    async def work() -> int:
        runtime = Runtime(
            loaded.agents, loaded.prompts, loaded.tools, skills=loaded.skills,
            store=kept.store, ports=ports,
        )  # fmt: skip
        name = loaded.agent.name
        if not loaded.agent.is_code:  # A missing key is reported before anything is typed.
            choices = runtime.definitions.side(name).choices
            runtime.services.catalog.prepare([tuple(each.model for each in choices)])
        async with runtime:
            begins()
            code = await converse(runtime.hub, name, session_key)
            with anyio.move_on_after(CLOSING_SECONDS):  # What was closed on the way out ends.
                while await runtime.hub.journal.ready():  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            return code

    return work
