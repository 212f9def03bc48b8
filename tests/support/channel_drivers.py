"""The far ends of hubbub's own channels, for the conformance kit: a terminal and an HTTP client."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import httpx
from anyio.abc import TaskGroup

from hubbub import Hub, Runtime, agent
from hubbub.channels import run_console
from hubbub.channels.conformance import ANN, PARTNER, OpenHub, partner
from hubbub.channels.http.app import HttpApp
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from support.fake_terminal import FakeTerminal

__all__ = ["attach_console", "attach_http", "open_partner"]

TOKEN: Final = "token-71c0ffee5e6c2e74"


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
    """People with HTTP clients: they post, and read the records of their conversation."""

    secrets = (TOKEN,)
    is_attached = True

    def __init__(self, client: httpx.AsyncClient, group: TaskGroup) -> None:
        self._client = client
        self._group = group
        self._runs: dict[str, str] = {}
        self._shown: dict[str, list[str]] = {}
        self._asked: dict[str, str] = {}
        self._fails = False

    async def say(self, text: str, *, person: str = ANN, key: str = "") -> None:
        answer = await self._client.post(
            "/api/runs",
            json={
                "agent": PARTNER,
                "session_key": _key(person),
                "message": {"content": text, "key": key or None},
            },
        )
        assert answer.status_code in (200, 202), answer.text
        run_id = answer.json()["run_id"]
        if self._runs.get(person) != run_id:
            self._runs[person] = run_id
            self._group.start_soon(self._follow, person, run_id)

    async def answer(self, text: str, *, person: str = ANN) -> None:
        answer = await self._client.post(
            f"/api/prompts/{self._asked[person]}/reply", json={"content": text}
        )
        assert answer.status_code < 500, answer.text

    def shown(self, person: str = ANN) -> str:
        return "\n".join(self._shown.get(person, ()))

    def fail_next(self) -> None:
        self._fails = True

    async def come_back(self, person: str) -> None:
        """Read the conversation that a person has already, if there is one."""
        found = await self._client.get(f"/api/conversations/{_key(person)}")
        if found.status_code == 200:
            self._runs[person] = found.json()["run_id"]
            self._group.start_soon(self._follow, person, self._runs[person])

    async def _follow(self, person: str, run_id: str) -> None:
        after = "start"
        while True:
            after = await self._read(person, run_id, after)
            await anyio.sleep(0.05)

    async def _read(self, person: str, run_id: str, after: str) -> str:
        page = await self._client.get(
            f"/api/runs/{run_id}/records",
            params={"after": after, "types": "agent:text,session:prompt"},
        )
        if self._fails:  # The answer does not arrive.
            self._fails = False
            return after
        assert page.status_code == 200, page.text
        for record in page.json()["records"]:
            self._show(person, record)
        return str(page.json()["next"])

    def _show(self, person: str, record: dict[str, Any]) -> None:
        if record["type"] == "session:prompt":
            self._asked[person] = record["prompt_id"]
        self._shown.setdefault(person, []).append(
            record.get("text") or record.get("question") or ""
        )


def _key(person: str) -> str:
    return f"web_{person}_x"


@asynccontextmanager
async def attach_http(hub: Hub) -> AsyncIterator[HttpDriver]:
    app = HttpApp(hub, token=TOKEN)
    head = {"Authorization": f"Bearer {TOKEN}"}
    transport = httpx.ASGITransport(app)
    async with (
        app,
        httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=head) as client,
        anyio.create_task_group() as group,
    ):
        driver = HttpDriver(client, group)
        await driver.come_back(ANN)
        yield driver
        group.cancel_scope.cancel()
