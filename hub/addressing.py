"""Addressing: what an event means for the inbox it goes to.

message    at most ``max_inbox`` wait; once per (run, source, key)
reply      the first per prompt; never refused for a full inbox
result     once per (child, session); never refused for a full inbox
open       makes the address, or finds the open one of its session key or its descriptor
terminate  closes the inbox permanently; close closes it for messages
abort      one run, or every live one
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from msgspec import structs

from hubbub.hub.delivery.ended_prompts import NOBODY
from hubbub.hub.errors import BadValue, UnknownAgent
from hubbub.hub.events import (
    GivenTool,
    InLane,
    Limits,
    SessionAbort,
    SessionClose,
    SessionMessage,
    SessionOpen,
    SessionPrompt,
    SessionReply,
    SessionResult,
    SessionTerminate,
    SessionVariables,
    Variable,
)
from hubbub.hub.events.descriptors import (
    Descriptor,
    SubagentDescriptor,
    check_descriptor_size,
    check_part_sizes,
    descriptor_of_key,
    key_of_descriptor,
    read_descriptor,
)
from hubbub.hub.events.files import kept_contents
from hubbub.hub.events.given_tools import given_tools_problem
from hubbub.hub.events.history import history_problem
from hubbub.hub.events.identities import identity_of
from hubbub.hub.message import session_message
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Addressing as By
from hubbub.hub.store.journal import Delivery, NewRun, RefusalOfFiles
from hubbub.hub.texts import SHORT_KEY
from hubbub.hub.values import NULL, Secret

__all__ = [
    "ARGUMENTS", "Addressing", "is_from_user",
    "is_minted", "is_run_id",
]  # fmt: skip

ARGUMENTS: Final = {"name": "agent_name", "key": "session_key"}
"""What the argument is called that says where a delivery goes, if not ``run_id``."""

OTHERS: Final = {NOBODY: "who asks in no run's name", "user": "whom questions are for"}
"""Who is meant by what would be a run's id."""

REPLACED: Final = 32
"""How many replaced values of a run are still masked."""

ROTATING: Final = 1_000
"""Of how many runs replaced values are masked."""

SCOPED: Final = "!"
"""Ends the key of a mark: the value before it was given as a scoped one."""


_RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MINTED: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_run_id(text: str) -> bool:
    """Whether a run may have that id, which names folders, too."""
    return _RUN_ID.fullmatch(text) is not None


def _no_run_id(text: str) -> BadValue:
    if is_run_id(text):
        who = OTHERS.get(text, "a service's address")
        return BadValue("run_id", f"{text!r} is {who}; choose another")
    return BadValue("run_id", "expected 1 to 64 letters, digits, '-' and '_', as in a UUID")


def is_minted(text: str) -> bool:
    """Whether it is the id that a run gets which nobody has given one."""
    return _MINTED.fullmatch(text) is not None


def is_from_user(event: SessionMessage) -> bool:
    """Whether a person said it, rather than another run or a program unseen by people."""
    if event.role != "user" or event.silent or event.from_run:
        return False
    return not (event.source and is_minted(event.source))


def _given_descriptor(event: SessionOpen) -> Descriptor:
    """Whom an opening names outright; a key beside it must mean the same."""
    given = read_descriptor(event.descriptor_json)
    check_part_sizes(given)
    key = event.session_key
    if key and key != key_of_descriptor(given) and descriptor_of_key(key) != given:
        raise BadValue(
            "descriptor", f"the session key {key!r} means another agent; give one of the two"
        )
    return given


def _described(event: SessionOpen, run_id: str) -> tuple[Descriptor, SessionOpen, str]:
    """Whom an opening names outright, the opening with the key of that, and the id of the run."""
    given = _given_descriptor(event)
    if isinstance(given, SubagentDescriptor):
        run_id = _id_of_child(given, run_id)
    if not event.session_key:
        event = structs.replace(event, session_key=key_of_descriptor(given))
    return given, event, run_id


def _id_of_child(given: SubagentDescriptor, run_id: str) -> str:
    if run_id not in ("", given.id):
        raise BadValue("descriptor", f"its id is not the run's, {run_id!r}; give one of the two")
    return given.id


def _said_to_found(event: SessionOpen) -> SessionMessage | None:
    """What an opening says to a run that there is already."""
    if event.message is not None:
        return structs.replace(event.message, at=event.at)
    if event.input_json is NULL:
        return None
    said = session_message(event.input if isinstance(event.input, str) else "")
    if not isinstance(event.input, str):
        said = structs.replace(said, content=bytes(event.input_json).decode())
    return structs.replace(said, at=event.at)


class Addressing:
    """Turns events into deliveries."""

    __slots__ = (
        "_holders",
        "_max_inbox",
        "_ports",
        "_replaced",
        "agents",
        "default_agent",
        "is_shared",
        "refusal_of_files",
        "refusal_of_limits",
        "refusal_of_reply",
        "refusal_of_seed",
        "services",
    )

    def __init__(self, ports: Ports, max_inbox: int) -> None:
        self._ports = ports
        self._max_inbox = max_inbox
        self._holders: set[str] | None = None
        self.is_shared = False
        """Whether other processes, too, put values away for runs."""
        self._replaced: dict[str, deque[tuple[str, str]]] = {}
        self.agents: Collection[str] | None = None
        """The agents that there are, if a runtime is at work here: a run of another one takes no
        messages, unless another process may drive it, and none is opened."""
        self.refusal_of_files: RefusalOfFiles | None = None
        """Why a run cannot be sent what names these files, if a runtime is at work here."""
        self.refusal_of_seed: Callable[[str, Sequence[GivenTool]], str] | None = None
        """Why a run of an agent cannot begin with a history, or with these tools."""
        self.refusal_of_limits: Callable[[Limits], str] | None = None
        """Why a tree of runs cannot have these limits."""
        self.refusal_of_reply: Callable[[SessionPrompt, SessionReply], str] | None = None
        """Why a reply does not fit what a run asks that another process drives."""
        self.services: Collection[str] = ()
        """The addresses that are served here: what is asked of them reaches no run."""
        self.default_agent = ""
        """The agent of an opening that names none."""

    def delivery(self, event: InLane, *, to: str | None = None, by: By = "run") -> Delivery:
        """Address ``event``: what its type means for the inbox it goes to."""
        target = event.run_id if to is None else to
        at = self._ports.clock.now()
        if event.__class__ is SessionReply and event.at:  # By that time it came in time.
            at = event.at
        event = structs.replace(event, at=at, run_id="", lane="", seq=0)
        match event:
            case SessionMessage():
                delivery = Delivery(
                    event, target, by=by, source=event.source, key=event.key,
                    limit=self._max_inbox, agents=None if self.is_shared else self.agents,
                    touches=is_from_user(event),
                )  # fmt: skip
                if event.attachments:
                    delivery.refusal_of_files = self.refusal_of_files
                if event.parts or event.files:
                    delivery.needs = tuple(kept_contents(event))
                return delivery
            case SessionOpen():
                return self._opening(event, target)
            case SessionReply() | SessionResult() | SessionVariables():
                source, key = identity_of(event)
                return Delivery(event, target, source=source, key=key)
            case SessionTerminate():
                return Delivery(event, target, closes="terminated")
            case SessionClose():
                return Delivery(event, target, closes="closing")
            case SessionAbort() if not target:
                return Delivery(event, "", by="every")
            case _:
                return Delivery(event, target, by=by)

    def _opening(self, event: SessionOpen, run_id: str) -> Delivery:
        given = None
        if event.descriptor_json is not NULL:
            given, event, run_id = _described(event, run_id)
        if len(event.session_key) > SHORT_KEY:
            check_descriptor_size(given or descriptor_of_key(event.session_key))
        run_id = run_id or self._ports.ids.run_id(event.at)
        # It names folders, too, and what is asked of it must reach the run.
        if not is_run_id(run_id) or run_id in OTHERS or run_id in self.services:
            raise _no_run_id(run_id)
        if not event.open_agent:
            if not self.default_agent:
                raise BadValue("open", "name an agent, or give Runtime(default_agent=…)")
            event = structs.replace(event, open_agent=self.default_agent)
        refusal = self._seed(event, given) if event.history or event.tools or event.limits else ""
        said = event.message
        refuse = self.refusal_of_files if said is not None and said.attachments else None
        if said is not None and refuse is not None and not refusal:  # A new run has no files.
            refusal = refuse(event.open_agent, said.attachments, (), (event,))
        if self.agents is not None and event.open_agent not in self.agents:
            refusal = str(UnknownAgent(event.open_agent, self.agents))
        refusal_of_found = None
        if event.variables:
            refusal_of_found = partial(self._refusal_of_values, event.variables)
            event = self._put_away(run_id, event, drop=bool(refusal))
        root, parent, name = event.root_run_id or run_id, event.parent_run_id, event.name
        descriptor: Descriptor | None = given
        if isinstance(given, SubagentDescriptor):
            root, parent, name = "", given.parent_agent_id, given.name
        elif parent is not None:
            descriptor = SubagentDescriptor(
                id=run_id, parent_agent_id=parent, name=name or event.open_agent
            )
        elif given is None and event.session_key:
            descriptor = descriptor_of_key(event.session_key)
        new = NewRun(
            run_id=run_id,
            root_run_id=root,
            parent_run_id=parent,
            agent=event.open_agent,
            session_key=event.session_key,
            name=name,
            wake_at=None if event.timeout is None else event.at + int(event.timeout * 1_000_000),
            found=None if descriptor is None or parent is not None else _said_to_found(event),
            descriptor=descriptor,
            by_descriptor=given is not None,
            refusal=refusal,
            refusal_of_found=refusal_of_found,
        )
        source, key = identity_of(event) if event.message is not None else ("", "")
        delivery = Delivery(
            event, run_id, source=source, key=key, limit=self._max_inbox, new=new, touches=True,
            agents=None if self.is_shared else self.agents,
        )  # fmt: skip
        delivery.refusal_of_files = refuse
        if said is not None or event.history or event.files:
            delivery.needs = tuple(kept_contents(event))
        return delivery

    def _seed(self, event: SessionOpen, given: Descriptor | None) -> str:
        """Why a run cannot begin with what an opening says was before it, or with its limits;
        empty if it can.

        Raises ``BadValue`` for what is not well-formed.
        """
        if problem := history_problem(event.history):
            raise BadValue("history", problem)
        if problem := given_tools_problem(event.tools):
            raise BadValue("tools", problem)
        if event.limits is not None:
            if event.parent_run_id is not None or isinstance(given, SubagentDescriptor):
                return "limits are those of a tree; give them to its root"
            if refusal := self.refusal_of_limits and self.refusal_of_limits(event.limits):
                return refusal
            if not (event.history or event.tools):
                return ""
        refuse = self.refusal_of_seed
        return "" if refuse is None else refuse(event.open_agent, event.tools)

    def _put_away(self, run_id: str, event: SessionOpen, *, drop: bool = False) -> SessionOpen:
        """Move the values of variables where only the runtime looks."""
        emptied = tuple(structs.replace(v, value=Secret()) for v in event.variables)
        if drop:
            return structs.replace(event, variables=emptied)
        for variable in event.variables:
            value = variable.value.reveal()
            if value is not None and self._ports.secrets.put_if_absent(
                f"{run_id}/{variable.name}", value
            ):
                self._mark(run_id, variable.name, is_scoped=variable.scoped)
        self._with_values.add(run_id)
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

    def values(self, run_id: str) -> tuple[str, ...]:
        """The values that a run has of its own."""
        found = (self.value(run_id, name) for name in self.names(run_id))
        return tuple(value for value in found if value is not None)

    def remember_replaced(self, run_id: str, name: str, value: str) -> None:
        """Remember that a run replaced this value: code that read it before may still quote it.

        In this process only: the newest ``REPLACED`` of each run, of the newest ``ROTATING`` runs,
        also after they end.
        """
        found = self._replaced.pop(run_id, None) or deque(maxlen=REPLACED)
        found.append((name, value))
        self._replaced[run_id] = found
        if len(self._replaced) > ROTATING:
            del self._replaced[next(iter(self._replaced))]

    def replaced(self, run_id: str) -> tuple[tuple[str, str], ...]:
        """The names and former values of the variables that a run has replaced, oldest first."""
        return tuple(self._replaced.get(run_id, ()))

    def _refusal_of_values(self, variables: tuple[Variable, ...], run_id: str) -> str:
        """Why a run that there is cannot have these values; empty if it can."""
        given = {each.name: each.value.reveal() for each in variables}
        kept = {name: self.value(run_id, name) for name in given}
        former = self.replaced(run_id)
        others = [
            name
            for name, value in given.items()
            if kept[name] not in (None, value) and (name, value) not in former
        ]
        if not others:
            return ""
        return (
            f"the run has another value of {', '.join(others)}, and keeps it; open it without, or "
            "close it and open a new one"
        )

    def move_values(self, run_id: str, found: str | None) -> None:
        """Give the values kept for a run that was not started to the one found instead, if any.

        A value that this has of its own stays.
        """
        if found is not None:
            self.copy_values(run_id, found)
        self.drop_values(run_id)

    def copy_values(self, run_id: str, to: str) -> None:
        """Give a run the values that another one has, but for those that it has of its own."""
        for name in self.names(run_id):
            value = self.value(run_id, name) or ""
            self.give_value(to, name, value, is_scoped=self.was_given_scoped(run_id, name))

    def give_value(self, run_id: str, name: str, value: str, *, is_scoped: bool = False) -> None:
        """Keep a variable's value for a run, unless it has one."""
        if self._ports.secrets.put_if_absent(f"{run_id}/{name}", value):
            self._mark(run_id, name, is_scoped=is_scoped)
            self._with_values.add(run_id)

    def drop_values(self, run_id: str) -> None:
        """Forget the values kept for a run that was never started."""
        self._with_values.discard(run_id)
        self._ports.secrets.drop(f"{run_id}/")

    def run_ended(self, run_id: str) -> None:
        """Release the values that were put away for a run: nobody may ask for them again."""
        if self.is_shared or run_id in self._with_values:
            self._with_values.discard(run_id)
            self._ports.secrets.drop(f"{run_id}/")
