"""Addressing: what an event means for the inbox it goes to (H-07 … H-09, R-09).

message    at most ``max_inbox`` wait; once per (run, source, key)
reply      the first per prompt; never refused for a full inbox
result     once per (child, session); never refused for a full inbox
open       makes the address, or finds the live one of its session key
terminate  closes the inbox for good; close closes it for messages
abort      one run, or every live one
"""

from typing import Any, Final

from msgspec import structs

from hubbub.hub.events import (
    InLane,
    SessionAbort,
    SessionClose,
    SessionMessage,
    SessionOpen,
    SessionReply,
    SessionResult,
    SessionTerminate,
    SessionVariables,
)
from hubbub.hub.journal import Delivery, NewRun
from hubbub.hub.message import session_message
from hubbub.hub.ports import Ports
from hubbub.hub.values import NULL, Secret

__all__ = ["Addressing"]

SCOPED: Final = "!"
"""Ends the key of a mark: the value before it was given as a scoped one."""


class Addressing:
    """Turns events into deliveries."""

    __slots__ = ("_holders", "_max_inbox", "_ports")

    def __init__(self, ports: Ports, max_inbox: int) -> None:
        self._ports = ports
        self._max_inbox = max_inbox
        self._holders: set[str] | None = None

    def delivery(self, event: InLane, *, to: str | None = None, by: Any = "run") -> Delivery:
        """Address ``event``: what its type means for the inbox it goes to."""
        target = event.run_id if to is None else to
        event = structs.replace(event, at=self._ports.clock.now(), run_id="", lane="", seq=0)
        match event:
            case SessionMessage():
                return Delivery(
                    event, target, by=by, source=event.source, key=event.key, limit=self._max_inbox
                )
            case SessionOpen():
                return self._opening(event, target)
            case SessionReply():
                return Delivery(event, target, source="reply", key=event.prompt_id)
            case SessionResult():
                key = f"{event.child_run_id}#{event.session or 'end'}"
                return Delivery(event, target, source="result", key=key)
            case SessionVariables():
                return Delivery(event, target, source="variables", key=event.request_id)
            case SessionTerminate():
                return Delivery(event, target, closes="terminated")
            case SessionClose():
                return Delivery(event, target, closes="closing")
            case SessionAbort() if not target:
                return Delivery(event, "", by="every")
            case _:
                return Delivery(event, target, by=by)

    def _opening(self, event: SessionOpen, run_id: str) -> Delivery:
        run_id = run_id or self._ports.ids.run_id(event.at)
        if event.variables:
            event = self._put_away(run_id, event)
        root, parent = event.root_run_id or run_id, event.parent_run_id
        found = None
        if event.session_key and event.input_json is not NULL:
            found = session_message(event.input if isinstance(event.input, str) else "")
            if not isinstance(event.input, str):
                found = structs.replace(found, content=bytes(event.input_json).decode())
            found = structs.replace(found, at=event.at)
        new = NewRun(
            run_id=run_id,
            root_run_id=root,
            parent_run_id=parent,
            agent=event.open_agent,
            session_key=event.session_key,
            name=event.name,
            wake_at=None if event.timeout is None else event.at + int(event.timeout * 1_000_000),
            found=found,
        )
        return Delivery(event, run_id, limit=self._max_inbox, new=new)

    def _put_away(self, run_id: str, event: SessionOpen) -> SessionOpen:
        """Move the values of variables where only the runtime looks (H-19)."""
        for variable in event.variables:
            value = variable.value.reveal()
            if value is not None and self._ports.secrets.put_if_absent(
                f"{run_id}/{variable.name}", value
            ):
                self._mark(run_id, variable.name, is_scoped=variable.scoped)
        self._with_values.add(run_id)
        emptied = tuple(structs.replace(v, value=Secret()) for v in event.variables)
        return structs.replace(event, variables=emptied)

    def put_value(self, run_id: str, name: str, value: str, *, is_scoped: bool = False) -> None:
        """Keep a variable's value for a run until it ends; nobody else sees it."""
        self._ports.secrets.put(f"{run_id}/{name}", value)
        self._mark(run_id, name, is_scoped=is_scoped)
        self._with_values.add(run_id)

    @property
    def _with_values(self) -> set[str]:
        """The runs that values are kept for, those that an earlier process put away included."""
        if self._holders is None:
            self._holders = {key.rpartition("/")[0] for key in self._ports.secrets.keys("")}
        return self._holders

    def _mark(self, run_id: str, name: str, *, is_scoped: bool) -> None:
        if is_scoped:
            self._ports.secrets.put(f"{run_id}/{name}{SCOPED}", "")

    def value(self, run_id: str, name: str) -> str | None:
        """A run's own value of a variable."""
        return self._ports.secrets.get(f"{run_id}/{name}")

    def was_given_scoped(self, run_id: str, name: str) -> bool:
        """Whether the run was given the variable as a scoped one."""
        return self._ports.secrets.get(f"{run_id}/{name}{SCOPED}") is not None

    def names(self, run_id: str) -> tuple[str, ...]:
        """The variables that a run has values of its own for."""
        keys = self._ports.secrets.keys(f"{run_id}/")
        return tuple(key.partition("/")[2] for key in keys if not key.endswith(SCOPED))

    def drop_values(self, run_id: str) -> None:
        """Forget the values kept for a run that was never started."""
        self._with_values.discard(run_id)
        self._ports.secrets.drop(f"{run_id}/")

    def run_ended(self, run_id: str) -> None:
        """Let go of the values that were put away for a run: nobody may ask for them again."""
        if run_id in self._with_values:
            self._with_values.discard(run_id)
            self._ports.secrets.drop(f"{run_id}/")
