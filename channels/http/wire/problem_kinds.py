"""The kinds of problem that the app answers with: ``/problems/KIND`` in RFC 9457's words."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

__all__ = ["KINDS", "ProblemKind"]


class ProblemKind(Struct, frozen=True):
    """A kind of problem: its status, its title, and what to do about it."""

    status: int
    title: str
    meaning: str


KINDS: Final[Mapping[str, ProblemKind]] = {
    "invalid-request": ProblemKind(
        400,
        "The request cannot be read",
        "The path, the query or the body is not of the route's form; the detail says where.",
    ),
    "invalid-value": ProblemKind(
        400,
        "A value is not accepted",
        "It is of the right form, but this value is not accepted; the detail says which, and why.",
    ),
    "unauthorized": ProblemKind(
        401,
        "A token is needed",
        "Send the token: `Authorization: Bearer TOKEN`; a browser begins a session with it.",
    ),
    "foreign-origin": ProblemKind(
        403,
        "Another site's page may not ask this",
        "A browser says that another site's page asks. Allow its origin: HttpApp(origins=…).",
    ),
    "foreign-host": ProblemKind(
        403,
        "This server does not go by that name",
        "The Host header names another machine. Add the name: HttpApp(hosts=…).",
    ),
    "beyond-loopback": ProblemKind(
        403,
        "Without a token only this machine is served",
        "Give HttpApp a token; then other machines are served.",
    ),
    "not-found": ProblemKind(
        404,
        "There is nothing here",
        "The path is none of this app's; the OpenAPI document lists them.",
    ),
    "unknown-run": ProblemKind(
        404, "There is no such run", "No run has this id, or it is no longer kept."
    ),
    "unknown-agent": ProblemKind(
        404,
        "There is no such agent",
        "The runtime has no agent of this name, or no live run of it.",
    ),
    "unknown-conversation": ProblemKind(
        404,
        "There is no such open conversation",
        "No open conversation is found by this address; open one.",
    ),
    "unknown-prompt": ProblemKind(
        404,
        "There is no such prompt",
        "No prompt has this id; the list of prompts shows those that are open.",
    ),
    "unknown-file": ProblemKind(
        404,
        "There is no such file",
        "The run has no file of this name, or its content is no longer kept.",
    ),
    "unknown-record": ProblemKind(
        404, "There is no such record", "The run's own lane has fewer records."
    ),
    "unknown-request": ProblemKind(
        404,
        "There is no such request for variables",
        "This run has not asked for variables by this request.",
    ),
    "method-not-allowed": ProblemKind(
        405, "The method is not offered here", "The header Allow lists the methods of this path."
    ),
    "slow-body": ProblemKind(
        408,
        "The body did not come in time",
        "The body took longer than it may; send it again, faster.",
    ),
    "run-ended": ProblemKind(
        409, "The run is over", "The run has ended, or is about to; open a new one."
    ),
    "key-reused": ProblemKind(
        409,
        "The key was used for something else",
        "The key was used for another message; give a new message a key of its own.",
    ),
    "ambiguous": ProblemKind(
        409, "There is more than one", "Several runs are found; send to one of run_ids."
    ),
    "prompt-over": ProblemKind(
        409,
        "The prompt is over",
        "The prompt has its answer, or has ended; only the first answer counts.",
    ),
    "already-started": ProblemKind(
        409,
        "It has been started already",
        "The variables were given before, and the subagent was started.",
    ),
    "limit-reached": ProblemKind(
        409,
        "A limit of the runtime is reached",
        "A limit of the runtime is reached; nothing was done.",
    ),
    "refused": ProblemKind(
        409, "It is refused", "The runtime refuses it; the detail says why. Nothing was done."
    ),
    "expired": ProblemKind(
        410,
        "It has expired",
        "The request was to be answered sooner; have the subagent called again.",
    ),
    "parent-ended": ProblemKind(
        410, "The run that asked is over", "The run that asked is over; nothing was started."
    ),
    "too-large": ProblemKind(
        413, "The body is too large", "The body has more bytes than are read; see HttpLimits."
    ),
    "unsupported-media-type": ProblemKind(
        415, "A body of this type is not read", "Send the documented type, without compression."
    ),
    "upgrade-required": ProblemKind(
        426, "A WebSocket is expected here", "Ask for an upgrade: this path serves WebSockets only."
    ),
    "inbox-full": ProblemKind(
        429,
        "The run's inbox is full",
        "As many messages wait as may; send again when the run has taken some.",
    ),
    "too-many-requests": ProblemKind(429, "Too many requests", "Wait as long as Retry-After says."),
    "too-many-streams": ProblemKind(
        429, "Too many streams", "Close a stream, or have one that shows several runs."
    ),
    "internal-error": ProblemKind(
        500,
        "A defect in hubbub or in the program",
        "The log of the program says more; please report it.",
    ),
    "closed": ProblemKind(
        503, "The hub is closed", "The hub or the app is not open yet, or no more; ask again."
    ),
    "no-runtime": ProblemKind(
        503, "No runtime is at work", "The hub is open, but no runtime is at work on it."
    ),
    "store-failed": ProblemKind(
        503,
        "The store does not work",
        "The store cannot read or write; the operator must act. What was accepted is kept.",
    ),
    "overloaded": ProblemKind(503, "Too much is at work", "Ask again in a moment."),
}
"""Every kind of problem that is ever answered."""
