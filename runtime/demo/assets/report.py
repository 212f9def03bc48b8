"""The worker and the reviewer at work, told from the hub's events alone."""

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from hubbub.agents.model import Model
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.runtime.activities.thread_state import foreign_state
from hubbub.runtime.demo.assets.agents import WISH, agents, offline_models, prompts
from hubbub.runtime.kernel.outcome import RunOutcome
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.text import printable

__all__ = ["Assets", "asset_line", "run_assets"]

_SHOWN: Final = 160


class Assets(Struct, frozen=True, kw_only=True):
    """What came of it: the director's words, and the files that are the director's own now."""

    outcome: str
    reason: str
    report: str
    files: dict[str, bytes]
    run_id: str
    child_run_id: str
    rejections: int


async def run_assets(
    wish: str = WISH,
    watch: Callable[[Event], object] = lambda event: None,
    *,
    model: str | Model | None = None,
    latency: float = 0.0,
    ports: Ports | None = None,
) -> Assets:
    """Have an asset made; ``watch`` is given each event of the whole tree, in order.

    Without ``model`` the offline models are used.
    """
    definitions: dict[str, Any] = {"agents": agents(), "prompts": prompts(model)}
    models = offline_models(latency)
    async with Runtime(**definitions, models=models, store="memory", ports=ports) as runtime:
        seen: list[Event] = []

        def take(event: Event) -> None:
            if not event.type.endswith(":delta"):
                seen.append(event)
            watch(event)

        runtime.hub.subscribe("*", take)
        run = await runtime.start("director", wish)
        outcome = await run.result()
        state = await foreign_state(runtime.services, runtime.others, run.run_id)
        assert state is not None
        files = {path: await state.files.read(path) for path in state.files.list()}
        return _assets(outcome, seen, files)


def _assets(outcome: RunOutcome, seen: list[Event], files: dict[str, bytes]) -> Assets:
    children = [event.child_run_id for event in seen if isinstance(event, e.AgentChild)]
    turns = [event for event in seen if isinstance(event, e.SessionTurn)]
    return Assets(
        outcome=outcome.outcome,
        reason=outcome.reason,
        report=str(outcome.output or ""),
        files=files,
        run_id=outcome.run_id,
        child_run_id=children[0] if children else "",
        rejections=sum(turn.reason == "stop_tool" for turn in turns),
    )


def asset_line(event: Event) -> str:
    """What to print for an event; empty for nothing."""
    who = f"{event.label or event.agent:<10}"
    match event:
        case e.AgentChild():
            return f"{who} starts {event.child_agent}: run {event.child_run_id}"
        case e.AgentText() if event.parent_run_id is None:
            return f"{who} {printable(event.text)}"
        case e.AgentText():
            return f"{who} {_short(event.text)}"
        case e.AgentToolStart() if event.name != "asset_subagent":
            return f"{who} → {event.name} {_short(event.arguments)}"
        case e.AgentToolComplete() if event.is_error:
            return f"{who} ✗ {event.name}: {_short(event.output)}"
        case e.SessionTurn() if event.reason == "stop_tool":
            return f"{who} gets: {_short(event.content)}"
        case e.AgentStatus():
            return f"{who} status: {_short(event.status)}"
        case e.SessionResult():
            names = ", ".join(ref.path for ref in event.files)
            return f"{who} gets the result, with {names or 'no file'}"
        case _:
            return ""


def _short(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
