"""``GivenToolBody``: an external tool in a body, which only the run that is opened with it has."""

from collections.abc import Sequence

from msgspec import UNSET, Struct

from hubbub.channels.http.wire.objects import JsonObject, object_in, size_at_least
from hubbub.hub.errors import BadValue
from hubbub.hub.events import GivenTool
from hubbub.hub.events.given_tools import MAX_GIVEN_BYTES, MAX_GIVEN_TOOLS
from hubbub.hub.values import encode_value

__all__ = ["GivenToolBody", "tools_given"]


class GivenToolBody(Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A tool of the client's own, whose calls wait for a reply.

    ``schema`` is the JSON schema of its arguments, an object; without one it takes none.
    ``timeout`` (seconds) bounds how long a call waits.
    """

    name: str
    description: str = ""
    schema: JsonObject = UNSET
    timeout: float | None = None


def tools_given(bodies: Sequence[GivenToolBody]) -> tuple[GivenTool, ...]:
    """The tools as the hub takes them.

    Raises ``BadValue`` for more, or larger ones, than a run is opened with, whose schemas are not
    read, and for a schema that is no object.
    """
    if len(bodies) > MAX_GIVEN_TOOLS:
        raise BadValue("tools", f"more than {MAX_GIVEN_TOOLS}")
    if sum(size_at_least(each.schema) for each in bodies) > MAX_GIVEN_BYTES:
        raise BadValue("tools", f"more than {MAX_GIVEN_BYTES:,} bytes")
    return tuple(_tool(f"tools[{at}]", each) for at, each in enumerate(bodies))


def _tool(where: str, body: GivenToolBody) -> GivenTool:
    schema = object_in(f"{where}.schema", body.schema, MAX_GIVEN_BYTES)
    return GivenTool(
        name=body.name, description=body.description, timeout=body.timeout,
        schema_json=encode_value(f"{where}.schema", schema),
    )  # fmt: skip
