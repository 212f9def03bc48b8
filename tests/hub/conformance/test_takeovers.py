"""What goes from one inbox of a tree to another, as the hub's listeners and its owner see it."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from support.stacks import FRAME, MAIN, open_stack

from hubbub import Hub
from hubbub.hub import events as e
from hubbub.hub.events import InLane
from hubbub.hub.masking import Masker
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal

pytestmark = pytest.mark.anyio


class Woken:
    """An owner of runs that only listens."""

    def __init__(self, hub: Hub) -> None:
        self.items: list[InLane] = []
        hub.set_owner(self)

    def wake(self, item: InLane) -> None:
        self.items.append(item)

    def expect(self, opening: e.SessionOpen) -> None:
        """Nothing begins here."""

    def refusal_of(self, run_id: str) -> str:
        return ""

    def interrupted_with(self, run_id: str) -> tuple[str, ...]:
        return (run_id,)

    def waits_for(self, run_id: str, other: str) -> bool:
        return False

    def waiting(self, is_heard: Any = None) -> AbstractContextManager[None]:
        return nullcontext()

    def masker(self, *run_ids: str) -> Masker:
        return Masker(())


@pytest.mark.spec("I-13")
async def test_moved_messages_are_seen_once_and_wake_whom_they_come_to(
    journal: Journal, ports: Ports
) -> None:
    async with open_stack(journal, ports) as stack:
        for content in ("one", "two"):
            await stack.hub.send_to_run(FRAME, content)
        woken = Woken(stack.hub)
        seen: list[Any] = []
        dead: list[Any] = []
        stack.hub.subscribe("*", lambda event: seen.append(event) if event.lane else None)
        stack.hub.subscribe("hub:dead_letter", dead.append)
        stack.end(FRAME, to=MAIN)
        await stack.hub.journal.flush()
        assert [(x.run_id, x.type, getattr(x, "content", "")) for x in seen] == [
            (FRAME, "agent:complete", ""), (MAIN, "session:message", "one"),
            (MAIN, "session:message", "two"), (MAIN, "session:result", "found"),
        ]  # fmt: skip
        assert woken.items == seen[1:] == list(await stack.waiting(MAIN))
        assert dead == []
        assert (await stack.hub.read())[-4:] == seen


@pytest.mark.spec("I-13")
async def test_moved_messages_wake_their_run_without_any_delivery(
    journal: Journal, ports: Ports
) -> None:
    async with open_stack(journal, ports) as stack:
        await stack.hub.send_to_run(FRAME, "one")
        woken = Woken(stack.hub)
        stack.write(FRAME, e.AgentComplete(), status="ended", leave_to=MAIN)
        await stack.hub.journal.flush()
        assert [(x.run_id, x.type) for x in woken.items] == [(MAIN, "session:message")]


@pytest.mark.spec("I-13", "T-09")
async def test_messages_that_nobody_takes_over_are_dead_letters(
    journal: Journal, ports: Ports
) -> None:
    async with open_stack(journal, ports) as stack:
        await stack.hub.send_to_run(FRAME, "one")
        stack.hub.close_run(MAIN)
        dead: list[Any] = []
        stack.hub.subscribe("hub:dead_letter", dead.append)
        stack.end(FRAME, to=MAIN)
        await stack.hub.journal.flush()
        assert [(x.to, x.reason, x.message.content) for x in dead] == [(FRAME, "ended", "one")]
        assert await stack.texts(MAIN) == ["session:close", "found"]


@pytest.mark.spec("I-09", "I-13")
async def test_of_two_that_take_a_message_the_second_takes_nothing(
    journal: Journal, ports: Ports
) -> None:
    async with open_stack(journal, ports) as stack:
        await stack.hub.send_to_run(MAIN, "one")
        (one,) = await stack.waiting(MAIN)
        first, second = stack.take(MAIN, one), stack.take(FRAME, one)
        await stack.hub.journal.flush()
        assert (first.error, second.error, second.written) == ("", "conflict", [])
        assert await stack.texts(MAIN) == []
        assert stack.hub.statistics().waiting == 0
