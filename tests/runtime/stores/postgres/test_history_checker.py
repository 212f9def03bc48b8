"""The checker of what several processes leave in a store finds each thing that can be wrong."""

import zlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from support.postgres import SECRETS_KEY, Server
from support.promises import Said
from support.sql_history import history_problems, watch_owners
from torture.workload import SECRET, Effects, agents, secret_of

from hubbub import Message, Runtime
from hubbub.hub.events import Event, SessionPrompt
from hubbub.runtime.schedules.schedules import Cron
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.long

SCHEMA: Final = "history"


async def live(address: str, folder: Path, said: Said) -> None:
    """Some of everything; what came of it is noted."""
    store = PostgresStore(address)
    await store.open()
    db = connected(address)
    watch_owners(db)
    db.close()
    ticks = Cron("tick", "* * * * * *", "ticker", "safe#tick", misfire="latest")
    workload = agents(Effects(folder / "effects.log", flushes=False), lambda *_: None)
    heard = said.heard.setdefault("channel", [])

    def hear(event: Event) -> None:
        if event.lane:
            heard.append((event.run_id, event.lane, event.seq))

    async with Runtime(workload, store=store, schedules=(ticks,)) as runtime:
        ticked, journal = anyio.Event(), runtime.hub.journal
        runtime.hub.subscribe("*", hear)
        runtime.hub.subscribe("schedule:fire", lambda _: ticked.set())
        run = await runtime.start("lead")
        said.opened.add(run.run_id)
        for number in range(2):
            message = Message(f"risky#r{number} waiter#w{number}", key=f"m{number}")
            assert (await runtime.hub.send_to_run(run.run_id, message)).accepted
            said.accepted.add((run.run_id, message.key))
            await run.result()
        await converse(runtime, said)
        clerk = await runtime.start("clerk", "c")
        said.finished[clerk.run_id] = (await clerk.finished()).outcome
        await ticked.wait()
        while any(x.status not in ("parked", "ended") for x in await journal.runs()):  # noqa: ASYNC110
            await anyio.sleep(0.01)
        await journal.flush()
    lines = (folder / "effects.log").read_text().split("\n")
    said.effects.update(x for x in lines if x.startswith("risky"))


async def converse(runtime: Runtime, said: Said) -> None:
    """What users have a part in: answers, of which one denies; a frame; two kinds of endings."""
    hub, answers = runtime.hub, ["approve", "deny", "blue"]

    def answer(prompt: Event) -> None:
        assert isinstance(prompt, SessionPrompt)
        text = answers.pop(0)
        hub.reply(prompt.prompt_id, text)
        said.replied.append((prompt.run_id, prompt.prompt_id, text))

    hub.subscribe(SessionPrompt, answer)
    run = await runtime.start("lead", session_key="u1", env={SECRET: secret_of("u1")})
    said.secrets.add((run.run_id, secret_of("u1")))
    for orders in (
        "approved#u1a", "approved#u1b", "asked#u1c sealed#u1d", "guide#u1e", "No more.", "safe#u1f",
    ):  # fmt: skip
        await run.ask(orders)
    assert (await hub.interrupt(run.run_id, "impatience")).accepted
    said.interrupted.add((run.run_id, "impatience"))
    other = await runtime.start("lead", "stayer#u2a")
    await other.result()
    assert (await hub.terminate(other.run_id)).accepted
    said.terminated.add(other.run_id)
    await other.finished()


def connected(address: str) -> PostgresConnection:
    db = PostgresConnection(PostgresAddress(address), "audit")
    db.connect()
    return db


@pytest.fixture(scope="module")
def lived(_server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Server, Said]:
    said = Said()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HUBBUB_SECRETS_KEY", SECRETS_KEY)
        anyio.run(live, _server.dsn(SCHEMA), tmp_path_factory.mktemp("lived"), said)
    return _server, said


@pytest.fixture
def history(lived: tuple[Server, Said]) -> Iterator[tuple[PostgresConnection, Said]]:
    """What was lived; changes of the database are taken back."""
    server, said = lived
    db = connected(server.dsn(SCHEMA))
    db.execute("BEGIN")
    try:
        yield db, deepcopy(said)
    finally:
        db.roll_back()
        db.close()


def seal(db: Any) -> None:
    """Number everything anew, and compute all checksums, as if it had been written so."""
    chains: dict[int, int] = {}
    seqs: dict[tuple[int, str], int] = {}
    found = db.execute("SELECT position, run, lane, body FROM event ORDER BY position").fetchall()
    db.execute("ALTER TABLE event DROP CONSTRAINT event_pkey")
    for number, (position, run, lane, body) in enumerate(found, 1):
        of = 0 if lane == "hub" else run
        chains[of] = zlib.crc32(body.encode(), chains.get(of, 0))
        seqs[of, lane] = seqs.get((of, lane), 0) + 1
        db.execute(
            "UPDATE event SET position = ?, seq = ?, crc = ? WHERE position = ?",
            (-number, seqs[of, lane], chains[of], position),
        )
    db.execute("UPDATE event SET position = -position")
    hub = "(SELECT count(*) FROM event WHERE lane = 'hub')"
    db.execute(f"UPDATE head SET position = ?, hub_seq = {hub}", (len(found),))


def doubled(type_: str, where: str = "") -> Callable[[Any, Said], None]:
    """Write an event once more, at the end."""

    def plant(db: Any, said: Said) -> None:
        db.execute(
            "INSERT INTO event SELECT 100000, run, root, lane, seq, type, crc, body, writer "
            f"FROM event WHERE type = '{type_}' {where} ORDER BY position LIMIT 1"
        )
        seal(db)
        said.heard.clear()

    return plant


def executed(*statements: str) -> Callable[[Any, Said], None]:
    def plant(db: Any, said: Said) -> None:
        for statement in statements:
            db.execute(statement)

    return plant


def said_also(change: Callable[[Said], object]) -> Callable[[Any, Said], None]:
    def plant(db: Any, said: Said) -> None:
        change(said)

    return plant


OWN: Final = "(SELECT max(position) FROM event WHERE lane = 'own')"
TREE: Final = "(SELECT min(root) FROM tree)"
MIDDLE: Final = f"(SELECT min(position) + 1 FROM event WHERE lane = 'own' AND root = {TREE})"
LEAD: Final = "(SELECT number FROM run WHERE agent = 'lead' LIMIT 1)"


def swap(said: Said) -> None:
    seen = said.heard["channel"]
    seen[4], seen[5] = seen[5], seen[4]


PLANTED: Final[dict[str, tuple[Callable[[Any, Said], None], str]]] = {
    "a position is missing": (executed("DELETE FROM event WHERE position = 5"), "is missing"),
    "a lane has a gap": (
        executed(f"UPDATE event SET seq = seq + 1 WHERE position = {OWN}"), " after ",
    ),
    "an event was changed": (
        executed("UPDATE event SET body = replace(body, 'lead', 'load') WHERE position = 2"),
        "not what was written",
    ),
    "a message that was accepted is gone": (
        said_also(lambda said: said.accepted.add((next(iter(said.opened)), "m9"))), "lost: message",
    ),
    "a run that was opened is gone": (
        said_also(lambda said: said.opened.add("nobody")), "lost: run nobody",
    ),
    "an end that was told is another": (
        said_also(lambda said: said.finished.update(dict.fromkeys(said.finished, "failed"))),
        "lost: the end",
    ),
    "a reply that was accepted is gone": (
        said_also(lambda said: said.replied.append((said.replied[0][0], "other", "blue"))),
        "lost: reply 'blue' to other",
    ),
    "two replies to one prompt were accepted": (
        said_also(lambda said: said.replied.append((*said.replied[0][:2], "deny"))), "reply: ",
    ),
    "a reply was taken twice": (doubled("session:taken", "AND body LIKE '%blue%'"), "reply taken"),
    "a tool heard what nobody has said": (
        executed("UPDATE event SET body = replace(body, 'heard blue', 'heard red')"), "heard red",
    ),
    "what was denied was done": (
        said_also(lambda said: said.effects.update(["risky u1b"])), "u1b was done, and denied",
    ),
    "an interruption is gone": (
        said_also(lambda said: said.interrupted.add((min(said.terminated), "boredom"))),
        "lost: interruption boredom",
    ),
    "a run that was terminated goes on": (
        said_also(lambda said: said.terminated.update(said.opened)), "lost: the termination",
    ),
    "something goes on below what was terminated": (
        executed(
            "UPDATE run SET status = 'parked' WHERE parent_run_id <> '' AND root_run_id IN "
            "(SELECT run_id FROM address JOIN event ON event.run = address.number "
            "WHERE type = 'session:terminate')"
        ),
        "goes on below",
    ),
    "a step is gone": (
        said_also(lambda said: said.steps.add((min(said.finished), "cs9", "cs9"))), "lost: step",
    ),
    "a secret is gone": (executed("DELETE FROM secret"), "lost: a secret"),
    "a tool was not given its secret": (
        executed("UPDATE event SET body = replace(body, 'knows u1d', 'lacks u1d')"), "lacks u1d",
    ),
    "of a tick nothing came": (
        executed(
            "UPDATE event SET body = regexp_replace(body, '\"run_id\":\"[^\"]*', "
            "'\"run_id\":\"nobody') WHERE type = 'schedule:fire'"
        ),
        "lost: tick",
    ),
    "a frame's result came twice": (
        doubled("session:result", "AND body LIKE '%u1e%'"), "result of frame",
    ),
    "a message is there twice": (doubled("session:message", "AND body LIKE '%m1%'"), "2 times"),
    "a message was taken twice": (doubled("session:taken", "AND body LIKE '%m1%'"), "taken:"),
    "what was taken waits still": (
        executed(
            f"INSERT INTO waiting SELECT run, seq, position FROM event WHERE run = {LEAD} "
            "AND lane = 'in' AND seq = 2",
            "UPDATE head SET waiting = waiting + 1",
        ),
        "item: ",
    ),
    "a child's result came twice": (doubled("session:result"), "result ("),
    "an owner came back": (
        executed(
            f"UPDATE tree SET owner = 900, epoch = epoch + 1 WHERE root = {TREE}",
            f"UPDATE owner_watch SET since = {MIDDLE} WHERE owner = 900",
        ),
        "stale: event",
    ),
    "another worker has written": (
        executed(f"UPDATE event SET writer = writer + 1 WHERE position = {OWN}"), "stale: event",
    ),
    "an owner has the epoch of the one before": (
        executed(f"UPDATE tree SET owner = 900 WHERE root = {TREE}"), "after",
    ),
    "a schedule fired twice": (doubled("schedule:fire"), "tick: "),
    "a run has two ends": (doubled("agent:complete"), "2 ends"),
    "a subscriber has missed one": (
        said_also(lambda said: said.heard["channel"].pop(7)), "seen another one",
    ),
    "a subscriber has seen one twice": (
        said_also(lambda said: said.heard["channel"].insert(7, said.heard["channel"][6])),
        "seen another one",
    ),
    "a subscriber has seen another order": (said_also(swap), "seen another one"),
    "a subscriber has not seen the end": (
        said_also(lambda said: said.heard["channel"].pop()), "has seen ",
    ),
    "a subscriber has seen what is not there": (
        said_also(lambda said: said.heard["channel"].append(("nobody", "own", 1))), "is not there",
    ),
    "an effect was had twice": (
        said_also(lambda said: said.effects.update(["risky r1"])), "effect risky r1: 2 times",
    ),
    "nobody takes up what is ready": (
        executed(f"UPDATE run SET ready = 1 WHERE number = {LEAD}"), "nobody takes it up",
    ),
    "the head counts wrongly": (executed("UPDATE head SET live = live + 1"), "the head counts"),
}  # fmt: skip


def test_nothing_is_wrong_with_what_one_runtime_leaves(
    history: tuple[PostgresConnection, Said],
) -> None:
    db, said = history
    assert history_problems(db, said, is_quiet=True, complete=("channel",)) == []
    assert len(said.heard["channel"]) > 50 and said.effects.total() == 3
    assert len(said.replied) == 3


@pytest.mark.parametrize("name", PLANTED, ids=lambda name: name.replace(" ", "-"))
def test_what_is_wrong_is_found(history: tuple[PostgresConnection, Said], name: str) -> None:
    db, said = history
    plant, expected = PLANTED[name]
    plant(db, said)
    found = history_problems(db, said, is_quiet=True, complete=("channel",))
    assert any(expected in problem for problem in found), found
