"""``Story``: a channel and some workers on a new store, and what is done to them."""

import os
import random
import signal
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any, Final, Protocol

from msgspec import Struct, field, structs
from support.postgres import SECRETS_KEY, Server
from support.postgres_proxy import Proxy
from support.sql_history import Heard, Said, history_problems, watch_owners

from hubbub.runtime.stores.postgres.schema import make_schema
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from torture.killing import Problems

__all__ = ["FAULTS", "Story", "StoryCount", "summed"]

MEMBER: Final = Path(__file__).with_name("member.py")
LOOPS: Final = ("asyncio", "trio")
WORKERS: Final = 3

FAULTS: Final = (
    "kill", "pause", "end", "cut", "unanswered", "refuse", "slow", "restart", "failover",
)  # fmt: skip

TO_OPEN, TO_GO_ON, TO_REST = 180.0, 60.0, 180.0
"""Seconds after which something is taken to hang."""

CONNECTING: Final = "&connect_timeout=2"
"""For connections that are cut while they are made."""

SHARE_OF_FAILURES: Final = 0.03
"""Of the groups of commits of some processes."""

AN_HOUR: Final = 3600.0


class StoryCount(Struct):
    """What some stories came to."""

    cycles: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    events: int = 0
    lost: int = 0
    doubled: int = 0
    stale: int = 0
    seen: int = 0
    """Events that the channel saw, all of them in the store's order."""
    takeovers: list[float] = field(default_factory=list)
    """Seconds from the end of a worker until another one had claimed a tree of it."""
    leaving: list[float] = field(default_factory=list)
    """Seconds that workers took to leave in order."""
    answers: list[float] = field(default_factory=list)
    """Milliseconds after which a message was acknowledged, each."""

    def words(self) -> str:
        facts = [
            f"{value} {name}" for name, value in structs.asdict(self).items()
            if isinstance(value, int)
        ]  # fmt: skip
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        lines = [", ".join(facts), f"faults: {faults}"]
        for name, values, unit in (
            ("take-over", self.takeovers, "s"), ("leaving", self.leaving, "s"),
            ("acknowledged after", self.answers, "ms"),
        ):  # fmt: skip
            if values:
                lines.append(
                    f"{name}: median {statistics.median(values):.2f}, "
                    f"longest {max(values):.2f} {unit}, of {len(values)}"
                )
        return "\n".join(lines)


def summed(one: StoryCount, two: StoryCount) -> StoryCount:
    values: dict[str, Any] = {}
    for name, value in structs.asdict(one).items():
        other = getattr(two, name)
        values[name] = dict(Counter(value) + Counter(other)) if name == "faults" else value + other
    return StoryCount(**values)


class PrimaryOf(Protocol):
    """Servers of which one takes what is written."""

    @property
    def primary(self) -> Server: ...

    def fail_over(self, moved: Callable[[int], None]) -> None: ...


class Process:
    """A member, with a proxy of its own between it and the server."""

    def __init__(self, folder: Path, name: str, port: int) -> None:
        self.folder, self.name = folder, name
        self.proxy = Proxy(port)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, address: str, **options: object) -> None:
        command = [
            "setpriv", "--pdeathsig=KILL", sys.executable, str(MEMBER), str(self.folder),
            self.name, "--store", address,
        ]  # fmt: skip
        for key, value in options.items():
            command += [f"--{key}"] if value is True else [f"--{key}", str(value)] if value else []
        environ = {**os.environ, "HUBBUB_SECRETS_KEY": SECRETS_KEY}
        with (self.folder / f"stderr-{self.name}").open("wb") as errors:
            self._process = subprocess.Popen(command, stderr=errors, env=environ)

    def lines(self, what: str) -> list[list[str]]:
        """What it has said of one kind."""
        path = self.folder / f"said-{self.name}"
        text = path.read_text() if path.exists() else ""
        lines = [line.split() for line in text.rpartition("\n")[0].splitlines()]
        return [words[1:] for words in lines if words[:1] == [what]]

    def wait_for(self, what: str, seconds: float) -> None:
        until = monotonic() + seconds
        while not self.lines(what):
            if not self.is_alive:
                raise Problems(f"{self.name} has ended by itself: {self.errors[-3000:]}")
            if monotonic() > until:
                raise Problems(f"{self.name} is not {what!r} after {seconds} s")
            sleep(0.05)

    @property
    def errors(self) -> str:
        return (self.folder / f"stderr-{self.name}").read_text(errors="replace")

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        if self.is_alive:
            assert self._process is not None
            self._process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within some seconds."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.proxy.close()


class Story:
    """One store from its beginning to its rest.  Each step raises ``Problems``.

    Trees are to be taken over within ``spare`` seconds after their lease of ``ttl``.
    """

    def __init__(
        self, servers: PrimaryOf, folder: Path, seed: int, *, ttl: float, spare: float
    ) -> None:
        folder.mkdir(parents=True)
        self._servers, self._folder, self._seed, self._ttl = servers, folder, seed, ttl
        self._spare = spare
        self._draw = random.Random(f"nemesis {seed}")
        self._schema = f"nemesis_{seed}"
        self._lives = 0
        self._workers: list[Process] = []
        self._dead: list[Process] = []
        self._ends: list[tuple[str, float]] = []
        """Workers that were ended, and when."""
        self._restarts: list[float] = []
        """When the server began anew, after which no lease is over for its whole time."""
        self.count = StoryCount()

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        db = self._connect()
        make_schema(db, "nemesis")
        watch_owners(db)
        db.close()
        self._channel = self._start("channel", "channel")
        for _ in range(WORKERS):
            self._workers.append(self._start_worker())
        for each in (self._channel, *self._workers):
            each.wait_for("open", TO_OPEN)
        self._go_on()

    def finish(self) -> None:
        """Let everybody come to rest, and look at what there is."""
        for worker in self._workers:
            worker.proxy.heal()
            worker.wait_for("open", TO_OPEN)
            start = monotonic()
            worker.send(signal.SIGTERM)
            if not worker.wait(TO_GO_ON):
                raise Problems(f"{worker.name} does not leave")
            if not worker.lines("left"):
                raise Problems(f"{worker.name} has not left in order: {worker.errors[-3000:]}")
            self.count.leaving.append(monotonic() - start)
            self._dead.append(worker)
        self._channel.proxy.heal()
        self._workers = [self._start_worker(ticks=False) for _ in range(2)]
        (self._folder / "stop").touch()
        self._channel.wait_for("quiet", TO_REST)
        self._channel.wait(TO_GO_ON)
        self._look()

    def end(self) -> None:
        """Leave no process behind."""
        for each in (*self._workers, *self._dead, *filter(None, [vars(self).get("_channel")])):
            each.kill()

    def _start(self, name: str, role: str, **options: object) -> Process:
        process = Process(self._folder, name, self._servers.primary.port)
        number, self._lives = self._lives, self._lives + 1
        process.start(
            self._servers.primary.dsn_at(process.proxy.port, schema=self._schema) + CONNECTING,
            role=role, loop=LOOPS[number % 2], seed=self._seed, ttl=self._ttl, **options,
        )  # fmt: skip
        return process

    def _start_worker(self, *, ticks: bool = True) -> Process:
        """Some of them have groups that fail, and some a clock that is an hour off."""
        number = self._lives
        inject = SHARE_OF_FAILURES if number % 3 == 1 else 0
        late = AN_HOUR if number % 3 == 2 else 0
        return self._start(f"worker{number}", "worker", inject=inject, late=late, ticks=ticks)

    def _connect(self) -> PostgresConnection:
        address = self._servers.primary.dsn(self._schema)
        db = PostgresConnection(PostgresAddress(address), "audit", silence=None)
        db.connect()
        return db

    # ── what happens ─────────────────────────────────────────────────────────────────────────

    def strike(self, fault: str) -> None:
        """Have something happen, and wait until work goes on."""
        {
            "kill": self._kill, "pause": self._pause, "end": self._end_connections,
            "cut": self._cut, "unanswered": self._unanswered, "refuse": self._refuse,
            "slow": self._slow, "restart": self._restart, "failover": self._fail_over,
        }[fault]()  # fmt: skip
        self.count.faults[fault] = self.count.faults.get(fault, 0) + 1
        self.count.cycles += 1
        self._go_on()

    def _kill(self) -> None:
        victim = self._busiest()
        self._ends.append((victim.name, time()))
        victim.kill()
        self._workers.remove(victim)
        self._dead.append(victim)
        sleep(self._draw.uniform(0, self._ttl + 1.5))
        self._workers.append(self._start_worker())

    def _pause(self) -> None:
        """Past the lease; of the channel, too."""
        victim = self._channel if self._draw.random() < 0.25 else self._busiest()
        if victim is not self._channel:
            self._ends.append((victim.name, time()))
        victim.send(signal.SIGSTOP)
        sleep(self._ttl + self._draw.uniform(0.5, 2.0))
        victim.send(signal.SIGCONT)

    def _end_connections(self) -> None:
        server = self._servers.primary
        for _ in range(6):
            for (pid,) in server.query(
                "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'hubbub:%'"
            ):
                if self._draw.random() < 0.7:
                    server.query(f"SELECT pg_terminate_backend({pid})")
            sleep(self._draw.uniform(0.1, 0.4))

    def _cut(self) -> None:
        for _ in range(4):
            for each in (self._channel, *self._workers):
                how = self._draw.choice([each.proxy.cut, each.proxy.half_open, lambda: None])
                how()
            sleep(self._draw.uniform(0.1, 0.5))

    def _unanswered(self) -> None:
        for each in (self._channel, *self._workers):
            each.proxy.swallow_after_commit(self._draw.randint(1, 5))
        sleep(1.0)

    def _refuse(self) -> None:
        """Cut off from the server past the lease, or not."""
        victim = self._draw.choice([self._channel, *self._workers])
        victim.proxy.refuse()
        sleep(self._draw.uniform(0.3, self._ttl + 1.5))
        victim.proxy.heal()

    def _slow(self) -> None:
        victims = self._draw.sample([self._channel, *self._workers], 2)
        for each in victims:
            each.proxy.delay(0.1)  # 200 ms there and back.
        sleep(2.0)
        for each in victims:
            each.proxy.heal()

    def _restart(self) -> None:
        self._servers.primary.restart()
        self._restarts.append(time())

    def _fail_over(self) -> None:
        def moved(port: int) -> None:
            for each in (self._channel, *self._workers):
                each.proxy.target = port
                each.proxy.cut()

        self._servers.fail_over(moved)
        self._restarts.append(time())

    def _busiest(self) -> Process:
        """The worker that owns most trees."""
        found = self._servers.primary.query(
            f"SELECT worker.name, count(*) FROM {self._schema}.tree JOIN {self._schema}.worker "
            "ON worker.id = tree.owner WHERE worker.live GROUP BY 1 ORDER BY 2 DESC"
        )
        names = {worker.name: worker for worker in self._workers}
        busy = [names[str(name)] for name, _ in found if name in names]
        return busy[0] if busy else self._draw.choice(self._workers)

    def _go_on(self) -> None:
        """Return when messages are accepted and answered again."""
        count, until = len(self._channel.lines("accepted")), monotonic() + TO_GO_ON
        while len(self._channel.lines("accepted")) < count + 5:
            for each in (self._channel, *self._workers):
                if not each.is_alive or each.lines("failed"):
                    raise Problems(f"{each.name} has failed: {each.errors[-3000:]}")
            if monotonic() > until:
                raise Problems(f"nobody goes on after {self.count.faults}")
            sleep(0.05)

    # ── what there is ────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        said = self._said()
        db = self._connect()
        try:
            problems = history_problems(db, said, is_quiet=True, complete=("channel",))
            problems += [
                f"doubled: {key} of {run_id} was {status}"
                for run_id, key, status in self._channel.lines("again") if status != "duplicate"
            ]  # fmt: skip
            problems += self._take_overs(db)
            if problems:
                self._keep(db)
            (self.count.events,) = db.execute("SELECT count(*) FROM event").fetchone()
        finally:
            db.close()
        self.count.lost = sum(x.startswith("lost") for x in problems)
        self.count.stale = sum(x.startswith("stale") for x in problems)
        self.count.doubled = sum(" times" in x or x.startswith("doubled") for x in problems)
        if problems:
            raise Problems(f"{len(problems)} problems: " + "; ".join(problems[:20]))
        self._servers.primary.query(f"DROP SCHEMA {self._schema} CASCADE")

    def _keep(self, db: Any) -> None:
        """For who looks for what has happened."""
        for name, select in _KEPT.items():
            with (self._folder / name).open("w") as file:
                file.writelines("\t".join(map(str, row)) + "\n" for row in db.execute(select))

    def _said(self) -> Said:
        lines = self._channel.lines
        accepted = lines("accepted")
        self.count.acknowledged = len(accepted)
        self.count.answers = [float(ms) for _, _, ms in accepted]
        heard = [_heard(x) for x in (self._folder / "heard-channel").read_text().splitlines()]
        self.count.seen = len(heard)
        effects = (self._folder / "effects.log").read_text().splitlines()
        return Said(
            opened={run_id for (run_id,) in lines("opened")},
            accepted={(run_id, key) for run_id, key, _ in accepted},
            effects=Counter(line for line in effects if line.startswith("risky ")),
            heard={"channel": heard},
        )

    def _take_overs(self, db: Any) -> list[str]:
        """How long it took; trees of workers that were ended, and that nobody has taken over."""
        problems = []
        for name, at in self._ends:
            found = db.execute(_TAKEN_OVER, (name, at)).fetchall()
            taken = [
                float(when) - at for when, _ in found
                if when is not None and not any(at < x < float(when) for x in self._restarts)
            ]  # fmt: skip
            self.count.takeovers += taken
            late = [seconds for seconds in taken if seconds > self._ttl + self._spare]
            if late:
                problems.append(f"trees of {name} taken over after {max(late):.2f} s")
        return problems


def _heard(line: str) -> Heard:
    run_id, lane, seq = line.split()
    return ("" if run_id == "-" else run_id, lane, int(seq))


_KEPT: Final = {
    "events": "SELECT position, address.run_id, root, lane, seq, writer, body FROM event "
    "LEFT JOIN address ON address.number = event.run ORDER BY position",
    "owners": "SELECT owner_watch.*, address.run_id FROM owner_watch "
    "JOIN address ON address.number = root ORDER BY owner_watch.number",
    "workers": "SELECT * FROM worker ORDER BY id",
    "runs": "SELECT * FROM run ORDER BY number",
}
"""What is kept of a store in which something is wrong, by the name of the file."""

_TAKEN_OVER: Final = """
SELECT (
  SELECT extract(epoch FROM min(later.at)) FROM owner_watch AS later
  WHERE later.root = mine.root AND later.number > mine.number AND later.owner <> mine.owner
), mine.root
FROM owner_watch AS mine JOIN worker ON worker.id = mine.owner
WHERE worker.name = ?1 AND extract(epoch FROM mine.at) <= ?2::float8 AND mine.number = (
  SELECT max(number) FROM owner_watch
  WHERE root = mine.root AND extract(epoch FROM at) <= ?2::float8
)
"""
