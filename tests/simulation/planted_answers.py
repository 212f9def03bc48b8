"""A bug to plant in what becomes of people's words while something is asked (``planted``)."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from msgspec import structs

from hubbub.agents.state.lasting_prompts import LastingPrompt
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.signals import Taken
from hubbub.hub.events import InLane
from hubbub.hub.own_lane import OwnLane
from hubbub.runtime.runs.lasting_prompts import LastingPrompts

__all__ = ["answered_twice"]


@contextmanager
def answered_twice() -> Iterator[None]:
    """What a person says is taken for an answer to what somebody has replied to already."""
    with_replies = LastingPrompts.with_replies

    def takes(
        prompts: LastingPrompts, kept: LastingPrompt, said: InLane, *, gives_up: bool = False
    ) -> bool:
        return (gives_up or prompts._was_asked(kept, said)) and not kept.is_over_at(said.at)

    def with_first_replies(
        prompts: LastingPrompts, lane: OwnLane, thread: Thread, taken: Taken
    ) -> Taken:
        is_unanswered = prompts._services.hub.prompts.is_unanswered
        unanswered = {*filter(is_unanswered, prompts.by_root[lane.root_run_id])}
        taken = with_replies(prompts, lane, thread, taken)
        replies = tuple(each for each in taken.replies if each[1].prompt_id in unanswered)
        return structs.replace(taken, replies=replies)

    with (
        patch.object(LastingPrompts, "_takes", takes),
        patch.object(LastingPrompts, "with_replies", with_first_replies),
    ):
        yield
