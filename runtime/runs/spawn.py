"""``Spawner``: starts children of live runs; ``ctx.spawn`` and ``state.spawn`` end here."""

from msgspec.structs import replace

from hubbub.agents.definitions.spawned import NamedAgent
from hubbub.agents.state.area import find_files
from hubbub.hub import events as e
from hubbub.hub.errors import NoSuchFile, RunEnded, UnknownRun
from hubbub.hub.message import contents_said, opening_message
from hubbub.hub.texts import check_labels
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.kernel.live import LiveRuns
from hubbub.runtime.kernel.outcomes import Outcomes
from hubbub.runtime.kernel.services import Services, definition_of

__all__ = ["Spawner"]


class Spawner:
    """Starts children of the runs of one runtime."""

    __slots__ = ("_live", "_outcomes", "_services")

    def __init__(self, services: Services, live: LiveRuns, outcomes: Outcomes) -> None:
        self._services = services
        self._live = live
        self._outcomes = outcomes

    def spawn(
        self,
        parent_run_id: str,
        agent: str | NamedAgent,
        input: object = None,
        *,
        name: str | None = None,
        number: int = 0,
        result: str = "handle",
        call_id: str = "",
        identity: str = "",
        in_order: bool = False,
    ) -> Run:
        """Start a child of a live run.

        ``number`` counts the children that a code agent's own code starts, from 1; it finds them
        again by ``identity`` and ``in_order`` (``CallOrder``).
        ``result``: what becomes of its result; ``call``: the end of the call ``call_id`` decides.
        """
        check_labels(parent_run_id=parent_run_id, name=name, call_id=call_id)
        services = self._services
        definition = definition_of(services, agent, input)
        parent = self._live.find(parent_run_id)
        if parent is None:
            raise UnknownRun(parent_run_id)
        if parent.thread.phase == "ended":
            raise RunEnded(parent_run_id, "ended")
        lane, budgets = parent.lane, services.budgets
        depth = 1 + parent.depth
        if refused := budgets.exceeded(lane.root_run_id, depth):
            raise refused
        input_json, message = opening_message(input, lane.run_id)
        files: tuple[e.FileRef, ...] = ()
        if message is not None and message.attachments:  # Its own, of which the child gets copies.
            files, absent = find_files(parent.thread.area, message.attachments)
            if absent:
                raise NoSuchFile(absent[0], "nothing was started; list() shows the files there are")
            message = replace(message, attachments=())
        opening = e.SessionOpen(
            open_agent=definition.name,
            input_json=input_json,
            message=message,
            files=files,
            name=name or "",
            once=True,
            root_run_id=lane.root_run_id,
            parent_run_id=lane.run_id,
            depth=depth,
            reports=result in ("call", "message"),
            tags=(f"name:{name}",) if name else (),
        )
        delivery = services.hub.delivery(opening, to="")
        if message is not None and message.parts:
            delivery.contents = contents_said(input)
        budgets.started(lane.root_run_id)
        child_id = delivery.to
        event = e.AgentChild(
            child_run_id=child_id, child_agent=definition.name, name=name or definition.name,
            created_at=services.hub.ports.clock.now(), index=number, reports=opening.reports,
            result=result, call_id=call_id, side=parent.side_at_work, identity=identity,
            in_order=in_order,
        )  # fmt: skip
        parent.append_child(event, delivery)
        return Run(self._outcomes, child_id, definition.name, is_root=False)
