"""The drawing of the house, made from its plan: which room may import which."""

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["drawing", "rooms_below"]

FOLDERS: Final = ("hub", "agents", "runtime", "channels")
SIMULATION: Final = "runtime/simulation"

Plan = Mapping[str, Sequence[str]]


def drawing(plan: Plan) -> str:
    """``plan`` as a Mermaid flowchart, the same text each time."""
    plan = _with_one_simulation(plan)
    lines = ["flowchart TB"]
    for folder in FOLDERS:
        rooms = [room for room in plan if _folder_of(room) == folder]
        lines += [f"  subgraph {folder}_ [{folder}/]"]
        lines += [f"    {_name(room)}[{_title(room, folder)}]" for room in rooms]
        lines += ["  end"]
    for room in plan:
        lines += [f"  {_name(room)} --> {_name(below)}" for below in _direct(room, plan)]
    return "\n".join(lines)


def rooms_below(room: str, plan: Plan) -> set[str]:
    """Every room that can be reached from ``room`` by imports."""
    found: set[str] = set()
    left = [room]
    while left:
        new = set(plan[left.pop()]) - found
        found |= new
        left += new
    return found


def _direct(room: str, plan: Plan) -> list[str]:
    """What ``room`` imports and reaches through no other room that it imports."""
    through = set().union(*(rooms_below(below, plan) for below in plan[room]))
    return [below for below in plan if below in plan[room] and below not in through]


def _with_one_simulation(plan: Plan) -> Plan:
    """The rooms of the simulation drawn as one."""
    drawn: dict[str, list[str]] = {}
    for room, below in plan.items():
        kept = drawn.setdefault(_drawn(room), [])
        kept += [each for each in map(_drawn, below) if each not in kept and each != _drawn(room)]
    return drawn


def _drawn(room: str) -> str:
    return SIMULATION if room.startswith(f"{SIMULATION}/") else room


def _folder_of(room: str) -> str:
    return "hub" if room == "ground" else room.partition("/")[0]


def _name(room: str) -> str:
    return room.replace("/", "_")


def _title(room: str, folder: str) -> str:
    return f"the rest of {folder}/" if room == folder else room.removeprefix(f"{folder}/")
