"""The routes of the streams, for the table of an app."""

from hubbub.channels.http.streams.connections import Connections
from hubbub.channels.http.streams.sse import EventsQuery, RunEventsQuery, RunSse, Sse, SseWriter
from hubbub.channels.http.streams.websocket import EventSocket
from hubbub.channels.http.wire.host import Host
from hubbub.channels.http.wire.route import Content, Route

__all__ = ["stream_routes"]

EVENTS = Content("text/event-stream", "events, each with its position as the id")


def stream_routes(host: Host) -> tuple[Route, ...]:
    """Those of one app: they share what is encoded, and end together when the app does."""
    connections = Connections(host)
    writer = SseWriter(host, connections)
    return (
        Route(
            method="GET", path="/api/events", summary="Events as they happen",
            asgi=Sse(host, writer), query=EventsQuery, answers={200: EVENTS},
            problems=("invalid-request", "invalid-value", "closed", "store-failed"),
            is_stream=True,
        ),
        Route(
            method="GET", path="/api/runs/{run_id}/events", summary="A run's events, until it ends",
            asgi=RunSse(host, writer), query=RunEventsQuery, answers={200: EVENTS, 204: None},
            problems=(
                "unknown-run", "invalid-request", "invalid-value", "closed", "store-failed",
            ),
            is_stream=True,
        ),
        Route(
            method="WEBSOCKET", path="/api/socket", summary="A WebSocket: events out, commands in",
            asgi=EventSocket(host, connections), answers={101: None},
            problems=("method-not-allowed",), is_stream=True,
        ),
    )  # fmt: skip
