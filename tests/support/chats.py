"""Conversations with the agents of ``hubbub chat``, on the offline models."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from hubbub import Runtime
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.demo.chat.agents import chat_agents
from hubbub.runtime.demo.chat.model import offline_models
from hubbub.runtime.loading.skills import load_skills

__all__ = ["FILES", "Chat", "open_chat", "write_files"]

FILES = {
    "style.md": "# Style\n\nUse short sentences.\nAvoid the passive voice.\n",
    "hubs.txt": "Hubs carry events.\nActors have addresses.\n",
    "deep/actors.md": "# Actors\n\nAn actor has an inbox.\n",
}


class Chat:
    """What is said and done, and who has the conversation."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.events: list[Event] = []
        self.stack = ["main"]
        runtime.hub.subscribe(["agent:*", "session:*"], self._take)

    async def say(self, line: str) -> list[tuple[str, str]]:
        """Type a line; returns what is said until the conversation rests, and by whom."""
        begin = len(self.events)
        receipt = await self.runtime.hub.open("main", line, session_key="chat")
        assert receipt.accepted
        with anyio.fail_after(60):
            await self.runtime.result(receipt.run_id)
        return [(x.agent, x.text) for x in self.events[begin:] if isinstance(x, e.AgentText)]

    async def says(self, *lines: str) -> str:
        """Type some lines; returns the last thing that is said, with the speaker's name."""
        said = [await self.say(line) for line in lines]
        speaker, text = said[-1][-1]
        return f"{speaker}: {text}"

    def _take(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, e.SessionPush):
            self.stack.append(event.frame_agent)
        elif isinstance(event, e.SessionPop):
            self.stack.remove(event.frame_agent)


@asynccontextmanager
async def open_chat(
    home: Path, ports: Ports | None = None, *, has_files: bool = True
) -> AsyncIterator[Chat]:
    """A runtime as ``hubbub chat`` has it: files in ``home/files``, skills in ``home/skills``."""
    ports = ports or virtual_ports()
    files, skills = home / "files", home / "skills"
    loaded = chat_agents(
        offline_models(ports), ports, folder=files if has_files else None,
        skills=load_skills(skills) if skills.is_dir() else (), skills_folder=skills,
    )  # fmt: skip
    async with Runtime(
        loaded.agents, loaded.prompts, loaded.tools, skills=loaded.skills, ports=ports,
        store="memory",
    ) as runtime:  # fmt: skip
        yield Chat(runtime)


def write_files(home: Path, names: Sequence[str] = tuple(FILES)) -> None:
    for name in names:
        path = home / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILES[name])
