"""A WebSocket: events out with their positions, commands in, each with its one answer."""

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.asgi_clients import Socket, socket, turns
from support.profiles import examples

from hubbub import Agent, CustomEvent, Runtime, agent, tool
from hubbub.channels.http import HttpApp
from hubbub.channels.http.streams import frames
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import ScriptedModel, call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-03")]


def tick(n, **more):
    return CustomEvent.of("test:tick", durable=True, n=n, **more)


def numbers(client, selection):
    return [item["event"]["data"]["n"] for item in client.events(selection)]


async def test_a_conversation_over_one_socket(served, support):
    async with served(support) as (rt, app), socket(app) as client:
        opened = client.say("open", agent="support", input="hi", session_key="web_1")
        await anyio.sleep(1)
        receipt = client.answer(opened)
        run_id = receipt["run_id"]
        assert (receipt["kind"], receipt["status"]) == ("receipt", "accepted")
        assert receipt["cursor"].startswith(f"{rt.hub.journal.name}|{run_id}/in/")
        everything = client.say("subscribe", root_run_id=run_id, after="start")
        texts = client.say("subscribe", run_id=[run_id], types=["agent:text"], selection="texts")
        sent = client.say("send", run_id=run_id, content="more", key="k")
        again = client.say("send", session_key="web_1", content="more", key="k")
        reused = client.say("send", agent="support", content="other", key="k")
        await anyio.sleep(1)
        assert client.answer(everything)["selection"] == everything
        assert client.answer(texts)["cursor"].startswith(rt.hub.journal.name)
        assert client.answer(sent)["status"] == "accepted"
        assert client.answer(again)["status"] == "duplicate"
        assert client.answer(reused)["status"] == "rejected"
        assert client.answer(reused)["problem"]["type"] == "/problems/key-reused"
        assert [item["event"]["text"] for item in client.events("texts")] == ["Hello."]
        closed = client.say("close", run_id=run_id, reason="bye")
        await anyio.sleep(1)
        assert client.answer(closed)["status"] == "accepted"
        records = await rt.hub.read(root_run_id=run_id)
        found = [item for item in client.events(everything) if item["event"].get("lane")]
        assert [item["position"] for item in found] == [rt.hub.cursor(e) for e in records]
        sources = {item["event"].get("source") for item in found} - {None}
        assert sources == {"http"}


async def test_each_way_to_stop_a_run_is_a_command(served):
    @agent("waiter")
    async def waiter(input, ctx):
        async for _ in ctx.messages():
            pass

    async with served(waiter) as (rt, app), socket(app) as client:
        for command, outcome in (("terminate", "terminated"), ("close", "completed")):
            run = await rt.start("waiter", None)
            stopped = client.say(command, run_id=run.run_id, reason="enough")
            ended = await run.result()
            assert ended.outcome == outcome
            await turns()
            assert client.answer(stopped)["run_ids"] == [run.run_id]
        run = await rt.start("waiter", None)
        interrupted = client.say("interrupt", run_id=run.run_id)
        await anyio.sleep(1)
        assert client.answer(interrupted)["status"] == "accepted"
        nobody = client.say("interrupt", run_id="019b")
        every = client.say("interrupt", run_id="")
        await anyio.sleep(1)
        assert client.answer(nobody)["problem"]["status"] == 404
        assert client.answer(every)["problem"]["status"] == 400
        await run.terminate()


async def test_the_events_of_a_selection_end_where_it_is_ended(served):
    async with served() as (rt, app), socket(app) as client:
        client.say("subscribe", selection="a", types="test:tick")
        twice = client.say("subscribe", selection="a")
        await turns()
        rt.hub.emit(tick(0))
        ended = client.say("unsubscribe", selection="a")
        await turns()
        rt.hub.emit(tick(1))
        unknown = client.say("unsubscribe", selection="a")
        await turns()
        assert numbers(client, "a") == [0]
        assert client.got.index(client.answer(ended)) > client.got.index(
            next(each for each in client.got if each["kind"] == "events")
        )
        assert client.answer(twice)["problem"]["type"] == "/problems/refused"
        assert client.answer(unknown)["problem"]["type"] == "/problems/not-found"
        begin = next(each for each in client.got if each.get("selection") == "a")["cursor"]
        client.say("subscribe", selection="a", types=["test:tick"], after=begin)
        await turns()
        assert numbers(client, "a") == [0, 0, 1]


async def test_two_browsers_that_answer_one_prompt(served):
    """The first reply counts; the other is told at once, and both see the same."""

    @agent("asker")
    async def asker(input, ctx):
        return await ctx.ask("Red or blue?")

    async with served(asker) as (rt, app), socket(app) as one, socket(app) as other:
        for client in (one, other):
            client.say("subscribe", selection="prompts", types="session:prompt")
        await turns()
        run = await rt.start("asker", None)
        await anyio.sleep(1)
        (first,), (second,) = one.events("prompts"), other.events("prompts")
        assert first == second
        prompt_id = first["event"]["prompt_id"]
        red = one.say("reply", prompt_id=prompt_id, content="red")
        blue = other.say("reply", prompt_id=prompt_id, content="blue")
        unknown = other.say("deny", prompt_id="nothing")
        output = (await run.result()).output
        await anyio.sleep(1)
        answers = {"red": one.answer(red), "blue": other.answer(blue)}
        assert answers.pop(output)["status"] == "accepted"
        (late,) = answers.values()
        assert late["problem"]["type"] == "/problems/prompt-over"
        assert other.answer(unknown)["problem"]["status"] == 404


async def test_an_approval_is_given_or_refused(served):
    done = []

    @tool(approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        done.append(amount)
        return "paid"

    model = ScriptedModel([reply("", call("pay", amount=7)), reply("", call("pay", amount=8)), "."])
    cashier = Agent("cashier", "You pay.", model=model, tools=[pay])
    async with served(cashier) as (rt, app), socket(app) as client:
        client.say("subscribe", selection="prompts", types="session:prompt")
        await turns()
        run = await rt.start("cashier", "go")
        await anyio.sleep(1)
        first = client.events("prompts")[0]["event"]["prompt_id"]
        misfit = client.say("approve", prompt_id=first, arguments={"amount": "much"})
        await anyio.sleep(1)
        given = client.say("approve", prompt_id=first, arguments={"amount": 5})
        await anyio.sleep(1)
        refused = client.say(
            "deny", prompt_id=client.events("prompts")[1]["event"]["prompt_id"], reason="no"
        )
        await run.result()
        await anyio.sleep(1)
        assert client.answer(misfit)["status"] == "rejected"
        assert client.answer(given)["status"] == "accepted"
        assert client.answer(refused)["status"] == "accepted"
        assert done == [5]


async def test_a_run_is_opened_with_a_message_a_history_and_tools_of_the_client(served):
    model = ScriptedModel([reply("", call("lookup", id="7")), "found"])
    async with served(Agent("a", "A.", model=model)) as (rt, app), socket(app) as client:
        client.say("subscribe", selection="prompts", types="session:prompt")
        fields = {
            "agent": "a",
            "message": {"content": "find 7", "key": "m1"},
            "history": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}],
            "tools": [
                {
                    "name": "lookup",
                    "schema": {"type": "object", "properties": {"id": {"type": "string"}}},
                }
            ],
            "run_id": "run-1",
        }
        opened, again = client.say("open", **fields), client.say("open", **fields)
        both = client.say("open", agent="a", input="x", message={"content": "x"})
        await anyio.sleep(1)
        assert client.answer(opened)["status"] == "accepted"
        assert client.answer(again)["status"] == "duplicate"
        assert client.answer(both)["problem"]["type"] == "/problems/invalid-value"
        prompt = client.events("prompts")[0]["event"]
        client.say("reply", prompt_id=prompt["prompt_id"], content="here")
        outcome = await rt.result("run-1")
        assert outcome.output == "found"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 400), ("{", 400), ("[]", 400), ("null", 400), ('{"id": 1}', 400), ("\ud800", 400),
        ('{"id": "", "command": "close", "run_id": "x"}', 400),
        ('{"id": "c", "command": "fly"}', 400),
        ('{"id": "c", "command": "close"}', 400),
        ('{"id": "c", "command": "close", "run_id": "x", "what": 1}', 400),
        ('{"id": "c", "command": "close", "run_id": "\\u0000"}', 400),
        ('{"id": "c", "command": "close", "run_id": "\\ud800"}', 400),
        ('{"id": "c", "command": "send", "run_id": "x", "content": 7}', 400),
        ('{"id": "c", "command": "send", "run_id": "x", "agent": "y", "content": "z"}', 400),
        ('{"id": "c", "command": "subscribe", "types": ["a*b"]}', 400),
        ('{"id": "c", "command": "subscribe", "selection": "%s"}' % ("s" * 201), 400),
        ('{"id": "c", "command": "open", "agent": "a", "timeout": -1}', 400),
        ("[" * 100_000, 400),
        ('{"id": "c", "command": "open", "input": ' + "[" * 5000 + "]" * 5000 + "}", 400),
    ],
)  # fmt: skip
async def test_what_cannot_be_read_is_answered_and_nothing_else_happens(served, text, status):
    async with served() as (rt, app), socket(app) as client:
        client.say_text(text)
        after = client.say("subscribe", types="test:tick")
        await turns()
        (refused, accepted) = client.got
        assert (refused["kind"], refused["problem"]["status"]) == ("error", status)
        assert accepted["id"] == after
        rt.hub.emit(tick(1))
        await turns()
        assert numbers(client, after) == [1]


async def test_an_error_names_the_command_where_that_can_be_read(served):
    async with served() as (_, app), socket(app) as client:
        client.say_text('{"id": "mine", "command": "fly"}')
        client.say_text('{"id": 7, "command": "fly"}')
        client.say_bytes(b'{"id": "c", "command": "close", "run_id": "x"}')
        # JavaScript writes a character that was cut in two like this.
        client.say_text('{"command": "send", "run_id": "x", "content": "\\uD83D", "id": "cut"}')
        client.say_text('{"id": "\\ud800", "command": "close", "run_id": "x"}')
        await turns()
        assert [each["id"] for each in client.got] == ["mine", None, None, "cut", None]


async def test_who_goes_on_with_what_cannot_be_read_is_left(served):
    async with served() as (_, app), socket(app) as client:
        for _ in range(30):
            client.say_text("nonsense")
        await turns(100)
        assert client.is_over and client.code == 1008
        assert client.got[-1] == {"kind": "end", "reason": "refused"}
        assert 20 <= len(client.got) <= 22


async def test_frames_that_are_too_large_and_commands_that_are_too_many_are_refused(served):
    limits = {"command_chars": 1000, "command_rate": 10, "command_burst": 5, "selections": 3}
    async with served(**limits) as (_, app), socket(app) as client:
        client.say_text("x" * 1001)
        await turns()
        assert client.got[0]["problem"]["status"] == 413
        ids = [client.say("unsubscribe", selection="none") for _ in range(8)]
        await turns(50)
        statuses = [client.answer(each)["problem"]["status"] for each in ids]
        assert statuses == [404] * 5 + [429] * 3
        await anyio.sleep(10)
        ids = [client.say("subscribe") for _ in range(4)]
        await turns(50)
        assert [client.answer(each)["kind"] for each in ids] == ["receipt"] * 3 + ["error"]
        assert not client.is_over


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [((), None), (("other",), None), (("other", "hubbub.v1"), "hubbub.v1")],
)
async def test_a_subprotocol_is_chosen_only_from_those_offered(served, offered, chosen):
    async with served() as (_, app), socket(app, subprotocols=offered) as client:
        assert client.accepted["subprotocol"] == chosen


async def test_the_end_of_the_app_and_of_the_hub_is_told_before_the_close(served):
    async with served() as (rt, app), socket(app) as client:
        client.say("subscribe", selection="a", types="test:tick")
        await turns()
        rt.hub.emit(tick(0))
        app.end_streams()
        await turns(50)
        assert (client.is_over, client.code) == (True, 1001)
        assert client.got[-1] == {"kind": "end", "reason": "shutdown"}
        assert numbers(client, "a") == [0]
    for selects in (False, True):
        async with served() as (rt, app), socket(app) as client:
            if selects:
                client.say("subscribe")
            await turns()
            rt.hub.close()
            await turns(50)
            assert (client.is_over, client.code) == (True, 1001)
            assert client.got[-1] == {"kind": "end", "reason": "closed"}


async def test_in_silence_a_socket_gives_signs_of_life(served):
    async with served() as (_, app), socket(app) as client:
        await anyio.sleep(600)
        assert 40 <= len(client.got) <= 80
        assert client.got[0] == {"kind": "ping"}


@pytest.mark.spec("W-04")
async def test_a_socket_that_has_gone_leaves_nothing_behind_and_ends_no_run(served, support):
    async with served(support) as (rt, app):
        async with socket(app):
            pass
        before, tasks = rt.hub.statistics(), len(anyio.get_running_tasks())
        for way in ("leaves", "vanishes", "is slow"):
            client = Socket()
            async with socket(app, client=client):
                for _ in range(3):
                    client.say("subscribe")
                opened = client.say("open", agent="support", input="hi", session_key=f"web_{way}")
                await anyio.sleep(0.001)
                if way == "vanishes":
                    client.vanishes_at = client.sends + 1
                elif way == "is slow":
                    client.gate = anyio.sleep_forever
                await anyio.sleep(1)
            run_id = client.answer(opened)["run_id"] if client.answer(opened) else ""
            after = rt.hub.statistics()
            assert (after.subscribers, after.buffered) == (before.subscribers, before.buffered)
            assert app.open_streams == 0
            await anyio.sleep(1)
            assert len(anyio.get_running_tasks()) == tasks
            if run_id:
                assert (await rt.result(run_id)).success


async def test_of_what_waits_for_a_client_one_frame_is_made(served, monkeypatch):
    """However many selections it has: each has its events, and they have one frame by turns."""
    made = []
    joined = frames._joined
    monkeypatch.setattr(frames, "_joined", lambda *batch: made.append(1) or joined(*batch))
    async with served() as (rt, app), socket(app) as client:
        for name in "abcdef":
            client.say("subscribe", selection=name, types=["test:tick"])
        await anyio.sleep(1)
        client.gate = anyio.sleep_forever
        rt.hub.emit(tick(0, text="x" * 100_000))
        await anyio.sleep(1)
        assert len(made) == 1


async def test_events_that_wait_go_out_together(served):
    gate = anyio.Event()
    async with served() as (rt, app), socket(app) as client:
        client.say("subscribe", selection="a", types="test:tick")
        await turns()
        client.gate = gate.wait
        before = client.sends
        for n in range(1000):
            rt.hub.emit(tick(n, text="x" * 500))
            await turns(1)
        gate.set()
        await turns(100)
        assert numbers(client, "a") == [*range(1000)]
        assert client.sends - before == pytest.approx(1000 * 800 / 65_536, abs=4)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
names = st.sampled_from([
    "run_id", "root_run_id", "types", "after", "selection", "agent", "input", "message", "content",
    "session_key", "key", "prompt_id", "arguments", "reason", "is_error", "history", "tools", "env",
    "descriptor", "timeout", "once", "name", "correlation_id", "metadata", "attachments", "role",
])  # fmt: skip
commands = st.sampled_from([
    "subscribe", "unsubscribe", "open", "send", "reply", "approve", "deny", "interrupt", "close",
    "terminate",
])  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(
    said=st.lists(
        st.tuples(commands, st.dictionaries(names, values | st.just("support"), max_size=4)),
        max_size=10,
    )
)
async def test_whatever_a_client_says_each_command_has_one_answer_and_none_is_a_defect(said):
    support = Agent("support", "You help.", model=ScriptedModel(["Hello."] * 100))
    rt = Runtime([support], store="memory", ports=virtual_ports(), grace=0)
    async with rt, HttpApp(rt.hub) as app, socket(app) as client:
        ids = [client.say(command, **fields) for command, fields in said]
        await anyio.sleep(1)
        for each in ids:
            answer = client.answer(each)
            assert answer is not None, (said, client.got, client.code, client.is_over)
            assert answer["kind"] in ("receipt", "error")
            problem = answer.get("problem")
            assert problem is None or problem["status"] in (400, 404, 409), answer
        assert not client.is_over
