"""Tools: typed Python functions that a model may call, and what their calls come to.

    tool(fn) ──► Tool ── spec ──► the model ── arguments (text) ──► Tool.parse ──► fn(**kwargs)
                                     ▲                                  │ BadArguments   │
                                     └── ToolResult ◄── render_failure ◄┴─ an exception ◄┤
                                     └── ToolResult ◄── render_result ◄───── a value  ◄──┘

Everything here is data and decisions; ``runtime/activities/call_tool.py`` makes the call.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, ParamSpec, TypeVar, overload

from msgspec import Struct, structs

from hubbub.agents.definitions.approval import (
    Approval,
    Approves,
    approval_problems,
    read_approval,
)
from hubbub.agents.definitions.arguments import (
    MAX_ARGUMENTS_CHARS,
    Arguments,
    ArgumentsReader,
    BadArguments,
)
from hubbub.agents.definitions.signature import plain_function, read_signature
from hubbub.agents.definitions.variables import VariableDefinition, variable_problems
from hubbub.agents.model import ToolSpec
from hubbub.agents.state.family import NO_RESULT
from hubbub.hub.errors import BadValue, DefinitionError
from hubbub.hub.errors.copied import CopiedWhole
from hubbub.hub.events.parts import GivenParts, read_parts, split_returned
from hubbub.hub.masking import class_name_of, words_of
from hubbub.hub.near_misses import kind_of, shown
from hubbub.hub.tasks.raised import exit_in, is_of, members_of
from hubbub.hub.texts import label_problem, readable, text_problem
from hubbub.hub.values import LIMIT_OF_TIME, Form, encoded_value, is_time_limit

__all__ = [
    "MAX_ARGUMENTS_CHARS",
    "MAX_ERROR_CHARS",
    "MAX_RESULT_CHARS",
    "NO_RESULT",
    "BadArguments",
    "Tool",
    "ToolError",
    "ToolResult",
    "alone",
    "error_text",
    "name_problems",
    "render_failure",
    "render_result",
    "tool",
]

P = ParamSpec("P")
R = TypeVar("R")

MAX_RESULT_CHARS = 1_000_000
"""Longer results are cut, with a note that says so."""

MAX_ERROR_CHARS = 4_000
"""Longer texts of exceptions are cut."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ToolResult(Struct, frozen=True):
    """What a tool call came to, for a tool that wants to say it exactly.

    ``content`` that is not a str is sent as JSON; ``attachments`` are ids or paths of files.
    ``parts`` are images, documents and recordings that the model is shown beside it; a tool that
    simply returns one, or texts and parts in a list, means the same.  Bytes that are a picture or
    a PDF count as one; other bytes are base64 in JSON.
    """

    content: Any = ""
    is_error: bool = False
    attachments: tuple[str, ...] = ()
    parts: GivenParts = ()


RESULT: Final = Form(ToolResult)
RENAMED: Final = "coroutine raised StopIteration"
"""What Python makes of this exception where it leaves a coroutine, a plain function's included."""
"""What a tool and a hook are to say it by."""


class ToolError(CopiedWhole, Exception):
    """Raise it in a tool to say plainly that the call failed; the model reads the text."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tool(Generic[P, R]):
    """A function that a model may call; made by ``tool``.

    Calling it calls ``fn``.  ``schema`` and ``spec`` are shared: do not change them.  ``timeout``
    is in seconds, None for none; ``idempotent`` says that a call lost in a crash may simply be
    made again.
    """

    name: str
    description: str
    schema: dict[str, Any]
    timeout: float | None
    idempotent: bool
    fn: Callable[P, R]
    is_async: bool
    state_parameter: str | None
    """The parameter annotated ``RunState``, which the caller adds; not in the schema."""
    spec: ToolSpec
    _arguments: ArgumentsReader
    variables: tuple[VariableDefinition, ...] = ()
    """What the tool reads from ``state.env``."""
    is_built_in: bool = False
    """Whether it comes with hubbub, so that a name that is built in is its own."""
    approval: Approval | None = None
    """When a person is asked before a call runs; None for never."""
    is_external: bool = False
    """Whether it has no function: its result comes from outside (``external_tool``)."""
    __test__: ClassVar[bool] = False
    """Whatever a tool is named, pytest takes it for no test."""

    @property
    def asks(self) -> bool:
        """Whether a person, or somebody elsewhere, is asked before a call has its result."""
        return self.approval is not None or self.is_external

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __wrapped__(self) -> Callable[P, R]:
        return self.fn

    def __repr__(self) -> str:
        return f"<Tool {self.name}({', '.join(self.schema['properties'])})>"

    def parse(self, arguments: str) -> dict[str, Any]:
        """Read the arguments of a call, as the model wrote them, into keyword arguments.

        An empty text counts as ``{}``.  Values have the declared types; a parameter that was
        left out is left out here too, so its default applies; ``state_parameter`` is the
        caller's to add.  Unknown fields are refused at every depth but inside open dicts.

        Raises ``BadArguments`` and nothing else, whatever the text.
        """
        return self._arguments.parse(arguments)


@overload
def tool(
    fn: Callable[P, R],
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = 300.0,
    idempotent: bool = False,
    variables: Iterable[VariableDefinition] = (),
    approval: Approves = False,
    approval_timeout: float | None = None,
) -> Tool[P, R]: ...


@overload
def tool(
    fn: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = 300.0,
    idempotent: bool = False,
    variables: Iterable[VariableDefinition] = (),
    approval: Approves = False,
    approval_timeout: float | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    fn: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = 300.0,
    idempotent: bool = False,
    variables: Iterable[VariableDefinition] = (),
    approval: Approves = False,
    approval_timeout: float | None = None,
) -> Any:
    """Make a tool of a function, as ``@tool`` or ``@tool(timeout=10)``.

    The function may be sync or async, a bound method, a partial or any callable; a ``Tool`` is
    made again from its function.  Name and description come from it unless given: its
    ``__name__`` and its docstring's first paragraph.  ``variables`` are those it reads from
    ``state.env``; it is not called while a required one is not set.

    ``approval``: before a call runs, a person is asked by a durable prompt, which shows the tool
    and its arguments: of every call, or of those for which a function of the arguments (by
    keywords; plain, then called in the loop like a hook, or async) returns something true; where
    that raises, the person is asked.
    Nothing runs unapproved.  The run waits in no task, over restarts, without end or for
    ``approval_timeout`` seconds; ``hub.approve``, ``hub.deny`` and the user's next message, which
    denies, answer.  What was approved runs once, by the rules of every call, and is not asked
    about again.

        >>> @tool
        ... def weather(city: str) -> str:
        ...     \"\"\"Current weather for a city.\"\"\"
        ...     return f"Sun in {city}"
        >>> weather.parse('{"city": "Paris"}')
        {'city': 'Paris'}

    Raises ``DefinitionError`` with everything that is wrong, each with its parameter.
    """
    scope = sys._getframe(1).f_locals  # where string annotations of local functions may resolve
    if isinstance(variables, Iterable) and not isinstance(variables, str):
        variables = tuple(variables)

    def define(fn: Callable[..., Any]) -> Tool[..., Any]:
        given = {"name": name, "description": description}
        return _define(
            fn, scope, timeout=timeout, idempotent=idempotent, variables=variables,
            approval=approval, approval_timeout=approval_timeout, **given,
        )  # fmt: skip

    return define if fn is None else define(fn)


def _define(
    fn: Any,
    scope: Mapping[str, Any],
    *,
    name: str | None,
    description: str | None,
    timeout: float | None,
    idempotent: bool,
    variables: Iterable[VariableDefinition],
    approval: Approves,
    approval_timeout: float | None,
) -> Tool[..., Any]:
    if isinstance(fn, Tool):
        fn = fn.fn
    if not callable(fn):
        raise DefinitionError(
            "tool", [f"{shown(fn)} is not a function; write @tool or @tool(name=…)"]
        )
    function = plain_function(fn)
    if name is None:
        name = type(fn).__name__ if function.__name__ == "__call__" else function.__name__
    signature = read_signature(fn, scope)
    if description is None:
        description = signature.summary
    problems = _problems_of(name, description, function, timeout)
    problems += signature.problems
    problems += variable_problems("variables", variables)
    problems += approval_problems(approval, approval_timeout, signature.parameters)
    if problems:
        raise DefinitionError(f"tool {shown(name)}", problems)
    return Tool(
        name=name,
        description=description,
        schema=signature.schema,
        timeout=timeout,
        idempotent=idempotent,
        fn=fn,
        is_async=inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(function),
        state_parameter=signature.state_parameter,
        spec=ToolSpec(name=name, description=description, schema=signature.schema),
        _arguments=Arguments(name, signature.parameters),
        variables=tuple(variables),
        approval=read_approval(approval, approval_timeout, signature.parameters),
    )


def name_problems(name: str) -> Iterable[str]:
    """What is wrong with a tool's name."""
    if not isinstance(name, str):
        yield f"name: expected a text, not {kind_of(name)}"
    elif not _NAME.fullmatch(name):
        yield f"name {shown(name)}: use 1 to 64 letters, digits, '_' and '-', or give name=…"


def _problems_of(name: str, description: str, function: Any, timeout: float | None) -> list[str]:
    problems = list(name_problems(name))
    if problem := text_problem(description):
        problems.append(f"description: {problem}")
    if timeout is not None and not is_time_limit(timeout):
        problems.append(f"timeout {shown(timeout)}: use {LIMIT_OF_TIME}, or None for no limit")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        problems.append("the function yields; return one value instead")
    return problems


# ── what the model reads ─────────────────────────────────────────────────────────────────────


def render_result(value: object, *, max_chars: int = MAX_RESULT_CHARS) -> ToolResult:
    """Put what a tool returned into the words that the model reads; ``content`` is a str.

    A str is sent as is, None as ``NO_RESULT``, a ``ToolResult`` with its content rendered by
    these same rules, anything else as JSON.  What is no text, or what JSON cannot hold, becomes
    an error result that says so.  At most ``max_chars`` are kept, a note about the cut included.
    """
    try:
        return _rendered(value, max_chars)
    except BaseException as problem:  # What was returned cannot even be looked at.
        if exit_in(problem) is not None:
            raise
        return ToolResult(
            f"The tool ran, but what it returned ({class_name_of(value)}) cannot be written as "
            f"JSON: {error_text(problem)}",
            is_error=True,
        )


def _rendered(value: Any, max_chars: int) -> ToolResult:
    if isinstance(value, ToolResult):
        return _render_parts(value, max_chars)
    if value is None:
        return ToolResult(NO_RESULT)
    if isinstance(value, str):
        if problem := "" if value.isascii() else text_problem(value):
            text = f"The tool ran, but returned no text: {problem}"
            return ToolResult(_bounded(text, max_chars, "error"), is_error=True)
        return ToolResult(_bounded(value, max_chars, "result"))
    try:
        split = split_returned(value)
    except BadValue as problem:
        return _nothing_to_show(problem)
    if split is not None:
        text, parts = split
        return _with_parts(ToolResult(_bounded(text, max_chars, "result")), parts)
    return ToolResult(_bounded(encoded_value(value).decode(), max_chars, "result"))


def _with_parts(result: ToolResult, parts: object) -> ToolResult:
    """A result with what a tool shows beside it, which is said where there is no text."""
    try:
        read = read_parts("parts", parts)
    except BadValue as problem:
        return _nothing_to_show(problem)
    text = result.content or "\n".join(part.words for part in read)
    # Those with a content keep it: whoever records the result keeps that first.
    given = parts if isinstance(parts, list | tuple) else (parts,)
    return structs.replace(result, content=text, parts=tuple(given))


def _nothing_to_show(problem: BadValue) -> ToolResult:
    text = f"The tool ran, but what it returned is nothing to show: {problem}"
    return ToolResult(_bounded(text, MAX_ERROR_CHARS, "error"), is_error=True)


def _render_parts(result: ToolResult, max_chars: int) -> ToolResult:
    """What a tool that says it exactly returned, in the words that the model reads."""
    inner = render_result(result.content, max_chars=max_chars)
    made = structs.replace(result, content=inner.content, parts=())
    if isinstance(made.attachments, list):
        made = structs.replace(made, attachments=tuple(made.attachments))
    text = ""
    if problem := RESULT.problem(made):
        text = f"The tool ran, but returned no result: {problem}"
    elif problem := next(filter(None, map(label_problem, made.attachments)), ""):
        text = f"The tool ran, but named a file wrongly: {problem}"
    if text:
        return ToolResult(_bounded(text, max_chars, "error"), is_error=True)
    made = ToolResult(inner.content, made.is_error or inner.is_error, made.attachments)
    return _with_parts(made, result.parts) if result.parts else made


def render_failure(problem: BaseException, mask: Callable[[str], str] = str) -> ToolResult:
    """Put what a tool raised into the words that the model reads, as an error result.

    ``BadArguments`` and ``ToolError`` speak for themselves, also alone in a group (a tool's own
    task group wraps them); of anything else the model reads ``error_text``.  Each text goes
    through ``mask`` before it is cut.
    """
    cause = alone(problem)
    if is_of(cause, BadArguments):
        return ToolResult(mask(words_of(cause)), is_error=True)
    if is_of(cause, ToolError):
        text = mask(words_of(cause)) or "The tool failed."
        return ToolResult(_bounded(text, MAX_RESULT_CHARS, "error"), is_error=True)
    return ToolResult(error_text(cause, mask), is_error=True)


def error_text(problem: BaseException, mask: Callable[[str], str] = str) -> str:
    """Say what was raised, as ``TypeName: message`` without traceback; never raises itself.

    Groups are described by their members.  At most ``MAX_ERROR_CHARS`` are kept.
    """
    problem = alone(problem)
    members = members_of(problem)[:10] or (problem,)
    texts = []
    for each in members:
        message = mask(words_of(each))
        texts.append(f"{class_name_of(each)}: {message}" if message else class_name_of(each))
    return _bounded("; ".join(texts), MAX_ERROR_CHARS, "error")


def alone(problem: BaseException) -> BaseException:
    """The one exception inside a group of one, however deep, and what a coroutine has renamed."""
    while len(members := members_of(problem)) == 1:
        problem = members[0]
    if type(problem) is RuntimeError and problem.args == (RENAMED,):
        return problem.__cause__ or problem
    return problem


def _bounded(text: str, limit: int, what: str) -> str:
    """``text`` as a plain str of valid Unicode, which a journal can hold, cut at ``limit``."""
    text = str.__str__(text)
    if len(text) > limit:
        note = f"\n[cut: the {what} has {len(text):,} characters, the limit is {limit:,}]"
        text = (text[: max(0, limit - len(note))] + note)[:limit]
    return text if text.isascii() else readable(text)
