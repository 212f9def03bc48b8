"""Whatever a step asks, the client that repeats what it was told reaches the same run, and a
request that is sent again is the same one."""

import json
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from support.openai_face import CHAT_WEATHER, WEATHER, client_of, forgetful, with_client
from support.profiles import examples

from hubbub import Agent, FunctionModel, RunState, tool
from hubbub.agents.model import AssistantMessage, ModelReply, ModelRequest, UserMessage
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import call, reply

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.spec("W-05"),
    # On Trio the client leaves its own generators unclosed behind the end of a stream.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Step(Struct, frozen=True):
    """What the model says and calls: ``weather`` of the client, ``pay``, ``paint``, ``add``,
    ``clerk``."""

    text: str
    calls: tuple[str, ...]


class Client(Struct, frozen=True):
    """How a client sends what was said."""

    way: str
    """``chat`` (with a session), ``lone chat``, ``list``, ``previous``, ``conversation``."""
    drops_text: bool = False
    """Whether it keeps no content beside ``tool_calls``."""
    merges: bool = False
    """Whether of an answer that is over it keeps the text alone, as one message."""
    streams: bool = False
    answers_at_once: bool = False
    """Whether it sends results and the user's answer together."""
    limit: int | None = None
    denies_after: int | None = None
    """How many approvals of a plan it gives before it denies what is asked."""
    retries: tuple[float | None, ...] = (None,)
    """After how many seconds each request, in turn, is sent again; ``None`` where it is not."""
    again: tuple[bool, ...] = (False,)
    """Whether behind its answer, in turn, the request before is sent again, too."""
    says_so: bool = True
    """Whether what is sent again says so, as that of the official clients does."""
    by_another: bool = False
    """Whether it comes to another process, which has not seen it."""

    @property
    def is_chat(self) -> bool:
        return "chat" in self.way

    def may_repeat(self, sent: "Sent", delay: float) -> bool:
        """Whether a request that is sent again can be known for what it is."""
        if not self.says_so and (sent.is_new or self.way in ("conversation", "previous")):
            return False  # It may be meant so.
        has_session = self.way in ("chat", "conversation") or not sent.is_opening
        if self.by_another and (self.way in ("lone chat", "list") or not has_session):
            return False  # Where nothing waits, nothing tells of it.
        # In a conversation it could come first, and is taken for the one before, if that said so.
        may_be_first = self.by_another and not delay
        return not (may_be_first and (sent.is_opening or self.way == "conversation"))


class Sent(Struct):
    """A request."""

    options: dict[str, Any]
    is_opening: bool
    is_new: bool
    """Whether it says something that answers nothing."""
    id: str = ""


# ── the agent ────────────────────────────────────────────────────────────────────────────────


def world(paid: list[str], added: list[str], plans: list[list[Step]]) -> Agent:
    """An agent that does what the last plan says that it was told, and pays when it is allowed."""

    @tool(approval=True)
    async def pay(order: str) -> str:
        """Pay; it takes a while."""
        await anyio.sleep(1)
        paid.append(order)
        return "paid"

    @tool
    async def paint(state: RunState, order: str) -> str:
        """Paint."""
        return await state.ask(f"Which colour has {order}?")

    @tool
    async def add(order: str) -> str:
        """Add."""
        await anyio.sleep(0.2)
        added.append(order)
        return "added"

    def step(request: ModelRequest) -> ModelReply:
        at, plan, name = 0, [Step("", ())], ""
        for message in request.messages:
            if isinstance(message, AssistantMessage):
                at += 1
            elif isinstance(message, UserMessage) and message.content.startswith("plan "):
                at, name = 0, message.content.removeprefix("plan ")
                plan = plans[int(name)]
        if at >= len(plan):
            return reply(f"Done with {name}.")
        made = [
            call("clerk", message=f"{name}.{at}.{n}")
            if kind == "clerk"
            else call(kind, **{"city" if kind == "weather" else "order": f"{name}.{at}.{n}"})
            for n, kind in enumerate(plan[at].calls)
        ]
        return reply(plan[at].text, *made)

    def clerk(request: ModelRequest) -> ModelReply:
        last = request.messages[-1]
        if isinstance(last, AssistantMessage):
            return reply("It is paid.")
        return reply("I pay.", call("pay", order=last.content))

    child = Agent("clerk", "You pay.", model=FunctionModel(clerk), tools=[pay])
    return Agent(
        "main", "You do it.", model=FunctionModel(step),
        tools=[pay, paint, add, child.as_tool(blocking=True)],
    )  # fmt: skip


# ── the client ───────────────────────────────────────────────────────────────────────────────


class Told(Struct):
    """An answer."""

    run_id: str
    text: str
    calls: list[str]


class Talk:
    """One client's conversation."""

    def __init__(self, client: Any, other: Any, how: Client) -> None:
        self._client, self._other, self._how = client, other, how
        self._all: list[Sent] = []
        self._sent: list[Any] = []
        """What was said so far, as it is sent; of a client of responses by id, what is new."""
        self._turn = 0
        """Where what was said since the last plan begins."""
        self._last_id = ""

    async def say(self, results: list[str], text: str = "") -> Told:
        """Send results of calls, and what the user says."""
        if text.startswith("plan "):
            self._turn = len(self._sent)
        elif text and not results and self._how.merges and self._how.is_chat:
            self._merge()
        return await (self._chat if self._how.is_chat else self._respond)(results, text)

    def _merge(self) -> None:
        """Of what was answered since the user spoke last, keep the words."""
        at = max(n for n, x in enumerate(self._sent) if x["role"] == "user") + 1
        said = [x["content"] for x in self._sent[at:] if x["role"] == "assistant"]
        self._sent[at:] = [{"role": "assistant", "content": "\n\n".join(filter(None, said))}]

    async def _chat(self, results: list[str], text: str) -> Told:
        how = self._how
        self._sent += [{"role": "tool", "tool_call_id": x, "content": "sunny"} for x in results]
        if text:
            self._sent.append({"role": "user", "content": text})
        options: dict[str, Any] = {
            "model": "main", "messages": [*self._sent], "tools": [CHAT_WEATHER]
        }  # fmt: skip
        if how.limit:
            options["max_tokens"] = how.limit
        made = await self._ask(options, text)
        message = made.choices[0].message
        calls = message.tool_calls or []
        said: dict[str, Any] = {"role": "assistant", "content": message.content}
        if calls:
            said["tool_calls"] = [
                {"id": x.id, "type": "function",
                 "function": {"name": x.function.name, "arguments": x.function.arguments}}
                for x in calls
            ]  # fmt: skip
            if how.drops_text:
                said["content"] = None
        self._sent.append(said)
        run_id = made.id.removeprefix("chatcmpl-").rpartition("_")[0]
        return Told(run_id, message.content or "", [x.id for x in calls])

    async def _respond(self, results: list[str], text: str) -> Told:
        how = self._how
        if how.way != "list":
            self._sent.clear()
        self._sent += [
            {"type": "function_call_output", "call_id": x, "output": "sunny"} for x in results
        ]
        if text:
            self._sent.append({"role": "user", "content": text})
        options: dict[str, Any] = {"model": "main", "input": [*self._sent], "tools": [WEATHER]}
        if how.way == "conversation":
            options["conversation"] = "s"
        elif how.way == "previous" and self._last_id:
            options["previous_response_id"] = self._last_id
        made = await self._ask(options, text)
        assert made.status == "completed", made
        if how.way == "list":
            self._sent += [x.model_dump(exclude_none=True) for x in made.output]
        self._last_id = made.id
        calls = [x.call_id for x in made.output if x.type == "function_call"]
        return Told(made.id.removeprefix("resp_").rpartition("_")[0], made.output_text, calls)

    async def _ask(self, options: dict[str, Any], text: str) -> Any:
        """Send a request, maybe more than once; the answer to it."""
        how, at = self._how, len(self._all)
        is_new = text.startswith("plan ")
        sent = Sent(options, is_opening=is_new and not at, is_new=is_new)
        self._all.append(sent)
        delay = how.retries[at % len(how.retries)]
        answers: list[Any] = []

        async def send(client: Any, each: Sent, says_so: bool) -> None:
            answers.append(await self._send(client, each.options, says_so))

        async with anyio.create_task_group() as group:
            group.start_soon(send, self._client, sent, False)
            if delay is not None and how.may_repeat(sent, delay):
                await anyio.sleep(delay)
                group.start_soon(send, self._other, sent, how.says_so)
        sent.id = answers[0].id
        if at and how.again[at % len(how.again)]:
            before = self._all[-2]
            # Only what is the last of a conversation is known by its words.
            if how.way != "conversation" and how.may_repeat(before, 1) and not how.by_another:
                made = await self._send(self._other, before.options, how.says_so)
                assert made.id == before.id
        assert {x.id for x in answers} == {sent.id}, "it has another answer"
        return answers[0]

    async def _send(self, client: Any, options: dict[str, Any], says_so: bool) -> Any:
        how = self._how
        headers = {"x-stainless-retry-count": "1"} if says_so else {}
        if how.way == "chat":
            headers["X-Session-Id"] = "s"
        options = {**options, "extra_headers": headers}
        if not how.is_chat:
            return await client.responses.create(**options)
        completions = client.chat.completions
        if how.streams and not how.limit:  # The client collects no stream that was cut.
            async with completions.stream(**options) as chunks:
                return await chunks.get_final_completion()
        return await completions.create(**options)


async def carry_out(talk: Talk, how: Client, plan: int) -> tuple[set[str], int, bool]:
    """Tell the agent a plan, and answer all that it asks; in which runs, how many approvals were
    given, and whether any was denied."""
    told = await talk.say([], f"plan {plan}")
    runs, given, has_denied = {told.run_id}, 0, False
    for _ in range(60):
        said = ""
        if 'Say "approve"' in told.text:
            said = "approve" if given != how.denies_after else "too much"
        elif "Which colour" in told.text:
            said = "red"
        if said and (how.answers_at_once or not told.calls):
            given += said == "approve"
            has_denied |= said == "too much"
        if told.calls:
            told = await talk.say(told.calls, said if how.answers_at_once else "")
        elif said:
            told = await talk.say([], said)
        else:
            return runs, given, has_denied
        runs.add(told.run_id)
    raise AssertionError("it goes on and on")


# ── what is drawn ────────────────────────────────────────────────────────────────────────────

CALLS = st.lists(st.sampled_from(["weather", "pay", "paint", "add", "clerk"]), max_size=4).map(
    # One message answers one child, and every question of a tool's.
    lambda found: tuple(
        kind
        for at, kind in enumerate(found)
        if kind not in ("paint", "clerk") or not {"paint", "clerk"} & {*found[:at]}
    )
)
STEPS = st.builds(
    Step, st.sampled_from(["", "Let me look.", "One  moment, please."]), CALLS.filter(bool)
)
PLANS = st.lists(st.lists(STEPS, min_size=1, max_size=3), min_size=1, max_size=3)
CLIENTS = st.builds(
    Client,
    way=st.sampled_from(["chat", "lone chat", "list", "previous", "conversation"]),
    drops_text=st.booleans(), merges=st.booleans(), streams=st.booleans(),
    answers_at_once=st.booleans(), limit=st.sampled_from([None, None, 2]),
    denies_after=st.sampled_from([None, None, 0, 1]),
    retries=st.lists(st.sampled_from([None, 0.0, 0.5, 5.0]), min_size=1, max_size=4).map(tuple),
    again=st.lists(st.booleans(), min_size=1, max_size=3).map(tuple),
    says_so=st.booleans(), by_another=st.booleans(),
)  # fmt: skip


@settings(
    max_examples=examples(150), deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(PLANS, CLIENTS)
async def test_a_client_that_repeats_what_it_was_told_is_understood(
    plans: list[list[Step]], how: Client
) -> None:
    paid: list[str] = []
    added: list[str] = []
    async with (
        with_client(virtual_ports(), world(paid, added, plans)) as (rt, app, client),
        client_of(forgetful(rt.hub) if how.by_another else app) as other,
    ):
        talk = Talk(client, other, how)
        done = [await carry_out(talk, how, at) for at in range(len(plans))]
        found = [runs for runs, _, _ in done]
        assert all(len(runs) == 1 for runs in found), json.dumps(talk._sent, indent=1)
        has_session = how.way in ("chat", "previous", "conversation")
        assert len(set.union(*found)) == (1 if has_session else len(plans))
        wanted = {
            kind: [
                f"{name}.{at}.{n}"
                for name, plan in enumerate(plans)
                for at, step in enumerate(plan)
                for n, each in enumerate(step.calls)
                if each == kind
            ]
            for kind in ("pay", "clerk", "add")
        }
        assert len(paid) == len(set(paid)) == sum(given for _, given, _ in done)
        assert sorted(added) == sorted({*added})
        if not any(denied for _, _, denied in done):
            assert sorted(paid) == sorted(wanted["pay"] + wanted["clerk"])
            assert sorted(added) == sorted(wanted["add"])
        asked = await rt.hub.read(types="session:prompt")
        assert len(await rt.hub.read(types="session:prompt:end")) == len(asked), "one is open"
