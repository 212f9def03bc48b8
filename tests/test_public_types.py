"""Public functions say what they take and return: ``Any`` stands where nothing else is true."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

PACKAGES: Final = (
    "hubbub", "hubbub.hub", "hubbub.hub.events", "hubbub.channels", "hubbub.agents.definitions",
    "hubbub.runtime", "hubbub.runtime.models", "hubbub.runtime.schedules", "hubbub.runtime.stores",
    "hubbub.runtime.simulation",
)  # fmt: skip

SEEN: Final = (
    "hubbub.hub.run_hub", "hubbub.hub.delivery.subscribing", "hubbub.agents.definitions.spawned",
    "hubbub.runtime.activities.files",
)  # fmt: skip
"""What is not imported from there, but what tools and code agents hold."""

OPEN: Final = re.compile(
    r"Tool\[\.\.\., Any\]|(Mapping|dict)\[str, Any\]|Callable\[\.\.\., Any\]|EventStream\[Any\]"
)
"""Any tool; an object of JSON; any function; a stream whose overloads say of what."""

JSON: Final = "read from JSON, anew at each access: its author knows what it is"
EXEMPT: Final = {
    "Hook.fn": "each point gives and takes values of its own; mismatch() says which",
    "ToolResult.content": "whatever JSON can hold, as the tool returns it",
    "AgentKey.value": JSON,
    "AgentRecord.value": JSON,
    "AgentStart.input": JSON,
    "Ending.output": JSON,
    "CustomEvent.data": JSON,
    "CustomEvent.of": "keywords become its data",
    "SessionMessage.metadata": JSON,
    "SessionReply.metadata": JSON,
    "SessionOpen.input": JSON,
    "SessionOpen.descriptor": JSON,
    "SessionPrompt.arguments": JSON,
    "call": "keywords become the arguments of a call",
    "Channel.state": "a channel's own, of which its handlers know the class",
    "ChannelContext.__init__": "the same",
    "Hub.subscribe_until": "the overloads of Run.events, which calls it, are the ones that count",
    "Sending.ask": "a person answers with text, a service with what it likes",
    "Sending.serve": "the same, seen from the service",
    "RunHub.ask": "the same, as a run",
    "RunContext.ask": "with a schema, what fits it; else text",
    "RunState.ask": "the same",
    "Awaited.arguments": JSON,
    "Awaited.schema": JSON,
    "RunScope.host": "of a coroutine only what it returns matters here",
    "read_pattern": "what is listened to, before it has been read",
    "RunHub.open": "the options of Hub.open, passed on",
    "SpawnedOutcome.output": JSON,
    "SpawnedOutcome.value": JSON,
    "SimMachine.setup": "a Setup, or what makes one; each machine gives its own",
    "History.injected": "rows for the test's own eyes",
    "Setup.of": "the arguments of Runtime, by name",
    "Open.input": "JSON, as Runtime.start takes it",
    "World.open": "the same",
}
"""What is ``Any`` all the same, and why."""


def public() -> Iterator[tuple[str, str]]:
    """Module and name of what the packages offer."""
    for package in (*PACKAGES, *SEEN):
        module = import_module(package)
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found):
                yield from ((each.__module__, each.__qualname__) for each in found.__mro__)
            elif inspect.isfunction(found):
                yield found.__module__, found.__qualname__


def is_open(annotation: ast.expr | None) -> bool:
    """Whether an annotation says Any where it could say more."""
    text = OPEN.sub("", ast.unparse(annotation)) if annotation is not None else ""
    return re.search(r"\bAny\b", text) is not None


def is_function(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def says_any(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    given = function.args
    listed = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    return is_open(function.returns) or any(x is not None and is_open(x.annotation) for x in listed)


def found_in(body: list[ast.stmt], of: str = "") -> Iterator[str]:
    """The functions and fields that say Any; the body of overloads is seen by nobody."""
    overloaded = {
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(ast.unparse(each) == "overload" for each in node.decorator_list)
    }
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            seen = node.name in ("__init__", "__call__") or not node.name.startswith("_")
            is_body = node.name in overloaded and not node.decorator_list
            if seen and not is_body and says_any(node):
                yield f"{of}{node.name}"
        elif of and isinstance(node, ast.AnnAssign) and is_open(node.annotation):
            name = ast.unparse(node.target)
            if not name.startswith("_"):
                yield f"{of}{name}"


def those_that_say_any() -> set[str]:
    found: set[str] = set()
    for module, name in sorted(set(public())):
        source = inspect.getsourcefile(import_module(module)) if "hubbub" in module else None
        body = ast.parse(Path(source).read_text()).body if source is not None else []
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                found.update(found_in(node.body, f"{name}."))
        functions = [x for x in body if getattr(x, "name", "") == name and is_function(x)]
        found.update(found_in(functions))
    return found


@pytest.mark.spec("U-10")
def test_no_public_function_says_any_but_for_a_reason() -> None:
    found = those_that_say_any()
    assert found - set(EXEMPT) == set(), "say what it is, or why it cannot be said"
    assert set(EXEMPT) - found == set(), "these say it now: take them off"
