"""Models without a provider: ``ScriptedModel`` and ``FunctionModel``.

Both are product, for tests, demos and simulation, and keep three promises:

* **Stateless.**  A script has no position of its own: the step used is the one whose number is
  the count of ``AssistantMessage`` in the request (those ``is_given`` apart), and of those that a
  summary stands for.  The same request
  always gets the same answer, any number of runs share one model, and a run that restarts
  repeats itself.
* **Faults by attempt.**  A ``Fault`` stands before the reply it disturbs and looks only at
  ``request.attempt``: ``Fault("server", times=2)`` fails attempts 1 and 2, then the reply comes.
* **Cheap.**  Without latency, fault or listener, a call neither sleeps nor yields to the loop.

    weather = ScriptedModel([
        reply("Let me look.", call("get_weather", city="Paris")),
        Fault("rate_limit", times=2, retry_after=1.0),
        "It is sunny in Paris.",
    ])
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import anyio
import msgspec
from msgspec import Struct

from hubbub.agents.model import (
    AssistantMessage,
    CallDelta,
    Delta,
    ModelReply,
    ModelRequest,
    OnDelta,
    OutputSpec,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    Usage,
    garbled_words,
    reply_problem,
)
from hubbub.hub.errors import (
    BadValue,
    DefinitionError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
    ProviderError,
)
from hubbub.hub.masking import class_name_of, words_of
from hubbub.hub.near_misses import kind_of, shown
from hubbub.hub.ports import Clock
from hubbub.hub.values import COUNTED, check_counts, is_count, is_seconds

__all__ = ["Fault", "FunctionModel", "ScriptItem", "ScriptedModel", "call", "reply"]

_ERRORS: Final[dict[str, type[ProviderError]]] = {
    "rate_limit": ModelUnavailable,
    "server": ModelUnavailable,
    "connection": ModelUnavailable,
    "timeout": ModelUnavailable,
    "cut": ModelUnavailable,
    "auth": ModelRefused,
    "request": ModelRefused,
    "garbled": ModelGarbled,
}
SUMMARY: Final = "What was said before, in short."
"""What a ``ScriptedModel`` says where it is asked for a summary."""

_SUMMARY: Final = ModelReply(text=SUMMARY)
_KINDS: Final = (*_ERRORS, "empty", "malformed", "delay", "hang")
_NEED_REPLY: Final = ("malformed", "delay")
_words: Final = re.compile(r"\S+\s*|\s+")


class Fault(Struct, frozen=True):
    """Something that goes wrong before or in the reply that follows it in a script.

    ``kind``:

    * ``rate_limit``, ``server``, ``connection``, ``timeout``, ``auth``, ``request``, ``garbled``:
      the call raises the ``ProviderError`` of that kind, with ``status`` and ``retry_after``;
    * ``cut``: the first ``after`` characters of the text are streamed, then the stream breaks;
    * ``empty``: the reply has neither text nor calls;
    * ``malformed``: the last character of each call's arguments is missing;
    * ``delay``: nothing but the wait of ``seconds``;
    * ``hang``: the call never returns; it ends when it is cancelled.

    ``times`` counts the attempts it disturbs (``None``: every one); several faults before one
    reply take their attempts one after the other.  ``seconds`` is waited first, with any kind.
    """

    kind: str
    times: int | None = 1
    seconds: float = 0.0
    after: int = 0
    status: int | None = None
    retry_after: float | None = None
    message: str = ""

    def __post_init__(self) -> None:
        what = f"Fault({shown(self.kind)})"
        if self.kind not in _KINDS:
            raise BadValue(what, f"unknown kind; one of {', '.join(_KINDS)}")
        if self.times is not None and not is_count(self.times):
            raise BadValue(what, f"times: a whole number, {COUNTED}, or None forever")
        if not is_count(self.after, 0) or not (self.status is None or is_count(self.status, 0)):
            raise BadValue(what, "after and status: whole numbers that are not negative")
        if not all(
            map(is_seconds, (self.seconds, 0 if self.retry_after is None else self.retry_after))
        ):
            raise BadValue(what, "seconds and retry_after: seconds from 0 to ten years")

    def error(self, model: str) -> ProviderError | None:
        """The exception this fault raises in a call of ``model``, if it raises one."""
        cls = _ERRORS.get(self.kind)
        if cls is None:
            return None
        problem = self.message or f"scripted fault ({self.kind})"
        return cls(model, self.kind, problem, status=self.status, retry_after=self.retry_after)

    def disturb(self, answer: ModelReply) -> ModelReply:
        """The reply as this fault leaves it."""
        if self.kind == "empty":
            return ModelReply(usage=answer.usage, model=answer.model)
        if self.kind == "malformed":
            calls = tuple(
                msgspec.structs.replace(each, arguments=each.arguments[:-1])
                for each in answer.calls
            )
            return msgspec.structs.replace(answer, calls=calls)
        return answer


Answer: TypeAlias = str | ModelReply | ToolCall | Fault
ScriptItem: TypeAlias = Answer | Callable[[ModelRequest], Answer]
"""An item of a script: an answer, or a function that makes one of the request."""


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A tool call with ``arguments`` as JSON; for other texts make a ``ToolCall`` yourself."""
    return ToolCall(name=name, arguments=msgspec.json.encode(arguments).decode())


def reply(
    text: str = "",
    *calls: ToolCall,
    thinking: str = "",
    usage: Usage | None = None,
    stop_reason: str = "",
) -> ModelReply:
    """A whole reply; ``stop_reason`` is ``tools`` with calls, else ``end``, unless given."""
    return ModelReply(
        text=text,
        calls=calls,
        thinking=(Thinking(text=thinking),) if thinking else (),
        usage=usage or Usage(),
        stop_reason=stop_reason or ("tools" if calls else "end"),
    )


class _Step(Struct, eq=False):
    """One reply of a script, or a function that makes it, with the faults before it."""

    item: ModelReply | Callable[[ModelRequest], Answer] | None
    faults: tuple[Fault, ...] = ()
    is_sound: bool = True
    pieces: Sequence[Delta] | None = None
    """In which an undisturbed reply is handed out, once that was asked for."""

    def fault(self, attempt: int) -> Fault | None:
        for fault in self.faults:
            if fault.times is None or attempt <= fault.times:
                return fault
            attempt -= fault.times
        return None


class _Player:
    """Hands out a reply the way a provider would: after a while, in pieces."""

    __slots__ = ("_chunk", "_latency", "_name", "_sleep")

    def __init__(self, name: str, latency: float, clock: Clock | None, chunk: int | None) -> None:
        if not is_seconds(latency):
            raise BadValue("latency", f"expected seconds from 0, not {shown(latency)}")
        if clock is not None and (isinstance(clock, type) or not hasattr(clock, "sleep")):
            raise BadValue("clock", f"expected a Clock, not {kind_of(clock)}")
        if chunk is not None:
            check_counts(1, chunk=chunk)
        self._name = name
        self._latency = latency
        self._sleep = anyio.sleep if clock is None else clock.sleep
        self._chunk = chunk

    @property
    def name(self) -> str:
        """The name errors and replies carry."""
        return self._name

    def takes_output(self, output: OutputSpec, has_tools: bool) -> bool:
        """Whatever is wanted, it answers with a text: JSON, where an output is."""
        return True

    async def _play(
        self,
        produce: Callable[[ModelRequest], object],
        fault: Fault | None,
        request: ModelRequest,
        on_delta: OnDelta | None,
    ) -> ModelReply:
        if fault is not None:
            await self._begin(fault)
        made = await self._made(produce, request)
        if type(made) is Fault:
            if made.kind in _NEED_REPLY:
                raise self._wrong(f"Fault({made.kind!r}) has no reply to act on; return a reply")
            fault, made = made, ModelReply()
            await self._begin(fault)
        answer = self._normal(made)
        if not _is_sound(answer):  # The caller says what is wrong with it.
            return answer
        if fault is not None:
            answer = fault.disturb(answer)
        broken = fault.error(self._name) if fault is not None else None
        cut = None if broken is None else fault
        pieces = _pieces(answer, self._chunk, cut) if on_delta is not None else ()
        await self._hand_out(pieces, on_delta)
        if broken is not None:
            raise broken
        return answer

    async def _begin(self, fault: Fault) -> None:
        if fault.kind == "hang":
            await anyio.sleep_forever()
        if fault.seconds:
            await self._sleep(fault.seconds)
        if fault.kind != "cut" and (error := fault.error(self._name)) is not None:
            raise error

    async def _made(
        self, produce: Callable[[ModelRequest], object], request: ModelRequest
    ) -> object:
        try:
            made = produce(request)
            return await made if inspect.isawaitable(made) else made
        except ProviderError:
            raise
        except Exception as error:
            # The run must fail with a reason, not the runtime with somebody else's exception.
            problem = f"{_name_of(produce)} raised {class_name_of(error)}: {words_of(error)}"
            raise self._wrong(problem) from error

    def _normal(self, made: object) -> ModelReply:
        answer = _as_reply(made)
        if answer is None:
            kind = type(made).__name__
            raise self._wrong(f"got a {kind}; return a str, ModelReply, ToolCall or Fault")
        return answer if answer.model else msgspec.structs.replace(answer, model=self._name)

    def _wrong(self, problem: str) -> ModelRefused:
        return ModelRefused(self._name, "script", problem)

    async def _hand_out(self, pieces: Sequence[Delta], on_delta: OnDelta | None) -> None:
        pause = self._latency / (len(pieces) or 1)
        if pause and not pieces:
            await self._sleep(pause)
        for piece in pieces:
            if pause:
                await self._sleep(pause)
            assert on_delta is not None
            on_delta(piece)


class ScriptedModel(_Player):
    """Answers from a script, one item after the other.

    An item is a text, a ``ModelReply`` (see ``reply``), a ``ToolCall`` (see ``call``), a
    ``Fault`` before any of these, or a function of the request that returns one of them.  The
    module's docstring says which item answers which request.  After the last one the call
    raises ``ModelRefused`` of kind ``script``, or begins again with ``repeat=True``.

    ``latency`` is the time a call takes, slept with ``clock.sleep`` (default ``anyio.sleep``)
    and spread over the deltas; text is streamed in words, or ``chunk`` characters at a time.
    Raises ``DefinitionError`` for items that are none of the above.
    """

    __slots__ = ("_repeat", "_steps")

    def __init__(
        self,
        script: Iterable[ScriptItem],
        *,
        name: str = "scripted",
        latency: float = 0.0,
        clock: Clock | None = None,
        chunk: int | None = None,
        repeat: bool = False,
    ) -> None:
        super().__init__(name, latency, clock, chunk)
        if isinstance(script, str):
            raise BadValue("script", f"expected a list of replies; write [{shown(script)}]")
        self._repeat = repeat
        self._steps = _steps_of(script, name)

    def __repr__(self) -> str:
        return f"ScriptedModel({self._name!r}, {len(self._steps)} steps)"

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """Play the item that is due by the number of replies in the history.

        Asked for a summary of older messages, it says ``SUMMARY``: that is no item of the script,
        and the replies that the summary stands for count on.
        """
        if request.purpose == "summary":
            return await self._play(_always(_SUMMARY), None, request, on_delta)
        index = request.summarised
        for message in request.messages:
            if type(message) is AssistantMessage and not message.is_given:
                index += 1
        steps = self._steps
        if index >= len(steps):
            if not self._repeat or not steps:
                raise self._exhausted(index)
            index %= len(steps)
        step = steps[index]
        fault = step.fault(request.attempt) if step.faults else None
        item = step.item
        if isinstance(item, ModelReply):
            if fault is None:
                if step.is_sound and (on_delta is not None or self._latency):
                    if step.pieces is None and on_delta is not None:
                        step.pieces = _pieces(item, self._chunk, None)
                    await self._hand_out(step.pieces or () if on_delta else (), on_delta)
                return item
            return await self._play(_always(item), fault, request, on_delta)
        if item is None:
            # A fault with no reply behind it: what it raises is all there is.
            if fault is None or fault.kind in _NEED_REPLY:
                raise self._exhausted(index)
            item = _always(ModelReply())
        return await self._play(item, fault, request, on_delta)

    def _exhausted(self, index: int) -> ModelRefused:
        return self._wrong(
            f"the script has {len(self._steps)} steps and the run asks for number {index + 1}; "
            "add a reply to the script, or pass repeat=True"
        )


class FunctionModel(_Player):
    """Answers with what ``fn(request)``, plain or async, returns.

    That is a text, a ``ModelReply``, a ``ToolCall`` or a ``Fault``, which then disturbs this
    attempt whatever its ``times``.  An exception of ``fn`` becomes ``ModelRefused`` of kind
    ``script``; a ``ProviderError`` passes as it is.  Deterministic if ``fn`` is.
    """

    __slots__ = ("_fn",)

    def __init__(
        self,
        fn: Callable[[ModelRequest], Answer | Awaitable[Answer]],
        *,
        name: str = "function",
        latency: float = 0.0,
        clock: Clock | None = None,
        chunk: int | None = None,
    ) -> None:
        super().__init__(name, latency, clock, chunk)
        self._fn = fn

    def __repr__(self) -> str:
        return f"FunctionModel({_name_of(self._fn)}, {self._name!r})"

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """Call the function and play what it returns, faults included."""
        return await self._play(self._fn, None, request, on_delta)


def _steps_of(script: Iterable[ScriptItem], name: str) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    faults: list[Fault] = []
    problems: list[str] = []
    for number, item in enumerate(script):
        answer = _as_reply(item)
        if isinstance(item, Fault):
            faults.append(item)
            continue
        if answer is not None:
            named = answer if answer.model else msgspec.structs.replace(answer, model=name)
            steps.append(_Step(named, tuple(faults), _is_sound(named)))
        elif callable(item):
            steps.append(_Step(item, tuple(faults)))
        else:
            problems.append(
                f"script[{number}] is a {type(item).__name__}; use a str, ModelReply, ToolCall, "
                "Fault or a function of the request"
            )
        faults = []
    if problems:
        raise DefinitionError(f"ScriptedModel {shown(name)}", problems)
    if faults:
        steps.append(_Step(None, tuple(faults)))
    return tuple(steps)


def _as_reply(made: object) -> ModelReply | None:
    if isinstance(made, ModelReply):
        return made
    if isinstance(made, str):
        return ModelReply(text=made)
    if isinstance(made, ToolCall):
        return reply("", made)
    return None


def _is_sound(answer: ModelReply) -> bool:
    """Whether the parts of a reply are of their types, so that it can be handed out in pieces."""
    return not reply_problem(answer) or bool(garbled_words(answer))


def _always(answer: ModelReply) -> Callable[[ModelRequest], Answer]:
    return lambda _: answer


def _pieces(answer: ModelReply, chunk: int | None, cut: Fault | None) -> list[Delta]:
    text = answer.text if cut is None else answer.text[: cut.after]
    pieces: list[Delta] = [
        ThinkingDelta(each.text, block) for block, each in enumerate(answer.thinking) if each.text
    ]
    if chunk is None:
        pieces.extend(map(TextDelta, _words.findall(text)))
    else:
        pieces.extend(TextDelta(text[at : at + chunk]) for at in range(0, len(text), chunk))
    if cut is None:
        pieces.extend(
            CallDelta(index, each.name, each.arguments) for index, each in enumerate(answer.calls)
        )
    return pieces


def _name_of(fn: object) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__name__
