"""``hubbub demo``: agents survey the text files of a folder."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Protocol

from msgspec import Struct, structs

from hubbub.hub.errors import OperatorError
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store
from hubbub.runtime.cli.assets_command import STEP_SECONDS, assets_as_json, make_assets
from hubbub.runtime.cli.printing import (
    FAILED,
    Backend,
    CommandScreen,
    Write,
    at_least,
    document,
    existing_folder,
)
from hubbub.runtime.text import printable

if TYPE_CHECKING:
    from hubbub.runtime.demo.story import Story
    from hubbub.runtime.demo.survey import Demo

__all__ = ["TEXT_FILES", "WorkersDemoCommand", "demo_command"]


class WorkersDemoCommand(Protocol):
    """Shows several workers on one store."""

    def __call__(
        self, folder: Path | None, workers: int, store: str | None, *, as_json: bool,
        backend: Backend,
    ) -> int: ...  # fmt: skip


TEXT_FILES: Final = "name a folder with text files: hubbub demo FOLDER"


def demo_command(screen: CommandScreen, workers_demo: WorkersDemoCommand) -> Callable[..., int]:
    from cyclopts import Parameter

    def demo(
        folder: Path | None = None,
        /,
        *,
        json: Annotated[bool, Parameter(show_default=False)] = False,
        resume: Annotated[bool, Parameter(show_default=False)] = False,
        workers: int | None = None,
        store: str | None = None,
        backend: Backend = "asyncio",
        record: Annotated[Path | None, Parameter(show=False)] = None,
    ) -> int:
        """Watch agents survey the text files of a folder. Offline, in seconds.

        A surveyor, on a scripted model, starts one reader per text file, gets a message from a
        message while it works, and ends with a report. Then a director delegates to a worker and
        a reviewer (see hubbub assets). Exit code 1: there was nothing to read.

        What happens is kept in .hubbub/demo. Kill it at any moment, even with kill -9: with
        --resume it goes on where it was, and reads no file again whose reading is on record.

        With --workers it shows several processes on one store in PostgreSQL: one of them is killed,
        every connection is cut, and nothing is lost or done twice. Exit code 1: something was.

        Parameters
        ----------
        folder
            The folder to survey. Default: hubbub's own documents, or the current folder where
            there are none.
        json
            Print one JSON object instead: report, files, totals, steering, delegation.
        resume
            Go on with the last demo that was begun here.
        workers
            How many workers, 2 at least; needs --store.
        store
            A PostgreSQL server for them: postgresql://… Their schema is hubbub_demo, made anew,
            unless the address has another one.
        backend
            The event loop.
        record
            Write a picture (SVG) of the demo to this file.
        """
        if workers is not None or store is not None:
            if resume or record is not None:
                raise OperatorError("--workers shows another demo; leave --resume and --record out")
            if workers is None:
                raise OperatorError(
                    "--store is for several workers; give their number: --workers 2"
                )
            return workers_demo(
                folder, at_least(2, "--workers", workers), store, as_json=json, backend=backend
            )
        return _demo(screen, folder, as_json=json, resume=resume, backend=backend, record=record)

    return demo


def _demo(
    screen: CommandScreen,
    folder: Path | None,
    *,
    as_json: bool,
    resume: bool,
    backend: Backend,
    record: Path | None,
) -> int:
    from hubbub.runtime.demo.store import DEMO_FOLDER, resumed_line
    from hubbub.runtime.demo.story import as_json as as_object
    from hubbub.runtime.demo.story import summary
    from hubbub.runtime.stores.sqlite.output_file import check_output

    if record is not None:
        check_output(record, remedy="name a file to write")
    demo = _demo_to_run(screen, folder, resume)
    is_drawn = screen.can_draw()
    if resume and not as_json and record is None:
        screen.write(f"{resumed_line(demo.demo)}\n")
    if as_json:
        story = _story(screen, demo, backend)
        made = make_assets(screen, backend)
        screen.write(document({**as_object(story), "delegation": assets_as_json(made)}))
    elif record is not None:
        story = _story(screen, demo, backend)
        _record(
            screen, story, record, " ".join(["hubbub demo", *([story.folder] if folder else [])])
        )
    elif is_drawn:
        story = _story_live(screen, demo, backend)
    else:
        story = _story(screen, demo, backend, screen.write)
        screen.write(f"\n{story.report}\n\n{summary(story)}")
    if not as_json and record is None:
        screen.write("\nAnd two agents at work as one subagent (hubbub assets):\n")
        latency = STEP_SECONDS if is_drawn else 0.0
        make_assets(screen, backend, latency=latency, say=screen.write)
    if is_drawn and demo.is_kept and not as_json and record is None:
        screen.write(f"\nKept: hubbub runs --all --store sqlite:{DEMO_FOLDER}")
    return _demo_code(screen, story)


def _demo_to_run(screen: CommandScreen, folder: Path | None, resume: bool) -> "StoredDemo":
    """The demo as it was asked for, with the store that keeps it."""
    from hubbub.runtime.demo.store import begin_demo, resume_demo
    from hubbub.runtime.demo.survey import Demo, own_documents

    ports = Ports()
    if resume:
        if folder is not None:
            raise OperatorError(
                "--resume goes on with the folder of the last demo; leave FOLDER out"
            )
        return StoredDemo(*resume_demo(ports=ports), ports, resume=True)
    if folder is None:
        own, wanted = own_documents()
        demo = Demo(folder=own, wanted=wanted)
    else:
        demo = Demo(folder=existing_folder(folder, TEXT_FILES))
    try:
        store: Store = begin_demo(demo, own=folder is None, ports=ports)
    except OperatorError as error:
        screen.notice(f"{error}; this demo is kept in memory only, and cannot be resumed")
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


def _demo_code(screen: CommandScreen, story: "Story") -> int:
    """0 for a report about at least one document."""
    if story.ending is None or not story.ending.success:
        reason = story.ending.reason if story.ending else "the surveyor was cut off"
        screen.notice(f"the demo failed: {printable(reason)}")
        return FAILED
    if not story.totals.documents:
        screen.notice(f"no document was read in {story.folder}; {TEXT_FILES}")
        return FAILED
    return 0


def _story(
    screen: CommandScreen, demo: StoredDemo, backend: Backend, write: Write | None = None
) -> "Story":
    """Run the demo; ``write`` takes a line for each thing that happens."""
    from hubbub.runtime.demo.story import Story, line_for

    story = Story()

    def take(event: Event) -> None:
        story.take(event)
        if write is not None and (line := line_for(story, event)):
            write(line)

    async def work() -> None:
        await demo.run(take)

    screen.loop(work, backend)
    return story


def _story_live(screen: CommandScreen, demo: StoredDemo, backend: Backend) -> "Story":
    """Run the demo and draw it while it runs."""
    from hubbub.runtime.demo.live import run_live
    from hubbub.runtime.demo.story import Story

    story = Story()

    async def work() -> None:
        await run_live(story, partial(demo.run, latency=STEP_SECONDS))

    screen.loop(work, backend)
    return story


def _record(screen: CommandScreen, story: "Story", path: Path, command: str) -> None:
    """Draw the end of the demo into an SVG file."""
    from hubbub.runtime.demo.picture import as_svg

    try:
        path.write_text(as_svg(story, command), encoding="utf-8")
    except OSError as error:
        raise OperatorError(
            f"{printable(str(path))}: {error.strerror}; name a file to write"
        ) from None
    screen.write(f"wrote {printable(str(path))}")
