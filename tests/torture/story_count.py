"""``StoryCount``: what some stories came to."""

import statistics
from collections import Counter
from typing import Any

from msgspec import Struct, field, structs

__all__ = ["StoryCount", "summed"]


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
