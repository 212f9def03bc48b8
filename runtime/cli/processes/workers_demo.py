"""``hubbub demo --workers``: several workers on one store, and what is lost when one is killed."""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hubbub.hub.errors import MissingExtra
from hubbub.hub.hub import Hub
from hubbub.runtime.cli.demo_command import TEXT_FILES, WorkersDemoCommand
from hubbub.runtime.cli.printing import (
    FAILED,
    INTERRUPTED,
    Backend,
    CommandScreen,
    document,
    existing_folder,
)
from hubbub.runtime.cli.processes.serve_command import HubServer, ServedAt
from hubbub.runtime.text import printable

if TYPE_CHECKING:
    from hubbub.runtime.demo.workers.tally import Verdict

__all__ = ["workers_demo"]


def workers_demo(screen: CommandScreen, server: HubServer) -> WorkersDemoCommand:
    """What ``hubbub demo`` calls for several workers."""

    def run(
        folder: Path | None, workers: int, store: str | None, *, as_json: bool, backend: Backend
    ) -> int:
        try:
            from hubbub.runtime.demo.workers.demo import WorkersDemo, run_workers_demo
            from hubbub.runtime.demo.workers.demo_store import DemoStore
        except ImportError:
            raise MissingExtra("A store in PostgreSQL", "postgres") from None
        from hubbub.runtime.demo.survey import own_documents

        kept = DemoStore(store)
        own, wanted = own_documents()
        demo = WorkersDemo(workers=workers, folder=own, wanted=wanted)
        if folder is not None:
            demo = WorkersDemo(workers=workers, folder=existing_folder(folder, TEXT_FILES))
        say = _nothing if as_json else lambda text: screen.write(printable(text))
        page = None if as_json else _page(screen, server)

        stays = page is not None and screen.is_interactive()

        def over(verdict: "Verdict") -> bool:
            if as_json:
                screen.write(document(verdict))
            _tell(screen, verdict, as_json=as_json)
            if stays:
                screen.write("the page stays until Ctrl-C")
            return stays

        async def work() -> "Verdict | None":
            return await run_workers_demo(demo, kept, say, over, page)

        for name in ("hubbub", "psycopg"):  # That connections are lost is what is shown.
            logging.getLogger(name).setLevel(logging.ERROR)
        verdict = screen.loop(work, backend)
        if verdict is None:
            return INTERRUPTED
        return 0 if verdict.documents and not verdict.problems else FAILED

    return run


def _page(screen: CommandScreen, server: HubServer) -> Callable[[Hub], Awaitable[object]] | None:
    """What serves the page; ``None`` where the extra for it is missing."""
    at = ServedAt("127.0.0.1", 0, None)
    try:
        server.check(at)
    except MissingExtra:
        return None

    async def serve(hub: Hub) -> None:
        await server.serve(hub, at, lambda url: screen.write(f"the page: {url} (agent story)"))

    return serve


def _nothing(text: str) -> None:
    """Nobody reads what happens."""


def _tell(screen: CommandScreen, verdict: "Verdict", *, as_json: bool) -> None:
    if not verdict.documents:
        screen.notice(f"no document was found; {TEXT_FILES}")
    for problem in verdict.problems:
        screen.notice(printable(problem))
    if verdict.documents and not verdict.problems and not as_json:
        screen.write(
            f"\nNothing was lost, and nothing done twice: {verdict.documents:,} documents in "
            f"{verdict.trees:,} trees, {verdict.words:,} words, {verdict.messages:,} messages."
        )
