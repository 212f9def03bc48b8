"""``hubbub assets``: a director, a worker and a reviewer make a picture."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import structs

from hubbub.hub.errors import OperatorError
from hubbub.hub.events import Event
from hubbub.runtime.cli.printing import (
    FAILED,
    Backend,
    CommandScreen,
    Write,
    document,
    existing_folder,
)
from hubbub.runtime.stores.sqlite.output_file import check_output, check_outside_stores
from hubbub.runtime.text import printable

if TYPE_CHECKING:
    from hubbub.runtime.demo.assets.report import Assets

__all__ = ["STEP_SECONDS", "assets_as_json", "assets_command", "make_assets"]

STEP_SECONDS: Final = 0.15
"""What a step of the scripted model takes where somebody is watching."""


def assets_command(screen: CommandScreen) -> Callable[..., int]:
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
        return _assets(screen, wish, model=model, out=out, as_json=json, backend=backend)

    return assets


def _assets(
    screen: CommandScreen,
    wish: str,
    *,
    model: str | None,
    out: Path | None,
    as_json: bool,
    backend: Backend,
) -> int:
    if model is not None and not model.strip():
        raise OperatorError("--model is empty; write provider:name, for example anthropic:NAME")
    if out is not None:
        out = existing_folder(out, "name a folder to write to: --out FOLDER")
        check_outside_stores(out, remedy="name a folder to write to: --out FOLDER")
    is_watched = screen.can_draw() and model is None
    latency = STEP_SECONDS if is_watched else 0.0
    say = None if as_json else screen.write
    made = make_assets(screen, backend, wish, model=model, latency=latency, say=say)
    if out is not None:
        _write_files(made, out)
    if as_json:
        screen.write(document(assets_as_json(made)))
    if made.outcome != "completed":
        screen.notice(f"the director {made.outcome}: {printable(made.reason)}")
    return 0 if made.files else FAILED


def make_assets(
    screen: CommandScreen,
    backend: Backend,
    wish: str = "",
    *,
    model: str | None = None,
    latency: float = 0.0,
    say: Write | None = None,
) -> "Assets":
    """Have the three agents make a picture; ``say`` takes a line for each thing that happens."""
    from hubbub.runtime.demo.assets.agents import WISH
    from hubbub.runtime.demo.assets.report import asset_line, run_assets

    def watch(event: Event) -> None:
        line = asset_line(event)
        if line and say is not None:
            say(line)

    async def work() -> "Assets":
        return await run_assets(wish or WISH, watch, model=model, latency=latency)

    return screen.loop(work, backend)


def _write_files(made: "Assets", out: Path) -> None:
    for path, content in made.files.items():
        place = out / path
        check_output(place, remedy="name another --out")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        except OSError as error:
            raise OperatorError(
                f"{printable(str(place))}: {error.strerror}; name another --out"
            ) from None


def assets_as_json(made: "Assets") -> dict[str, Any]:
    """What came of it, for ``--json``."""
    files = {path: content.decode(errors="replace") for path, content in made.files.items()}
    return {**structs.asdict(made), "files": files}
