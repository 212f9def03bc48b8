"""What must hold of a store, whatever was done to it."""

import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.agents.turn.calls import LOST
from hubbub.hub import events as e
from hubbub.hub.errors import OperatorError
from hubbub.hub.events import Event
from hubbub.hub.events.codec import decode_event
from hubbub.hub.values import decode_value
from hubbub.runtime.stores.sqlite.schema import connect_read_only

__all__ = [
    "Audit",
    "Record",
    "Run",
    "doubled_items",
    "inbox_problems",
    "lane_problems",
    "life_problems",
    "read_runs",
    "result_problems",
    "twice",
    "unfinished",
]


def lane_problems(db: Any, *, is_pruned: bool = False) -> list[str]:
    """Gaps in positions and lanes, and events that are not what was written; from a store that is
    pruned whole runs may be missing, and their positions with them."""
    problems = []
    chains: dict[int, int] = {}
    seqs: dict[tuple[int, str], int] = {}
    select = "SELECT position, run, lane, seq, crc, body FROM event ORDER BY position"
    for expected, (position, run, lane, seq, crc, body) in enumerate(db.execute(select), 1):
        if position != expected and not is_pruned:
            problems.append(f"position {expected} is missing")
            break
        of = 0 if lane == "hub" else run  # The hub's lane is one, whomever it speaks of.
        chains[of] = zlib.crc32(body.encode(), chains.get(of, 0))
        if chains[of] != crc:
            problems.append(f"event {position} is not what was written")
        if seq != seqs.get((of, lane), 0) + 1:
            problems.append(f"event {position}: {lane} {seq} after {seqs.get((of, lane), 0)}")
        seqs[of, lane] = seq
    return problems


class Run:
    """One run as the store has it."""

    def __init__(self, run_id: str, agent: str, status: str) -> None:
        self.run_id, self.agent, self.status = run_id, agent, status
        self.own: list[Event] = []
        self.inbox: list[Any] = []
        self.waiting: set[int] = set()


class Record:
    """A store between two lives: a database with the tables of ``runtime/stores/sql``."""

    def __init__(self, db: Any) -> None:
        self.db = db

    def damage(self) -> list[str]:
        """What the database itself finds."""
        (verdict,) = self.db.execute("PRAGMA quick_check").fetchone()
        return [] if verdict == "ok" else [f"damaged: {verdict}"]

    def secrets(self) -> set[str]:
        return {value for (value,) in self.db.execute("SELECT value FROM secret")}


class Audit:
    """One folder over all its lives: what was acknowledged, and what is there of it.

    ``check`` is called after each death, with the lines that the process had said.  ``record``
    opens the store, or says ``None`` where there is none; without it, it is the one in the folder.
    ``ended`` is after how many seconds trees go that have ended; without it nothing goes.
    """

    def __init__(
        self, folder: Path, record: Callable[[], Record | None] | None = None,
        ended: float | None = None,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._ended = ended
        self._trees: dict[str, list[Run]] = {}
        """Those that were there the last time, by their roots."""
        self.gone: set[str] = set()
        """Runs that have gone because they had ended long enough ago."""
        self._record = record or self._in_folder
        self._acknowledged: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        self._finished: dict[tuple[str, int, int], tuple[str, int]] = {}
        self._deaths = 0
        self.lost = 0
        """What was acknowledged and is not there."""
        self.doubled = 0
        """What was taken, done or told twice."""
        self.restarts = 0
        self.given_up = 0
        """Runs that the runtime ended because their process had died too often in a row."""
        self.unknown = 0
        """Calls whose outcome nobody knows, and which said so."""

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self._acknowledged.values()))

    def check(self, lines: list[str], *, is_quiet: bool = False) -> list[str]:
        """Everything that is wrong, each in one line."""
        for line in lines:
            what, *rest = line.split()
            self._acknowledged[what].add(tuple(rest))
        self._deaths += not is_quiet
        try:
            record = self._record()
        except OperatorError as error:  # It died before it had made its tables.
            is_new = "nothing in it yet" in str(error) and not self.acknowledged
            return [] if is_new else [str(error)]
        if record is None:
            return ["the store is gone"] if self.acknowledged else []
        db = record.db
        try:
            problems = lane_problems(db, is_pruned=self._ended is not None) + record.damage()
            runs, secrets = read_runs(db), record.secrets()
            fires = [(x.schedule, x.tick) for x in _hub(db) if isinstance(x, e.ScheduleFire)]
        finally:
            db.close()
        problems += self._wrongly_gone(runs)
        lost = [*self._lost(runs, secrets)]
        doubled = [*self._doubled(runs), *twice(fires, "schedule")]
        self.lost += len(lost)
        self.doubled += len(doubled)
        problems += [f"lost: {each}" for each in lost] + [f"doubled: {each}" for each in doubled]
        problems += [p for run in runs.values() for p in life_problems(run)]
        problems += inbox_problems(runs)
        if is_quiet:
            problems += [p for run in runs.values() for p in unfinished(run)]
        self.restarts = sum(isinstance(x, e.AgentRestore) for r in runs.values() for x in r.own)
        return problems

    def _in_folder(self) -> Record | None:
        database = self._folder / "store" / "hubbub.db"
        return Record(connect_read_only(database)) if database.exists() else None

    # ── what has gone was to go ──────────────────────────────────────────────────────────────

    def _wrongly_gone(self, runs: dict[str, Run]) -> list[str]:
        """What went without its whole tree, before its time, or though somebody in it lived."""
        problems = []
        finished = {run_id for run_id, _ in self._acknowledged["finished"]}
        for root, tree in self._trees.items():
            missing = [run for run in tree if run.run_id not in runs]
            if not missing:
                continue
            self.gone |= {run.run_id for run in missing}
            last = max(x.at for run in tree for x in (*run.own, *run.inbox))
            is_over = all(run.status == "ended" for run in tree) or root in finished
            if self._ended is None or not is_over:
                problems.append(f"run {root} has gone, and had not ended")
            elif last > time.time() * 1e6 - self._ended * 1e6:
                problems.append(f"run {root} has gone before its time")
            if len(missing) < len(tree):
                problems.append(f"run {root} has gone in part: {len(missing)} of {len(tree)}")
        self._trees = defaultdict(list)
        for run in runs.values():
            opening = run.inbox[0] if run.inbox else None
            root = opening.root_run_id if opening is not None else run.run_id
            self._trees[root].append(run)
            if root not in runs:
                problems.append(f"run {run.run_id} is there, and its root {root} is not")
        return problems

    # ── what was acknowledged is there ───────────────────────────────────────────────────────

    def _lost(self, runs: dict[str, Run], secrets: set[str]) -> list[str]:
        problems = []
        said = {
            what: [each for each in told if each[0] not in self.gone]
            for what, told in self._acknowledged.items()
        }
        said = defaultdict(list, said)
        for run_id, *_ in [*said["started"], *said["employed"], *said["accepted"]]:
            if run_id not in runs:
                problems.append(f"run {run_id}")
        for run_id, key in said["accepted"]:
            if run_id in runs and not any(_key(x) == key for x in runs[run_id].inbox):
                problems.append(f"message {key} of {run_id}")
        for run_id, name, value in said["step"]:
            records = [x for x in runs[run_id].own if isinstance(x, e.AgentRecord)]
            if not any((x.name, decode_value(x.value_json)) == (name, value) for x in records):
                problems.append(f"step {name} of {run_id}")
        for run_id, value in said["secret"]:
            if runs[run_id].status != "ended" and value not in {
                s.replace(" ", "_") for s in secrets
            }:
                problems.append(f"secret {value} of {run_id}")
        for run_id, name in said["answered"]:
            texts = [x.text for x in runs[run_id].own if isinstance(x, e.AgentText)]
            if not any(f"{name}o0" in text for text in texts) and not _gave_up(runs[run_id]):
                problems.append(f"answer to {name} of {run_id}")
        for run_id, outcome in said["finished"]:
            ends = [x.outcome for x in runs[run_id].own if isinstance(x, e.AgentComplete)]
            if ends != [outcome]:
                problems.append(f"end of {run_id}: {ends}, not {outcome}")
        return problems

    # ── nothing happens twice ────────────────────────────────────────────────────────────────

    def _doubled(self, runs: dict[str, Run]) -> list[str]:
        problems = [f"{key} of {run_id}" for run_id, key, status in self._acknowledged["again"]
                    if status != "duplicate"]  # fmt: skip
        problems += doubled_items(runs)
        effects = self._effects()
        problems += [f"effect {what} {name}: {times} times" for (what, name), times in
                     effects.items() if what == "risky" and times > 1]  # fmt: skip
        for run in runs.values():
            problems += twice([k for k in map(_key, run.inbox) if k], f"message of {run.run_id}")
            problems += self._calls_twice(run, effects)
            records = [(x.name, x.index) for x in run.own if isinstance(x, e.AgentRecord)]
            problems += twice(records, f"step of {run.run_id}")
        problems += result_problems(runs)
        return problems

    def _effects(self) -> Counter[tuple[str, str]]:
        path = self._folder / "effects.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter((what, name) for what, _, name in (x.partition(" ") for x in lines))

    def _calls_twice(self, run: Run, effects: Counter[tuple[str, str]]) -> list[str]:
        done = [x for x in run.own if isinstance(x, e.AgentToolComplete)]
        problems = twice([(x.step, x.index) for x in done], f"result in {run.run_id}")
        unknown = sum(x.output == LOST for x in done)
        restarts = sum(isinstance(x, e.AgentRestore) for x in run.own)
        if unknown > restarts:  # One call at a time is under way.
            problems.append(f"{unknown} unknown outcomes, {restarts} restarts of {run.run_id}")
        self.unknown += sum(
            x.output == LOST and (run.run_id, x.step, x.index) not in self._finished for x in done
        )
        for x in done:
            call = (run.run_id, x.step, x.index)
            what, _, name = x.output.partition(" ")
            if what == "did" and x.name in ("risky", "safe"):
                times = effects[x.name, name]
                if times == 0:
                    problems.append(f"{x.name} {name} has a result and no effect")
                if self._finished.setdefault(call, (name, times)) != (name, times):
                    problems.append(f"{x.name} {name} was done again after its result")
            else:
                self._finished.setdefault(call, ("", 0))
        return problems


def life_problems(run: Run) -> list[str]:
    """More lives of a run than one."""
    problems = []
    types = [x.type for x in run.own if x.type.startswith("agent:")]
    if types.count("agent:start") != (1 if types else 0) or types[:1] not in (
        [],
        ["agent:start"],
    ):
        problems.append(f"{run.run_id}: starts {types.count('agent:start')}")
    ends = types.count("agent:complete")
    if ends > 1 or (ends and types[-1] != "agent:complete") or (run.status == "ended") != ends:
        problems.append(f"{run.run_id} is {run.status} and has {ends} ends")
    return problems


def inbox_problems(runs: dict[str, Run]) -> list[str]:
    """Items of runs that go on which nobody has."""
    taken, waiting = _taken(runs), _waiting(runs)
    came = [(x.run_id, x.seq) for r in runs.values() if r.status != "ended" for x in r.inbox]
    return [f"item {x} neither waits nor was taken" for x in {*came} - {*taken} - {*waiting}]


def doubled_items(runs: dict[str, Run]) -> list[str]:
    """Items that two have taken, or that wait all the same."""
    return twice([*_taken(runs), *_waiting(runs)], "item")


def _taken(runs: dict[str, Run]) -> list[tuple[str, int]]:
    """By run and number: a takeover frame takes items of the conversation's, too."""
    return [
        (i.run_id, i.seq)
        for run in runs.values() for x in run.own
        if isinstance(x, e.SessionTaken | e.SessionDropped) for i in x.items
    ]  # fmt: skip


def _waiting(runs: dict[str, Run]) -> list[tuple[str, int]]:
    return [(run.run_id, seq) for run in runs.values() for seq in run.waiting]


def read_runs(db: Any) -> dict[str, Run]:
    """Every run of a store."""
    numbers: dict[int, Run] = {}
    for number, run_id, agent, status in db.execute(
        "SELECT number, run_id, agent, status FROM run"
    ):
        numbers[number] = Run(run_id, agent, status)
    select = "SELECT run, lane, body FROM event WHERE lane <> 'hub' ORDER BY position"
    for number, lane, body in db.execute(select):
        run = numbers[number]
        (run.own if lane == "own" else run.inbox).append(decode_event(body))
    for number, seq in db.execute("SELECT run, seq FROM waiting"):
        numbers[number].waiting.add(seq)
    return {run.run_id: run for run in numbers.values()}


def _hub(db: Any) -> list[Event]:
    return [decode_event(b) for (b,) in db.execute("SELECT body FROM event WHERE lane = 'hub'")]


def result_problems(runs: dict[str, Run]) -> list[str]:
    """Every session of a child that reports has one result in its parent's inbox, if that has not
    ended before; a frame, which converses for as many sessions as it takes, has one at its end."""
    results = [x for run in runs.values() for x in run.inbox if isinstance(x, e.SessionResult)]
    openings = [x for run in runs.values() for x in run.inbox if isinstance(x, e.SessionOpen)]
    frames = {x.run_id for x in openings if x.frame}
    reports = {x.run_id for x in openings if x.reports} - frames
    told = Counter(
        (x.child_run_id, x.session) for x in results if x.session and x.child_run_id not in frames
    )
    ended = {
        (run.run_id, x.session)
        for run in runs.values() for x in run.own
        if isinstance(x, e.SessionEnd) and run.run_id in reports
    }  # fmt: skip
    orphans = {x.run_id for x in openings if x.parent_run_id in runs
               and runs[x.parent_run_id].status == "ended"}  # fmt: skip
    problems = [
        f"result {key}: told {told[key]} times" for key in ended
        if told[key] != 1 and (told[key] or key[0] not in orphans)
    ]  # fmt: skip
    problems += [f"result {key} of no session" for key in told.keys() - ended]
    of_frames = Counter(x.child_run_id for x in results if x.child_run_id in frames)
    due = {run_id for run_id in frames if runs[run_id].status == "ended"}
    return problems + [
        f"result of frame {run_id}: told {of_frames[run_id]} times" for run_id in frames
        if of_frames[run_id] != (run_id in due) and (of_frames[run_id] or run_id not in orphans)
    ]  # fmt: skip


def unfinished(run: Run) -> list[str]:
    """What a run that was left alone has not brought to an end."""
    if run.waiting:
        return [f"{run.run_id} ({run.agent}) is {run.status} and has {len(run.waiting)} waiting"]
    if run.agent == "clerk":
        return [] if run.status == "ended" else [f"{run.run_id} (clerk) is {run.status}"]
    thread = fold_all(EMPTY, run.own)
    last = thread.outcome.outcome if thread.outcome is not None else ""
    # One killed too often is shown nothing more; one interrupted, not before it is spoken to.
    unseen = thread.unseen and run.status != "ended" and last != "interrupted"
    if thread.open is not None or thread.in_session or unseen:
        return [f"{run.run_id} ({run.agent}) was left in the middle"]
    return []


def _gave_up(run: Run) -> bool:
    return any(isinstance(x, e.AgentFailed | e.SessionEnd) and not getattr(x, "success", False)
               for x in run.own)  # fmt: skip


def _key(item: Any) -> str:
    return item.key if isinstance(item, e.SessionMessage) else ""


def twice(items: list[Any], what: str) -> list[str]:
    return [f"{what}: {item} {times} times" for item, times in Counter(items).items() if times > 1]
