"""Summaries of older messages, as a user of a runtime meets them."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import structs
from support.agents import Observer, heard, model_agent
from support.cached_prefix import BODIES
from support.families import child

from hubbub import (
    Compaction,
    FunctionModel,
    Hook,
    ModelReply,
    ModelRequest,
    ModelSettings,
    RestorePolicy,
    RunContext,
    Runtime,
    ScriptedModel,
    Usage,
    agent,
)
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub.events import AgentStep, SessionCompaction
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.inspection.event_words import talk_of
from hubbub.runtime.models.anthropic.model import AnthropicModel
from hubbub.runtime.models.http.windows import WINDOWS, window_of
from hubbub.runtime.models.openai.model import OpenAIModel
from hubbub.runtime.models.providers import PROVIDERS
from hubbub.runtime.models.responses.model import ResponsesModel
from hubbub.runtime.models.scripted import Fault, call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-04")]

SMALL = Compaction(window=1000)
SUMMARY = "They counted.\n"
REPLACED = "Summary of the conversation so far, in place of its older messages:\n\nThey counted."


class Talker:
    """Answers at length, says what that cost, and summarises as it is told."""

    def __init__(self, *summaries: Any) -> None:
        self.requests: list[ModelRequest] = []
        self.asked: list[ModelRequest] = []
        self._summaries = list(summaries)

    def __call__(self, request: ModelRequest) -> Any:
        if request.purpose == "summary":
            self.asked.append(request)
            return self._summaries.pop(0) if len(self._summaries) > 1 else self._summaries[0]
        self.requests.append(request)
        size = sum(len(message.content) for message in request.messages)
        return ModelReply(text="a" * 80, usage=Usage(input_tokens=size, output_tokens=20))

    def agent(self, compaction: Any = SMALL, **options: Any) -> Any:
        return model_agent(FunctionModel(self, latency=0.1), compaction=compaction, **options)


def summary(text: str = SUMMARY, **fields: Any) -> ModelReply:
    return ModelReply(text=text, usage=Usage(input_tokens=700, output_tokens=30), **fields)


async def talk(run: Any, turns: int, begin: int = 1) -> None:
    for number in range(begin, begin + turns):
        await run.ask(f"question {number} " + "q" * 60)


async def test_older_messages_become_a_summary_when_the_window_is_nearly_full(
    journal: Journal, ports: Ports
) -> None:
    talker = Talker(summary())
    async with Runtime([talker.agent()], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "question 0")
        await talk(run, 7)
        (event,) = observer.all("session:compaction")
        outcome = await run.result()
        assert outcome is not None
    assert (event.summary, event.error, event.covers) == ("They counted.", "", 12)
    assert event.usage == Usage(input_tokens=700, output_tokens=30)
    # What is left of the conversation, and the question that nobody has answered yet.
    assert heard(talker.requests[-1])[0] == REPLACED
    assert heard(talker.requests[-1])[-1].startswith("question 7")
    assert len(talker.requests[-1].messages) < len(talker.requests[-2].messages) + 2
    (asked,) = talker.asked
    assert len(asked.messages) == event.covers + 1
    assert asked.messages[-1].content.startswith("Summarise the conversation above")
    # It counts: for the session in which it was made, and in total.
    steps = observer.all("agent:step")
    total = sum(step.usage.input_tokens for step in steps) + 700
    (last,) = [x for x in observer.all("session:end") if x.usage.output_tokens == 50]
    assert last.usage.input_tokens > 700
    lane = [x for x in observer.of(run.run_id) if x.type != "agent:text:delta"]
    assert fold_all(EMPTY, lane).total_usage.input_tokens == total


@pytest.mark.parametrize("compaction", [False, True, Compaction(window=100_000)])
async def test_nothing_is_summarised_where_it_is_not_wanted_or_no_window_is_known(
    journal: Journal, ports: Ports, compaction: Any
) -> None:
    talker = Talker(summary())
    agents = [talker.agent(compaction)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "question 0")
        await talk(run, 12)
    assert talker.asked == []
    assert len(talker.requests[-1].messages) == 25


async def test_that_a_window_is_not_known_is_said_once(
    ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(request: ModelRequest) -> ModelReply:
        return ModelReply(text="Yes.", usage=Usage(input_tokens=20_000 * len(request.messages)))

    agents = [model_agent(FunctionModel(answer)),
              model_agent(FunctionModel(answer), name="other", compaction=False)]  # fmt: skip
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        for name in ("assistant", "other"):
            for _ in range(2):
                run = await runtime.start(name, "Hello?")
                assert "compaction.off" not in caplog.text or name != "assistant" or _ == 1
                await talk(run, 4)
    (line,) = [x for x in caplog.messages if "compaction.off" in x]
    assert "give compaction=Compaction(window=…)" in line
    assert "prompt-of-assistant" in line


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (summary(" \n"), "the model's summary was empty"),
        (reply("", call("look")), "the model's summary was empty"),
        (summary(stop_reason="length"), "the model ended its summary early: length"),
        (summary(stop_reason="refusal"), "the model ended its summary early: refusal"),
        (
            summary("s" * 500_000),
            "is no shorter than what it covers: 500,000 characters in place of",
        ),
        (Fault("auth", message="no"), "no"),
        (7, "a int; return a str"),
    ],
)
async def test_a_summary_that_fails_changes_nothing_and_is_seen(
    ports: Ports, caplog: pytest.LogCaptureFixture, answer: Any, why: str
) -> None:
    talker = Talker(answer)
    async with Runtime([talker.agent()], store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "question 0")
        await talk(run, 12)
    (event,) = observer.all("session:compaction")
    assert why in event.error
    assert event.summary == ""
    assert len(talker.asked) == 1, "not tried again at every step"
    assert len(talker.requests[-1].messages) == 25
    assert "summary.failed" in caplog.text


async def test_what_may_pass_is_tried_again(journal: Journal, ports: Ports) -> None:
    talker = Talker(Fault("rate_limit"), Fault("connection"), summary())
    async with Runtime([talker.agent()], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "question 0")
        await talk(run, 7)
    assert [x.summary for x in observer.all("session:compaction")] == ["They counted."]
    assert [x.attempt for x in talker.asked] == [1, 2, 3]


async def test_a_model_that_never_answers_is_given_up(ports: Ports) -> None:
    talker = Talker(Fault("hang"))
    async with Runtime([talker.agent()], store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "question 0")
        await talk(run, 7)
    (event,) = observer.all("session:compaction")
    assert event.error == "the model did not answer within 600 s"


async def test_all_attempts_together_have_the_time_of_one_call(ports: Ports) -> None:
    """A turn waits for its summary no longer than it would for a step."""
    for answer in (Fault("hang"), Fault("rate_limit", retry_after=100)):
        talker = Talker(answer)
        agents = [talker.agent(settings=ModelSettings(timeout=2))]
        async with Runtime(agents, store="memory", ports=ports) as runtime:
            observer = Observer(runtime.hub)
            run = await runtime.start("assistant", "question 0")
            await talk(run, 6)
            began = anyio.current_time()
            await talk(run, 1, 7)
        (event,) = observer.all("session:compaction")
        assert event.error == "the model did not answer within 2 s"
        assert anyio.current_time() - began < 2.5


async def test_the_time_of_a_summary_is_that_of_its_own_side(ports: Ports) -> None:
    def work(request: ModelRequest) -> Any:
        if request.purpose == "summary":
            return Fault("hang")
        own = request.summarised + sum(not hasattr(m, "role") for m in request.messages)
        return reply("", call("finish", result="ok")) if own == 6 else reply(f"step {own}")

    model = FunctionModel(work, latency=1)
    helper = child(model, other=model, max_session_turns=20)
    for side, seconds in (("side_a", 3), ("side_b", 7)):
        config = getattr(helper, side)
        prompt = structs.replace(config.prompt, settings=ModelSettings(timeout=seconds))
        helper = structs.replace(helper, **{side: structs.replace(config, prompt=prompt)})
    async with Runtime([helper], store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("helper", "Do it together.")
        await anyio.sleep(7.5)
        runtime.hub.compact(run.run_id)
        await run.finished()
    assert [(x.side, x.error) for x in observer.all("session:compaction")] == [
        ("side_a", "the model did not answer within 3 s"),
        ("side_b", "the model did not answer within 7 s"),
    ]


# ── by hand ──────────────────────────────────────────────────────────────────────────────────


async def test_a_parked_conversation_is_summarised_by_hand(journal: Journal, ports: Ports) -> None:
    talker = Talker(summary())
    async with Runtime([talker.agent(True)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "question 0")
        await talk(run, 3)
        receipt = await runtime.hub.compact(run.run_id)
        assert receipt.accepted
        await anyio.sleep(10)
        assert runtime.hub.statistics().parked == 1
        await run.ask("And now?")
        await run.close()
        await run.finished()
        ended = await runtime.hub.compact(run.run_id)
        assert ended.status == "rejected"
        assert (await runtime.hub.compact("nobody")).status == "rejected"
    assert [x.covers for x in observer.all("session:compaction")] == [7]
    assert heard(talker.requests[-1])[0] == REPLACED
    assert heard(talker.requests[-1])[-1] == "And now?"
    types = [x.type for x in observer.of(run.run_id)]
    at = types.index("session:compaction")
    assert types[at - 2 : at + 2] == [
        "agent:park", "session:taken", "session:compaction", "agent:park",
    ]  # fmt: skip


async def test_where_there_is_nothing_to_summarise_that_is_said(ports: Ports) -> None:
    talker = Talker(summary())
    async with Runtime([talker.agent()], store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "question 0")
        await run.result()
        runtime.hub.compact(run.run_id)
        await anyio.sleep(1)
    assert [x.error for x in observer.all("session:compaction")] == [
        "there is nothing to summarise yet"
    ]
    assert talker.asked == []


async def test_both_sides_are_summarised_by_hand_each_by_its_model(ports: Ports) -> None:
    def work(request: ModelRequest) -> ModelReply:
        if request.purpose == "summary":
            return ModelReply(text=f"of {request.system}")
        own = request.summarised + sum(not hasattr(m, "role") for m in request.messages)
        return reply("", call("finish", result="ok")) if own == 6 else reply(f"step {own}")

    model = FunctionModel(work, latency=1)
    agents = [child(model, other=model, max_session_turns=20)]
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("helper", "Do it together.")
        await anyio.sleep(7.5)
        runtime.hub.compact(run.run_id)
        await run.finished()
    made = observer.all("session:compaction")
    assert [(x.side, x.summary) for x in made] == [
        ("side_a", "of You are helper."), ("side_b", "of You review."),
    ]  # fmt: skip
    assert made[0].own == made[1].own > 0


async def test_a_message_waits_while_a_summary_is_made_and_an_interruption_does_not(
    ports: Ports,
) -> None:
    talker = Talker(summary())
    agents = [model_agent(FunctionModel(talker, latency=5), compaction=SMALL)]
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "question 0")
        await talk(run, 6)
        # The next question has a summary made first, which takes five seconds.
        run.send("question 7 " + "q" * 60)
        await anyio.sleep(1)
        assert len(talker.asked) == 1
        run.interrupt("enough")
        await anyio.sleep(10)
        assert not observer.all("session:compaction"), "the turn that needed it is over"
        run.send("question 8")
        await anyio.sleep(1)
        run.send("question 9")
        await anyio.sleep(1)
        assert len(talker.asked) == 2
        assert len(observer.all("session:taken")) == 10, "it is not taken yet"
        await run.result()
    assert len(observer.all("session:compaction")) == 1
    assert len(talker.asked) == 2
    assert [x.split()[1] for x in heard(talker.requests[-1])[-3:]] == ["7", "8", "9"]


async def test_a_code_agent_has_nothing_to_summarise(ports: Ports) -> None:
    @agent("keeper")
    async def keeper(input: Any, ctx: RunContext) -> int:
        return len([message async for message in ctx.messages()])

    async with Runtime([keeper], store="memory", ports=ports) as runtime:
        run = await runtime.start("keeper")
        assert (await runtime.hub.compact(run.run_id)).accepted
        await run.send("one")
        await run.close()
        outcome = await run.finished()
    assert outcome is not None
    assert outcome.output == 1


# ── what else sees it ────────────────────────────────────────────────────────────────────────


async def test_hooks_that_filter_messages_filter_what_is_summarised(ports: Ports) -> None:
    talker = Talker(summary())

    async def without_numbers(state: Any, messages: Any) -> Any:
        return tuple(x for x in messages if "question 2" not in x.content)

    hook = Hook("hide", "filter_messages", without_numbers)
    agents = [talker.agent(hooks=["hide"])]
    async with Runtime(agents, store="memory", ports=ports, hooks=[hook]) as runtime:
        run = await runtime.start("assistant", "question 0")
        await talk(run, 7)
    (asked,) = talker.asked
    assert not any("question 2" in text for text in heard(asked))
    assert any("question 1" in text for text in heard(asked))


async def test_a_script_counts_on_behind_a_summary(ports: Ports) -> None:
    words = [f"answer {number} " + "a" * 80 for number in range(30)]
    script = [ModelReply(text=each, usage=Usage(input_tokens=90 * n)) for n, each in
              enumerate(words)]  # fmt: skip
    agents = [model_agent(ScriptedModel(script), compaction=Compaction(window=1000))]
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "question 0")
        for number in range(1, 30):
            outcome = await run.ask(f"question {number}")
            assert outcome.output == words[number]
    assert observer.all("session:compaction")


async def test_what_is_given_besides_is_asked_for_and_no_tool_is(ports: Ports) -> None:
    talker = Talker(summary())
    told = Compaction(window=1000, instructions="Keep every number.")
    async with Runtime([talker.agent(told)], store="memory", ports=ports) as runtime:
        run = await runtime.start("assistant", "question 0")
        await talk(run, 7)
    (asked,) = talker.asked
    assert asked.messages[-1].content.endswith("\n\nKeep every number.")
    assert asked.system_notes == ()
    for body in BODIES.values():
        assert body(asked)["messages"]


async def test_it_outlives_a_restart_and_stands_in_what_people_read(
    tmp_path: Path, ports: Ports
) -> None:
    talker = Talker(summary())
    folder = tmp_path / "store"
    for policy in (RestorePolicy.EVERYTHING, RestorePolicy.CONTEXT_ONLY):
        store = sqlite_store(folder, ports=ports)
        async with Runtime([talker.agent()], store=store, ports=ports, restore=policy) as runtime:
            run = await runtime.start("assistant", "question 0", session_key="chat")
            await talk(run, 7)
            lane = await runtime.hub.read(run.run_id)
    assert len(talker.asked) >= 2
    assert heard(talker.requests[-1])[0] == REPLACED
    shown = [each for each in talk_of(lane) if each.who == "summary"]
    assert "oldest messages: They counted." in shown[0].text
    (state,) = [path for path in folder.rglob("state.json") if run.run_id in str(path)]
    made = sum(isinstance(x, SessionCompaction) for x in lane)
    run_part = json.loads(state.read_text())["run"]
    assert run_part["compactions"]["side_a"]["number"] == made
    history = (state.parent / "history.jsonl").read_text().splitlines()
    lines = [json.loads(x) for x in history if json.loads(x)["type"] == "compaction"]
    assert [line["text"] for line in lines] == ["They counted."] * made


async def test_what_is_kept_of_a_conversation_does_not_grow_with_it(
    tmp_path: Path, ports: Ports
) -> None:
    talker = Talker(summary())
    sizes, shown = [], []
    for begin in (1, 41, 81):
        store = sqlite_store(tmp_path / "store", ports=ports)
        async with Runtime([talker.agent()], store=store, ports=ports) as runtime:
            run = await runtime.start("assistant", "question 0", session_key="chat")
            await talk(run, 40, begin)
            lane = await runtime.hub.read(run.run_id)
            shown.append(len(fold_all(EMPTY, lane).transcript))
        (state,) = (tmp_path / "store").rglob("state.json")
        sizes.append(len(state.read_bytes()))
    assert max(shown) < 20
    assert max(sizes) < sizes[0] + 40, sizes
    assert max(len(request.messages) for request in talker.requests) < 20


# ── windows ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("maker", "name", "tokens"),
    [
        ("anthropic", "claude-sonnet-4-5-20250929", 200_000),
        ("anthropic", "claude-opus-4-7", 1_000_000),
        ("anthropic", "Claude-Sonnet-5-5", 1_000_000),
        ("anthropic", "another", 0),
        ("openai", "gpt-5.2-2025-12-11", 272_000),
        ("openai", "gpt-5-chat-latest", 128_000),
        ("openai", "gpt-4o-mini", 128_000),
        ("openai", "gpt-4.1-nano", 1_047_576),
        ("openai", "gpt-4-0613", 8_192),
        ("openai", "gpt-7", 0),
        ("gemini", "gemini-2.5-pro", 1_048_576),
        ("ollama", "llama-3.1", 0),
        ("nobody", "gpt-4o", 0),
    ],
)
def test_a_window_is_known_by_its_makers_name_for_the_model(
    maker: str, name: str, tokens: int
) -> None:
    assert window_of(maker, name) == tokens
    assert set(WINDOWS) <= set(PROVIDERS)


def test_a_client_knows_the_window_at_its_makers_address_alone() -> None:
    """A server of one's own, whatever it calls its models, has been given what memory it has."""
    assert AnthropicModel("claude-opus-4-5", key="k").window == 200_000
    assert OpenAIModel("gpt-4o", key="k").window == 128_000
    assert ResponsesModel("gpt-5", key="k").window == 272_000
    assert AnthropicModel("claude-opus-4-5", base_url="http://localhost:1").window == 0
    assert ResponsesModel("gpt-5", base_url="http://localhost:1/v1").window == 0
    assert OpenAIModel("gpt-4o", base_url="http://localhost:1/v1").window == 0


async def test_the_window_of_a_model_counts_where_settings_give_none(ports: Ports) -> None:
    class Small(FunctionModel):
        window = 1000

    talker = Talker(summary())
    agents = [model_agent(Small(talker))]
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        run = await runtime.start("assistant", "question 0")
        await talk(run, 7)
        steps = [x for x in await runtime.hub.read(run.run_id) if isinstance(x, AgentStep)]
    assert len(talker.asked) == 1
    assert len(steps) == 8
