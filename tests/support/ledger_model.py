"""What commits come to, in plain data: an independent second opinion of the ledger's rules.

A commit is a ``Plan``, resolved against the model (which numbers to expect, what to take), so
that each store can be given a fresh ``Commit`` of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hubbub.hub.events import AgentStatus, CustomEvent, SessionOpen, SessionResult
from hubbub.hub.events.descriptors import HeartbeatDescriptor, UserDescriptor, encode_descriptor
from hubbub.hub.message import session_message
from hubbub.hub.store.journal import Commit, Delivery, NewRun

__all__ = ["DESCRIPTORS", "KEYS", "Model", "Plan", "Sent", "commit_of", "told"]

DESCRIPTORS: dict[str, Any] = {
    "ann": UserDescriptor(connector="c", channel_id="d", user_id="ann"),
    "bob": UserDescriptor(connector="c", channel_id="d", user_id="bob"),
    "beat": HeartbeatDescriptor(),
}
KEYS = ("", "c_d_ann", "daily")
MAIL = ("message", "result")


@dataclass
class Sent:
    """A delivery.  ``kind``: message, result or open."""

    kind: str
    to: str
    by: str = "run"
    text: str = ""
    key: str = ""
    limit: int = 0
    closes: str = ""
    touches: bool = False
    agents: frozenset[str] | None = None
    new: dict[str, Any] | None = None


@dataclass
class Plan:
    """A commit."""

    run: str = ""
    own: int = 0
    expect: int = 0
    taken: tuple[int, ...] = ()
    lent: tuple[tuple[str, int], ...] = ()
    status: str | None = None
    agent: str = ""
    leave_to: str = ""
    hub: int = 0
    sent: list[Sent] = field(default_factory=list)
    note: str = ""


def commit_of(plan: Plan) -> Commit:
    """A fresh commit of a plan."""
    events: Sequence[Any]
    if plan.run:
        events = [
            AgentStatus(run_id=plan.run, lane="own", seq=plan.expect + 1 + n, status="s")
            for n in range(plan.own)
        ]
    else:
        events = [CustomEvent.of("test:hub", n=n) for n in range(plan.hub)]
    return Commit(
        plan.run, events, expect=plan.expect, taken=plan.taken, lent=plan.lent,
        status=plan.status, agent=plan.agent, leave_to=plan.leave_to,  # type: ignore[arg-type]
        notes={plan.note: plan.note} if plan.note else None,
        deliveries=[_delivery(sent) for sent in plan.sent],
    )  # fmt: skip


def _delivery(sent: Sent) -> Delivery:
    event: Any
    new = None
    if sent.kind == "open":
        parts: Any = dict(sent.new or {})
        parts["descriptor"] = DESCRIPTORS.get(parts.pop("stands_for"))
        found = parts.pop("found")
        new = NewRun(**parts, found=session_message(found) if found else None)
        event = SessionOpen(open_agent=new.agent, session_key=new.session_key, at=1)
    elif sent.kind == "result":
        event = SessionResult(child_run_id="x", content=sent.text)
    else:
        event = session_message(sent.text)
    to = sent.to
    if sent.by == "descriptor":
        to = bytes(encode_descriptor(DESCRIPTORS[to])).decode()
    return Delivery(
        event, to, by=sent.by, source="s" if sent.key else "", key=sent.key,  # type: ignore[arg-type]
        limit=sent.limit, closes=sent.closes, new=new, touches=sent.touches,  # type: ignore[arg-type]
        agents=sent.agents,
    )  # fmt: skip


def told(commit: Commit) -> dict[str, Any]:
    """What a commit has come to, as plain data."""
    return {
        "error": commit.error,
        "written": [] if commit.error else [_at(event) for event in commit.written],
        "left": [(item.run_id, item.seq) for item in commit.leftovers],
        "sent": [
            (each.outcome, each.reason, sorted(each.run_ids)) for each in commit.deliveries
        ],
    }  # fmt: skip


def _at(event: Any) -> tuple[str, str, int]:
    # The hub lane of the memory store begins anywhere.
    return (event.run_id, event.lane, 0 if event.lane == "hub" else event.seq)


class Model:
    """Runs as dicts, in the order of their creation."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.recent = 0
        self.notes: set[str] = set()

    def depths(self) -> tuple[int, int, int]:
        live = [run for run in self.runs.values() if run["status"] != "ended"]
        parked = [run for run in live if run["status"] in ("parked", "waiting")]
        return len(live), len(parked), sum(len(run["waiting"]) for run in live)

    def are_of_one_tree(self, *run_ids: str) -> bool:
        return len({self.runs.get(each, {}).get("root_run_id") for each in run_ids}) == 1

    def state(self) -> dict[str, Any]:
        names = ("status", "inbox", "seq", "in_seq", "agent", "session_key")
        return {
            run_id: (*(run[name] for name in names), sorted(run["waiting"]))
            for run_id, run in self.runs.items()
        }

    # ── a commit ─────────────────────────────────────────────────────────────────────────────

    def apply(self, plan: Plan) -> dict[str, Any]:
        nothing = ("", "", [])
        self.written: list[tuple[str, str, int]] = []
        self.left: list[tuple[str, int]] = []
        if plan.run and not self._own(plan):
            sent = [nothing for _ in plan.sent]
            return {"error": "conflict", "written": [], "left": [], "sent": sent}
        self.written += [("", "hub", 0)] * plan.hub
        found = [self._deliver(sent) for sent in plan.sent]
        if plan.note:
            self.notes.add(plan.note)
        return {"error": "", "written": self.written, "left": self.left, "sent": found}

    def _own(self, plan: Plan) -> bool:
        run = self.runs.get(plan.run)
        if run is None or run["status"] == "ended" or run["seq"] != plan.expect:
            return False
        if not set(plan.taken) <= set(run["waiting"]) or len(set(plan.lent)) < len(plan.lent):
            return False
        for other_id, seq in plan.lent:
            other = self.runs.get(other_id)
            if other is None or other is run or other["root_run_id"] != run["root_run_id"]:
                return False
            if other["status"] == "ended" or seq not in other["waiting"]:
                return False
        for n in range(plan.own):
            self.written.append((plan.run, "own", plan.expect + 1 + n))
        run["seq"] += plan.own
        for seq in plan.taken:
            del run["waiting"][seq]
        for other_id, seq in plan.lent:
            del self.runs[other_id]["waiting"][seq]
        run["agent"] = plan.agent or run["agent"]
        run["status"] = plan.status or run["status"]
        if plan.status == "ended":
            self._end(plan, run)
        return True

    def _end(self, plan: Plan, run: dict[str, Any]) -> None:
        left, run["waiting"] = run["waiting"], {}
        if run["inbox"] != "terminated":
            run["inbox"] = "ended"
        heir = self.runs.get(plan.leave_to) if plan.leave_to != plan.run else None
        seen = {plan.run, plan.leave_to}
        while heir is not None and heir["status"] == "ended" and heir["parent_run_id"] is not None:
            above = heir["parent_run_id"]
            heir = None if above in seen else self.runs.get(above)
            seen.add(above)
        takes = heir is not None and heir["status"] != "ended" and heir["inbox"] == "open"
        for seq, (kind, text) in left.items():
            if kind == "message" and takes:
                assert heir is not None
                self._put(heir, kind, text)
            elif kind in MAIL:
                self.left.append((plan.run, seq))

    def _put(self, run: dict[str, Any], kind: str, text: str) -> None:
        run["in_seq"] += 1
        run["waiting"][run["in_seq"]] = (kind, text)
        self.written.append((run["run_id"], "in", run["in_seq"]))

    # ── inboxes ──────────────────────────────────────────────────────────────────────────────

    def _deliver(self, sent: Sent) -> tuple[str, str, list[str]]:
        if sent.by in ("every", "below"):
            plain = Sent(sent.kind, "", text=sent.text, closes=sent.closes)
            reached = [
                run_id
                for run_id in self.candidates(sent.to, sent.by)
                if self._accept(self.runs[run_id], plain)[0] == "accepted"
            ]
            return "accepted", "", sorted(reached)
        if sent.new is not None:
            return self._open(sent, sent.new)
        found = self.candidates(sent.to, sent.by)
        run = self.runs.get(found[0]) if len(found) == 1 else None
        if run is None:
            return "rejected", "ambiguous" if len(found) > 1 else "unknown", sorted(found)
        return (*self._accept(run, sent), sorted(found))

    def _accept(self, run: dict[str, Any], sent: Sent) -> tuple[str, str]:
        known = run["accepted"].get(sent.key) if sent.key else None
        if known is not None:
            same = known[0] == "result" or known == (sent.kind, sent.text)
            return ("duplicate", "") if same else ("rejected", "key reused")
        inbox = run["inbox"]
        if run["status"] == "ended":
            return "rejected", inbox
        if inbox == "closing" and sent.kind == "message":
            return "rejected", "ended"
        if inbox == "terminated" and sent.closes != "terminated":
            return "rejected", "terminated"
        if sent.kind == "message" and sent.agents is not None and run["agent"] not in sent.agents:
            return "rejected", "agent gone"
        messages = sum(kind == "message" for kind, _ in run["waiting"].values())
        if sent.limit and messages >= sent.limit:
            return "rejected", "inbox full"
        self._put(run, sent.kind, sent.text)
        if sent.key:
            run["accepted"][sent.key] = (sent.kind, sent.text)
        if sent.closes and inbox != "terminated":
            run["inbox"] = sent.closes
        if sent.touches:
            self.recent += 1
            run["recent"] = self.recent
        return "accepted", ""

    def _open(self, sent: Sent, new: dict[str, Any]) -> tuple[str, str, list[str]]:
        by_key = None if new["by_descriptor"] else self._keyed(new["session_key"])
        run_id = by_key or self._standing_for(new["stands_for"]) or new["run_id"]
        run = self.runs.get(run_id)
        if run is not None:
            if run_id == new["run_id"] or not new["found"]:
                return "duplicate", "", [run_id]
            message = Sent("message", run_id, text=new["found"], touches=sent.touches)
            return (*self._accept(run, message), [run_id])
        made = dict(new, status="active", inbox="open", seq=0, in_seq=0, recent=0)
        made |= {"waiting": {}, "accepted": {}}
        if new["by_descriptor"] and self._keyed(new["session_key"]):
            made["session_key"] = ""
        if not new["root_run_id"]:
            above = self.runs.get(new["parent_run_id"])
            if above is None or above["inbox"] != "open" or above["status"] == "ended":
                why = f"there is no open run {new['parent_run_id']!r} to be its parent"
                return "rejected", why, [run_id]
            made["root_run_id"] = above["root_run_id"]
        self.runs[run_id] = made
        self._put(made, "open", "")
        if sent.touches:
            self.recent += 1
            made["recent"] = self.recent
        return "accepted", "", [run_id]

    # ── addresses ────────────────────────────────────────────────────────────────────────────

    def candidates(self, to: str, by: str) -> list[str]:
        find: dict[str, Callable[[], Any]] = {
            "run": lambda: to,
            "key": lambda: self._keyed(to) or self._standing_for("ann" if "ann" in to else ""),
            "descriptor": lambda: self._standing_for(to),
            "newest": lambda: self._newest(to),
        }
        if by in find:
            found = find[by]()
            return [found] if found else []
        live = {run_id: run for run_id, run in self.runs.items() if run["status"] != "ended"}
        if by == "name":
            return [run_id for run_id, run in live.items() if run["agent"] == to]
        if by == "every":
            return [*live]
        if by == "only":
            held = [
                run_id for run_id, run in self._open_runs() if run["stands_for"] in ("ann", "bob")
            ]
            return held or [x for x, run in live.items() if run["parent_run_id"] is None]
        below = {to}
        for run_id, run in self.runs.items():  # A parent stands before its children.
            if run["parent_run_id"] in below:
                below.add(run_id)
        return [x for x in live if x in below - {to} and live[x]["inbox"] != "terminated"]

    def _open_runs(self) -> list[tuple[str, dict[str, Any]]]:
        return [(run_id, run) for run_id, run in self.runs.items() if run["inbox"] == "open"]

    def _keyed(self, key: str) -> str | None:
        return next(
            (
                run_id
                for run_id, run in self._open_runs()
                if key and run["session_key"] == key and run["stands_for"] != "beat"
            ),
            None,
        )

    def _standing_for(self, who: str) -> str | None:
        return next((x for x, run in self._open_runs() if who and run["stands_for"] == who), None)

    def _newest(self, kind: str) -> str | None:
        of_kind = ("ann", "bob") if kind == "user" else ("beat",)
        found = [(run["recent"], x) for x, run in self._open_runs() if run["stands_for"] in of_kind]
        return max(found)[1] if found else None
