"""``Story``: one store from its beginning to its rest, and what was done to it meanwhile."""

from collections import Counter
from pathlib import Path
from time import time
from typing import Any, Final

from support.promises import Said
from support.sql_history import history_problems

from torture.cast import TO_GO_ON, Cast
from torture.faults import FAULTS, HARMLESS
from torture.heard import read_heard
from torture.killing import Problems
from torture.servers import Servers
from torture.story_count import StoryCount
from torture.take_overs import Disturbance, TakeOvers

__all__ = ["WORKERS", "Story"]

WORKERS: Final = 3

TO_REST: Final = 180.0
"""Seconds after which something is taken to hang."""


class Story:
    """Each step raises ``Problems``.

    Trees are to be taken over within ``spare`` seconds after their lease of ``ttl``.
    """

    def __init__(
        self, servers: Servers, folder: Path, seed: int, *, ttl: float, spare: float,
        workers: int = WORKERS,
    ) -> None:  # fmt: skip
        self._cast = Cast(servers, folder, seed, ttl=ttl, workers=workers)
        self._spare = spare
        self._disturbances: list[Disturbance] = []
        self.count = StoryCount()

    def begin(self) -> None:
        self._cast.begin()

    def end(self) -> None:
        """Leave no process behind."""
        self._cast.end()

    def strike(self, fault: str) -> None:
        """Have something happen, and wait until work goes on."""
        start = time()
        FAULTS[fault](self._cast)
        self._cast.go_on()
        if fault not in HARMLESS:
            self._disturbances.append((start, time()))
        self.count.faults[fault] = self.count.faults.get(fault, 0) + 1
        self.count.cycles += 1

    def finish(self) -> None:
        """Let everybody come to rest, and look at what there is."""
        cast = self._cast
        cast.wait_for_heirs()
        for worker in [*cast.workers]:
            cast.leave(worker)
        for _ in range(2):
            cast.start_worker(ticks=False)
        (cast.folder / "stop").touch()
        cast.channel.wait_for("quiet", TO_REST)
        cast.channel.wait(TO_GO_ON)
        self.count.leaving = cast.leaving
        self._look()

    # ── what there is ────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        cast, said = self._cast, self._said()
        db = cast.connect()
        try:
            problems = history_problems(db, said, is_quiet=True, complete=("channel",))
            problems += [
                f"doubled: {key} of {run_id} was {status}"
                for run_id, key, status in cast.said("again") if status != "duplicate"
            ]  # fmt: skip
            problems += [
                f"refused: {run_id} {' '.join(reason)}" for run_id, *reason in cast.said("refused")
                if reason not in _EXPECTED
            ]  # fmt: skip
            problems += self._late(db)
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
        cast.servers.primary.query(f"DROP SCHEMA {cast.schema} CASCADE")

    def _late(self, db: Any) -> list[str]:
        cast = self._cast
        took = TakeOvers(db, cast.ends, self._disturbances, cast.ttl, self._spare)
        self.count.takeovers = took.alone
        return took.late

    def _keep(self, db: Any) -> None:
        """For who looks for what has happened."""
        for name, select in _KEPT.items():
            with (self._cast.folder / name).open("w") as file:
                file.writelines("\t".join(map(str, row)) + "\n" for row in db.execute(select))

    def _said(self) -> Said:
        folder, lines = self._cast.folder, self._cast.said
        accepted = lines("accepted")
        self.count.acknowledged = len(accepted) + sum(
            len(lines(what)) for what in ("replied", "interrupted", "terminated", "step")
        )
        self.count.answers = [float(ms) for *_, ms in accepted if float(ms)]
        heard = read_heard(folder / "heard")
        self.count.seen = len(heard)
        effects = (folder / "effects.log").read_text().splitlines()
        return Said(
            opened={run_id for (run_id,) in lines("opened")},
            accepted={(run_id, key) for run_id, key, _ in accepted},
            replied=[(run_id, prompt_id, text) for run_id, prompt_id, text in lines("replied")],
            interrupted={(run_id, reason) for run_id, reason in lines("interrupted")},
            terminated={run_id for (run_id,) in lines("terminated")},
            finished={run_id: said[0] for run_id, *said in lines("finished")},
            steps={(run_id, step, value) for run_id, step, value in lines("step")},
            secrets={(run_id, value) for run_id, value in lines("secret")},
            effects=Counter(line for line in effects if line.startswith("risky ")),
            heard={"channel": heard},
        )


_EXPECTED: Final = (["ended"], ["terminated"])
"""Why something may be refused."""

_KEPT: Final = {
    "events": "SELECT position, address.run_id, root, lane, seq, writer, body FROM event "
    "LEFT JOIN address ON address.number = event.run ORDER BY position",
    "owners": "SELECT owner_watch.*, address.run_id FROM owner_watch "
    "JOIN address ON address.number = root ORDER BY owner_watch.number",
    "workers": "SELECT * FROM worker ORDER BY id",
    "runs": "SELECT * FROM run ORDER BY number",
}
"""What is kept of a store in which something is wrong, by the name of the file."""
