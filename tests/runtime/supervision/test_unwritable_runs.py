"""A run of which the store takes nothing, not even its failure: it is left alone, and told of."""

import anyio
import pytest

from hubbub import RunContext, Runtime, agent
from hubbub.hub.errors import OperatorError
from hubbub.hub.events import HubErrorEvent
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.memory import MemoryJournal

pytestmark = pytest.mark.anyio


class Refusing(MemoryJournal):
    """Writes nothing into the own lane of one agent's runs."""

    async def flush(self) -> None:
        await anyio.lowlevel.checkpoint()

    def submit(self, commit: Commit) -> None:
        if commit.run_id and any(event.agent == "refused" for event in commit.events):
            commit.error = "it cannot be written"
            if commit.done is not None:
                commit.done(commit)
            return
        super().submit(commit)


@pytest.mark.spec("G-07")
async def test_a_run_whose_failure_cannot_be_written_is_not_begun_again_for_ever(
    ports: Ports,
) -> None:
    @agent("refused")
    async def refused(input: str, ctx: RunContext) -> str:
        return input

    @agent("other")
    async def other(input: str, ctx: RunContext) -> str:
        return input

    told: list[HubErrorEvent] = []
    async with Runtime([refused, other], store=Refusing(), ports=ports) as rt:
        rt.hub.subscribe("hub:error", told.append)
        with anyio.fail_after(100):
            run = await rt.start("refused", "x")
            with pytest.raises(OperatorError):
                await run.finished()
            assert (await rt.run("other", "x")).output == "x"
    assert len(told) < 20
    assert [x.error_type for x in told].count("unreadable") == 1
