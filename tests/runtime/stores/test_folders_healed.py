"""``agent_folder.healed`` is said of folders that were not in order, and of no others."""

from pathlib import Path

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.restarts import Lives

from hubbub.hub.ports import Ports

pytestmark = [pytest.mark.anyio, pytest.mark.spec("P-04")]

HEALED = "agent_folder.healed"
RUNS = 30


async def at_work(lives: Lives) -> None:
    """A process that goes on with what is there, and is left in the middle of more."""
    async with lives.life(model_agent(echo_model(0.3))) as rt:
        for number in range(RUNS):
            await rt.start("assistant", "Hello.", session_key=f"web_{number}")
        await anyio.sleep(0.1)


async def test_nothing_is_said_after_an_orderly_leaving_in_the_middle_of_work(
    tmp_path: Path, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives(tmp_path, ports)
    for _ in range(4):  # What is restored is new before its folder is looked at.
        await at_work(lives)
    assert HEALED not in caplog.text


@pytest.mark.parametrize("name", ["history.jsonl", "state.json"])
@pytest.mark.parametrize("damage", ["torn", "gone", "old"])
async def test_a_folder_that_was_changed_meanwhile_is_said_to_be_healed_though_its_run_goes_on(
    tmp_path: Path, ports: Ports, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    lives = Lives(tmp_path, ports)
    await at_work(lives)
    folders = sorted((lives.folder / "agents").iterdir())
    path = folders[3] / name
    old = b"".join(path.read_bytes().splitlines(keepends=True)[:-1])
    if name == "state.json":
        old = path.read_bytes()
    await at_work(lives)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(old if damage == "old" else path.read_bytes()[:-7])
    await at_work(lives)
    told = [line for line in caplog.messages if HEALED in line]
    assert told
    assert all(folders[3].name in line for line in told)
