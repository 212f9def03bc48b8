"""The prompts that a hub shows, as a person who answers them sees them."""

import anyio

from hubbub import Hub
from hubbub.hub import events as e

__all__ = ["Asked"]


class Asked:
    """What has been asked so far, and how it ended."""

    def __init__(self, hub: Hub) -> None:
        self.prompts: list[e.SessionPrompt] = []
        self.ends: list[e.SessionPromptEnd] = []
        self._changed = anyio.Event()
        hub.subscribe(["session:prompt", "session:prompt:end"], self._hear)

    def _hear(self, event: e.Event) -> None:
        if isinstance(event, e.SessionPrompt):
            self.prompts.append(event)
        elif isinstance(event, e.SessionPromptEnd):
            self.ends.append(event)
        self._changed.set()
        self._changed = anyio.Event()

    async def wait(self, count: int = 1) -> list[e.SessionPrompt]:
        """Wait until so many have been asked."""
        with anyio.fail_after(10_000):
            while len(self.prompts) < count:
                await self._changed.wait()
        return self.prompts

    async def first(self) -> e.SessionPrompt:
        """Wait for the first one."""
        return (await self.wait())[0]
