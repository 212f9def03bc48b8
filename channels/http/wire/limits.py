"""``HttpLimits``: how much one app takes, of everything that a client can make large."""

from msgspec import Struct

from hubbub.hub.errors import BadValue
from hubbub.hub.values import LIMIT_OF_TIME, check_counts, is_time_limit

__all__ = ["HttpLimits"]


class HttpLimits(Struct, frozen=True, kw_only=True):
    """How much an ``HttpApp`` takes.  What is above a limit is answered by 408, 413 or 429.

    * ``body_bytes``: of one request's body; ``file_bytes``: of a file that is sent; ``open_bytes``:
      of a body to a route that needs no token; ``arriving_bytes``: of all bodies that are not there
      in whole yet; ``leaving_bytes``: of all answers that clients have not taken in whole yet.
    * ``body_seconds``: in which a body must have come in whole.
    * ``requests``: at work at once; with a token those that need none are counted by themselves:
      ``open_requests``, and ``open_requests_per_client``.  ``streams``: open at once, and
      ``streams_per_client``.
    * ``rate``: requests a second of one client, ``burst`` of them at once.  A client is an address.
    * ``failed_logins``: wrong tokens a minute of one client; then none of its tokens is looked at.
    * ``session_seconds``: how long a browser's session lasts.
    * ``ping_seconds``: a stream is never silent for longer.  ``stall_seconds``: a client that takes
      nothing of a stream, or of a large answer, for so long is cut.
    * ``selections``: of one WebSocket.  ``command_chars``: of one command on it, ``command_rate``:
      commands a second, ``command_burst`` of them at once.

    Raises ``BadValue``.
    """

    body_bytes: int = 8 << 20
    file_bytes: int = 64 << 20
    open_bytes: int = 64 << 10
    arriving_bytes: int = 256 << 20
    leaving_bytes: int = 256 << 20
    body_seconds: float = 30.0
    requests: int = 1_000
    open_requests: int = 100
    open_requests_per_client: int = 20
    streams: int = 4_000
    streams_per_client: int = 200
    rate: int = 1_000
    burst: int = 2_000
    failed_logins: int = 20
    session_seconds: int = 8 * 3600
    ping_seconds: float = 15.0
    stall_seconds: float = 60.0
    selections: int = 32
    command_chars: int = 8 << 20
    command_rate: int = 100
    command_burst: int = 200

    def __post_init__(self) -> None:
        check_counts(
            1, body_bytes=self.body_bytes, file_bytes=self.file_bytes, open_bytes=self.open_bytes,
            arriving_bytes=self.arriving_bytes, leaving_bytes=self.leaving_bytes,
            requests=self.requests, open_requests=self.open_requests,
            open_requests_per_client=self.open_requests_per_client,
            streams=self.streams, streams_per_client=self.streams_per_client, rate=self.rate,
            burst=self.burst, failed_logins=self.failed_logins,
            session_seconds=self.session_seconds, selections=self.selections,
            command_chars=self.command_chars, command_rate=self.command_rate,
            command_burst=self.command_burst,
        )  # fmt: skip
        for name in ("body_seconds", "ping_seconds", "stall_seconds"):
            if not is_time_limit(getattr(self, name)):
                raise BadValue(name, f"expected {LIMIT_OF_TIME}")
