"""A story that is cut after some transaction of its store, as by ``kill -9``, and told on.

The process is this one: its store writes nothing more from a certain transaction on.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
from torture.audit import Audit, Record, read_runs
from torture.workload import ORDERS, SECRET, Effects, agents

from hubbub import Message, Runtime
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.stores.sql.queued import QueuedStore
from hubbub.runtime.stores.sql.writer import Operation

__all__ = ["DyingStore", "Story"]


class DyingStore(QueuedStore):
    """A store whose process is killed after some transactions; of which, its subclass says.

    ``unacknowledged``: the last thing it does is one more, of which nobody is told.
    """

    after: int | None = None
    unacknowledged = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.transactions = 0
        self.crashed = anyio.Event()

    async def write_unheard(self, batch: Sequence[Operation]) -> None:
        """Write a batch of which nobody is told."""
        raise NotImplementedError

    def bury(self) -> None:
        """Keep what is there at the moment of its death."""

    async def _write_batch(self) -> None:
        if self.transactions == self.after:
            if self.unacknowledged:
                await self.write_unheard(list(self._queue))
            self.bury()
            self.crashed.set()
            await anyio.sleep_forever()
        self.transactions += 1
        await super()._write_batch()

    async def flush(self) -> None:
        if not self.crashed.is_set():
            await super().flush()


MakeStore = Callable[[Ports], DyingStore]
OpenRecord = Callable[[], Record | None]


class Story:
    """What happens in a store, until it is over; told anew by every life."""

    def __init__(self, folder: Path, seed: int, life: MakeStore, record: OpenRecord) -> None:
        self.folder = folder
        self.ports = virtual_ports(seed)
        self.audit = Audit(folder, record)
        self._life, self._record = life, record
        self.acknowledged: list[str] = []
        draw = random.Random(seed)
        whats = draw.sample(ORDERS, len(ORDERS))
        self.orders = [
            (f"m{at}", " ".join(f"{what}#m{at}o{n}" for n, what in enumerate(whats[at::3])))
            for at in range(3)
        ]
        self.clerk = self.ports.ids.run_id(0)
        folder.mkdir()

    def tell(self, *words: object) -> None:
        self.acknowledged.append(" ".join(map(str, words)))

    async def live(self, after: int | None, *, unacknowledged: bool = False) -> int | None:
        """One life: the transactions of the whole story, or ``None`` if it was cut."""
        store = self._life(self.ports)
        store.after, store.unacknowledged = after, unacknowledged
        over = False
        everybody = agents(Effects(self.folder / "effects.log", flushes=False), self.tell)
        async with Runtime(everybody, store=store, ports=self.ports, grace=0) as rt:

            async def tell_on() -> None:
                nonlocal over
                await self._tell(rt)
                over = True
                group.cancel_scope.cancel()

            async with anyio.create_task_group() as group:
                group.start_soon(tell_on)
                with anyio.fail_after(10_000):
                    await store.crashed.wait()
                group.cancel_scope.cancel()
        lines, self.acknowledged = self.acknowledged, []
        assert self.audit.check(lines, is_quiet=over) == []
        return store.transactions if over else None

    async def _tell(self, rt: Runtime) -> None:
        await rt.hub.open("clerk", "k", run_id=self.clerk)
        run = await rt.start("lead", session_key="user", env={SECRET: "secret_of_user"})
        self.tell("started", run.run_id, "user")
        self.tell("secret", run.run_id, "secret_of_user")
        for name, text in self.orders:
            receipt = await rt.hub.send_to_run(run.run_id, Message(text, key=name))
            if receipt.accepted:
                self.tell("accepted", run.run_id, name)
            await anyio.sleep(0.015)
        await rt.finished(self.clerk)
        while not all(  # noqa: ASYNC110
            info.status == "parked" and not info.waiting for info in await rt.hub.journal.runs()
        ):
            await anyio.sleep(0.1)

    def facts(self) -> dict[str, Any]:
        """What must be the same, however often it was cut."""
        record = self._record()
        assert record is not None
        runs = list(read_runs(record.db).values())
        record.db.close()
        own = [(run.agent, x) for run in runs for x in run.own]
        taken = [(a, i) for a, x in own if isinstance(x, e.SessionTaken) for i in x.items]
        return {
            "runs": Counter((run.agent, run.status) for run in runs),
            "messages": [i.key for a, i in taken if isinstance(i, e.SessionMessage) and i.key],
            "results": sorted(i.content for _, i in taken if isinstance(i, e.SessionResult)),
            "calls": Counter((a, x.name) for a, x in own if isinstance(x, e.AgentToolComplete)),
            "sessions": Counter(
                (a, x.outcome, bytes(x.output_json)) for a, x in own if isinstance(x, e.SessionEnd)
                if a != "lead"
            ),
            "ends": Counter((a, x.outcome) for a, x in own if isinstance(x, e.AgentComplete)),
            "files": {f.path for _, x in own if isinstance(x, e.AgentFile) for f in x.files},
            "values": {x.key for _, x in own if isinstance(x, e.AgentKey)},
            "steps": sorted(x.name for _, x in own if isinstance(x, e.AgentRecord)),
        }  # fmt: skip
