"""``RunContext``: what a code agent is given besides its input."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.output import Output
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.model_choice import ModelSpec
from hubbub.agents.settings import ModelSettings
from hubbub.hub.errors import BadValue, RunEnded
from hubbub.hub.events import AgentStatus, AgentText, ContentPart
from hubbub.hub.receipt import Receipt
from hubbub.hub.run_hub import RunHub
from hubbub.hub.values import check_options
from hubbub.runtime.activities.agent_messages import tell_agent
from hubbub.runtime.activities.environment import Environment
from hubbub.runtime.activities.files import FileArea, KeyArea, part_content
from hubbub.runtime.activities.questions import Question
from hubbub.runtime.activities.recorder import Recorder
from hubbub.runtime.activities.thread_state import notify_parent, result_of_spawn
from hubbub.runtime.runs.code_scope import CodeScope
from hubbub.runtime.runs.durable_steps import DurableSteps
from hubbub.runtime.runs.inbox import MessageStream, RunInbox

if TYPE_CHECKING:
    from hubbub.runtime.kernel.handle import Run
    from hubbub.runtime.runs.session import ModelSession

__all__ = ["RunContext", "parts_of"]

P = ParamSpec("P")
T = TypeVar("T")
J = TypeVar("J", bound="bool | int | float | str | list[Any] | dict[str, Any] | None")
"""What JSON holds as it is."""


class RunContext:
    """The run as its code sees it.

    ``hub`` is the hub through this run's scope: what is emitted there carries the run's ids and
    enters its journal.  ``attempt`` is 1, and grows with each restart after a crash.

    With ``on_restart="resume"`` the function is executed again then, from its beginning and with
    its input: ``step``, ``ask`` and ``spawn`` return what is on record, ``messages`` begins with
    what was consumed before, ``kv`` and ``files`` hold what was written.  Everything else, such
    as ``say``, is done again, unless it is done in a step; so is sending a message,
    which with a ``key`` is delivered once all the same.
    """

    __slots__ = ("_environment", "_hub", "_inbox", "_run", "_steps")

    def __init__(self, run: CodeScope, steps: DurableSteps, inbox: RunInbox) -> None:
        self._run = run
        self._steps = steps
        self._inbox = inbox
        self._hub: RunHub | None = None
        self._environment: Environment | None = None

    @property
    def hub(self) -> RunHub:
        """The hub as this run sees it."""
        if self._hub is None:
            self._hub = RunHub(self._run.services.hub, self._run)
        return self._hub

    @property
    def run_id(self) -> str:
        """The run's own id."""
        return self._run.lane.run_id

    @property
    def root_run_id(self) -> str:
        """The id of the run at the top of its tree; its own if it has no parent."""
        return self._run.lane.root_run_id

    @property
    def parent_run_id(self) -> str | None:
        """The id of the run that started it, or ``None``."""
        return self._run.lane.parent_run_id

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._run.lane.agent

    @property
    def attempt(self) -> int:
        """Which execution of the function this is, from 1; each restart is another one."""
        return self._run.thread.attempt

    # ── what the run was started with, beside its input ──────────────────────────────────────

    @property
    def parts(self) -> tuple[ContentPart, ...]:
        """The images, documents and recordings that came with the input, which is then the text
        beside them.  They are on record: each execution has the same.  Messages that come later
        have ``parts`` of their own."""
        opened = self._run.thread.opened
        if opened is None or opened.message is None:
            return ()
        return opened.message.parts

    async def read_part(self, part: ContentPart) -> bytes:
        """The content of one of ``parts``, or of a message's.

        Durable like the message.  Raises ``BadValue`` for a part with a ``url``, which hubbub does
        not read, ``NoSuchFile`` for a content that is no longer kept, and ``StoreFailed``.
        """
        self._steps.check_here("ctx.read_part")
        return await part_content(self._run.services.hub, self._run.lane, part)

    # ── what the run keeps ───────────────────────────────────────────────────────────────────

    @property
    def env(self) -> Mapping[str, str]:
        """The variables that have a value for this run."""
        return self._env

    @property
    def _env(self) -> Environment:
        if self._environment is None:
            self._environment = Environment.of(self._run.services, self._run.lane, None)
        return self._environment

    def set_env(self, name: str, value: str) -> None:
        """Give this run, and every run below it, a value of a variable."""
        self._steps.check_here("ctx.set_env")
        if not self._run.is_live:
            raise RunEnded(self.run_id, "ended")
        self._env.set(name, value)

    @property
    def files(self) -> FileArea:
        """The run's own files."""
        run = self._run
        ports = run.services.hub.ports
        return FileArea(ports, self.root_run_id, lambda: run.thread.area, self._recorder)

    @property
    def kv(self) -> KeyArea:
        """The run's own values by key."""
        run = self._run
        return KeyArea(lambda: run.thread.area, self._recorder)

    @property
    def _recorder(self) -> Recorder:
        run = self._run
        return Recorder(run.record, lambda: run.is_live, run.services.hub.pipeline.home)

    def notify_parent(self, content: str) -> Receipt:
        """Queue a silent message for the parent; ``CallerError`` for a root."""
        self._steps.check_here("ctx.notify_parent")
        self._steps.check_live()
        return notify_parent(self._run.services.hub, self._run.lane, content)

    async def send_agent_message(self, text: str, agent_id: str | None = None) -> Receipt:
        """Queue a silent message for another agent: the one that is named, else the
        parent, else the agent that a user spoke to last.  Raises ``NoAgentFound``."""
        self._steps.check_here("ctx.send_agent_message")
        if not self._run.is_live:
            raise RunEnded(self.run_id, "ended")
        return await tell_agent(self._run.services.hub, self._run.lane, text, agent_id)

    # ── what the run says and hears ──────────────────────────────────────────────────────────

    def messages(
        self, *, idle_timeout: float | None = None, redelivered: bool = True
    ) -> MessageStream:
        """This run's messages, for ``async for``.

        In order, one at a time, those sent before included; each is consumed when the next is
        asked for or the run completes.  Ends when the run is closed, or after ``idle_timeout``
        seconds without a message.

        Executed again after a crash, the run first gets every message that it had consumed,
        once more and in order, with ``redelivered`` set; then those it had not, the one at hand
        at the crash among them.  With ``redelivered=False`` it gets only these: for code that keeps
        in ``kv`` or ``files`` what it has made of the others, and so goes on at once however long
        it has lived.  While it handles one of these, it finds no step, child or answer that was for
        another one.  Raises ``InboxInUse`` while another reader waits, and
        ``InsideStep`` where a message is taken inside of a step.
        """
        self._steps.check_here("ctx.messages")
        return self._inbox.stream(idle_timeout, redelivered=redelivered)

    def say(self, text: str) -> None:
        """Say something to the listeners: an ``agent:text`` event."""
        self.hub.emit(AgentText(text=_words("say", text)))

    def status(self, status: str) -> None:
        """Say what the run is busy with: an ``agent:status`` event."""
        self.hub.emit(AgentStatus(status=_words("status", status)))

    @overload
    async def ask(
        self, question: str, *, options: Sequence[str] = (), timeout: float | None = None,
        key: str | None = None,
    ) -> str: ...  # fmt: skip

    @overload
    async def ask(
        self, question: str, *, schema: type[T], options: Sequence[str] = (),
        timeout: float | None = None, key: str | None = None,
    ) -> T: ...  # fmt: skip

    @overload
    async def ask(
        self, question: str, *, schema: Any, options: Sequence[str] = (),
        timeout: float | None = None, key: str | None = None,
    ) -> Any: ...  # fmt: skip

    async def ask(
        self,
        question: str,
        *,
        options: Sequence[str] = (),
        schema: Any = None,
        timeout: float | None = None,
        key: str | None = None,
    ) -> Any:
        """Ask the user and wait for the first reply.

        ``schema``, a type (Struct, dataclass, ``bool``, ``list[int]``, …) or a JSON schema, says
        what the answer must be: one that does not fit is rejected with the reason, and the prompt
        stays open; what is returned is of that type, else the text of the reply.

        The answer is on record.  Executed again after a crash, the run finds it by the question and
        its ``options``, or by ``key``, where that is given; the same question asked several times
        is told apart by the order.  One that nobody has answered yet waits on with the same prompt
        id, and one that is not on record is asked.  So tasks that run at once may ask in any order,
        and two of them that ask the very same may swap answers: give ``key``, a text that no other
        question of the run has, also where the question's words differ each time (a time in them).
        A step (``ctx.step("allowed", ctx.ask, "Deploy?")``) is not needed for that any more, and
        does no harm.

        A conversation's user who says something while the code runs below it answers the question
        with that.  Raises ``PromptTimeout``, and ``PromptClosed`` where the prompt is denied or
        ends otherwise; ``BadValue`` for a ``key`` that was given before.
        """
        asked = Question(question, options, schema, timeout, key)
        return await self._steps.ask(asked, self.hub)

    def spawn(
        self,
        agent: str | AgentDefinition[Output],
        input: object = None,
        *,
        name: str | None = None,
        result: str | None = None,
        key: str | None = None,
    ) -> "Run[Output]":
        """Start a child under this run's root and return its handle.

        The result comes by the handle; with ``result="message"`` it comes among ``messages()``,
        too, once, silent and in the words that a model reads; with ``"ignore"`` it is dropped.

        Executed again after a crash, the run gets a handle on the child that it had started with
        the same agent, name and input, running or over, instead of starting another; equal ones
        are told apart by the order, and one that is not on record is started.  So tasks that run at
        once may start their children in any order, and two of them that start the very same may
        swap children.  With ``key``, a text that no other child of the run has, the child is
        found by that alone, and its input may differ each time.

        What the code decides by, and an input that differs each time (a time in it), belong into
        steps, or need a ``key``.  While one task alone makes all calls, another child in the
        place of the one on record is refused: ``ChildChanged``.  So give ``key``, too, where what
        to start next comes from elsewhere in any order.  Where tasks run at once, the other child
        is started besides.

        Raises ``UnknownAgent``, ``BadValue``, also for a ``key`` that was given before,
        ``LimitExceeded`` when the tree's budget is used up, ``ChildChanged``, also when the child
        on record is another agent's, and ``InsideStep``.
        """
        self._steps.check_live()
        return self._steps.spawn(agent, input, name, result_of_spawn(result, "handle"), key)

    @overload
    async def step(
        self, name: str, fn: Callable[P, Awaitable[J]], /, *args: P.args, **kwargs: P.kwargs
    ) -> J: ...
    @overload
    async def step(
        self, name: str, fn: Callable[P, J], /, *args: P.args, **kwargs: P.kwargs
    ) -> J: ...
    @overload
    async def step(
        self,
        name: str,
        fn: Callable[..., object],
        /,
        *args: object,
        type: type[T],
        **kwargs: object,
    ) -> T: ...
    @overload
    async def step(
        self, name: str, fn: Callable[..., object], /, *args: object, **kwargs: object
    ) -> object: ...
    async def step(
        self, name: str, fn: Callable[..., Any], /, *args: Any, type: Any = Any, **kwargs: Any
    ) -> Any:
        """Call ``fn(*args, **kwargs)``, plain or async, and keep its result.

        Returns once the result is on record.  Executed again after a crash, the run gets the
        recorded result and ``fn`` is not called.  Steps are distinguished by name and, where a name
        comes again, by how often it came before.  So steps of tasks that run at once need names of
        their own: ``f"fetch {city}"``.  Where the run is executed again after a crash, one is
        refused while another of its name is under way, or the task that made it still runs beside
        this one.

            at = await ctx.step("started", time.time)
            draw = await ctx.step("draw", random.randrange, 6)
            order = await ctx.step("order", shop.order, "tea", type=Order)

        * **At least once**: a process that dies after ``fn`` did something and before that is on
          record does it again.  Give such effects a key of their own (``ctx.run_id`` and the
          step's name do), so that the side that is asked twice can tell.
        * The result is anything msgspec encodes as JSON, and what is returned is what can be
          read back, the first time, too: a fresh copy, a list for a tuple, a dict for a Struct;
          or ``type``, where that is given.  So checkers know the type of what JSON holds as it is;
          of anything else they know it by ``type``.
        * What ``fn`` raises is raised and not recorded: the next execution calls it again.  Such
          a call counts among those of its name all the same, so retry inside of a step, or give
          each try a name of its own.
        * What is kept by itself has no place in a step: ``ctx.spawn``, ``ctx.messages()`` and
          other steps raise ``InsideStep`` there.  ``ctx.session`` has: a conversation is kept by
          nothing else.

        Raises ``BadValue`` for a result that cannot be encoded or is no ``type``, for a bad name or
        ``fn``, and for a name that tasks use at once; ``RunEnded`` once the run is over, its result
        then being lost.
        """
        if not callable(fn):
            if inspect.iscoroutine(fn):
                fn.close()  # Or Python warns of it besides.
            hint = f"ctx.step({name!r}, function, argument), not what function(argument) returns"
            raise BadValue(f"step {name!r}", f"expected a function: {hint}")
        return await self._steps.step(name, partial(fn, *args, **kwargs), type)

    def session(
        self,
        *,
        model: ModelSpec,
        system: str = "",
        tools: Iterable[Tool[..., Any]] = (),
        parallel_tool_calls: bool = False,
        max_steps: int | None = None,
        settings: ModelSettings | None = None,
    ) -> "ModelSession":
        """A conversation of this agent with a model, or with several as a prompt has them.

        Its tools cannot be such that a person must approve, nor external ones, and its model must
        have what ``settings`` say: ``BadValue``.

        It lives as long as the execution: executed again after a crash, the code begins its
        conversations again, and their steps count on.  One whose result must not be asked for
        twice belongs into a step: ``await ctx.step("draft", converse)``.

        async with ctx.session(model="anthropic:NAME", system="You help.") as session:
            await session.send("Hello")
            async for message in session.receive():
                ...
        """
        from hubbub.runtime.runs.session import ModelSession

        self._steps.check_here("ctx.session")
        return ModelSession(
            self._run,
            model=model,
            system=system,
            tools=check_options("tools", tools),
            parallel_tool_calls=parallel_tool_calls,
            max_steps=max_steps,
            settings=settings,
        )


def parts_of(context: RunContext) -> tuple[CodeScope, DurableSteps, RunInbox]:
    """What a context is made of, for contexts that replace another one."""
    return context._run, context._steps, context._inbox


def _words(what: str, text: str) -> str:
    if not isinstance(text, str):
        raise BadValue(what, f"expected a str, not {type(text).__name__}; use str(...)")
    return text
