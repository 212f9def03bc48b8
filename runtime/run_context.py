"""``RunContext``: what a code agent is given besides its input (AP, R-01)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hubbub.agents.definitions import AgentDefinition
from hubbub.agents.model import Model
from hubbub.agents.tools import Tool
from hubbub.hub.errors import BadValue, RunEnded
from hubbub.hub.events import AgentStatus, AgentText
from hubbub.hub.receipt import Receipt
from hubbub.hub.run_hub import RunHub
from hubbub.runtime.files import FileArea, KeyArea
from hubbub.runtime.inbox import MessageStream
from hubbub.runtime.run_state import notify_parent, recorder
from hubbub.runtime.variables import Environment

if TYPE_CHECKING:
    from hubbub.runtime.code_run import CodeRun
    from hubbub.runtime.model_session import ModelSession
    from hubbub.runtime.run_handle import Run

__all__ = ["RunContext"]


class RunContext:
    """The run as its code sees it.

    ``hub`` is the hub through this run's scope: what is emitted there carries the run's ids and
    enters its journal.  ``attempt`` is 1, and grows with each restart after a crash.
    """

    __slots__ = ("_environment", "_run", "hub")

    def __init__(self, run: "CodeRun") -> None:
        self._run = run
        self.hub = RunHub(run.runtime.hub, run)
        self._environment: Environment | None = None

    @property
    def run_id(self) -> str:
        return self._run.lane.run_id

    @property
    def root_run_id(self) -> str:
        return self._run.lane.root_run_id

    @property
    def parent_run_id(self) -> str | None:
        return self._run.lane.parent_run_id

    @property
    def agent(self) -> str:
        return self._run.lane.agent

    @property
    def attempt(self) -> int:
        return self._run.thread.attempt

    # ── what the run keeps ───────────────────────────────────────────────────────────────────

    @property
    def env(self) -> Mapping[str, str]:
        """The variables that have a value for this run (D-07)."""
        return self._env

    @property
    def _env(self) -> Environment:
        if self._environment is None:
            self._environment = Environment.of(self._run.runtime, self._run.lane, None)
        return self._environment

    def set_env(self, name: str, value: str) -> None:
        """Give this run, and every run below it, a value of a variable."""
        if not self._run.is_live:
            raise RunEnded(self.run_id, "ended")
        self._env.set(name, value)

    @property
    def files(self) -> FileArea:
        """The run's own files (T-07)."""
        run = self._run
        record = recorder(run.record, lambda: run.is_live)
        return FileArea(run.runtime, self.root_run_id, lambda: run.thread.area, record)

    @property
    def kv(self) -> KeyArea:
        """The run's own values by key."""
        run = self._run
        return KeyArea(lambda: run.thread.area, recorder(run.record, lambda: run.is_live))

    def notify_parent(self, content: str) -> Receipt:
        """Queue a silent message for the parent (C-20); ``CallerError`` for a root."""
        return notify_parent(self._run.runtime, self._run.lane, content)

    # ── what the run says and hears ──────────────────────────────────────────────────────────

    def messages(self, *, idle_timeout: float | None = None) -> MessageStream:
        """This run's messages, for ``async for`` (R-07).

        In order, one at a time, those sent before included; each is consumed when the next is
        asked for or the run completes.  Ends when the run is closed, or after ``idle_timeout``
        seconds without a message.  Raises ``InboxInUse`` while another reader waits.
        """
        stream = MessageStream(self._run, idle_timeout)
        self._run.open_reader(stream)
        return stream

    def say(self, text: str) -> None:
        """Say something to whoever listens: an ``agent:text`` event."""
        self.hub.emit(AgentText(text=_words("say", text)))

    def status(self, status: str) -> None:
        """Say what the run is busy with: an ``agent:status`` event."""
        self.hub.emit(AgentStatus(status=_words("status", status)))

    async def ask(
        self, question: str, *, options: Sequence[str] = (), timeout: float | None = None
    ) -> str:
        """Ask the user and wait for the first reply (H-10).  Raises ``PromptTimeout``."""
        answer: str = await self.hub.ask("user", question, options=options, timeout=timeout)
        return answer

    def spawn(
        self, agent: str | AgentDefinition, input: Any = None, *, name: str | None = None
    ) -> "Run":
        """Start a child under this run's root and return its handle (R-13).

        The result comes by the handle, never also as a message.  Raises ``UnknownAgent``,
        ``BadValue``, and ``LimitExceeded`` when the tree's budget is used up.
        """
        return self._run.runtime.spawn(self.run_id, agent, input, name=name)

    def session(
        self,
        *,
        model: str | Model,
        system: str = "",
        tools: Iterable[Tool[..., Any]] = (),
        parallel_tool_calls: bool = False,
        max_steps: int | None = None,
    ) -> "ModelSession":
        """A conversation of this agent with a model (R-12).

        async with ctx.session(model="anthropic:NAME", system="You help.") as session:
            await session.send("Hello")
            async for message in session.receive():
                ...
        """
        from hubbub.runtime.model_session import ModelSession

        return ModelSession(
            self._run,
            model=model,
            system=system,
            tools=tuple(tools),
            parallel_tool_calls=parallel_tool_calls,
            max_steps=max_steps,
        )


def _words(what: str, text: str) -> str:
    if not isinstance(text, str):
        raise BadValue(what, f"a str is wanted, not {type(text).__name__}; use str(...)")
    return text
