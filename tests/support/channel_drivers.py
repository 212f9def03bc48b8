"""The far ends of hubbub's own channels, for the conformance kit: a terminal and an HTTP client."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
import httpx

from hubbub import Hub, Runtime, agent
from hubbub.channels import run_console
from hubbub.channels.conformance import ANN, PARTNER, OpenHub, partner
from hubbub.channels.http.app import HttpApp
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from support.asgi_clients import EventSource, Frame, event_source
from support.fake_terminal import FakeTerminal

__all__ = ["attach_console", "attach_http", "open_partner"]

TOKEN: Final = "token-71c0ffee5e6c2e74"

HEAD: Final = {"Authorization": f"Bearer {TOKEN}"}


def open_partner(store: Callable[[], Journal | str], ports: Ports) -> OpenHub:
    """Hubs with a runtime of the kit's agent."""

    @asynccontextmanager
    async def open_hub() -> AsyncIterator[Hub]:
        talker = agent(PARTNER)(partner)
        async with Runtime([talker], store=store(), ports=ports, grace=0) as runtime:
            yield runtime.hub

    return open_hub


# ── the console ──────────────────────────────────────────────────────────────────────────────


class ConsoleDriver:
    """A person at a terminal, whose conversation has a name."""

    secrets = ()

    def __init__(self, hub: Hub) -> None:
        self.is_attached = True
        self._hub = hub
        self._terminal = _BreakingTerminal()

    async def run(self) -> None:
        try:
            with suppress(OSError):  # A console ends with its terminal.
                await run_console(
                    self._hub, PARTNER, session_key="console_desk_ann",
                    reader=self._terminal, writer=self._terminal,
                )  # fmt: skip
        finally:
            self.is_attached = False
            self._terminal.close()

    async def say(self, text: str, *, person: str = ANN, key: str = "") -> None:
        assert person == ANN
        self._terminal.type(text)

    async def answer(self, text: str, *, person: str = ANN) -> None:
        await self.say(text, person=person)

    def shown(self, person: str = ANN) -> str:
        return "\n".join(self._terminal.screen)

    def fail_next(self) -> None:
        self._terminal.is_broken = True


class _BreakingTerminal(FakeTerminal):
    is_broken = False

    def write(self, text: str) -> None:
        if self.is_broken and text.strip():
            self.is_broken = False
            raise OSError("the terminal is gone")
        super().write(text)


@asynccontextmanager
async def attach_console(hub: Hub) -> AsyncIterator[ConsoleDriver]:
    driver = ConsoleDriver(hub)
    async with anyio.create_task_group() as group:
        group.start_soon(driver.run)
        yield driver
        group.cancel_scope.cancel()


# ── HTTP ─────────────────────────────────────────────────────────────────────────────────────


class HttpDriver:
    """People with browsers: they post, and read one stream of events, taken up where it was cut."""

    secrets = (TOKEN,)
    is_attached = True

    def __init__(self, app: HttpApp, client: httpx.AsyncClient) -> None:
        self._app = app
        self._client = client
        self._people: dict[str, str] = {}
        self._shown: defaultdict[str, list[str]] = defaultdict(list)
        self._asked: dict[str, str] = {}
        self._source = EventSource()

    async def say(self, text: str, *, person: str = ANN, key: str = "") -> None:
        message = {"content": text, "key": key or None}
        answer = await self._client.post(
            "/api/runs", json={"agent": PARTNER, "session_key": _key(person), "message": message}
        )
        assert answer.status_code in (200, 202), answer.text

    async def answer(self, text: str, *, person: str = ANN) -> None:
        answer = await self._client.post(
            f"/api/prompts/{self._asked[person]}/reply", json={"content": text}
        )
        assert answer.status_code < 500, answer.text

    def shown(self, person: str = ANN) -> str:
        return "\n".join(self._shown[person])

    def fail_next(self) -> None:
        self._source.vanishes_at = self._source.sends + 1

    async def listen(self) -> None:
        """Read events as a browser does: from the last id on, whenever the stream has ended."""
        headers = dict(HEAD)
        while True:
            self._source = EventSource()
            async with event_source(
                self._app, headers=headers, client=self._source, after="start",
                types="agent:start,agent:text,session:prompt",
            ) as source:  # fmt: skip
                count = 0
                while not source.ended.is_set() or count < len(source.frames):
                    for frame in source.frames[count:]:
                        self._show(frame)
                        count += 1
                    await anyio.sleep(0.02)
            headers["Last-Event-ID"] = source.parser.last_id
            await anyio.sleep(source.parser.retry / 1000)

    def _show(self, frame: Frame) -> None:
        event = frame.json
        person = self._people.get(event.get("root_run_id", ""), "")
        match frame.type:
            case "agent:start":
                key = event.get("session_key", "")
                self._people[event["run_id"]] = key.removeprefix("web_").removesuffix("_x")
            case "agent:text":
                self._shown[person].append(event["text"])
            case "session:prompt":
                self._asked[person] = event["prompt_id"]
                self._shown[person].append(event["question"])


def _key(person: str) -> str:
    return f"web_{person}_x"


@asynccontextmanager
async def attach_http(hub: Hub) -> AsyncIterator[HttpDriver]:
    app = HttpApp(hub, token=TOKEN)
    transport = httpx.ASGITransport(app)
    async with (
        app,
        httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HEAD) as client,
        anyio.create_task_group() as group,
    ):
        driver = HttpDriver(app, client)
        group.start_soon(driver.listen)
        yield driver
        group.cancel_scope.cancel()
