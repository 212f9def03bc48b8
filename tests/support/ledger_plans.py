"""Commits drawn at random, of everything that a ledger decides about, for ``ledger_model``."""

from typing import Any

from hypothesis import strategies as st

from support.ledger_model import KEYS, Model, Plan, Sent

__all__ = ["IDS", "family", "plan"]

IDS = tuple(f"run-{number}" for number in range(6))
AGENTS = ("a", "b")
PEOPLE = ("", "ann", "bob", "beat")

numbers = st.integers(0, 7)


def known(draw: Any, model: Model) -> str:
    """A run that there is, mostly."""
    live = [run_id for run_id, run in model.runs.items() if run["status"] != "ended"]
    return draw(st.sampled_from([*live * 4, *model.runs, IDS[-1]]))  # type: ignore[no-any-return]


def place(draw: Any, model: Model) -> tuple[str, str]:
    by = draw(st.sampled_from(
        [*["run"] * 8, "name", "key", "descriptor", "only", "newest", "every", "below"]
    ))  # fmt: skip
    to = {
        "name": AGENTS, "key": KEYS[1:], "descriptor": PEOPLE[1:], "newest": ("user", "heartbeat"),
        "only": ("",), "every": ("",),
    }.get(by)  # fmt: skip
    return draw(st.sampled_from(to)) if to else known(draw, model), by


def family() -> Plan:
    """A run, a child of it, and a child of that."""
    new = {"agent": "a", "session_key": "", "stands_for": "", "by_descriptor": False, "found": ""}
    places = zip(IDS, ("", IDS[0], IDS[1]), strict=False)
    return Plan(sent=[
        Sent("open", run_id, new={
            **new, "run_id": run_id, "root_run_id": IDS[0], "parent_run_id": parent or None,
        })
        for run_id, parent in places
    ])  # fmt: skip


def opening(draw: Any, model: Model) -> Sent:
    number = draw(st.integers(0, len(IDS) - 1))
    parent = known(draw, model) if draw(st.booleans()) else None
    parent = None if parent == IDS[number] else parent
    stands_for = draw(st.sampled_from(PEOPLE)) if parent is None else ""
    new = {
        "run_id": IDS[number],
        "root_run_id": IDS[number] if parent is None else "",
        "parent_run_id": parent,
        "agent": draw(st.sampled_from(AGENTS)),
        "session_key": draw(st.sampled_from(KEYS)) if parent is None else "",
        "stands_for": stands_for,
        "by_descriptor": bool(stands_for) and draw(st.booleans()),
        "found": draw(st.sampled_from(["", "hello"])),
    }
    return Sent("open", IDS[number], new=new, touches=bool(stands_for))


def mail(draw: Any, model: Model) -> Sent:
    to, by = place(draw, model)
    many = by in ("every", "below")
    return Sent(
        draw(st.sampled_from(["message", "message", "result"])), to, by,
        text=draw(st.sampled_from(["x", "y"])),
        key="" if many else draw(st.sampled_from(["", "", "k", "l"])),
        limit=0 if many else draw(st.sampled_from([0, 0, 1, 2])),
        closes=draw(st.sampled_from(["", "", "", "", "closing", "terminated"])),
        touches=not many and draw(st.booleans()),
        agents=None if many else draw(st.sampled_from([None, None, frozenset("a")])),
    )  # fmt: skip


def own(draw: Any, model: Model) -> Plan:
    run_id = known(draw, model)
    run = model.runs.get(run_id, {"seq": 0, "waiting": {}})
    waiting = [*run["waiting"], 99] if draw(numbers) == 0 else [*run["waiting"]]
    plan = Plan(
        run=run_id, own=draw(st.integers(0, 2)),
        expect=run["seq"] + (draw(numbers) == 0),
        taken=tuple(waiting[: draw(st.integers(0, 2))]),
        status=draw(st.sampled_from([None, None, "active", "parked", "waiting", "ended"])),
        agent=draw(st.sampled_from(["", "", *AGENTS])),
        leave_to=draw(st.sampled_from(["", "", *IDS])),
    )  # fmt: skip
    others = [
        (other, seq)
        for other in model.runs
        if other != run_id and (model.are_of_one_tree(other, run_id) or draw(numbers) == 0)
        for seq in model.runs[other]["waiting"]
    ]
    if others and draw(numbers) < 4:
        plan.lent = tuple(draw(st.lists(st.sampled_from(others), max_size=2)))
    return plan


def plan(draw: Any, model: Model) -> Plan:
    kind = draw(numbers)
    found = own(draw, model) if kind < 3 else Plan(hub=draw(st.integers(0, 1)))
    if kind >= 5:
        found.sent.append(opening(draw, model))
    found.sent += [mail(draw, model) for _ in range(draw(st.integers(0, 2)))]
    found.note = draw(st.sampled_from(["", "", "n"]))
    return found
