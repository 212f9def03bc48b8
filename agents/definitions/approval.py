"""``Approval``: when a tool may run only if a person says so.

    @tool(approval=True)                     every call is asked about
    @tool(approval=lambda amount: …)         those for which it returns something true

A call's arguments are read before anybody is asked, and the predicate gets them as keywords, with
the function's own defaults where the model has left some out.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hubbub.agents.definitions.signature import EMPTY, Parameter
from hubbub.hub.near_misses import shown
from hubbub.hub.tasks.callables import yielding_problem
from hubbub.hub.values import LIMIT_OF_TIME, is_time_limit

__all__ = ["Approval", "Approves", "approval_problems", "read_approval"]

Approves: TypeAlias = bool | Callable[..., Any]
"""Whether calls need a person's approval, or what says so of each: plain or async, by keywords."""


@dataclass(frozen=True, slots=True)
class Approval:
    """That calls of a tool are asked about.

    ``timeout``: after how many seconds without an answer a call counts as denied; None for never.
    """

    predicate: Callable[..., Any] | None = None
    """None where every call is."""
    timeout: float | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What the predicate gets for what a model leaves out."""


def read_approval(
    approval: Approves, timeout: float | None, parameters: tuple[Parameter, ...]
) -> Approval | None:
    """What ``tool(approval=…)`` says; ``None`` where nobody is asked."""
    if approval is False:
        return None
    defaults = {x.name: x.default for x in parameters if x.default is not EMPTY}
    return Approval(None if approval is True else approval, timeout, defaults)


def approval_problems(
    approval: object, timeout: object, parameters: tuple[Parameter, ...]
) -> list[str]:
    """What is wrong with it."""
    if isinstance(approval, bool):
        if timeout is None or approval:
            return list(_timeout_problems(timeout))
        return ["approval_timeout: nobody is asked; give approval=…, too"]
    if not callable(approval):
        what = type(approval).__name__
        return [f"approval: expected True or a function of the arguments, not {what}"]
    problems = list(_timeout_problems(timeout))
    if problem := yielding_problem(approval):
        problems.append(f"approval: {problem}")
    try:
        inspect.signature(approval).bind(**{each.name: None for each in parameters})
    except TypeError as error:
        names = ", ".join(each.name for each in parameters) or "nothing"
        problems.append(f"approval: it is called with {names} as keywords: {error}")
    except ValueError:  # Something of C's, which says nothing of its parameters.
        pass
    return problems


def _timeout_problems(timeout: object) -> list[str]:
    if timeout is None or is_time_limit(timeout):
        return []
    return [f"approval_timeout {shown(timeout)}: use {LIMIT_OF_TIME}, or None for no limit"]
