"""What of a message's parts a model can be shown, and what of it is said in words instead."""

from base64 import b64encode
from collections.abc import Collection, Mapping

from hubbub.agents.model import ContentPart

__all__ = ["base64_of", "data_url", "left_out", "name_of"]


def base64_of(content: bytes) -> str:
    """A content as JSON takes it; the same text each time."""
    return b64encode(content).decode("ascii")


def data_url(part: ContentPart, content: bytes) -> str:
    return f"data:{part.media_type};base64,{base64_of(content)}"


def name_of(part: ContentPart) -> str:
    """The name of a document, where a provider demands one."""
    ending = part.media_type.rpartition("/")[2]
    return part.name or (f"{part.kind}.{ending}" if ending else part.kind)


def left_out(
    part: ContentPart, contents: Mapping[str, bytes], takes: Collection[str], *, known: bool = True
) -> str:
    """The text that stands for a part which a model is not shown; it says why.

    ``known``: whether what is taken is known of the model, not just of servers at large.
    """
    if part.kind not in takes and not known:
        why = f"whether the server at this address takes the kind {part.kind} is not known"
    elif part.kind not in takes:
        why = f"this model takes no part of the kind {part.kind}"
    elif part.digest and part.digest not in contents:
        why = "its content is not kept any more, or is not of that type"
    elif part.url:
        why = "this model does not read it from an address"
    else:
        why = "this model does not take that type"
    return f"[{part.words}; not shown: {why}]"
