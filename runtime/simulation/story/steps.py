"""``Step``: what users do, as data.  A scenario that is a list of these shrinks and can be shown.

    Step = Open | Say | Wait | Interrupt | Terminate | Close | Restart | Reply | Approve | Deny

    Open(agent="support", input="my parcel is lost")
    Say(to=0, text="and it was fragile")       to the run of the first Open
    Approve(to=0)                              what it, or a run below it, asks leave for
    Wait(seconds=60)
    Restart(kill=True)

A step about a run that was never opened does nothing, nor does an answer where nothing is asked: a
shorter list is still a scenario.  The trace says so, and ``history.skipped`` lists them.
"""

from typing import Any, TypeAlias

from msgspec import Struct

from hubbub.hub.errors import BadValue
from hubbub.hub.values import encode_value
from hubbub.runtime.simulation.story.fields import check_fields

__all__ = [
    "AnyStep", "Approve", "Close", "Deny", "Interrupt", "Open", "Reply", "Restart", "Say", "Step",
    "Terminate", "Wait",
]  # fmt: skip


class Step(Struct, frozen=True, kw_only=True):
    """What a user does: any of the classes in this module, and nothing else."""

    def __post_init__(self) -> None:
        if type(self) is Step:
            raise BadValue("Step", "this is any step; make an Open, a Say, a Wait, …")


class Open(Step, frozen=True, kw_only=True, repr_omit_defaults=True, tag="open"):
    """Start a run of ``agent``, or find that of ``key``; it is number 0, 1, … for later steps."""

    agent: str = ""
    input: Any = None
    key: str = ""
    user: str = "user"

    def __post_init__(self) -> None:
        check_fields(self, texts=("agent", "key", "user"))
        encode_value("Open.input", self.input)


class Say(Step, frozen=True, kw_only=True, repr_omit_defaults=True, tag="say"):
    """Say something to run number ``to``; said again under the same ``key`` it is a duplicate.

    Runs are numbered from 0, by the steps ``Open`` of the scenario.  To a number that none of them
    has had yet nothing is said.
    """

    to: int = 0
    text: str = ""
    key: str = ""
    user: str = "user"

    def __post_init__(self) -> None:
        check_fields(self, ordinals=("to",), texts=("text", "key", "user"))


class Wait(Step, frozen=True, kw_only=True, repr_omit_defaults=True, tag="wait"):
    """Let virtual time pass."""

    seconds: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, amounts=("seconds",))


class Interrupt(Step, frozen=True, kw_only=True, repr_omit_defaults=True, tag="interrupt"):
    """Interrupt the turn at work of run number ``to``."""

    to: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        check_fields(self, ordinals=("to",), texts=("reason",))


class Terminate(Step, frozen=True, kw_only=True, repr_omit_defaults=True, tag="terminate"):
    """End run number ``to``, and its descendants, now."""

    to: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        check_fields(self, ordinals=("to",), texts=("reason",))


class Close(Step, frozen=True, kw_only=True, repr_omit_defaults=True, tag="close"):
    """Have run number ``to`` accept no more messages, handle what waits, and end."""

    to: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        check_fields(self, ordinals=("to",), texts=("reason",))


class Restart(Step, frozen=True, kw_only=True, repr_omit_defaults=True, tag="restart"):
    """End the process, in order or (``kill``) as by ``kill -9``, and begin another one."""

    kill: bool = False

    def __post_init__(self) -> None:
        check_fields(self, flags=("kill",))


class Reply(Step, frozen=True, kw_only=True, repr_omit_defaults=True, tag="reply"):
    """Answer the oldest open prompt of run number ``to``, or of a run below it."""

    to: int = 0
    text: str = ""
    user: str = "user"

    def __post_init__(self) -> None:
        check_fields(self, ordinals=("to",), texts=("text", "user"))


class Approve(Step, frozen=True, kw_only=True, repr_omit_defaults=True, tag="approve"):
    """Approve the oldest call of run number ``to``, or of a run below it, that needs it; with
    ``arguments`` instead of the model's, where they are given."""

    to: int = 0
    arguments: dict[str, Any] | None = None
    user: str = "user"

    def __post_init__(self) -> None:
        check_fields(self, ordinals=("to",), texts=("user",))
        if self.arguments is not None and not isinstance(self.arguments, dict):
            what = type(self.arguments).__name__
            raise BadValue("Approve.arguments", f"expected a dict, not {what}")
        encode_value("Approve.arguments", self.arguments)


class Deny(Step, frozen=True, kw_only=True, repr_omit_defaults=True, tag="deny"):
    """Refuse the oldest open prompt of run number ``to``, or of a run below it."""

    to: int = 0
    reason: str = ""
    user: str = "user"

    def __post_init__(self) -> None:
        check_fields(self, ordinals=("to",), texts=("reason", "user"))


AnyStep: TypeAlias = (
    Open | Say | Wait | Interrupt | Terminate | Close | Restart | Reply | Approve | Deny
)
"""The same as a union, for ``match`` and for decoding."""
