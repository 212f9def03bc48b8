"""The command line: ``hubbub demo``, ``assets``, ``chat``, and what looks into stores
(``hubbub.runtime.cli.store_commands``).

Exit codes: 0 done; 1 it was tried and failed; 2 it cannot be done as asked (the command line, a
folder, module, model or key); 130 interrupted.  What goes wrong is one line on stderr with its
remedy; ``HUBBUB_DEBUG=1`` shows the traceback instead.

Only this module puts ``runtime`` and ``channels`` together, and only this module writes to the
terminal on behalf of the former.
"""

import sys

try:
    import errno
    import logging
    import os
    import re
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path
    from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar

    import anyio
    import msgspec
    from msgspec import Struct, structs

    from hubbub import HubbubError, Runtime, __version__
    from hubbub.hub.errors import MissingExtra, OperatorError
    from hubbub.hub.events import Event
    from hubbub.hub.ports import Ports
    from hubbub.hub.store.memory import MemoryJournal
    from hubbub.hub.store.store import Store
    from hubbub.runtime.cli.store_commands import store_commands
    from hubbub.runtime.stores.open import DEFAULT_STORE
    from hubbub.runtime.text import printable
except KeyboardInterrupt:  # As ``main`` ends, which is not there yet.
    sys.exit(130)

if TYPE_CHECKING:
    from rich.console import Console

    from hubbub.agents.definitions.skills import Skill
    from hubbub.runtime.demo.assets.told import Assets
    from hubbub.runtime.demo.story import Story
    from hubbub.runtime.demo.survey import Demo
    from hubbub.runtime.loading.agents import LoadedAgents

__all__ = ["main"]

T = TypeVar("T")

Backend: TypeAlias = Literal["asyncio", "trio"]

FAILED: Final = 1
WRONG: Final = 2
INTERRUPTED: Final = 130

STEP_SECONDS: Final = 0.15
"""What a step of the scripted model takes where somebody is watching."""
FRAME_SECONDS: Final = 0.08
SPEECH_SECONDS: Final = 0.4
"""What an answer of the offline model takes in a terminal."""

CLOSING_SECONDS: Final = 1.0
"""What a conversation that ends with the chat may take for that."""

ABOUT: Final = "An event-hub actor system for LLM agents: every run is a durable actor on one hub."
EXIT_CODES: Final = (
    "Exit codes: 0 done, 1 tried and failed, 2 cannot be done as asked, 130 interrupted."
)


class _Wrong(OperatorError):
    """The command cannot be carried out as given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; never raises for what goes wrong in it."""
    # What goes wrong is told by the commands themselves, in their own words.
    if not (logger := logging.getLogger("hubbub")).handlers:
        logger.addHandler(logging.NullHandler())
    if not _has_streams():
        _notice("standard output is closed; send it to a file, or to /dev/null")
        return WRONG
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # A terminal that cannot show a sign gets its number.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has left; Python must not try to flush the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


def _has_streams() -> bool:
    """Whether there is somewhere to write to; the other two may lead nowhere.

    A descriptor that the caller has closed would otherwise be the next file that is opened.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        return False
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    return True


def _run(arguments: Sequence[str]) -> int:
    debug = os.environ.get("HUBBUB_DEBUG", "") not in ("", "0")
    try:
        return _command(arguments)
    except BrokenPipeError:
        raise
    except (KeyboardInterrupt, BaseExceptionGroup) as error:
        if _is_interrupt(error):
            return INTERRUPTED
        if debug:
            raise
        return _complain(error)
    except Exception as error:
        if debug:
            raise
        return _complain(error)


def _command(arguments: Sequence[str]) -> int:
    try:
        import cyclopts
        import rich  # noqa: F401
    except ImportError:
        raise MissingExtra("the command line", "cli") from None

    try:
        code = _app()(arguments, exit_on_error=False, print_error=False)
    except cyclopts.CycloptsError as error:
        text = " ".join(str(error).split())
        raise _Wrong(f"{text} See: hubbub --help") from None
    return code if isinstance(code, int) else 0


def _complain(error: BaseException) -> int:
    """Say in one line what is wrong."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    text = printable(" ".join(str(error).split()))
    if isinstance(error, HubbubError):
        _notice(text)
        return WRONG
    name = type(error).__name__
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        _notice(f"cannot write the output: {error.strerror}; make room, or write elsewhere")
        return FAILED
    _notice(f"unexpected {name}: {text}; HUBBUB_DEBUG=1 shows where, please report it")
    return FAILED


def _is_interrupt(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_interrupt, error.exceptions))
    return isinstance(error, KeyboardInterrupt)


def _app() -> Any:
    """The commands, as cyclopts is told them."""
    from cyclopts import App, Parameter

    app = App(
        name="hubbub",
        help=ABOUT,
        help_epilogue=EXIT_CODES,
        version=f"hubbub {__version__}",
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        help_format="markdown",
        default_parameter=Parameter(negative=()),
    )
    app.command(_demo_command(), name="demo")
    app.command(_assets_command(), name="assets")
    app.command(_chat_command(), name="chat")
    for name, command in store_commands(_print, _notice, _loop).items():
        app.command(command, name=name)
    return app


def _demo_command() -> Callable[..., int]:
    from cyclopts import Parameter

    def demo(
        folder: Path | None = None,
        /,
        *,
        json: Annotated[bool, Parameter(show_default=False)] = False,
        resume: Annotated[bool, Parameter(show_default=False)] = False,
        backend: Backend = "asyncio",
        record: Annotated[Path | None, Parameter(show=False)] = None,
    ) -> int:
        """Watch agents survey the text files of a folder. Offline, in seconds.

        A surveyor, on a scripted model, starts one reader per text file, is told something by a
        message while it works, and ends with a report. Then a director delegates to a worker and
        a reviewer (see hubbub assets). Exit code 1: there was nothing to read.

        What happens is kept in .hubbub/demo. Kill it at any moment, even with kill -9: with
        --resume it goes on where it was, and reads no file again whose reading is on record.

        Parameters
        ----------
        folder
            The folder to survey. Default: hubbub's own documents, or the current folder where
            there are none.
        json
            Print one JSON object instead: report, files, totals, steering, delegation.
        resume
            Go on with the last demo that was begun here.
        backend
            The event loop.
        record
            Write a picture (SVG) of the demo to this file.
        """
        return _demo(folder, as_json=json, resume=resume, backend=backend, record=record)

    return demo


def _assets_command() -> Callable[..., int]:
    from cyclopts import Parameter

    def assets(
        wish: str = "",
        /,
        *,
        model: str | None = None,
        out: Path | None = None,
        json: Annotated[bool, Parameter(show_default=False)] = False,
        backend: Backend = "asyncio",
    ) -> int:
        """Watch a worker and a reviewer make a picture for a director who delegates to them.

        The director starts them as one subagent. The worker draws, the reviewer sends the draft
        back or approves it, and the director gets the summary and a copy of the file.

        Parameters
        ----------
        wish
            What to draw. Default: a tree. The offline models can draw nothing else.
        model
            provider:name[@url] for all three. Default: offline models that follow a few rules.
        out
            Write the director's files into this folder.
        json
            Print one JSON object instead.
        backend
            The event loop.
        """
        return _assets(wish, model=model, out=out, as_json=json, backend=backend)

    return assets


def _chat_command() -> Callable[..., int]:
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
            What keeps it: sqlite:FOLDER, or memory.
        backend
            The event loop.
        """
        own = _Own(model=model, system=system, folder=folder, skills=skills)
        return _chat(agent, own, _Kept(session, store), backend)

    return chat


def _loop(work: Callable[[], Coroutine[Any, Any, T]], backend: Backend) -> T:
    """Run ``work`` on an event loop."""
    if backend == "trio":
        try:
            import trio  # noqa: F401
        except ImportError:
            raise MissingExtra("--backend trio", "trio") from None
    return anyio.run(work, backend=backend)


def _checked(folder: Path, remedy: str) -> Path:
    """``folder``, if there is such a folder."""
    shown = printable(str(folder))
    try:
        if folder.is_dir():
            os.scandir(folder).close()
            return folder
        problem = "is not a folder" if folder.exists() else "does not exist"
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
    raise _Wrong(f"{shown}: {problem}; {remedy}")


# ── demo ─────────────────────────────────────────────────────────────────────────────────────


def _demo(
    folder: Path | None, *, as_json: bool, resume: bool, backend: Backend, record: Path | None
) -> int:
    from hubbub.runtime.demo.store import DEMO_FOLDER, resumed_line
    from hubbub.runtime.demo.story import summary

    demo = _demo_to_run(folder, resume)
    console = _terminal()
    if resume and not as_json and record is None:
        _print(f"{resumed_line(demo.demo)}\n")
    if as_json:
        story = _story(demo, backend)
        _print_json(story, _make_assets("", None, backend))
    elif record is not None:
        story = _story(demo, backend)
        _record(story, record, " ".join(["hubbub demo", *([story.folder] if folder else [])]))
    elif console is not None:
        story = _story_live(demo, backend, console)
    else:
        story = _story(demo, backend, _print_line)
        _print(f"\n{story.report}\n\n{summary(story)}")
    if not as_json and record is None:
        _print("\nAnd two agents at work as one subagent (hubbub assets):\n")
        _make_assets("", None, backend, 0.0 if console is None else STEP_SECONDS, _print)
    if console is not None and demo.is_kept and not as_json and record is None:
        _print(f"\nKept: hubbub runs --all --store sqlite:{DEMO_FOLDER}")
    return _demo_code(story)


def _demo_to_run(folder: Path | None, resume: bool) -> "StoredDemo":
    """The demo as it was asked for, with the store that keeps it."""
    from hubbub.runtime.demo.store import begin_demo, resume_demo
    from hubbub.runtime.demo.survey import Demo, own_documents

    ports = Ports()
    if resume:
        if folder is not None:
            raise _Wrong("--resume goes on with the folder of the last demo; leave FOLDER out")
        return StoredDemo(*resume_demo(ports=ports), ports, resume=True)
    if folder is None:
        own, wanted = own_documents()
        demo = Demo(folder=own, wanted=wanted)
    else:
        demo = Demo(folder=_checked(folder, "name a folder with text files: hubbub demo FOLDER"))
    try:
        store: Store = begin_demo(demo, own=folder is None, ports=ports)
    except OperatorError as error:
        _notice(f"{error}; this demo is kept in memory only, and cannot be resumed")
        store = MemoryJournal(ids=ports.ids)
    return StoredDemo(demo, store, ports)


class StoredDemo(Struct, frozen=True):
    """A demo and what it is kept in."""

    demo: "Demo"
    store: Store
    ports: Ports
    resume: bool = False

    @property
    def is_kept(self) -> bool:
        """Whether it can be inspected, and resumed, afterwards."""
        return not isinstance(self.store, MemoryJournal)

    async def run(self, watch: "Callable[[Event], object]", latency: float = 0.0) -> None:
        from hubbub.runtime.demo.survey import run_demo

        await run_demo(
            structs.replace(self.demo, latency=latency),
            watch,
            ports=self.ports,
            journal=self.store,
            resume=self.resume,
        )


def _demo_code(story: "Story") -> int:
    """0 for a report about at least one document."""
    if story.ending is None or not story.ending.success:
        reason = story.ending.reason if story.ending else "the surveyor was cut off"
        _notice(f"the demo failed: {printable(reason)}")
        return FAILED
    if not story.totals.documents:
        remedy = "name a folder with text files: hubbub demo FOLDER"
        _notice(f"no document was read in {story.folder}; {remedy}")
        return FAILED
    return 0


def _story(
    demo: StoredDemo, backend: Backend, watch: "Callable[[Story, Event], object] | None" = None
) -> "Story":
    """Run the demo; ``watch`` is told of each event after it has become part of the story."""
    from hubbub.runtime.demo.story import Story

    story = Story()

    def take(event: Event) -> None:
        story.take(event)
        if watch is not None:
            watch(story, event)

    async def work() -> None:
        await demo.run(take)

    _loop(work, backend)
    return story


def _story_live(demo: StoredDemo, backend: Backend, console: "Console") -> "Story":
    """Run the demo and draw it while it runs."""
    from rich.live import Live

    from hubbub.runtime.demo.picture import TREE_LINES, draw_end, draw_story
    from hubbub.runtime.demo.story import Story

    story = Story()

    async def draw(live: Live) -> None:
        tick = 0
        while True:
            live.update(draw_story(story, height=console.height, tick=tick), refresh=True)
            tick += 1
            await anyio.sleep(FRAME_SECONDS)

    async def work() -> None:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            async with anyio.create_task_group() as group:
                group.start_soon(draw, live)
                await demo.run(story.take, STEP_SECONDS)
                group.cancel_scope.cancel()

    _loop(work, backend)
    console.print(draw_story(story, height=max(console.height, TREE_LINES)), draw_end(story))
    return story


def _terminal() -> "Console | None":
    """The terminal on stdout, if there is one that can be drawn on."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return None
    from rich.console import Console

    return Console(highlight=False)


def _print_line(story: "Story", event: Event) -> None:
    from hubbub.runtime.demo.story import line_for

    line = line_for(story, event)
    if line:
        _print(line)


def _print_json(story: "Story", made: "Assets") -> None:
    from hubbub.runtime.demo.story import as_json

    _print_object({**as_json(story), "delegation": _assets_as_json(made)})


def _print_object(value: Any) -> None:
    _print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _record(story: "Story", path: Path, command: str) -> None:
    """Draw the end of the demo into an SVG file."""
    from hubbub.runtime.demo.picture import as_svg

    try:
        path.write_text(as_svg(story, command), encoding="utf-8")
    except OSError as error:
        raise _Wrong(f"{printable(str(path))}: {error.strerror}; name a file to write") from None
    _print(f"wrote {printable(str(path))}")


# ── assets ───────────────────────────────────────────────────────────────────────────────────


def _assets(
    wish: str, *, model: str | None, out: Path | None, as_json: bool, backend: Backend
) -> int:
    if model is not None and not model.strip():
        raise _Wrong("--model is empty; write provider:name, for example anthropic:NAME")
    if out is not None:
        out = _checked(out, "name a folder to write to: --out FOLDER")
    is_watched = _terminal() is not None and model is None
    made = _make_assets(
        wish, model, backend, STEP_SECONDS if is_watched else 0.0, None if as_json else _print
    )
    if out is not None:
        _write_files(made, out)
    if as_json:
        _print_object(_assets_as_json(made))
    if made.outcome != "completed":
        _notice(f"the director {made.outcome}: {printable(made.reason)}")
    return 0 if made.files else FAILED


def _make_assets(
    wish: str,
    model: str | None,
    backend: Backend,
    latency: float = 0.0,
    say: Callable[[str], object] | None = None,
) -> "Assets":
    from hubbub.runtime.demo.assets.agents import WISH
    from hubbub.runtime.demo.assets.told import asset_line, run_assets

    def watch(event: Event) -> None:
        line = asset_line(event)
        if line and say is not None:
            say(line)

    async def work() -> "Assets":
        return await run_assets(wish or WISH, watch, model=model, latency=latency)

    return _loop(work, backend)


def _write_files(made: "Assets", out: Path) -> None:
    for path, content in made.files.items():
        place = out / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        except OSError as error:
            raise _Wrong(f"{printable(str(place))}: {error.strerror}; name another --out") from None


def _assets_as_json(made: "Assets") -> dict[str, Any]:
    files = {path: content.decode(errors="replace") for path, content in made.files.items()}
    return {**structs.asdict(made), "files": files}


# ── chat ─────────────────────────────────────────────────────────────────────────────────────


class _Kept(Struct, frozen=True):
    """Under which name, and in what, a conversation is kept."""

    session: str
    store: str

    @property
    def session_key(self) -> str | None:
        """Connector, channel and user; ``None`` for a conversation that ends with the chat."""
        if self.session and not re.fullmatch(r"[A-Za-z0-9.-]{1,64}", self.session):
            raise _Wrong("--session: 1 to 64 letters, digits, '-' and '.' are wanted")
        return f"console_{self.session}_local" if self.session else None


class _Own(Struct, frozen=True, kw_only=True):
    """What was asked for besides: the last three are for the agents that come with hubbub."""

    model: str | None
    system: str
    folder: Path | None
    skills: Path | None


def _chat(spec: str | None, own: _Own, kept: _Kept, backend: Backend) -> int:
    from hubbub.runtime.loading.agents import load_agents, with_model

    ports = Ports()
    if spec is None:
        return _loop(_converse(_assistant(ports, own), ports, kept), backend)
    if own.system or own.folder is not None or own.skills is not None:
        options = "--system, --folder and --skills"
        raise _Wrong(f"{options} are for the assistant; leave them out, or MODULE:AGENT")
    loaded = load_agents(spec)
    if own.model is not None:
        loaded = with_model(loaded, own.model)
    return _loop(_converse(loaded, ports, kept), backend)


def _assistant(ports: Ports, own: _Own) -> "LoadedAgents":
    """The agents that come with hubbub, on the model that is there."""
    from hubbub.runtime.demo.chat.agents import (
        DEFAULT_SKILLS,
        ChatModels,
        chat_agents,
        model_of_environment,
    )  # fmt: skip
    from hubbub.runtime.demo.chat.model import offline_models

    folder, model = own.folder, own.model
    if folder is not None:
        folder = _checked(folder, "name the folder that research may read: --folder FOLDER")
    if model is not None and not model.strip():
        raise _Wrong("--model is empty; write provider:name, for example anthropic:NAME")
    skills = _skills(own.skills, Path(DEFAULT_SKILLS))
    chosen = model or model_of_environment(os.environ)
    if chosen is None:
        _notice("no API key in the environment, so this is the offline model; see --model")
        is_watched = sys.stdin.isatty() and sys.stdout.isatty()
        models = offline_models(ports, latency=SPEECH_SECONDS if is_watched else 0.0)
        folder = folder or Path.cwd()  # Nothing that is read leaves this machine.
    else:
        models = ChatModels(chosen, chosen, "")
        if model is None:
            _notice(f"talking to {chosen}; see --model")
    return chat_agents(
        models, ports, system=own.system, folder=folder, skills=skills,
        skills_folder=own.skills or Path(DEFAULT_SKILLS),
    )  # fmt: skip


def _skills(named: Path | None, usual: Path) -> "tuple[Skill, ...]":
    """The user's skills; a folder that was not asked for is left out rather than complained of."""
    from hubbub.runtime.loading.skills import BadSkills, load_skills

    if named is not None and not os.path.lexists(named):
        shown = printable(str(named))
        _notice(f"{shown} does not exist; skill-writer makes it for its first skill")
        return ()
    if named is not None:
        return load_skills(_checked(named, "name the folder of your skills: --skills FOLDER"))
    try:
        return load_skills(usual) if usual.is_dir() else ()
    except BadSkills as error:
        text = printable(" ".join(str(error).split()))
        _notice(f"{text}; going on without; --skills FOLDER names another folder")
        return ()


def _converse(
    loaded: "LoadedAgents", ports: Ports, kept: _Kept
) -> "Callable[[], Coroutine[Any, Any, int]]":
    """A conversation with an agent in the console."""
    from hubbub.channels.console.console import run_console

    session_key = kept.session_key

    async def work() -> int:
        runtime = Runtime(
            loaded.agents, loaded.prompts, loaded.tools, skills=loaded.skills,
            store=kept.store, ports=ports,
        )  # fmt: skip
        name = loaded.agent.name
        if not loaded.agent.is_code:  # A missing key is told before anything is typed.
            runtime.services.catalog.model(runtime.definitions.side(name).prompt.model)
        async with runtime:
            code = await run_console(runtime.hub, name, session_key=session_key)
            with anyio.move_on_after(CLOSING_SECONDS):  # What was closed on the way out ends.
                while await runtime.hub.journal.ready():  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            return code

    return work


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _notice(text: str) -> None:
    """Print a notice on stderr; stdout stays clean."""
    if sys.stderr is not None:  # The caller may have closed it.
        sys.stderr.write(f"hubbub: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
