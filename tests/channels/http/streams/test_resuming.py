"""A client that is cut anywhere and comes back has everything once, partial answers included."""

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.asgi_clients import EventSource, Socket, event_source, socket
from support.profiles import examples
from support.restarts import Lives

from hubbub import START, Agent, Message, Runtime
from hubbub.agents.model import UserMessage
from hubbub.channels.http import HttpApp
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import Fault, FunctionModel, ScriptedModel, call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-03", "U-01")]

KEY: Final = "web_1"


def agents() -> list[Any]:
    """One that thinks aloud, asks a helper, and stumbles; texts are written word by word."""
    helper = Agent(
        "helper", "You help.", description="Helps.",
        model=ScriptedModel(
            [
                Fault("cut", after=12),
                reply("Höre: helping takes 👋 a while.", thinking="How could I"),
            ],
            latency=3.0, chunk=None,
        ),
    )  # fmt: skip
    steps = [
        reply("Let me ask somebody who knows.", call("helper", message="go"), thinking="Whom do I"),
        "Here is what it has said: öö 👋 it takes a while.",
    ]

    def answer(request: Any) -> Any:
        return steps[not isinstance(request.messages[-1], UserMessage)]

    talker = Agent(
        "talker", "You talk.", tools=[helper.as_tool()],
        model=FunctionModel(answer, latency=4.0, chunk=None),
    )  # fmt: skip
    return [talker, helper]


class Page:
    """What a page in a browser makes of a stream: records by identity, and texts by offsets."""

    def __init__(self) -> None:
        self.last_id = ""
        self.records: list[tuple[str, str, int]] = []
        self.gaps = 0
        self._texts: dict[tuple[Any, ...], str] = {}
        self._is_whole: set[tuple[Any, ...]] = set()
        """Texts of which every piece came since they were begun, over whatever connection."""
        self.finished = 0

    def cut(self) -> None:
        """The connection is lost: pieces may be missing from here on."""
        self._is_whole.clear()

    def take(self, event: dict[str, Any], position: str) -> None:
        if position:
            self.last_id = position
        type_ = event.get("type", "")
        if event.get("lane"):
            self.records.append((event["run_id"], event["lane"], event["seq"]))
        if type_ == "hub:gap":
            self.gaps += 1
        if type_ in ("agent:text:delta", "agent:thinking:delta"):
            self._piece(event, type_.removesuffix(":delta"))
        elif type_ in ("agent:text", "agent:thinking"):
            self._final(event, type_)

    def _piece(self, event: dict[str, Any], type_: str) -> None:
        attempt, block = event.get("attempt", 1), event.get("block", 0)
        key = (event["run_id"], type_, event["step"], block, attempt)
        text, offset = self._texts.get(key, ""), event.get("offset", 0)
        assert offset <= len(text), "something of the text is missing"
        after = text[:offset] + event["text"]
        # A model that is asked again after a restart may say something else, from its beginning.
        assert not offset or after.startswith(text), "it is another text"
        self._texts[key] = after
        self._is_whole.add(key)

    def _final(self, event: dict[str, Any], type_: str) -> None:
        place = (event["run_id"], type_, event["step"], event.get("block", 0))
        attempts = [key for key in self._texts if key[:4] == place]
        if attempts:
            latest = max(attempts)
            if latest in self._is_whole:
                assert self._texts[latest] == event["text"]
                self.finished += 1


class Visit(NamedTuple):
    """A connection that is lost after so many seconds or bytes, and the pause until the next."""

    seconds: float = math.inf
    size: int | None = None
    pause: float = 1.0


visits = st.builds(
    Visit,
    seconds=st.floats(0, 6),
    size=st.none() | st.integers(0, 6000),
    pause=st.floats(0, 4),
)


async def by_sse(app: Any, root_run_id: str, page: Page, visit: Visit) -> None:
    client, headers = EventSource(), {"Last-Event-ID": page.last_id} if page.last_id else {}
    client.breaks_after = visit.size
    try:
        async with event_source(
            app, client=client, headers=headers, root_run_id=root_run_id, after=START
        ):
            with anyio.move_on_after(visit.seconds):
                await client.ended.wait()
    finally:
        for frame in client.frames:
            page.take(frame.json, frame.id)
        page.cut()


async def by_socket(app: Any, root_run_id: str, page: Page, visit: Visit) -> None:
    client = Socket()
    client.vanishes_at = None if visit.size is None else 1 + visit.size // 400
    try:
        async with socket(app, client=client):
            after = page.last_id or START
            client.say("subscribe", selection="s", root_run_id=root_run_id, after=after)
            with anyio.move_on_after(visit.seconds):
                await client.ended.wait()
    finally:
        for item in client.events("s"):
            page.take(item["event"], item.get("position", ""))
        page.cut()


async def browse(
    connect: Any, app: Any, root_run_id: str, page: Page, plan: Iterator[Visit]
) -> None:
    while True:
        visit = next(plan, Visit())
        await connect(app, root_run_id, page, visit)
        await anyio.sleep(visit.pause)


async def visited(
    connect: Any, rt: Runtime, run_id: str, page: Page, plan: Iterator[Visit], seconds: float
) -> None:
    """Have a page visit a run for so long, or until it has come to its end."""
    async with HttpApp(rt.hub) as app, anyio.create_task_group() as group:
        group.start_soon(browse, connect, app, run_id, page, plan)
        with anyio.move_on_after(seconds):
            await rt.result(run_id)
            await anyio.sleep(min(seconds, 60))
        group.cancel_scope.cancel()


@pytest.mark.parametrize("connect", [by_sse, by_socket])
@settings(max_examples=examples(150), deadline=None)
@given(plan=st.lists(visits, max_size=8))
async def test_a_client_that_is_cut_anywhere_has_everything_once(
    connect: Any, plan: list[Visit]
) -> None:
    page = Page()
    async with Runtime(agents(), store="memory", ports=virtual_ports(), grace=0) as rt:
        run = await rt.start("talker", "go")
        await visited(connect, rt, run.run_id, page, iter(plan), math.inf)
        kept = await rt.hub.read(root_run_id=run.run_id)
    assert page.records == [(e.run_id, e.lane, e.seq) for e in kept]
    assert page.gaps == 0


@pytest.mark.parametrize("connect", [by_sse, by_socket])
@settings(max_examples=examples(40), deadline=None)
@given(
    plan=st.lists(visits, max_size=5),
    lives=st.lists(st.floats(0.5, 12), min_size=1, max_size=2),
    is_killed=st.booleans(),
)
async def test_also_where_the_runtime_is_restarted_or_killed_in_the_middle_of_an_answer(
    connect: Any, plan: list[Visit], lives: list[float], is_killed: bool
) -> None:
    page, visiting = Page(), iter(plan)
    with tempfile.TemporaryDirectory() as folder:
        store = Lives(Path(folder), virtual_ports(), is_killed=is_killed)
        for number, seconds in enumerate([*lives, math.inf]):
            async with store.life(*agents()) as rt:
                message = Message(f"message {number}", key=f"key {number}")
                run = await rt.start("talker", message, session_key=KEY)
                await visited(connect, rt, run.run_id, page, visiting, seconds)
                kept = await rt.hub.read(root_run_id=run.run_id)
    assert page.records == [(e.run_id, e.lane, e.seq) for e in kept]
    assert page.gaps == 0


@pytest.mark.parametrize("connect", [by_sse, by_socket])
async def test_who_stays_reads_each_text_to_its_end_from_the_pieces_alone(
    connect: Any, tmp_path: Path
) -> None:
    page = Page()
    async with Lives(tmp_path, virtual_ports()).life(*agents()) as rt:
        run = await rt.start("talker", "go")
        await anyio.sleep(1.5)
        await visited(connect, rt, run.run_id, page, iter(()), math.inf)
    # Reasoning and text of each of two, and the text of a third.
    assert page.finished == 5
