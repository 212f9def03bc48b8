"""What a client says over a WebSocket, and what the hub is asked to do then.

    {"id": "1", "command": "send", "run_id": "…", "content": "Hello"}

``id`` is the client's own: the answer to the command has it.  A command acts when it is read, in
the order in which commands come.
"""

import re
from typing import Any, Final, TypeAlias, assert_never, get_args

import msgspec
from msgspec import UNSET, Struct

from hubbub.channels.http.wire.bodies import json_problem
from hubbub.channels.http.wire.host import SOURCE
from hubbub.channels.http.wire.objects import JsonObject, object_in
from hubbub.channels.http.wire.parts import PartBody, parts_shown
from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.tools import GivenToolBody, tools_given
from hubbub.hub.errors import BadValue
from hubbub.hub.events.descriptors import MAX_GIVEN_CHARS
from hubbub.hub.events.sent_items import MAX_ARGUMENTS_CHARS
from hubbub.hub.hub import Hub
from hubbub.hub.message import Message
from hubbub.hub.receipt import Receipt

__all__ = [
    "HubCommand", "SocketCommand", "Subscribe", "Unsubscribe", "perform",
    "read_command", "unknown_to",
]  # fmt: skip

MAX_ID: Final = 200
"""Characters of a client's id for a command, or for a selection."""


class IdCommand(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="command"):
    """A command, with the client's own id for it."""

    id: str


class Subscribe(IdCommand, frozen=True, tag="subscribe"):
    """Begin a selection of events, called ``selection`` (default: the command's id).

    Of any of these runs and trees, or of all; of these types (patterns); behind the position
    ``after``, or from now on.  With ``live`` a ``hub:live`` comes when everything on record has.
    """

    selection: str = ""
    run_id: tuple[str, ...] | str = ()
    root_run_id: tuple[str, ...] | str = ()
    types: tuple[str, ...] | str = ()
    after: str = ""
    live: bool = False


class Unsubscribe(IdCommand, frozen=True, tag="unsubscribe"):
    """End a selection: its events so far come first."""

    selection: str


class SaidMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message."""

    content: str
    role: str = "user"
    attachments: tuple[str, ...] = ()
    silent: bool = False
    metadata: dict[str, Any] = {}
    key: str | None = None
    parts: tuple[PartBody, ...] = ()

    @property
    def message(self) -> Message:
        """As the hub takes it."""
        return Message(
            content=self.content, role=self.role, attachments=self.attachments, silent=self.silent,
            metadata=self.metadata, key=self.key, parts=parts_shown(self.parts),
        )  # fmt: skip


class OpenRun(IdCommand, frozen=True, tag="open"):
    """Start a run, or find the one of a conversation; as ``hub.open``."""

    agent: str = ""
    input: Any = None
    message: SaidMessage | None = None
    """Instead of ``input``."""
    run_id: str | None = None
    session_key: str = ""
    correlation_id: str = ""
    name: str = ""
    once: bool = False
    timeout: float | None = None
    env: dict[str, str] | None = None
    descriptor: JsonObject = UNSET
    history: tuple[dict[str, Any], ...] | None = None
    tools: tuple[GivenToolBody, ...] | None = None

    def __repr__(self) -> str:
        return f"<open {self.agent}>"  # ``env`` holds secrets.


class SendMessage(IdCommand, frozen=True, tag="send"):
    """Send a message: to a run, to a conversation, to the one run of an agent, or to the only open
    conversation."""

    content: str
    run_id: str = ""
    session_key: str = ""
    agent: str = ""
    role: str = "user"
    attachments: tuple[str, ...] = ()
    silent: bool = False
    metadata: dict[str, Any] = {}
    key: str | None = None
    parts: tuple[PartBody, ...] = ()


class ReplyPrompt(IdCommand, frozen=True, tag="reply"):
    """Answer a prompt."""

    prompt_id: str
    content: str
    is_error: bool = False


class ApproveCall(IdCommand, frozen=True, tag="approve"):
    """Approve the call that a prompt is about, with other arguments if these are given."""

    prompt_id: str
    arguments: JsonObject = UNSET


class DenyPrompt(IdCommand, frozen=True, tag="deny"):
    """Refuse what a prompt asks for."""

    prompt_id: str
    reason: str = ""


class InterruptRun(IdCommand, frozen=True, tag="interrupt"):
    """Interrupt the turn at work of a run."""

    run_id: str
    reason: str = ""


class ResetRun(IdCommand, frozen=True, tag="reset"):
    """Begin a run's conversation anew, with ``message`` if there is one."""

    run_id: str
    message: str = ""


class CloseRun(IdCommand, frozen=True, tag="close"):
    """Have a run handle what waits, then end."""

    run_id: str
    reason: str = ""


class TerminateRun(IdCommand, frozen=True, tag="terminate"):
    """End a run now and permanently."""

    run_id: str
    reason: str = ""


HubCommand: TypeAlias = (
    OpenRun | SendMessage | ReplyPrompt | ApproveCall | DenyPrompt | InterruptRun | ResetRun
    | CloseRun | TerminateRun
)  # fmt: skip

SocketCommand: TypeAlias = Subscribe | Unsubscribe | HubCommand


_NAMES: Final = tuple(
    str(each.__struct_config__.tag) for each in (*get_args(SocketCommand),)
)  # fmt: skip


class _OnlyId(Struct, frozen=True):
    """What is read of a command that cannot be read."""

    id: str | None = None


_commands: Final = msgspec.json.Decoder(SocketCommand)
_ids: Final = msgspec.json.Decoder(_OnlyId)

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_REPLACEMENT: Final = r"\\ufffd"


def read_command(text: str) -> tuple[str | None, SocketCommand | Refusal]:
    """A client's id and its command, or what is wrong with it."""
    try:
        command: SocketCommand = _commands.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        is_unknown = "`$.command`" in str(error) or "field `command`" in str(error)
        known = f"; there are {', '.join(_NAMES)}" if is_unknown else ""
        problem = json_problem(error, text)
        return _id_in(text), Refusal("invalid-request", f"the command: {problem}{known}")
    if not 0 < len(command.id) <= MAX_ID:
        return None, Refusal("invalid-request", f"id: 1 to {MAX_ID} characters")
    return command.id, command


def _id_in(text: str) -> str | None:
    try:
        # Half of a surrogate pair, wherever it is, is what makes a command unreadable at times.
        found = _ids.decode(_SURROGATE.sub(_REPLACEMENT, text)).id
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    is_its_own = found is not None and len(found) <= MAX_ID and "\ufffd" not in found
    return found if is_its_own else None


def perform(hub: Hub, command: HubCommand) -> Receipt:
    """Do it now; raises what the hub raises."""
    match command:
        case OpenRun():
            return _open(hub, command)
        case SendMessage():
            return _send(hub, command)
        case ReplyPrompt():
            return hub.reply(
                command.prompt_id, command.content, is_error=command.is_error, source=SOURCE
            )
        case ApproveCall():
            arguments = object_in("arguments", command.arguments, MAX_ARGUMENTS_CHARS)
            return hub.approve(command.prompt_id, arguments, source=SOURCE)
        case DenyPrompt():
            return hub.deny(command.prompt_id, command.reason, source=SOURCE)
        case InterruptRun():
            if not command.run_id:
                raise BadValue("run_id", "name the run")  # Without, it would be every run.
            return hub.interrupt(command.run_id, command.reason)
        case ResetRun():
            return hub.reset(command.run_id, command.message)
        case CloseRun():
            return hub.close_run(command.run_id, command.reason)
        case TerminateRun():
            return hub.terminate(command.run_id, command.reason)
        case _:
            assert_never(command)


def unknown_to(command: HubCommand) -> str:
    """The kind of problem that it is, if nobody is found by the address of a command."""
    match command:
        case ReplyPrompt() | ApproveCall() | DenyPrompt():
            return "unknown-prompt"
        case SendMessage() if not command.run_id:
            return "unknown-agent" if command.agent else "unknown-conversation"
        case _:
            return "unknown-run"


def _open(hub: Hub, command: OpenRun) -> Receipt:
    said = command.input
    if command.message is not None:
        if said is not None:
            raise BadValue("open", "give an input or a message, not both")
        said = command.message.message
    descriptor = object_in("descriptor", command.descriptor, MAX_GIVEN_CHARS)
    tools = None if command.tools is None else tools_given(command.tools)
    return hub.open(
        command.agent, said, run_id=command.run_id, session_key=command.session_key,
        correlation_id=command.correlation_id, name=command.name, once=command.once,
        timeout=command.timeout, descriptor=descriptor, env=command.env,
        history=command.history, tools=tools, source=SOURCE,
    )  # fmt: skip


def _send(hub: Hub, command: SendMessage) -> Receipt:
    if sum(map(bool, (command.run_id, command.session_key, command.agent))) > 1:
        raise BadValue("send", "name a run, a conversation or an agent, not several")
    message = Message(
        content=command.content, role=command.role, attachments=command.attachments,
        silent=command.silent, metadata=command.metadata, key=command.key,
        parts=parts_shown(command.parts),
    )  # fmt: skip
    if command.run_id:
        return hub.send_to_run(command.run_id, message, source=SOURCE)
    if command.agent:
        return hub.send_to(command.agent, message, source=SOURCE)
    return hub.send(message, session_key=command.session_key or None, source=SOURCE)
