"""``RunState``: what a tool or hook sees of the run it works for.

A tool parameter annotated ``RunState`` is injected and does not appear in the tool's schema.  A
plain ``def`` tool, which runs in a worker thread, calls its plain members there, and the async ones
by ``anyio.from_thread.run(state.files.read, "name")``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar, overload, runtime_checkable

from hubbub.agents.definitions.spawned import NamedAgent, SpawnedRun
from hubbub.agents.model import ModelMessage
from hubbub.agents.state.registry import SubagentRegistryEntry
from hubbub.hub.events import ContentPart
from hubbub.hub.message import Sayable
from hubbub.hub.receipt import Receipt
from hubbub.hub.run_hub import RunHub
from hubbub.hub.values import JsonValue

__all__ = ["FileFacts", "Files", "Keys", "RunState"]

T = TypeVar("T")
D = TypeVar("D")


class FileFacts(Protocol):
    """What is known of a file without reading it."""

    @property
    def path(self) -> str:
        """Its name in the run's area."""
        ...

    @property
    def size(self) -> int:
        """How many bytes it has."""
        ...

    @property
    def digest(self) -> str:
        """The SHA-256 digest of its content."""
        ...


class Files(Protocol):
    """The files of one run (``hubbub.runtime.activities.files`` says what is guaranteed)."""

    async def write(self, path: str, content: str | bytes) -> FileFacts:
        """Write a file, or replace it; on record when this returns."""
        ...

    async def read(self, path: str) -> bytes:
        """The content of a file; raises ``NoSuchFile`` where there is none."""
        ...

    async def read_text(self, path: str) -> str:
        """The same as text (UTF-8; what is not is replaced)."""
        ...

    async def delete(self, path: str) -> None:
        """Delete a file; raises ``NoSuchFile`` where there is none."""
        ...

    def list(self, folder: str = "") -> tuple[str, ...]:
        """The names of all files, or of those under ``folder``, sorted."""
        ...

    def stat(self, path: str) -> FileFacts:
        """Size and digest of a file; raises ``NoSuchFile`` where there is none."""
        ...


class Keys(Protocol):
    """The values of one run by key: anything JSON can hold."""

    @overload
    def get(self, key: str, default: None = None) -> JsonValue: ...
    @overload
    def get(self, key: str, default: D) -> JsonValue | D: ...
    @overload
    def get(self, key: str, default: None = None, *, type: type[T]) -> T | None: ...
    @overload
    def get(self, key: str, default: D, *, type: type[T]) -> T | D: ...
    def get(self, key: str, default: object = None, *, type: type[object] | None = None) -> object:
        """The value of a key, or ``default``; of the class ``type``, where that is given.

        Raises ``BadValue`` for a value that is no ``type``.
        """
        ...

    async def set(self, key: str, value: object) -> None:
        """Set a key to a value that JSON can hold; committed when this returns."""
        ...

    async def delete(self, key: str) -> None:
        """Delete a key; one that is not there is no error."""
        ...

    def keys(self) -> tuple[str, ...]:
        """The keys that are set, sorted."""
        ...


@runtime_checkable
class RunState(Protocol):
    """The calling run, as its tools and hooks see it; of another run, as it was when asked for.

    Once the call is over or no longer wanted, what it still writes is dropped and logged.
    """

    @property
    def run_id(self) -> str:
        """The id of the run that the tool or hook is called in."""
        ...

    @property
    def root_run_id(self) -> str:
        """The id of the run at the top of its tree."""
        ...

    @property
    def parent_run_id(self) -> str | None:
        """The id of the run that started it, or ``None``."""
        ...

    @property
    def agent(self) -> str:
        """The agent's name."""
        ...

    @property
    def call_id(self) -> str:
        """The tool call at work, unique within the run; empty in hooks."""
        ...

    @property
    def hub(self) -> RunHub:
        """The hub through this run's scope: what is emitted here carries the run's ids."""
        ...

    @property
    def messages(self) -> Sequence[ModelMessage]:
        """The conversation so far, as the side at work sees it: finished exchanges only."""
        ...

    @property
    def children(self) -> Sequence[SubagentRegistryEntry]:
        """The instances that stay, as ``SubagentRegistryEntry``s."""
        ...

    @property
    def terminated(self) -> int | None:
        """When the run was terminated (µs since the epoch), if it was."""
        ...

    @property
    def env(self) -> Mapping[str, str]:
        """The variables that have a value for this run."""
        ...

    @property
    def files(self) -> Files:
        """The run's own files."""
        ...

    async def read_part(self, part: ContentPart) -> bytes:
        """The content of a part, such as a message in ``messages`` has in its ``parts``.

        Durable like the message.  Raises ``BadValue`` for one with a ``url``, which hubbub does not
        read, and ``NoSuchFile`` for a content that is no longer kept.
        """
        ...

    @property
    def kv(self) -> Keys:
        """The run's own values by key."""
        ...

    def set_env(self, name: str, value: str) -> None:
        """Give this run, and every run below it, a value of a variable."""
        ...

    @overload
    async def ask(
        self, question: str, *, options: Sequence[str] = (), timeout: float | None = None
    ) -> str: ...

    @overload
    async def ask(
        self, question: str, *, schema: type[T], options: Sequence[str] = (),
        timeout: float | None = None,
    ) -> T: ...  # fmt: skip

    @overload
    async def ask(
        self, question: str, *, schema: Any, options: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Any: ...  # fmt: skip

    async def ask(
        self,
        question: str,
        *,
        options: Sequence[str] = (),
        schema: Any = None,
        timeout: float | None = None,
    ) -> Any:
        """Ask the user and wait for the answer; the wait counts neither as the tool's time, which
        stands still, nor as work.

        ``schema``, a type or a JSON schema, says what the answer must be: one that does not fit is
        rejected with the reason, and the prompt stays open; what is returned is of that type, else
        the text of the reply.  What the user says next in the conversation is the answer, too; if
        it does not fit, it ends the question.

        Questions of a call are on record by their words and options, equal ones by their order:
        where the tool is ``idempotent`` and its call is made again after a crash, it gets the
        recorded answer, or waits on with the same open prompt.  Else the prompt ends as lost with
        its process.

        In a hook, whose minute goes on, only a reply to the prompt is the answer, what is said
        meanwhile is heard afterwards, and the question ends as lost with its process.  In one that
        is called for what a tool has returned it is a question of that call.

        Raises ``PromptTimeout``, and ``PromptClosed`` where the question is denied or ends without
        an answer; ``CallerError`` where the run is over, as a child is with its last words.  A
        plain tool calls ``anyio.from_thread.run(state.ask, "Sure?")``.
        """
        ...

    def queue_message(self, message: Sayable) -> Receipt:
        """Queue a message for this run: it is seen before the next step, or forces a turn.

        Returns a receipt, which may be awaited.
        """
        ...

    def inject_message(self, message: Sayable) -> Receipt:
        """Add a message that forces no turn: it is seen at the next step, whenever that comes."""
        ...

    def notify_parent(self, content: str) -> Receipt:
        """Queue a silent message for the parent; ``CallerError`` for a root."""
        ...

    async def send_agent_message(self, text: str, agent_id: str | None = None) -> Receipt:
        """Queue a silent message for another agent: the one that is named, else the
        parent, else the agent that a user spoke to last.  Raises ``NoAgentFound``."""
        ...

    def set_status(self, status: str) -> None:
        """Say what this run is at; its parent's registry shows it."""
        ...

    async def get_child_thread(self, reference: str) -> "RunState | None":
        """The state of one of this run's own children, or ``None``."""
        ...

    async def get_parent_thread(self) -> "RunState | None":
        """The state of this run's parent, or ``None``."""
        ...

    def terminate(self, reason: str = "") -> Receipt:
        """End the run, and everything below it, now and permanently; acts at the call."""
        ...

    def spawn(
        self,
        agent: str | NamedAgent,
        input: object = None,
        *,
        name: str | None = None,
        result: str | None = None,
    ) -> SpawnedRun:
        """Start a child run under this run's root; returns its handle.

        Its result stays with the handle.  If the call ends, however, before ``result()``,
        ``finished()`` or ``events()`` of that was called, or with its process, the result is queued
        as a message, once; so is that of a child that a hook starts, if it comes before it is asked
        for.  ``result`` says it outright: ``"handle"``, ``"message"``, or ``"ignore"``.

        A child whose handle is asked when the call is cut off is interrupted with it, unless its
        result was to be a message or ignored.  One whose handle was asked in vain goes on; if the
        call fails or is cut off, its result is queued.
        """
        ...

    def use_agent(self, name: str, message: str) -> NoReturn:
        """Give the conversation to an agent until it calls ``complete`` (IA).

        The tool is over with this: ``ChildActivated`` passes its ``except Exception`` and its task
        groups, and what the agent completes with is the result of the tool's call.  Its name must
        be one of ``agents`` of the prompt at work: ``ToolError`` where it is none, ``CallerError``
        in hooks.  Whatever else refuses it is the call's error result.
        """
        ...

    def use_skill(self, name: str, message: str) -> NoReturn:
        """The same, for one of ``skills`` of the prompt at work."""
        ...
