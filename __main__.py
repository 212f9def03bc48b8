"""The command line.  Its commands are in ``hubbub.runtime.cli``.

Exit codes: 0 done; 1 it was tried and failed; 2 it cannot be done as asked (the command line, a
folder, module, model or key); 130 interrupted.  What goes wrong is one line on stderr with its
remedy; ``HUBBUB_DEBUG=1`` shows the traceback instead.

Only this module puts ``runtime`` and ``channels`` together, and only this module writes to the
terminal on behalf of the former: it hands a ``CommandScreen`` to the commands.
"""

import sys

try:
    import errno
    import logging
    import os
    from collections.abc import Callable, Coroutine, Sequence
    from functools import partial
    from typing import Any, Final, TypeVar

    import anyio

    from hubbub import HubbubError, __version__
    from hubbub.hub.errors import MissingExtra, OperatorError
    from hubbub.hub.hub import Hub
    from hubbub.runtime.cli.assets_command import assets_command
    from hubbub.runtime.cli.chat_command import chat_command
    from hubbub.runtime.cli.demo_command import demo_command
    from hubbub.runtime.cli.printing import FAILED, INTERRUPTED, Backend, CommandScreen
    from hubbub.runtime.cli.processes.serve_command import ServedAt, serve_command
    from hubbub.runtime.cli.processes.worker_command import worker_command
    from hubbub.runtime.cli.processes.workers_demo import workers_demo
    from hubbub.runtime.cli.store_commands import store_commands
    from hubbub.runtime.text import printable, without_passwords
except KeyboardInterrupt:  # As ``main`` ends, which is not there yet.
    sys.exit(130)

__all__ = ["main"]

T = TypeVar("T")

WRONG: Final = 2

ABOUT: Final = "An event-hub actor system for LLM agents: every run is a durable actor on one hub."
EXIT_CODES: Final = (
    "Exit codes: 0 done, 1 tried and failed, 2 cannot be done as asked, 130 interrupted."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; never raises for what goes wrong in it."""
    # The commands report errors themselves, in their own words.
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
        # The reader of our output has left; Python must not try to flush the rest at exit.
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
        raise OperatorError(f"{text} {_way(arguments)}") from None
    return code if isinstance(code, int) else 0


def _way(arguments: Sequence[str]) -> str:
    """Where to find what a command line that was not understood is likely to mean."""
    match arguments:
        case ["approve", *_]:
            return "To approve a call: hubbub reply PROMPT --approve"
        case ["deny", *_]:
            return "To deny a call: hubbub reply PROMPT --deny REASON"
        case ["export", *options] if "--json" in options:
            return "An export is JSON lines, without an option"
    return "See: hubbub --help"


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
    """The commands, declared for cyclopts."""
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
    screen = CommandScreen(_print, _notice, _can_draw, _is_interactive, _loop)
    server = _HttpServer()
    app.command(demo_command(screen, workers_demo(screen, server)), name="demo")
    app.command(assets_command(screen), name="assets")
    app.command(chat_command(screen, _converse), name="chat")
    app.command(serve_command(screen, server), name="serve")
    app.command(worker_command(screen), name="worker")
    for name, command in store_commands(screen).items():
        app.command(command, name=name)
    return app


def _loop(work: Callable[[], Coroutine[Any, Any, T]], backend: Backend) -> T:
    """Run ``work`` on an event loop."""
    if backend == "trio":
        try:
            import trio  # noqa: F401
        except ImportError:
            raise MissingExtra("--backend trio", "trio") from None
    return anyio.run(work, backend=backend)


def _can_draw() -> bool:
    """Whether stdout is a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _is_interactive() -> bool:
    """Whether a person types and reads."""
    return sys.stdin.isatty() and sys.stdout.isatty()


async def _converse(hub: Hub, agent: str, session_key: str | None) -> int:
    from hubbub.channels.console.console import run_console

    return await run_console(hub, agent, session_key=session_key)


class _HttpServer:
    """The HTTP channel, as ``hubbub serve`` needs it."""

    def check(self, at: ServedAt) -> None:
        import hubbub.channels.http  # noqa: F401
        from hubbub.channels.http.serving.serving import check_host

        check_host(at.host, is_protected=at.token is not None)

    async def serve(self, hub: Hub, at: ServedAt, started: Callable[[str], object]) -> None:
        from hubbub.channels.http.app import HttpApp
        from hubbub.channels.http.serving.serving import serve

        # Nobody else writes to this program's stderr: what fails is seen there.
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # A bad request is no failure here.
        async with HttpApp(hub, token=at.token) as app, anyio.create_task_group() as group:
            address = await group.start(partial(serve, app, host=at.host, port=at.port))
            started(address.url)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _notice(text: str) -> None:
    """Print a notice on stderr; stdout stays clean."""
    if sys.stderr is not None:  # The caller may have closed it.
        sys.stderr.write(f"hubbub: {without_passwords(text)}\n")


if __name__ == "__main__":
    sys.exit(main())
