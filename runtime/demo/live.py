"""A demo that is drawn in a terminal while it runs."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from rich.console import Console
from rich.live import Live

from hubbub.hub.events import Event
from hubbub.runtime.demo.picture import TREE_LINES, draw_end, draw_story
from hubbub.runtime.demo.story import Story

__all__ = ["run_live"]

FRAME_SECONDS: Final = 0.08


async def run_live(
    story: Story, run: Callable[[Callable[[Event], object]], Awaitable[None]]
) -> None:
    """Await ``run``, which is given what takes each event, and draw the story meanwhile.

    In the end all of it stays on the screen.
    """
    console = Console(highlight=False)

    async def draw(live: Live) -> None:
        tick = 0
        while True:
            live.update(draw_story(story, height=console.height, tick=tick), refresh=True)
            tick += 1
            await anyio.sleep(FRAME_SECONDS)

    with Live(console=console, auto_refresh=False, transient=True) as live:
        async with anyio.create_task_group() as group:
            group.start_soon(draw, live)
            await run(story.take)
            group.cancel_scope.cancel()
    console.print(draw_story(story, height=max(console.height, TREE_LINES)), draw_end(story))
