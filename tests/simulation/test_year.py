"""A year of one agent with a retention: a store on disk is as large, and a day costs as much, at
its end as in the second month."""

import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Struct, field
from support.pruned_stores import DAY, counted_calls, problems

from hubbub import (
    Agent,
    AgentDefinition,
    Compaction,
    Cron,
    Document,
    FunctionModel,
    Message,
    Retention,
    Runtime,
)
from hubbub.agents.model import ModelReply, ModelRequest, Usage
from hubbub.hub.ports import Ports
from hubbub.hub.store.reader import StoreReader
from hubbub.runtime.stores.open import open_reader

pytestmark = pytest.mark.anyio

ENDED, SILENT, MONTH = 10, 20, 30
RULES = b"Keep what comes with a bill. " * 100
ASKED = 60
"""How often an agent is asked in a month that lives all year."""
KEPT = Retention(ended=ENDED * DAY, silent=SILENT * DAY)


def clerk() -> AgentDefinition:
    model = FunctionModel(lambda request: f"noted: {len(request.messages)}")
    return Agent("clerk", "You keep the books.", model=model)


def invoice(name: str) -> Document:
    return Document(b"%PDF-1.7 " + name.encode().ljust(10_000), name=f"{name}.pdf")


class Month(Struct):
    """What a month left behind, measured once the store was closed or its process killed."""

    file: int
    """Bytes of the database."""
    cron: int
    """Bytes of the events of the run that a schedule wakes each day, which never goes."""
    other: int
    """Bytes of all other events."""
    contents: int
    """Bytes of the contents of files."""
    calls: int
    """Of functions, on its last day."""


class Year(Struct, kw_only=True):
    """One agent at work: each day three cases that end and a talk, each month another talk; each
    comes with a document, and each case gets a file that all cases have."""

    folder: Path
    ports: Ports
    store: Path = Path()
    lives: int = 0
    day: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    """The day on which each run was closed."""
    months: list[Month] = field(default_factory=list)

    async def live(self, days: int) -> None:
        self.store = self.folder / "store-0"
        while self.day < days:
            cron = Cron("books", "0 9 * * *", "clerk", "Close the books of yesterday.")
            options: Any = {"schedules": [cron], "retention": KEPT, "ports": self.ports}
            async with Runtime([clerk()], store=f"sqlite:{self.store}", **options) as rt:
                calls = await self._month(rt)
                if self.lives % 3 == 1:  # A killed process leaves what is on disk now.
                    shutil.copytree(self.store, self.folder / f"store-{self.lives}")
                    self.store = self.folder / f"store-{self.lives}"
            self.lives += 1
            self._measure(calls)

    async def _month(self, rt: Runtime) -> int:
        for day in range(MONTH - 1):
            await self._day(rt)
            if day == MONTH // 2:  # That of the last month is silent, or has ended.
                await self._check(rt, {f"month-{self.lives - 1}"} if self.lives else set())
        with counted_calls() as counted:
            await self._day(rt)
        await self._check(rt, set())
        return counted[0]

    async def _day(self, rt: Runtime) -> None:
        for number in range(3):
            key = f"case-{self.day}-{number}"
            said = Message("12 euros", key="first", parts=[invoice(key)])
            run = await rt.start("clerk", said, session_key=key)
            assert (await run.result()).output == "noted: 1"
            assert (await run.ask("and tea?")) is not None
            put = f"put {run.run_id} rules.txt"
            assert (await (await rt.hub.ask("runtime", put, given=RULES))).accepted
            await run.close()
            await run.finished()
            self.ended[run.run_id] = self.day
        said = Message(f"day {self.day}", parts=[invoice(f"day {self.day}")])
        talk = await rt.start("clerk", said, session_key=f"month-{self.lives}")
        await talk.result()
        await anyio.sleep(DAY)
        self.day += 1

    async def _check(self, rt: Runtime, silent: set[str]) -> None:
        """What ended is kept for its time, and no longer, and so is what is silent."""
        keys = await rt.hub.journal.inspect(_keys)
        young = {run for run, day in self.ended.items() if day > self.day - ENDED}
        gone = {run for run, day in self.ended.items() if day < self.day - ENDED - 1}
        assert young <= keys.keys() and not gone & keys.keys()
        months = {key for key in keys.values() if key.startswith("month-")}
        assert months == {f"month-{self.lives}", *silent}

    def _measure(self, calls: int) -> None:
        store = f"sqlite:{self.store}"
        assert problems(store) == []
        with open_reader(store) as reader:
            cron = {row.run_id for row in reader.rows() if row.kind == "cron"}
            sizes = [0, 0]
            for row in reader.event_rows():
                sizes[row.run_id in cron] += len(row.body)
        file = (self.store / "hubbub.db").stat().st_size
        blobs = sum(x.stat().st_size for x in (self.store / "blobs").rglob("*") if x.is_file())
        self.months.append(
            Month(file=file, cron=sizes[1], other=sizes[0], contents=blobs, calls=calls)
        )


def _keys(reader: StoreReader) -> dict[str, str]:
    """The session keys of the conversations in a store."""
    return {row.run_id: row.session_key or "" for row in reader.rows()}


@pytest.mark.parametrize("months", [4, pytest.param(12, marks=pytest.mark.long)])
async def test_a_store_is_as_large_and_a_day_costs_as_much_after_a_year(
    tmp_path: Path, ports: Ports, months: int
) -> None:
    year = Year(folder=tmp_path, ports=ports)
    await year.live(months * MONTH)
    first, last = year.months[2], year.months[-1]  # The store was closed after both.
    assert last.other <= first.other * 1.05
    assert 0 < last.contents <= first.contents * 1.05
    # What lives is as large as what it has said.
    assert last.file - first.file <= 2 * (last.cron - first.cron) + 100_000
    assert last.calls <= first.calls * 1.1


class Books(Struct, kw_only=True):
    """One agent that lives all year: a schedule wakes it each day, and it is asked now and then.

    Its context has a limit, as that of any agent that is to live so long.
    """

    store: str
    ports: Ports
    retention: Retention | None
    months: list[Month] = field(default_factory=list)

    async def live(self, months: int) -> None:
        for month in range(months):
            cron = Cron("books", "0 9 * * *", "clerk", "Close the books of yesterday.")
            options: Any = {"schedules": [cron], "retention": self.retention, "ports": self.ports}
            async with Runtime([summed_up()], store=self.store, **options) as rt:
                run = await rt.start("clerk", session_key="books")
                for hour in range(ASKED - 1):
                    text = f"{month}-{hour}: {'12 euros for tea. ' * 10}"
                    await run.ask(Message(text, key=f"{month}-{hour}"))
                    await anyio.sleep(MONTH * DAY / ASKED)
                with counted_calls() as counted:
                    await run.ask("one more")
                await anyio.sleep(DAY)
            self._measure(counted[0])

    def _measure(self, calls: int) -> None:
        assert problems(self.store) == []
        sizes = [0, 0]
        with open_reader(self.store) as reader:
            cron = {row.run_id for row in reader.rows() if row.kind == "cron"}
            for row in reader.event_rows():
                if row.lane != "hub":
                    sizes[row.run_id in cron] += len(row.body)
        file = (Path(self.store.removeprefix("sqlite:")) / "hubbub.db").stat().st_size
        month = Month(file=file, contents=0, cron=sizes[1], other=sizes[0], calls=calls)
        self.months.append(month)


def summed_up() -> AgentDefinition:
    def answer(request: ModelRequest) -> ModelReply:
        shown = sum(len(getattr(each, "content", "")) for each in request.messages)
        return ModelReply(text="Noted.", usage=Usage(input_tokens=shown // 4, output_tokens=2))

    limit = Compaction(window=500)
    return Agent("clerk", "You keep the books.", model=FunctionModel(answer), compaction=limit)


@pytest.mark.parametrize("months", [4, pytest.param(12, marks=pytest.mark.long)])
async def test_what_one_living_run_keeps_is_as_large_after_a_year(
    tmp_path: Path, ports: Ports, months: int
) -> None:
    retention = Retention(ended=ENDED * DAY, keep_turns=10)
    kept = Books(store=f"sqlite:{tmp_path / 'kept'}", ports=ports, retention=retention)
    await kept.live(months)
    whole = Books(store=f"sqlite:{tmp_path / 'whole'}", ports=ports, retention=None)
    await whole.live(2)
    first, last = kept.months[2], kept.months[-1]
    assert last.cron <= first.cron * 1.15 and last.other <= first.other * 1.15
    assert last.calls <= first.calls * 1.1
    assert whole.months[-1].cron + whole.months[-1].other > 3 * (last.cron + last.other)
    # Of each thing that was asked its key is known as long as the run is, and of each day of the
    # schedule that it was due; of all else nothing is left.
    asked = (months - 3) * (ASKED + MONTH)
    assert last.file - first.file <= asked * 200
