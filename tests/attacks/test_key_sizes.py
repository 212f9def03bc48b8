"""Keys and names that a store indexes: as long as every store takes, and not a byte longer."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from attacks.hostile_texts import World, echo, opened
from hubbub import Cron, Message, Runtime
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, DefinitionError
from hubbub.hub.events.descriptors import (
    CronDescriptor,
    UserDescriptor,
    encode_descriptor,
)
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal, RequestKey
from hubbub.hub.texts import MAX_KEY
from hubbub.hub.values import Secret

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-01")]

LONGEST: Mapping[str, str] = {
    "plain": "k" * MAX_KEY,
    "of two bytes": "é" * (MAX_KEY // 2),
    "of four bytes": "😀" * (MAX_KEY // 4),
}

Entry = Callable[[World, str], Any]


def child_of(world: World, name: str) -> dict[str, str]:
    return {"type": "subagent", "id": "a-child", "parentAgentId": world.other, "name": name}


def user(channel: str) -> dict[str, str]:
    return {"type": "user", "connector": "local", "channelId": channel, "userId": "local"}


def emitted_opening(**said: Any) -> e.SessionOpen:
    return e.SessionOpen(**{"open_agent": "other", "run_id": "emitted", **said})


ENTRIES: Mapping[str, Entry] = {
    "a message's key": lambda w, x: w.rt.hub.send_to_run(w.other, Message("hi", key=x)),
    "a message's source": lambda w, x: w.rt.hub.send_to_run(w.other, "hi", source=x),
    "a keyed message's source": lambda w, x: w.rt.hub.send_to_run(
        w.other, Message("hi", key="k"), source=x
    ),
    "a request": lambda w, x: w.rt.hub.send_to_run(w.other, "hi", request=RequestKey(x)),
    "a reset's request": lambda w, x: w.rt.hub.reset(w.other, request=RequestKey(x)),
    "an opening's request": lambda w, x: w.rt.hub.open("other", request=RequestKey(x)),
    "an opening's agent": lambda w, x: w.rt.hub.open(x),
    "an opening's session key": lambda w, x: w.rt.hub.open("other", session_key=x),
    "an opening's name": lambda w, x: w.rt.hub.open("other", name=x),
    "an opening's source": lambda w, x: w.rt.hub.open("other", source=x),
    "an opening's message": lambda w, x: w.rt.hub.open("other", Message("hi", key=x)),
    "an opening's variable": lambda w, x: w.rt.hub.open("other", env={x: "value"}),
    "a user": lambda w, x: w.rt.hub.open("other", descriptor=user(x)),
    "a task": lambda w, x: w.rt.hub.open("other", descriptor={"type": "cron", "id": x}),
    "a child": lambda w, x: w.rt.hub.open("other", descriptor=child_of(w, x)),
    "a run's start": lambda w, x: w.rt.start("other", session_key=x),
    "a run's message": lambda w, x: w.rt.run("echo", Message("hi", key=x)),
    "an event's key": lambda w, x: w.rt.hub.emit(
        e.SessionMessage(run_id=w.other, content="hi", key=x)
    ),
    "an event's source": lambda w, x: w.rt.hub.emit(
        e.SessionMessage(run_id=w.other, content="hi", source=x)
    ),
    "an event's agent": lambda w, x: w.rt.hub.emit(emitted_opening(open_agent=x)),
    "an event's session key": lambda w, x: w.rt.hub.emit(emitted_opening(session_key=x)),
    "an event's name": lambda w, x: w.rt.hub.emit(emitted_opening(name=x)),
    "an event's message": lambda w, x: w.rt.hub.emit(
        emitted_opening(message=e.SessionMessage(content="hi", key=x))
    ),
    "an event's variable": lambda w, x: w.rt.hub.emit(
        emitted_opening(variables=(e.Variable(name=x, value=Secret("value")),))
    ),
    "an event's descriptor": lambda w, x: w.rt.hub.emit(
        emitted_opening(
            descriptor_json=encode_descriptor(
                UserDescriptor(connector="local", channel_id=x, user_id="local")
            )
        )
    ),
    "an event's task": lambda w, x: w.rt.hub.emit(
        emitted_opening(descriptor_json=encode_descriptor(CronDescriptor(id=x)))
    ),
}


async def done(world: World, entry: Entry, key: str) -> Any:
    answer = entry(world, key)
    return await answer if isinstance(answer, Awaitable) else answer


@pytest.mark.parametrize("what", ENTRIES)
async def test_every_entry_takes_the_longest_key_and_refuses_a_byte_more(
    what: str, store: Journal, ports: Ports
) -> None:
    async with opened(store, ports) as world:
        for text in LONGEST.values():
            before = await events_of(world)
            with pytest.raises(BadValue) as refused:
                await done(world, ENTRIES[what], text + "x")
            said = str(refused.value)
            assert "\n" not in said and "1,000 bytes" in said and "1,001" in said, said
            assert "hashlib.sha256" in said and text[:100] not in said, "no remedy"
            assert await events_of(world) == before, "something is written"
        for text in LONGEST.values():
            await done(world, ENTRIES[what], text)
        await world.is_well()


async def events_of(world: World) -> int:
    await world.rt.hub.journal.flush()
    return len(await world.rt.hub.read())


async def test_what_the_longest_keys_name_is_found_by_them(store: Journal, ports: Ports) -> None:
    async with opened(store, ports) as world:
        hub = world.rt.hub
        for number, text in enumerate(LONGEST.values()):
            run = await world.rt.start("other", session_key=text, name=text)
            assert (await world.rt.start("other", session_key=text)).run_id == run.run_id
            said = Message("hi", key=text)
            assert (await hub.send(said, session_key=text, source=text)).accepted
            assert (await hub.send(said, session_key=text, source=text)).duplicate
            request = RequestKey(text, str(number))
            assert (await hub.send("again", session_key=text, request=request)).accepted
            assert (await hub.send("again", session_key=text, request=request)).duplicate
            run.close()
            assert (await run.result()).output == 2


async def test_a_user_s_three_parts_are_one_key(store: Journal, ports: Ports) -> None:
    async with opened(store, ports) as world:
        parts = {"connector": "c" * 400, "channelId": "d" * 300, "userId": "e" * 298}
        assert (await world.rt.hub.open("other", descriptor={"type": "user", **parts})).accepted
        with pytest.raises(BadValue, match=r"descriptor: .* 1,000 bytes"):
            world.rt.hub.open("other", descriptor={"type": "user", **parts, "userId": "e" * 299})


async def test_a_session_key_of_control_characters_is_shorter(store: Journal, ports: Ports) -> None:
    async with opened(store, ports) as world:
        assert (await world.rt.hub.open("other", session_key="\x01" * 405)).accepted
        kept = world.rt.hub.ports.secrets.keys("")
        with pytest.raises(BadValue, match=r"session_key: .* escapes .* 2,500 at most"):
            world.rt.hub.open("other", session_key="\x01" * 406, env={"TOKEN": "value"})
        assert world.rt.hub.ports.secrets.keys("") == kept


async def test_the_digest_of_a_longer_key_is_one(store: Journal, ports: Ports) -> None:
    async with opened(store, ports) as world:
        key = hashlib.sha256(b"k" * (MAX_KEY + 1)).hexdigest()
        assert (await world.rt.hub.send_to_run(world.other, Message("hi", key=key))).accepted


def test_a_schedule_s_uid_is_a_key() -> None:
    Runtime([echo], schedules=[Cron("é" * 500, "* * * * *", "echo", "x")], store="memory")
    with pytest.raises(DefinitionError, match=r"schedules\[0\]\.uid: .* 1,000 bytes"):
        Runtime([echo], schedules=[Cron("é" * 501, "* * * * *", "echo", "x")], store="memory")
