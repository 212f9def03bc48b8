"""A planted secret is looked for in everything (H-19)."""

import copy
import gc
import logging
import pickle
import traceback
from functools import partial
from typing import Any

import anyio
import msgspec
import pytest

from hubbub import CustomEvent, Event, Hub, Message, Runtime, Secret, agent
from hubbub.hub.errors import BadValue, HubbubError
from hubbub.hub.events import SessionOpen, Variable
from hubbub.hub.events.codec import decode_event, encode_event
from hubbub.hub.values import encode_value

pytestmark = pytest.mark.spec("H-19")

PLANTED = "hunter2-7f3a"


class TokenIssued(Event, tag="test:token"):
    """A user's own event with a secret in it."""

    token: Secret = Secret()
    spare: Secret | None = None
    user: str = ""


class ShortLivedToken(Event, tag="test:token:short", home="none"):
    token: Secret = Secret()


def token(cls=TokenIssued):
    return cls(token=Secret(PLANTED))


def reaches(*roots):
    """Whether the planted text can be found from ``roots``, by any path of references."""
    seen, todo = set(), list(roots)
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type) or type(thing).__name__ == "module":
            continue
        seen.add(id(thing))
        if isinstance(thing, str | bytes | bytearray):
            if PLANTED in (thing if isinstance(thing, str) else bytes(thing).decode("latin-1")):
                return True
            continue
        if isinstance(thing, msgspec.Raw):
            todo.append(bytes(thing))
        if isinstance(thing, Secret):
            todo.append(thing.reveal())
        if hasattr(thing, "__struct_fields__"):
            todo.extend(getattr(thing, name) for name in thing.__struct_fields__)
        if callable(thing) and not hasattr(thing, "__struct_fields__"):
            continue
        todo.extend(gc.get_referents(thing))
    return False


def test_search_finds_what_is_there():
    """The tests below would be worth nothing if it did not."""
    assert reaches([{"a": (PLANTED + "!",)}])
    assert reaches(token())
    assert reaches(CustomEvent.of("x:y", a=[PLANTED]))
    assert not reaches(CustomEvent.of("x:y", a=["else"]))


# ── the value by itself ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "show",
    [repr, str, "{}".format, "%s".__mod__, lambda s: f"{s!r:>20}", lambda s: repr([{"a": s}]),
     lambda s: repr(Variable(name="KEY", value=s)), lambda s: repr(TokenIssued(token=s)),
     lambda s: bytes(encode_value("value", {"deep": [s]})).decode(),
     lambda s: encode_event(TokenIssued(token=s)).decode(),
     lambda s: encode_event(CustomEvent.of("x:y", key=s)).decode(),
     lambda s: repr(CustomEvent.of("x:y", key=s))],
)  # fmt: skip
def test_secret_shows_as_stars(show):
    text = show(Secret(PLANTED))
    assert PLANTED not in text
    assert "***" in text


@pytest.mark.parametrize(
    "take",
    [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s)),
     lambda s: copy.deepcopy(TokenIssued(token=s)).token],
)  # fmt: skip
def test_copies_of_a_secret_are_empty(take):
    assert take(Secret(PLANTED)).reveal() is None


def test_plain_encoder_refuses_rather_than_shows():
    with pytest.raises(TypeError) as caught:
        msgspec.json.encode(token())
    assert PLANTED not in str(caught.value)


# ── on its way ───────────────────────────────────────────────────────────────────────────────


class Observer:
    """Listens in every way there is, and keeps whatever it gets hold of."""

    def __init__(self, hub):
        self.hub = hub
        self.got = []
        self.fields = []
        self.streams = [hub.subscribe("*"), hub.subscribe("*", after="start")]

        async def late(event):
            self.got.append(event)

        def sync(event):
            self.got.append(event)
            self.fields.append([getattr(event, name) for name in event.__struct_fields__])

        def broken(event):
            raise ValueError(f"cannot take {event!r}")

        hub.subscribe("*", sync)
        hub.subscribe("*", late)
        hub.subscribe(["test:*", "session:*"], broken)

    async def everything(self):
        for stream in self.streams:
            with anyio.move_on_after(1):
                async for event in stream:
                    self.got.append(event)
            stream.close()
        self.got.extend(await self.hub.read())
        texts = [repr(event) for event in self.got]
        texts += [str(event) for event in self.got]
        texts += [encode_event(event) for event in self.got]
        texts += [repr(decode_event(encode_event(event))) for event in self.got]
        texts += [pickle.dumps(event) for event in self.got if not isinstance(event, CustomEvent)]
        return [self.got, self.fields, texts]


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["open", "emit", "open by key"])
async def test_variable_of_an_opening_reaches_the_secrets_port_and_nothing_else(
    journal, ports, caplog, way
):
    caplog.set_level(logging.DEBUG)
    async with Hub(journal=journal, ports=ports) as hub:
        observer = Observer(hub)
        receipts = []
        run_id = ports.ids.run_id(0)
        if way == "emit":
            variables = (Variable(name="KEY", value=Secret(PLANTED)),)
            await hub.publish(SessionOpen(run_id=run_id, open_agent="agent", variables=variables))
        else:
            key = "chat" if way == "open by key" else ""
            opening = partial(
                hub.open, "agent", run_id=run_id, session_key=key, env={"KEY": PLANTED}
            )
            receipts = [await opening() for _ in range(3)]
        found = await observer.everything()
        (opened,) = await hub.read(types="session:open")
        assert [(v.name, v.value.reveal()) for v in opened.variables] == [("KEY", None)]
        assert opened.variables[0] == Variable(name="KEY", value=Secret())
        assert ports.secrets.get(f"{opened.run_id}/KEY") == PLANTED
        loaded = await journal.load(opened.run_id)
        inner = getattr(journal, "_inner", journal)
        assert len(found[0]) >= 5
        assert not reaches(found, receipts, loaded, vars(inner._rows), inner._chunks)
        assert not reaches(hub.statistics(), await journal.runs())
        assert PLANTED not in caplog.text
        assert "listener.failed" in caplog.text


@pytest.mark.anyio
@pytest.mark.parametrize("cls", [TokenIssued, ShortLivedToken])
async def test_secret_in_a_user_s_event_is_gone_before_anybody_sees_it(journal, ports, caplog, cls):
    caplog.set_level(logging.DEBUG)
    async with Hub(journal=journal, ports=ports) as hub:
        observer = Observer(hub)
        await hub.publish(token(cls))
        with hub.scoped(run_id="r"):
            hub.emit(token(cls))
            await hub.publish(token(cls))
        found = await observer.everything()
        assert sum(event.type == cls.type for event in observer.got) >= 6
        assert not reaches(found)
        assert PLANTED not in caplog.text


@pytest.mark.anyio
@pytest.mark.parametrize("cls", [TokenIssued, ShortLivedToken])
async def test_secret_in_a_run_s_own_event_is_gone_before_anybody_sees_it(
    journal, ports, caplog, cls
):
    caplog.set_level(logging.DEBUG)

    @agent("issuer")
    async def issuer(input: dict, ctx):
        ctx.hub.emit(token(cls))
        await ctx.hub.publish(token(cls))
        ctx.hub.emit(CustomEvent.of("test:custom", key=Secret(PLANTED)))
        return {"token": Secret(PLANTED)}

    async with Runtime(agents=[issuer], store=journal, ports=ports) as rt:
        observer = Observer(rt.hub)
        run = await rt.start("issuer", {})
        outcome = await run.result()
        assert outcome.output == {"token": "***"}
        found = await observer.everything()
        assert sum(event.type == cls.type for event in observer.got) >= 4
        assert not reaches(found, outcome, await journal.load(run.run_id))
        assert PLANTED not in caplog.text


@pytest.mark.anyio
async def test_secret_inside_what_is_said_is_written_as_stars(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        observer = Observer(hub)
        await hub.publish(CustomEvent.of("test:custom", key=Secret(PLANTED)))
        found = await observer.everything()
        assert not reaches(found)


@pytest.mark.spec("H-19")
@pytest.mark.anyio
async def test_secret_inside_what_somebody_is_given_is_refused(journal, ports):
    """It would arrive as stars, and the receiver would work with these."""
    secret = Secret(PLANTED)

    @agent("keeper")
    async def keeper(input: Any, ctx):
        with pytest.raises(BadValue, match="Secret"):
            await ctx.kv.set("key", {"a": [secret]})
        return "kept"

    async with Runtime([keeper], store=journal, ports=ports) as rt:
        hub, of = rt.hub, {"a": [{"b": secret}]}
        for call in (
            partial(hub.open, "keeper", of), partial(hub.open, "keeper", secret),
            partial(hub.open, "keeper", Message("x", metadata=of)),
            partial(hub.send_to_run, "r", Message("x", metadata=of)),
            partial(hub.send, Message("x", metadata={"key": secret})),
            partial(hub.approve, "p", of), partial(hub.approve, "p", {"order": secret}),
            partial(hub.open, "keeper", history=[{"role": "user", "content": secret}]),
        ):  # fmt: skip
            with pytest.raises(BadValue) as caught:
                call()
            assert PLANTED not in str(caught.value)
        for run in (partial(rt.run, "keeper", of), partial(rt.start, "keeper", of)):
            with pytest.raises(BadValue, match=r"Secret .* env="):
                await run()
        assert (await rt.run("keeper", "x")).output == "kept"


class RaisingDict(dict[str, Any]):
    """A dict, to ``isinstance``."""

    def keys(self) -> Any:
        raise RuntimeError("keys")

    def __iter__(self) -> Any:
        raise RuntimeError("iter")


@pytest.mark.anyio
async def test_mapping_that_raises_when_it_is_read_is_refused(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        with pytest.raises(BadValue, match="arguments"):
            hub.approve("p", RaisingDict(a=1))
        with pytest.raises(BadValue, match="metadata"):
            hub.send_to_run("r", Message("x", metadata=RaisingDict(a=1)))


@pytest.mark.anyio
async def test_errors_about_secrets_do_not_show_them(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        shown = []
        for call in (
            partial(hub.open, "agent", {"key": Secret(PLANTED), "bad": object()}),
            partial(hub.send_to_run, "r", Secret(PLANTED)),
            partial(hub.send_to_run, "r", Message("x", metadata={"a": Secret(PLANTED), "b": len})),
            partial(CustomEvent.of, "x:y", key=Secret(PLANTED), bad=object()),
        ):
            with pytest.raises(HubbubError) as caught:
                call()
            shown += [str(caught.value), *traceback.format_exception(caught.value)]
        assert not any(PLANTED in text for text in shown)


@pytest.mark.anyio
async def test_values_are_gone_when_their_run_has_ended(journal, ports):
    @agent("brief")
    async def brief(input: str, ctx) -> None:
        await ctx.hub.publish(CustomEvent.of("test:at-work"))

    async with Runtime([brief], store=journal, ports=ports) as runtime:
        during = []
        runtime.hub.subscribe(
            "test:at-work", lambda event: during.append(ports.secrets.get(f"{event.run_id}/TOKEN"))
        )
        receipt = await runtime.hub.open("brief", "x", env={"TOKEN": PLANTED})
        await runtime.finished(receipt.run_id)
        assert during == [PLANTED]
        assert ports.secrets.get(f"{receipt.run_id}/TOKEN") is None
