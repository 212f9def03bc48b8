"""Prompts that a run's tools, hooks or code have opened, according to its lane.

    session:prompt ─► open ─► its reply is taken: answered   ─► session:prompt:end
                         └──► the question is withdrawn     ─► session:prompt:end

A call that pauses (``interrupt``) is no prompt of these: it waits in its own status.
"""

from collections.abc import Iterator

from msgspec import Struct

from hubbub.hub import events as e

__all__ = ["LOST", "OpenPrompt", "ends_of", "find_prompt", "with_prompt", "without_prompt"]

LOST = "lost: the process stopped"
"""Why a prompt ended whose asker has gone with its process."""


class OpenPrompt(Struct, frozen=True, gc=False):
    """A prompt that waits for its reply; ``call_id`` names the call whose tool asked."""

    prompt_id: str
    call_id: str = ""


Prompts = tuple[OpenPrompt, ...]


def with_prompt(prompts: Prompts, event: e.SessionPrompt) -> Prompts:
    """The open prompts after this one."""
    return (*prompts, OpenPrompt(event.prompt_id, event.call_id))


def without_prompt(prompts: Prompts, prompt_id: str) -> Prompts:
    """The open prompts but for one."""
    return tuple([each for each in prompts if each.prompt_id != prompt_id])


def find_prompt(prompts: Prompts, prompt_id: str) -> OpenPrompt | None:
    """The open prompt of that id, if there is one."""
    return next((each for each in prompts if each.prompt_id == prompt_id), None)


def ends_of(prompts: Prompts, reason: str, turn: int = 0) -> Iterator[e.SessionPromptEnd]:
    """The records of their ends."""
    for each in prompts:
        yield e.SessionPromptEnd(
            prompt_id=each.prompt_id, reason=reason, call_id=each.call_id, turn=turn
        )
