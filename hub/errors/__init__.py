"""Every exception of hubbub, by who must act.

    HubbubError
    ├── DefinitionError          the author of an agent, prompt or tool
    ├── CallerError              the code that made the call
    │   ├── UnknownAgent
    │   ├── NoAgentFound
    │   ├── UnknownRun
    │   ├── RunEnded
    │   ├── Closed
    │   ├── WrongThread
    │   ├── WrongLoop
    │   ├── InboxInUse
    │   ├── PromptTimeout
    │   ├── PromptClosed
    │   ├── BadPattern
    │   ├── EventsMissed
    │   ├── BadValue
    │   ├── BadPath
    │   ├── NoSuchFile
    │   ├── ReservedEvent
    │   ├── WaitCycle
    │   ├── ChildChanged
    │   ├── InsideStep
    │   ├── VariablesRefused
    │   ├── LimitExceeded
    │   └── RunFailed
    ├── OperatorError            the operator of the program
    │   ├── MissingExtra
    │   ├── MissingKey
    │   ├── MissingVariable
    │   ├── UnknownModel
    │   └── StoreFailed
    ├── ProviderError            the model's provider
    │   ├── ModelUnavailable     (worth another try)
    │   ├── ModelRefused         (not worth another try)
    │   └── ModelGarbled         (the answer could not be read)
    └── InternalError            us: please report it

An exception takes facts and writes its own sentence: what happened, to what, what to do next.
What a *model* should read is never an exception but a tool result.
"""

from collections.abc import Iterable, Sequence

from hubbub.hub.errors.copied import BoundedError
from hubbub.hub.errors.statuses import checked_status
from hubbub.hub.near_misses import did_you_mean, shown

__all__ = [
    "BadPath",
    "BadPattern",
    "BadValue",
    "CallerError",
    "ChildChanged",
    "Closed",
    "DefinitionError",
    "EventsMissed",
    "HubbubError",
    "InboxInUse",
    "InsideStep",
    "InternalError",
    "LimitExceeded",
    "MissingExtra",
    "MissingKey",
    "MissingVariable",
    "ModelGarbled",
    "ModelRefused",
    "ModelUnavailable",
    "NoAgentFound",
    "NoSuchFile",
    "OperatorError",
    "PromptClosed",
    "PromptTimeout",
    "ProviderError",
    "ReservedEvent",
    "RunEnded",
    "RunFailed",
    "StoreFailed",
    "UnknownAgent",
    "UnknownModel",
    "UnknownRun",
    "VariablesRefused",
    "WaitCycle",
    "WrongLoop",
    "WrongThread",
]


class HubbubError(BoundedError, Exception):
    """The root: catch this to catch everything hubbub raises on purpose.

    Each can be pickled and copied, with its attributes; a huge text is cut in its middle.
    """


# ── the author of a definition ───────────────────────────────────────────────────────────────


class DefinitionError(HubbubError):
    """A definition is wrong; ``problems`` lists everything that is, each with its path."""

    def __init__(self, subject: str, problems: Iterable[str]) -> None:
        self.subject = subject
        self.problems = tuple(problems)
        lines = "; ".join(self.problems)
        super().__init__(f"{subject}: {lines}")


# ── the caller ───────────────────────────────────────────────────────────────────────────────


class CallerError(HubbubError):
    """The call cannot be carried out as made."""


class UnknownAgent(CallerError):
    """No agent of that name is known to the runtime."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        self.name = name
        in_order = sorted(known)
        names = ", ".join(in_order) or "none"
        hint = did_you_mean(name, in_order)
        super().__init__(f"no agent named {shown(name)}; known agents: {names}{hint}")


class NoAgentFound(CallerError):
    """No agent is the one that a strategy looks for."""

    def __init__(self, strategy: str, but: str = "") -> None:
        self.strategy = strategy
        found = f" {but}" if but else ""
        super().__init__(f"there is no agent for {shown(strategy)}{found}; name one by its run_id")


class UnknownRun(CallerError):
    """No run has that id (or what was kept of it has been dropped)."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"no run {shown(run_id)}; use the run_id of an agent:start event")


class RunEnded(CallerError):
    """The run is over, so the call has nothing to act on."""

    def __init__(self, run_id: str, reason: str) -> None:
        self.run_id = run_id
        self.reason = reason
        super().__init__(f"run {run_id} is over ({reason}); start a new run")


class Closed(CallerError):
    """The hub, runtime, session or stream has been closed."""

    def __init__(self, what: str, remedy: str = "open a new one") -> None:
        self.what = what
        super().__init__(f"{what} is closed; {remedy}")


class WrongThread(CallerError):
    """The hub was called from a thread other than its own."""

    def __init__(self, call: str, remedy: str = "") -> None:
        usual = f"use anyio.from_thread.run_sync(hub.{call}, ...) or a BlockingPortal"
        super().__init__(f"{call} was called from another thread; {remedy or usual}")


class WrongLoop(CallerError):
    """The hub was called outside of the event loop that opened it, or in a forked process."""

    def __init__(self, call: str, problem: str) -> None:
        super().__init__(
            f"{call}: the runtime belongs to the event loop in which it was opened; {problem}"
        )


class InboxInUse(CallerError):
    """A run's inbox already has its one reader."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"the inbox of run {run_id} already has a reader; use either ctx.messages() or "
            "one subscription to session:message, not both"
        )


class PromptTimeout(CallerError):
    """Nobody answered the prompt in time; later replies are rejected."""

    def __init__(self, prompt_id: str, seconds: float) -> None:
        self.prompt_id = prompt_id
        self.seconds = seconds
        super().__init__(f"no reply to prompt {prompt_id} within {seconds:g} s")


class PromptClosed(CallerError):
    """The prompt can no longer be answered, or there was nobody to ask."""

    def __init__(self, prompt_id: str, reason: str) -> None:
        self.prompt_id = prompt_id
        self.reason = reason
        super().__init__(f"prompt {prompt_id}: {reason}")


class BadPattern(CallerError):
    """A subscription pattern that the hub does not understand, or that is nearly one of its own.

    ``meant`` is the pattern that was probably meant, if there is one.
    """

    def __init__(self, pattern: object, meant: str | None = None) -> None:
        self.pattern = pattern
        self.meant = meant
        super().__init__(
            f"pattern {shown(pattern)}: '*' stands alone or after a ':' at the end; "
            "write '*', 'agent:start', 'agent:*', or a list of these"
            if meant is None
            else f"pattern {shown(pattern)}: no event has such a type; did you mean {meant!r}?"
        )


class EventsMissed(CallerError):
    """A stream of classes has missed events; it may be read on, or opened ``after=cursor``."""

    def __init__(self, dropped: int, reason: str, cursor: str) -> None:
        self.dropped, self.reason, self.cursor = dropped, reason, cursor
        what = (f"{dropped} events" if dropped else "events") + (f" ({reason})" if reason else "")
        remedy = "read faster, give lossless=True or a larger buffer"
        if reason == "unknown cursor":
            remedy = "this cursor is not of this store, or no longer kept; begin at START"
        if reason == "removed":
            remedy = (
                "a retention removed them before they were read; read faster, or keep them longer"
            )
        end = "or name HubGap among the classes to get this as an event"
        super().__init__(f"the stream has missed {what}; {remedy}, {end}")


class BadValue(CallerError):
    """A value that cannot be encoded, or lies outside what the call accepts."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what}: {problem}")


class BadPath(CallerError):
    """A name that no file of a run may have."""

    def __init__(self, path: object, problem: str) -> None:
        self.path = path
        super().__init__(f"{shown(path)} is no name of a file: {problem}")


class NoSuchFile(CallerError):
    """A run has no file of that name."""

    def __init__(self, path: str, detail: str) -> None:
        self.path = path
        super().__init__(f"there is no file {shown(path)}; {detail}")


class WaitCycle(CallerError):
    """A run would wait for itself, or for a run that waits for it."""

    def __init__(self, run_id: str, asked: str) -> None:
        self.run_id = run_id
        self.asked = asked
        if run_id == asked:
            what = "it cannot wait for itself"
        else:
            what = f"run {asked} waits for it, and cannot answer; send it a message instead"
        super().__init__(f"run {run_id}: {what}")


class VariablesRefused(CallerError):
    """``provide_variables`` has stored nothing and started nothing.

    ``kind`` is one short word for programs: ``unknown``, ``booted``, ``expired``, ``ended``,
    ``cap``, ``incomplete``, ``unwanted`` or ``value``; ``names`` are the variables it is about.
    Values are never shown.
    """

    def __init__(self, request_id: str, kind: str, problem: str, names: Iterable[str] = ()) -> None:
        self.request_id = request_id
        self.kind = kind
        self.names = tuple(names)
        super().__init__(f"request {shown(request_id)[1:-1]}: {problem}")


class ReservedEvent(CallerError):
    """An event that only the runtime writes was emitted by somebody else."""

    def __init__(self, type_: str) -> None:
        super().__init__(f"{type_} is written by the runtime only; emit an event of your own type")


class LimitExceeded(CallerError):
    """A documented limit was reached; nothing was done."""

    def __init__(self, what: str, limit: float, remedy: str) -> None:
        shown = f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"
        super().__init__(f"{what}: the limit is {shown}; {remedy}")


class ChildChanged(CallerError):
    """A code agent that was executed again starts another child than the one on record."""

    def __init__(self, run_id: str, number: int, recorded: str, asked: str) -> None:
        self.run_id = run_id
        self.number = number
        self.recorded = recorded
        self.asked = asked
        other = f"{asked!r}" if asked != recorded else "it with another name or input"
        super().__init__(
            f"run {run_id}: its child number {number} is on record as a run of {recorded!r}, but "
            f"now the code starts {other}; put what it decides by, and what differs each time, "
            "into steps, or give key=; start a new run for the new code"
        )


class InsideStep(CallerError):
    """A step did what is kept by itself, which an execution that skips the step would miss."""

    def __init__(self, call: str, step: str) -> None:
        self.step = step
        super().__init__(
            f"{call} was called inside of step {step!r}; a step on record is not run again, so "
            "call it outside of ctx.step, where it is kept by itself"
        )


class RunFailed(CallerError):
    """A run that somebody waited for did not succeed; ``outcome`` and ``reason`` say how."""

    def __init__(self, run_id: str, outcome: str, reason: str) -> None:
        self.run_id = run_id
        self.outcome = outcome
        self.reason = reason
        detail = f": {reason}" if reason else ""
        super().__init__(f"run {run_id} {outcome}{detail}")


# ── the operator ─────────────────────────────────────────────────────────────────────────────


class OperatorError(HubbubError):
    """Something around the program is missing or broken."""


class MissingExtra(OperatorError):
    """An optional dependency is needed."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        # hubbub is on no index: it is installed from its checkout.
        super().__init__(
            f"{what} needs the extra {extra!r}; in the checkout of hubbub: "
            f"uv sync --extra {extra}, or pip install '.[{extra}]'"
        )


class MissingKey(OperatorError):
    """No key for a model's provider."""

    def __init__(self, provider: str, variable: str) -> None:
        self.provider = provider
        self.variable = variable
        super().__init__(f"no key for {provider}; set {variable} in the environment")


class MissingVariable(OperatorError):
    """A prompt needs a variable that has no value."""

    def __init__(self, prompt: str, names: Iterable[str]) -> None:
        self.names = tuple(names)
        super().__init__(
            f"prompt {shown(prompt)} needs {', '.join(self.names)}; open the run with it (env), "
            "also one that is there, or give it in the env of the agent, the prompt or the runtime"
        )


class UnknownModel(OperatorError):
    """A ``model=`` text that names no provider or no known model."""

    def __init__(self, model: str, remedy: str) -> None:
        self.model = model
        super().__init__(f"model {shown(model)}: {remedy}")


class StoreFailed(OperatorError):
    """The store could not do what it must; nothing more is accepted."""

    def __init__(self, store: str, problem: str) -> None:
        super().__init__(f"store {store}: {problem}")


# ── the provider ─────────────────────────────────────────────────────────────────────────────


class ProviderError(HubbubError):
    """A model call failed.

    ``kind`` is one short word for programs (``rate_limit``, ``server``, ``connection``,
    ``timeout``, ``auth``, ``request``, ``garbled``, ``cut``, ``empty``), ``status`` the HTTP
    status if there was one (three digits, or ``TypeError`` or ``ValueError``), ``retry_after`` the
    seconds the provider asked for.
    """

    retryable = False

    def __init__(
        self, model: str, kind: str, problem: str, *, status: int | None = None,
        retry_after: float | None = None,
    ) -> None:  # fmt: skip
        self.model = model
        self.kind = kind
        self.status = checked_status(status)
        self.retry_after = retry_after
        super().__init__(f"{model}: {problem}")


class ModelUnavailable(ProviderError):
    """Rate limit, server error, no connection, timeout or a cut stream: worth another try."""

    retryable = True


class ModelRefused(ProviderError):
    """The provider rejects the request: bad key, unknown model, what is in it (400, 413, 422)."""


class ModelGarbled(ProviderError):
    """The provider's answer could not be understood; one more try may help."""

    retryable = True


# ── us ───────────────────────────────────────────────────────────────────────────────────────


class InternalError(HubbubError):
    """An invariant of hubbub does not hold: a defect in hubbub itself."""

    def __init__(self, what: str, facts: Sequence[object] = ()) -> None:
        detail = f" ({', '.join(map(repr, facts))})" if facts else ""
        super().__init__(f"{what}{detail}; this is a defect in hubbub, please report it")
