"""``Hook``: a function of the author's that a run calls at a named point (D-06).

    point                       what it is given, and may return another of        when
    ──────────────────────────  ─────────────────────────────────────────────────  ──────────────
    filter_messages             the messages of a model request (a tuple)          before a step
    before_create_message       a ``UserMessage``, or an ``AssistantMessage``      before it is
                                without its calls                                  journaled
    before_store_tool_result    a ``ToolResult``                                   before it is
    after_tool_call_success     the ``ToolResult`` of a call that succeeded        journaled
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
* Replay and restore run none.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct

from hubbub.agents.model import AssistantMessage, UserMessage
from hubbub.agents.tools import ToolResult
from hubbub.hub.errors import DefinitionError

__all__ = ["HOOK_TIMEOUT", "NOTICES", "Hook", "HookPoint", "by_point", "misfit"]

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

POINTS: Final = frozenset(get_args(HookPoint))

NOTICES: Final = frozenset(
    ("after_create_message", "after_thread_created", "after_subagent_created", "after_session")
)
"""The points that are told of what is on record already."""


class Hook(Struct, frozen=True):
    """A function at a point; named by ``id`` in the lists of agents and prompts.

    Raises ``DefinitionError``.
    """

    id: str
    point: HookPoint
    fn: Callable[[Any, Any], Any]

    def __post_init__(self) -> None:
        problems = []
        if not isinstance(self.id, str) or not self.id:
            problems.append("id: a name is wanted")
        if self.point not in POINTS:
            problems.append(f"point: one of {', '.join(sorted(POINTS))}, not {self.point!r}")
        if not callable(self.fn):
            problems.append("fn: a function (state, value) is wanted")
        if problems:
            raise DefinitionError(f"hook {self.id!r}", problems)

    @property
    def name(self) -> str:
        return self.id


def by_point(hooks: Iterable[Hook]) -> Mapping[str, tuple[Hook, ...]]:
    """The hooks of each point, in order."""
    found: dict[str, tuple[Hook, ...]] = {}
    for hook in hooks:
        found[hook.point] = (*found.get(hook.point, ()), hook)
    return found


def misfit(point: str, given: Any, returned: Any) -> str:
    """Why what a hook returned cannot be used instead of what it was given; else empty."""
    if point in NOTICES:
        return ""
    if point == "filter_messages":
        return _split(given, returned)
    kind = type(given)
    if not isinstance(returned, kind):
        return f"{kind.__name__} wanted, not {type(returned).__name__}"
    if isinstance(returned, ToolResult):
        return "" if isinstance(returned.content, str) else "content: a text is wanted"
    if isinstance(returned, AssistantMessage) and returned.calls:
        return "calls cannot be added to a message"
    text = returned.text if isinstance(returned, AssistantMessage) else returned.content
    return "" if isinstance(text, str) else "a text is wanted"


def _split(given: Any, returned: Any) -> str:
    """A request's messages must stay messages, and calls keep their results."""
    if isinstance(returned, str) or not isinstance(returned, Iterable):
        return f"messages wanted, not {type(returned).__name__}"
    answered = {
        (call.id, call.name, call.arguments)
        for message in given
        for call in getattr(message, "calls", ())
    }
    for message in returned:
        if not isinstance(message, UserMessage | AssistantMessage):
            return f"messages wanted, not {type(message).__name__}"
        for call in getattr(message, "calls", ()):
            if (call.id, call.name, call.arguments) not in answered:
                return f"the call {getattr(call, 'name', call)!r} was never made"
    return ""
