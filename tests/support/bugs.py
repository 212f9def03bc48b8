"""Bugs to plant in a world, for tests that the simulation finds them; and a small support desk."""

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hubbub import AgentDefinition, PromptDefinition, SideConfig, tool
from hubbub.agents.model import ModelReply, ModelRequest, UserMessage
from hubbub.hub import events as e
from hubbub.hub.store import ledger
from hubbub.hub.store.inbox_rules import judge
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.simulation.injection.dying_store import DyingJournal
from hubbub.runtime.simulation.story.history import History
from hubbub.runtime.simulation.story.setup import Setup
from hubbub.runtime.simulation.world import processes

__all__ = ["keys_hold", "plant_early_acknowledgement", "plant_no_dedupe", "support_desk"]


def support_desk(paid: list[int] | None = None, *, retries_payments: bool = False) -> Setup:
    """A desk whose refunds another agent pays; ``paid`` lists the orders.

    With ``retries_payments`` its author has called a payment idempotent, which it is not.
    """
    ledger: list[int] = [] if paid is None else paid

    @tool
    async def look_up(order: int) -> str:
        """Look an order up."""
        return f"order {order} was lost"

    @tool(idempotent=retries_payments)
    async def pay_back(order: int) -> str:
        """Pay an order back."""
        ledger.append(order)
        return "paid"

    desk = _agent("desk", FunctionModel(_desk, latency=1.0), look_up, agents=("refunds",))
    refunds = _agent("refunds", FunctionModel(_refunds, latency=1.0), pay_back, exposed=True)
    return Setup.of(desk, refunds)


def _agent(
    name: str, model: FunctionModel, *tools: Any, exposed: bool = False, agents: Any = ()
) -> AgentDefinition:
    prompt = PromptDefinition(
        name=f"prompt-of-{name}", prompt=name, model=model, tools=tools, agents=agents
    )
    return AgentDefinition(name=name, expose_as_tool=exposed, side_a=SideConfig(prompt=prompt))


def _since_said(request: ModelRequest) -> int:
    """How much came since somebody spoke to the model last."""
    places = [at for at, x in enumerate(request.messages) if isinstance(x, UserMessage)]
    return len(request.messages) - 1 - (places[-1] if places else 0)


def _desk(request: ModelRequest) -> ModelReply:
    match _since_said(request):
        case 0:
            return reply("", call("look_up", order=7))
        case 1:
            return reply("", call("use_agent", name="refunds", message="order 7"))
        case _:
            return reply("Done.")


def _refunds(request: ModelRequest) -> ModelReply:
    if _since_said(request) == 0:
        return reply("", call("pay_back", order=7))
    return reply("", call("complete", result="paid back"))


# ── bugs ─────────────────────────────────────────────────────────────────────────────────────


def plant_early_acknowledgement(monkeypatch: Any) -> None:
    """Have the store acknowledge what it has not synced: the last commit goes with its process."""
    monkeypatch.setattr(processes, "MemoryJournal", _UnsyncedJournal)
    monkeypatch.setattr(processes, "DyingJournal", _LosingJournal)


class _LosingJournal(DyingJournal):
    def die(self) -> None:
        if not self.is_dead and isinstance(self.inner, _UnsyncedJournal):
            self.inner.forget_last()
        super().die()


class _UnsyncedJournal(MemoryJournal):
    """Does all commits but the last one again, when its process dies."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._options = options
        self._began = self._ledger.hub_seq
        self._log: list[Commit] = []

    def submit(self, commit: Commit) -> None:
        self._log.append(_fresh(commit))
        super().submit(commit)

    def forget_last(self) -> None:
        log, name, began = self._log[:-1], self.name, self._began
        again = MemoryJournal(keep=10**9, keep_hub_events=10**9)
        again.name, again._ledger.hub_seq = name, began
        for commit in log:
            again.submit(_fresh(commit))
        vars(self).update(vars(again))
        self._log = log


def _fresh(commit: Commit) -> Commit:
    """A commit as it was submitted."""
    found = copy.copy(commit)
    found.deliveries = [copy.copy(each) for each in commit.deliveries]
    found.written, found.leftovers, found.error, found.done = [], (), "", None
    return found


def plant_no_dedupe(monkeypatch: Any) -> None:
    """Have inboxes forget under which keys they have accepted something."""

    def forgetful(row: Any, delivery: Any, known: Any) -> bool:
        return judge(row, delivery, None)

    monkeypatch.setattr(ledger, "judge", forgetful)


def keys_hold(history: History) -> Iterator[str]:
    """What is said twice under one key came once (H-09)."""
    for run_id, inbox in history.inbox.items():
        said = [(x.source, x.key) for x in inbox if isinstance(x, e.SessionMessage) and x.key]
        for (user, key), count in Counter(said).items():
            if count > 1:
                yield f"run {run_id}: what {user} said under {key!r} came {count} times"
