"""Kills the worker again and again, and has its folder audited each time."""

import os
import random
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from msgspec import Struct

from torture.audit import Audit, Record

__all__ = ["KillCount", "Killing", "Problems"]

WORKER = Path(__file__).with_name("worker.py")
LOOPS = ("asyncio", "trio")
EARLY = 0.25
"""The share of lives that are ended at a moment that may lie before the store is open."""
TO_OPEN, TO_FINISH = 60.0, 120.0
"""Seconds after which a worker is taken to hang."""


class Problems(AssertionError):
    """What an audit has found."""


class KillCount(Struct):
    """What some lives came to."""

    cycles: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    restarts: int = 0
    unknown: int = 0
    gone: int = 0
    max_reopen_ms: float = 0.0


class Killing:
    """One folder, and the store in it or the one that is named.

    ``kill`` is one life in it; ``finish`` the last, which nobody ends.  With ``ended`` trees go
    that ended so many seconds ago, but in the last life.
    """

    def __init__(
        self, folder: Path, seed: int, first_life: int = 0, *, store: str = "",
        record: Callable[[], Record | None] | None = None, ended: float | None = None,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._ended = ended
        self._seed = seed
        self._life = first_life
        self._store = store
        self._audit = Audit(folder, record, ended)
        self.max_reopen_ms = 0.0
        self.lives = 0

    @property
    def count(self) -> KillCount:
        audit = self._audit
        return KillCount(
            cycles=self.lives, acknowledged=audit.acknowledged, lost=audit.lost,
            doubled=audit.doubled, restarts=audit.restarts, unknown=audit.unknown,
            gone=len(audit.gone), max_reopen_ms=self.max_reopen_ms,
        )  # fmt: skip

    def kill(self) -> None:
        """Start the worker, kill it at a chance moment, and audit.  Raises ``Problems``."""
        draw = random.Random(f"{self._seed} {self._life}")
        if draw.random() < EARLY:
            lines = self._run(until="", seconds=draw.uniform(0.2, 1.0))
        else:
            lines = self._run(until="open", seconds=draw.uniform(0.0, 0.5))
        self.lives += 1
        self._check(lines)

    def run_until_killed(self, seconds: float) -> list[str]:
        """One life that is killed some time after its store is open; what it has said."""
        return self._run(until="open", seconds=seconds)

    def live(self, seconds: float) -> list[str]:
        """One life of so long, in which something is done to it; what it has said.

        Raises ``Problems`` if it has ended by itself.
        """
        lines = self._run(until="open", seconds=seconds)
        self.lives += 1
        errors = (self._folder / "stderr.txt").read_text()
        if "Traceback" in errors:
            raise Problems(f"life {self._life - 1}: {errors[-2000:]}")
        return lines

    def check_lines(self, lines: list[str]) -> None:
        """Audit what some lives have said.  Raises ``Problems``."""
        self._check(lines)

    def finish(self) -> None:
        """Let the worker bring everything to an end, and audit."""
        lines = self._run("--finish", until="quiet", seconds=TO_OPEN, is_killed=False)
        self._check([line for line in lines if line != "quiet"], is_quiet=True)

    def _check(self, lines: list[str], *, is_quiet: bool = False) -> None:
        for line in lines:
            if line.startswith("open "):
                self.max_reopen_ms = max(self.max_reopen_ms, float(line.split()[1]))
        lines = [line for line in lines if not line.startswith("open ")]
        if problems := self._audit.check(lines, is_quiet=is_quiet):
            raise Problems(f"life {self._life - 1}: " + "; ".join(problems[:20]))

    def _run(self, *more: str, until: str, seconds: float, is_killed: bool = True) -> list[str]:
        """One process, from its start to its end; every whole line that it has said."""
        life, self._life = self._life, self._life + 1
        command = [
            sys.executable, str(WORKER), str(self._folder), "--loop", LOOPS[life % 2],
            "--life", str(life), "--seed", str(self._seed * 100_000 + life), *more,
            *(("--store", self._store) if self._store else ()),
            *(("--ended", str(self._ended)) if self._ended and is_killed else ()),
        ]  # fmt: skip
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "stderr.txt").open("wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        said = b""
        try:
            is_there = not until
            end = monotonic() + (TO_FINISH if until else seconds)
            while monotonic() < end:
                if select.select([process.stdout], [], [], max(0.0, end - monotonic()))[0]:
                    if not (piece := os.read(process.stdout.fileno(), 1 << 16)):
                        break
                    said += piece
                if not is_there and f"\n{until}".encode() in b"\n" + said:
                    is_there, end = True, monotonic() + seconds
            if process.poll() is None and is_killed:
                process.kill()
                while piece := process.stdout.read():
                    said += piece
                process.wait()
            code = process.wait(timeout=TO_OPEN)
        finally:
            if process.poll() is None:
                process.kill()
            process.stdout.close()
            process.wait()
        if code != (-9 if is_killed else 0) or not is_there:
            text = (self._folder / "stderr.txt").read_text(errors="replace")
            raise Problems(f"life {life} ended by itself ({code}): {text[-3000:]}")
        return said.decode().rpartition("\n")[0].splitlines()
