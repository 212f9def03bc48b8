"""``Hook``: a function of the author's that a run calls at a named point.

    point                       what it is given, and may return another of        when
    ──────────────────────────  ─────────────────────────────────────────────────  ──────────────
    filter_messages             the messages of a model request (a tuple)          before a step
    before_create_message       a ``UserMessage``, or an ``AssistantMessage``      before it is
                                without its calls                                  journaled
    before_store_tool_result    a ``ToolResult``: a tool's, or that of a child     before it is
                                that a call waited for                             journaled
    after_tool_call_success     the ``ToolResult`` of a call that succeeded
    after_tool_call_failure     the ``ToolResult`` of a call that failed
    after_create_message        the message, as journaled                          after the
    after_thread_created        the run's opening text, or None                    commit
    after_subagent_created      the child's registry entry (on the parent)
    after_session               the session's outcome

Rules
-----
* ``fn(state, value)``, plain or async.  Hooks of a point run in list order, each fed what the one
  before returned; ``None`` means "unchanged".  What the first five return is what is journaled,
  or sent; what the last four return goes to the next hook and no further.
* A prompt's list, even an empty one, replaces its agent's whole list.
* One that raises, takes longer than a minute, or returns what does not fit is logged, and what it
  was given is used unchanged.
* One may ask (``state.ask``), in its minute.  Of what stops a run before it has begun nothing is
  known until the hooks have seen its opening.
* Replay and restore run none.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct

from hubbub.agents.definitions.tools import RESULT, ToolResult
from hubbub.agents.model import AnsweredCall, AssistantMessage, Thinking, UserMessage
from hubbub.hub.errors import DefinitionError
from hubbub.hub.near_misses import kind_of, shown, told_fields
from hubbub.hub.tasks.callables import yielding_problem
from hubbub.hub.texts import label_problem, text_problem_in
from hubbub.hub.values import Form

__all__ = [
    "HOOK_TIMEOUT",
    "NOTIFICATION_POINTS",
    "RESULT_POINTS",
    "Hook",
    "HookPoint",
    "by_point",
    "mismatch",
]

HOOK_TIMEOUT: Final = 60.0
"""Seconds that one hook may take."""

HookPoint: TypeAlias = Literal[
    "filter_messages",
    "before_create_message",
    "after_create_message",
    "before_store_tool_result",
    "after_tool_call_success",
    "after_tool_call_failure",
    "after_thread_created",
    "after_subagent_created",
    "after_session",
]
"""The points at which hooks are called; see the module's docstring."""

POINTS: Final = frozenset(get_args(HookPoint))

RESULT_POINTS: Final = frozenset(
    ("before_store_tool_result", "after_tool_call_success", "after_tool_call_failure")
)
"""The points that see what a call came to: a tool's result, or a child's that a call waited for."""

NOTIFICATION_POINTS: Final = frozenset(
    ("after_create_message", "after_thread_created", "after_subagent_created", "after_session")
)
"""The points that are called for what is on record already."""


class Hook(Struct, metaclass=told_fields, frozen=True):
    """A function at a point; named by ``id`` in the lists of agents and prompts.

    ``fn(state, value)`` is plain or async and may return another value, ``None`` for "unchanged";
    one that raises, misfits or takes more than a minute is logged and passed over.  Which points
    there are, and what each is given: see the top of ``hubbub.agents.definitions.hooks``.
    Raises ``DefinitionError``.
    """

    id: str
    point: HookPoint
    fn: Callable[[Any, Any], Any]

    def __post_init__(self) -> None:
        problems = []
        if not self.id or label_problem(self.id):
            problems.append("id: expected a name")
        if not isinstance(self.point, str) or self.point not in POINTS:
            problems.append(f"point: one of {', '.join(sorted(POINTS))}, not {shown(self.point)}")
        if not callable(self.fn):
            problems.append("fn: expected a function (state, value)")
        elif problem := yielding_problem(self.fn, may_iterate=self.point == "filter_messages"):
            problems.append(f"fn: {problem}")
        if problems:
            raise DefinitionError(f"hook {shown(self.id)}", problems)

    @property
    def name(self) -> str:
        """Its id, under which a prompt may name it."""
        return self.id


def by_point(hooks: Iterable[Hook]) -> Mapping[str, tuple[Hook, ...]]:
    """The hooks of each point, in order."""
    found: dict[str, tuple[Hook, ...]] = {}
    for hook in hooks:
        found[hook.point] = (*found.get(hook.point, ()), hook)
    return found


def mismatch(point: str, given: object, returned: object) -> str:
    """Why what a hook returned cannot be used instead of what it was given; else empty."""
    if point in NOTIFICATION_POINTS:
        return ""
    return _mismatch(point, given, returned) or text_problem_in(returned) or _form_problem(returned)


def _mismatch(point: str, given: Any, returned: Any) -> str:
    if point == "filter_messages":
        return _split(given, returned)
    kind = type(given)
    if not isinstance(returned, kind):
        return f"expected {kind.__name__}, not {kind_of(returned)}"
    if isinstance(returned, ToolResult):
        return "" if isinstance(returned.content, str) else "content: expected a text"
    if isinstance(returned, AssistantMessage) and returned.calls:
        return "calls cannot be added to a message"
    return _message_problem(returned)


def _form_problem(returned: Any) -> str:
    """Why the parts of a message or result cannot be read back; of messages, the first."""
    if isinstance(returned, Iterable):
        return next(filter(None, map(_form_problem, returned)), "")
    form = next((form for form in _FORMS if isinstance(returned, form.kind)), None)
    return "" if form is None else form.problem(returned)


_FORMS: Final = (Form(UserMessage), Form(AssistantMessage), RESULT)


def _message_problem(message: Any) -> str:
    """Why a message cannot be shown or written down; calls apart."""
    if isinstance(message, UserMessage):
        if not _are_texts((message.content, message.role)):
            return "content, role: expected texts"
        return "" if _are_texts(message.notes) else "notes: expected a tuple of texts"
    if not isinstance(message, AssistantMessage):
        return f"expected messages, not {kind_of(message)}"
    if not isinstance(message.text, str):
        return "text: expected a text"
    thinking = message.thinking
    if not isinstance(thinking, tuple) or not all(isinstance(each, Thinking) for each in thinking):
        return "thinking: expected a tuple of Thinking"
    return ""


def _are_texts(values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, str) for value in values)


def _split(given: Any, returned: Any) -> str:
    """A request's messages must stay messages, and calls keep their results."""
    if isinstance(returned, str) or not isinstance(returned, Iterable):
        return f"expected messages, not {kind_of(returned)}"
    left = {
        call.id: (call.name, call.arguments)
        for message in given
        for call in getattr(message, "calls", ())
    }
    for message in returned:
        if problem := _message_problem(message):
            return problem
        for call in getattr(message, "calls", ()):
            if not isinstance(call, AnsweredCall) or not _are_texts((call.output, *call.notes)):
                return f"the call {getattr(call, 'name', call)!r} is without its result"
            # Each once: a request with two calls of one id is refused by providers.
            if left.pop(call.id, None) != (call.name, call.arguments):
                return f"the call {call.name!r} was not made, or stands there twice"
    return ""
