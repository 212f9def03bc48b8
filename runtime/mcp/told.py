"""``Told``: what a client tells its connection."""

from collections.abc import Callable

from mcp.client.session import ElicitationFnT

from hubbub.runtime.mcp.server_call import ServerCalls

__all__ = ["Told"]


class Told:
    """What a client tells its connection."""

    __slots__ = (
        "admits", "ask", "calls", "ended", "fault", "has_forgotten", "noise", "notified",
        "refusals", "tail",
    )  # fmt: skip

    def __init__(
        self,
        ended: Callable[[], None],
        notified: Callable[[str], None],
        ask: ElicitationFnT,
        admits: Callable[[str], bool],
        calls: ServerCalls,
    ) -> None:
        self.ended = ended
        """The server will say nothing more."""
        self.notified = notified
        """It has sent a notification of this method."""
        self.ask = ask
        self.admits = admits
        """Whether prompts want the tool that the server calls so."""
        self.calls = calls
        """What the server may be at work on; it hears what is sent, answered and asked."""
        self.has_forgotten = False
        """Whether the server has refused something as of a session that it does not know."""
        self.fault = ""
        """Why the server is listened to no longer, where that is so."""
        self.noise = ""
        """What it has said last that is no message."""
        self.refusals: dict[str, str] = {}
        """For requests that were answered with an HTTP status of an error: what that says."""
        self.tail = ""
        """The last words of a command on its standard error."""
