"""A machine's clock may show anything; what is to happen happens, and can be looked at."""

import math
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from support.agents import Observer, model_agent

from hubbub import Cron, Heartbeat, RunState, Runtime, tool
from hubbub.__main__ import main
from hubbub.agents.folders.conversation_lines import timestamp
from hubbub.channels.http import HttpApp
from hubbub.channels.http.api.variables_page import page
from hubbub.hub.errors import BadValue
from hubbub.hub.events.moments import date_of, shown_moment
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.virtual import LoopClock, virtual_ports
from hubbub.runtime.demo.chat.tools import clock_tool
from hubbub.runtime.models.scripted import FunctionModel, call
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio]

SECOND = 1_000_000
MOMENTS = {
    "long before the year 1": -(2**59),
    "the year 1": -62_135_596_800 * SECOND,
    "the year 1, later": -62_135_596_790 * SECOND,
    "before 1970": -SECOND,
    "at 0": 0,
    "the end of the year 9999": 253_402_300_780 * SECOND,
    "the year 10000": 253_402_300_800 * SECOND,
    "after the last UUID": 2**48 * 1000,
    "long after": 2**59 - 10_000 * SECOND,
}
ROUTES = (
    "/api/statistics", "/api/agents", "/api/runs", "/api/runs/RUN", "/api/runs/RUN/state",
    "/api/runs/RUN/records", "/api/runs/RUN/test", "/api/prompts", "/api/conversations",
    "/api/conversations/chat_1_2", "/api/schedules", "/api/variables",
)  # fmt: skip
COMMANDS = (
    "runs", "show RUN", "tail", "replay RUN", "schedules", "conversations", "fsck", "reply",
    "export RUN", "show RUN --json", "runs --json", "schedules --json", "tail --json",
)  # fmt: skip


def ports_at(moment: Any) -> Ports:
    ports = virtual_ports()
    ports.clock = LoopClock(moment)
    return ports


@tool
async def wonder(state: RunState) -> str:
    """Ask somebody."""
    return str(await state.ask("And what do you think?", timeout=90_000))


def answers(request: Any) -> Any:
    said = str(getattr(request.messages[-1], "content", ""))
    return call("wonder") if "wonder" in said else f"You said {said[:20]}."


def runtime_at(moment: int, store: Journal) -> Runtime:
    agents = [model_agent(FunctionModel(answers), wonder, name="worker")]
    schedules = [
        Cron("each minute", "* * * * *", "worker", "Do it."),
        Cron("far", "0 3 1 1 *", "worker", "Do it.", timezone="Pacific/Kiritimati", misfire="all"),
        Heartbeat("worker", ["Tidy up."], interval=60),
    ]
    return Runtime(agents, store=store, ports=ports_at(moment), schedules=schedules, grace=0)


async def look_at_all(app: HttpApp, run_id: str) -> None:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for route in ROUTES:
            answer = await client.get(route.replace("RUN", run_id))
            assert answer.status_code == 200, (route, answer.text)


@pytest.mark.spec("P-07", "P-08", "W-02")
@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
async def test_whatever_a_clock_shows_work_goes_on_and_can_be_looked_at(
    moment: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    folder = tmp_path / "store"
    async with runtime_at(moment, sqlite_store(folder, ports=ports_at(moment))) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("worker", "wonder", session_key="chat_1_2", timeout=600)
        await anyio.sleep(200)
        fired = [x.schedule for x in seen.all("schedule:fire")]
        assert fired.count("heartbeat") >= 3
        async with HttpApp(rt.hub) as app:
            await look_at_all(app, run.run_id)
        await anyio.sleep(600)
        assert (await run.finished()).outcome == "timed_out"
    for command in COMMANDS:
        arguments = command.replace("RUN", run.run_id).split()
        code = main([*arguments, "--store", f"sqlite:{folder}"])
        told = capsys.readouterr()
        assert (code, told.err) == (0, ""), (command, told)
    async with runtime_at(1_800_000_000 * SECOND, sqlite_store(folder, ports=ports_at(0))) as rt:
        assert (await rt.run("worker", "hello")).output == "You said hello."
    wrong = [x.message for x in caplog.records if x.levelname == "ERROR"]
    assert all("outcome='timed_out'" in x for x in wrong), wrong


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
async def test_whatever_a_clock_shows_people_are_shown_something(moment: int) -> None:
    form = page({"expires_at": moment, "variables": [], "missing": []})
    assert b"<small>Until " in form.content
    said = await clock_tool(ports_at(moment))()
    date = date_of(moment)
    assert f"{date:%H:%M:%S} UTC" in said if date else said == str(moment)
    assert timestamp(moment).endswith("Z")
    assert shown_moment(moment)[-1] in ("Z" if date else "0123456789")


@pytest.mark.parametrize("shown", [math.nan, math.inf, 1.5e15, 2**63, -(2**64), None, "now", True])
async def test_what_shows_no_moment_is_no_clock(shown: Any) -> None:
    class Clock(LoopClock):
        def now(self) -> int:
            return shown  # type: ignore[no-any-return]

    ports = virtual_ports()
    ports.clock = Clock()
    with pytest.raises(BadValue, match="clock"):
        async with Runtime([], store="memory", ports=ports):
            raise AssertionError
