"""Prompts that outlive their process, as the notes of a store have them.

    LASTING + the prompt's id  ─►  a note, from the commit that opens the prompt to that of its end

What is noted is enough to check and to take a reply while the run itself is not in memory.  A
note ends with a checksum of it and of its key: of a damaged one nothing is believed, and what the
run asks is read from its record.
"""

import re
import zlib
from typing import Final

import msgspec
from msgspec import Struct

from hubbub.agents.state.prompts import OpenPrompt
from hubbub.hub.delivery.ended_prompts import asker_of
from hubbub.hub.events import PromptKind
from hubbub.hub.values import NULL

__all__ = ["LastingPrompt", "kept_prompt", "note_of", "read_note"]


class LastingPrompt(Struct, frozen=True, omit_defaults=True):
    """What is kept of a prompt: who asks, where in its tree, and how replies are checked."""

    prompt_id: str
    kind: PromptKind = "question"
    above: tuple[str, ...] = ()
    """The runs above the one that asks, its parent first."""
    since: int = 0
    expires_at: int = 0
    """µs since the epoch; 0 for never."""
    agent: str = ""
    side: str = ""
    tool: str = ""
    schema: str = ""
    """The JSON schema that the answer must fit, where it must."""

    @property
    def run_id(self) -> str:
        return asker_of(self.prompt_id)

    @property
    def root_run_id(self) -> str:
        return self.above[-1] if self.above else self.run_id

    def is_over_at(self, at: int) -> bool:
        """Whether what is said then comes too late."""
        return 0 < self.expires_at <= at


def kept_prompt(
    prompt: OpenPrompt, agent: str, side: str, above: tuple[str, ...] = ()
) -> LastingPrompt:
    """What is kept of an open prompt of a run of ``agent``, which acts as ``side`` of it."""
    schema = "" if prompt.schema_json is NULL else bytes(prompt.schema_json).decode()
    return LastingPrompt(
        prompt.prompt_id, prompt.kind, above, prompt.since, prompt.expires_at, agent, side,
        prompt.tool, schema,
    )  # fmt: skip


def note_of(kept: LastingPrompt) -> str:
    """The note of a prompt that a call waits for; that of a question is its end alone, as in
    stores of versions before."""
    is_question = kept.kind == "question"
    body = str(kept.expires_at) if is_question else msgspec.json.encode(kept).decode()
    return f"{body} {_checksum(kept.prompt_id, body)}"


def read_note(prompt_id: str, note: str) -> LastingPrompt:
    """What a note says; those of versions before have no checksum.  Raises ``ValueError``."""
    body, _, checksum = note.rpartition(" ")
    if not _CHECKSUM.fullmatch(checksum):
        body = note
    elif checksum != _checksum(prompt_id, body):
        raise ValueError("its checksum is that of another note")
    if not body.startswith("{"):
        return LastingPrompt(prompt_id, expires_at=int(body))
    kept = msgspec.json.decode(body, type=LastingPrompt)
    if kept.prompt_id != prompt_id:
        raise ValueError(f"it is of prompt {kept.prompt_id}")
    return kept


def _checksum(prompt_id: str, body: str) -> str:
    return f"{zlib.crc32(f'{prompt_id} {body}'.encode()):08x}"


_CHECKSUM: Final = re.compile("[0-9a-f]{8}")
