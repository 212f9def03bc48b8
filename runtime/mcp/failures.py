"""What is said of a server that has failed: to models of a call, to the program of a connection."""

from collections.abc import Callable
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from hubbub.agents.definitions.tools import alone, error_text
from hubbub.runtime.mcp.answers import first_problem

__all__ = ["ended_call", "failed_call", "is_refusal", "problem_of"]

MAYBE: Final = "it may or may not have had its effect"
MAX_PROBLEM: Final = 300
MAX_SAID: Final = 4_000
"""Characters of what a server says itself of an error."""


_CLOSED: Final = "Connection closed"
"""What the SDK says where the connection has ended, and nothing more is known."""


def problem_of(error: BaseException, mask: Callable[[str], str], answer: str = "its answer") -> str:
    """What was raised; of an ``answer`` that is none, what is wrong first with it, in one line."""
    invalid: Any = alone(error)
    if isinstance(invalid, MCPError) and invalid.code == types.PARSE_ERROR:
        problem = _first_words(invalid.message)
    elif isinstance(invalid, ValueError) and hasattr(invalid, "errors"):
        problem = first_problem(invalid)  # pydantic's, by which the SDK reads answers.
    elif isinstance(invalid, MCPError):
        return mask(invalid.message)[:MAX_SAID]
    else:
        return error_text(error, mask)
    return f"{answer} is not valid ({' '.join(mask(problem).split())[:MAX_PROBLEM]})"


def is_refusal(error: BaseException) -> bool:
    """Whether a server was there and has answered that it does not speak so."""
    found = alone(error)
    if isinstance(found, MCPError):
        return found.code not in (types.CONNECTION_CLOSED, types.PARSE_ERROR)
    return isinstance(found, RuntimeError)  # The SDK's, for a version that it does not know.


def failed_call(
    server: str, error: BaseException, mask: Callable[[str], str], fault: str = ""
) -> str:
    """What a model reads of a call that has failed; ``fault``: why the connection has ended."""
    if isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED:
        return ended_call(server, mask(fault or error.message.removeprefix(_CLOSED)))
    if isinstance(error, MCPError) and error.code != types.PARSE_ERROR:
        return f"the MCP server {server!r} refused the call: {mask(error.message)[:MAX_SAID]}"
    return f"{problem_of(error, mask, f'the answer of the MCP server {server!r}')}; {MAYBE}"


def ended_call(server: str, why: str = "") -> str:
    """What a model reads of a call during which the connection has ended."""
    reason = f" ({' '.join(why.split())[:MAX_PROBLEM]})" if why else ""
    return f"the connection to the MCP server {server!r} has ended during the call{reason}; {MAYBE}"


def _first_words(message: str) -> str:
    """The problem in what the SDK says of an answer over HTTP that it cannot parse, which it takes
    from pydantic with all that this adds."""
    lines = [each.strip() for each in message.splitlines()]
    if len(lines) < 3 or not lines[0].startswith("Failed to parse"):
        return message
    said = next((each for each in lines[1:] if "[type=" in each), lines[1])
    return said.partition(" [type=")[0]
