"""``Compaction``: when the older part of a conversation becomes a summary, and how."""

from collections.abc import Iterable

from msgspec import Struct

from hubbub.hub.errors import DefinitionError
from hubbub.hub.near_misses import shown, told_fields
from hubbub.hub.texts import text_problem

__all__ = ["Compaction", "compaction_problems"]


class Compaction(Struct, metaclass=told_fields, frozen=True, kw_only=True):
    """When the older messages of a conversation are replaced by a summary, and by which.

    * ``at``: the share of the model's window that the last step has to have filled, by the usage
      that the provider reported.
    * ``keep``: the share of the conversation that stays as it is, the newest messages, measured by
      their length.  What the model has not answered yet always stays, and its own last message.
    * ``window``: the model's window in tokens, where it is not the one that hubbub knows for its
      name, or where hubbub knows none: without a window nothing is ever summarised by itself.
    * ``instructions``: what the summary has to hold besides, for the model that writes it, which
      is the conversation's own.

    Nothing is lost: the messages stay in the journal, unless a retention lets old turns go.  Raises
    ``DefinitionError``.
    """

    at: float = 0.8
    keep: float = 0.25
    window: int | None = None
    instructions: str = ""

    def __post_init__(self) -> None:
        problems = [
            f"{name}: expected a share, above 0 and below 1, not {shown(value)}"
            for name, value in (("at", self.at), ("keep", self.keep))
            if not _is_share(value)
        ]
        window: object = self.window
        if window is not None and (type(window) is not int or not 0 < window < 2**63):
            problems.append(f"window: expected tokens, at least 1, not {shown(window)}")
        if not isinstance(self.instructions, str):
            problems.append("instructions: expected a text")
        elif problem := text_problem(self.instructions):
            problems.append(f"instructions: {problem}")
        if problems:
            raise DefinitionError("Compaction", problems)


def _is_share(value: object) -> bool:
    return isinstance(value, float) and 0 < value < 1


def compaction_problems(value: object) -> Iterable[str]:
    """What is wrong with a prompt's ``compaction``."""
    if not isinstance(value, bool | Compaction):
        yield f"compaction: expected True, False or Compaction(…), not {shown(value)}"
