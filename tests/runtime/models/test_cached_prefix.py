"""One request's messages begin the next one's, so that a provider's cache serves them.

Whatever happens in a conversation: tools, children, takeovers, interruptions, retries, two sides,
handoffs, processes that die.
"""

import json
from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents import model_agent
from support.anthropic_wire import AnthropicWire, anthropic_problems
from support.cached_prefix import BODIES, breaks
from support.histories import STORIES, lived
from support.openai_wire import OpenAIWire
from support.profiles import examples

from hubbub import Runtime
from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    ModelReply,
    ModelRequest,
    Usage,
    UserMessage,
)
from hubbub.agents.turn.request import CONTINUE
from hubbub.hub.events import AgentStep
from hubbub.runtime.models.conformance import (
    CONTENTS,
    CONVERSATION,
    HISTORIES,
    NOTED,
    ServerAnswer,
    serving,
)
from hubbub.runtime.models.conformance.wire import model_at
from hubbub.runtime.models.openai.model import OpenAIModel
from hubbub.runtime.simulation import History, simulate
from hubbub.runtime.simulation.story.faults import Crash, ModelFault, ToolFault
from hubbub.runtime.simulation.strategies.scripts import scripted
from hubbub.runtime.simulation.strategies.worlds import faults, scripts, seeds, steps

MARK = {"type": "ephemeral"}


def conversations(history: History) -> list[list[ModelRequest]]:
    """The requests that continue one another: one agent's, on one side of one run.

    Over restarts, too.
    """
    found = defaultdict[Any, list[ModelRequest]](list)
    for asked in history.requests:
        assert asked.request.cache_key.startswith(f"{asked.run_id}:side_")
        found[asked.request.cache_key, asked.agent].append(asked.request)
    return list(found.values())


def broken(history: History) -> list[str]:
    return [
        line
        for requests in conversations(history)
        for provider in BODIES
        for line in breaks(provider, requests)
    ]


BEGUN_AGAIN = {"beside", "cut short", "stack", "code"}
"""Stories with a reset, or with a session of a code agent that is executed again."""


@pytest.mark.spec("L-01")
@pytest.mark.parametrize("story", sorted({*STORIES} - BEGUN_AGAIN))
def test_each_request_begins_as_the_one_before_it(story: str) -> None:
    history = lived(STORIES[story])
    assert broken(history) == []


SETUPS = {name: STORIES[name].setup for name in ("tools", "children", "two sides", "stack")}


@pytest.mark.spec("L-01")
@settings(max_examples=examples(150))
@given(data=st.data(), name=st.sampled_from(sorted(SETUPS)), seed=seeds())
def test_whatever_happens_each_request_begins_as_the_one_before_it(
    data: Any, name: str, seed: int
) -> None:
    setup = SETUPS[name]
    history = simulate(
        data.draw(steps(setup)),
        scripted(setup, data.draw(scripts(setup))),
        faults=data.draw(faults(setup, Crash, ModelFault, ToolFault)),
        seed=seed,
    )
    assert broken(history) == []


@pytest.mark.spec("L-01")
@settings(max_examples=examples(300), deadline=None)
@given(messages=HISTORIES, further=HISTORIES, notes=st.lists(st.sampled_from(["a", " "])))
def test_whatever_a_conversation_holds_its_wire_form_only_grows(
    messages: Any, further: Any, notes: Any
) -> None:
    requests = []
    for end in range(len(messages), len(messages) + len(further) + 1):
        shown = (*messages, *further)[:end]
        if not shown or (isinstance(shown[-1], AssistantMessage) and not shown[-1].calls):
            shown = (*shown, CONTINUE)
        asked = ModelRequest(
            messages=shown, system_notes=tuple(notes), cache="5m", contents=CONTENTS
        )
        requests.append(asked)
    for provider in BODIES:
        assert [*breaks(provider, requests)] == []


# ── Anthropic's marks ────────────────────────────────────────────────────────────────────────


def marked(body: Any) -> list[str]:
    """What bears a mark, in the order in which it is cached."""
    found = [f"tool {each['name']}" for each in body.get("tools", ()) if "cache_control" in each]
    if isinstance(body.get("system"), list):
        found += [f"system {each['text']}" for each in body["system"] if "cache_control" in each]
    for message in body["messages"]:
        for block in message["content"]:
            if "cache_control" in block:
                name = block.get("text") or block.get("tool_use_id") or block["type"]
                found.append(f"{message['role']} {name}")
    return found


def asked(*messages: Any, **fields: Any) -> Any:
    request = ModelRequest(messages=messages, **{"cache": "5m", "system": "You help.", **fields})
    body = BODIES["anthropic"](request)
    assert anthropic_problems(body) == []
    return body


def user(text: str) -> UserMessage:
    return UserMessage(content=text)


def own(text: str, *calls: str) -> AssistantMessage:
    answered = [AnsweredCall(id=each, name="look", arguments="{}", output="x") for each in calls]
    return AssistantMessage(text=text, calls=tuple(answered))


@pytest.mark.spec("L-01")
def test_what_the_next_request_begins_with_is_marked_twice() -> None:
    tools = CONVERSATION.tools
    body = asked(user("Hi."), own("", "a", "b"), own("Yes."), user("And?"), tools=tools)
    assert marked(body) == ["tool get_weather", "system You help.", "user b", "user And?"]
    assert marked(asked(user("Hi."))) == ["system You help.", "user Hi."]


def test_the_second_mark_stands_where_the_request_before_had_its_first() -> None:
    """Anthropic looks for what it kept at most twenty blocks before a mark."""
    said = [user("Hi."), own("Wait.", *(f"c{n}" for n in range(30))), own("Hm."), user("And?")]
    before: list[str] = []
    for end in (1, 2, 4):
        now = marked(asked(*said[:end], system=""))
        assert before == [] or before[-1] in now
        before = now


@pytest.mark.parametrize("notes", [(), ("Children: none.",)])
def test_what_changes_with_the_next_request_stands_behind_the_marks(notes: Any) -> None:
    asks = asked(user("Hi."), own("Wait."), CONTINUE, system_notes=notes)
    assert marked(asks) == ["system You help.", "user Hi.", "assistant Wait."]
    assert asks["messages"][-1]["content"][0]["text"] == "(continue)"
    begins = asked(CONTINUE, system_notes=notes)
    assert marked(begins) == ["system You help."]


@pytest.mark.spec("L-01")
@pytest.mark.parametrize(
    ("cache", "mark"), [("5m", MARK), ("1h", {**MARK, "ttl": "1h"}), ("", None)]
)
def test_marks_say_for_how_long(cache: str, mark: Any) -> None:
    body = asked(user("Hi."), cache=cache)
    assert body["messages"][0]["content"][0].get("cache_control") == mark


@pytest.mark.parametrize(
    "options",
    [
        {"cache_control": MARK},
        {"system": [{"type": "text", "text": "Mine.", "cache_control": MARK}]},
        {"tools": [{"name": "n", "input_schema": {"type": "object"}, "cache_control": MARK}]},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "x", "cache_control": MARK}],
                }
            ]
        },
    ],
    ids=lambda options: next(iter(options)),
)
def test_marks_of_the_options_own_are_the_only_ones(options: Any) -> None:
    body = asked(user("Hi."), own("Yes."), user("And?"), options=options)
    assert json.dumps(body).count("cache_control") == 1


# ── OpenAI's key ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("L-01")
def test_openai_gets_the_key_and_other_servers_do_not() -> None:
    request = ModelRequest(messages=(user("Hi."),), cache="5m", cache_key="run:side_a")
    assert BODIES["openai"](request)["prompt_cache_key"] == "run:side_a"
    for other in ({"cache": ""}, {"cache_key": ""}):
        assert "prompt_cache_key" not in BODIES["openai"](msgspec.structs.replace(request, **other))
    assert OpenAIModel("m", key="k")._dialect.keeps_by_key
    assert not OpenAIModel("m", base_url="http://localhost:11434/v1")._dialect.keeps_by_key


@pytest.mark.parametrize("provider", BODIES)
@pytest.mark.parametrize("request_", [CONVERSATION, NOTED], ids=["plain", "noted"])
def test_a_cache_changes_nothing_of_what_is_said(provider: str, request_: ModelRequest) -> None:
    kept = msgspec.structs.replace(request_, cache="1h", cache_key="k")
    assert [*breaks(provider, [request_, kept, request_])] == []


# ── what the cache did ───────────────────────────────────────────────────────────────────────


@pytest.mark.spec("L-01")
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("wire", [AnthropicWire(), OpenAIWire()], ids=["anthropic", "openai"])
async def test_the_tokens_of_the_cache_are_in_the_step(wire: Any) -> None:
    """In real time, which sockets need.  Chat Completions does not say what was written."""
    usage = Usage(input_tokens=12, output_tokens=3, cache_read_tokens=900, cache_write_tokens=7)
    answer = wire.carried(ModelReply(text="Yes.", usage=usage, model="m"))
    steps: list[AgentStep] = []
    async with (
        serving(ServerAnswer(wire.stream(answer))) as server,
        model_at(wire, server) as model,
        Runtime([model_agent(model)], store="memory") as runtime,
    ):
        runtime.hub.subscribe(AgentStep, steps.append)
        outcome = await runtime.run("assistant", "Hi.")
    assert [step.usage for step in steps] == [outcome.usage] == [answer.usage]
    assert answer.usage.cache_read_tokens == 900
