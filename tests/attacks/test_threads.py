"""Every class of exception out of a worker thread: it ends no more than the tool that raised it."""

import anyio
import pytest
from support.agents import model_agent

from attacks.test_exceptions import KINDS
from hubbub import CustomEvent, Runtime
from hubbub.agents.definitions.tools import tool
from hubbub.hub.errors import BadValue
from hubbub.runtime.models.scripted import ScriptedModel, call


@pytest.mark.spec("G-02")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])  # As they are: a thread takes real time.
@pytest.mark.parametrize("kind", sorted({*KINDS} - {"a stolen cancellation"}))  # Threads have none.
def test_what_a_plain_tool_raises_in_its_thread_is_its_result(kind: str, loop: str) -> None:
    @tool
    def trap() -> str:
        raise KINDS[kind]()

    async def main() -> None:
        model = ScriptedModel([call("trap"), "went on"])
        agents = [
            model_agent(model, trap, name="trapped"),
            model_agent(ScriptedModel(["x"]), name="other"),
        ]
        with anyio.fail_after(60):
            async with Runtime(agents) as rt:
                assert (await rt.run("trapped", "x")).output == "went on"
                assert (await rt.run("other", "x")).output == "x"

    anyio.run(main, backend=loop)


def test_the_name_of_an_event_is_text() -> None:
    with pytest.raises(BadValue):
        CustomEvent(name=7)  # type: ignore[arg-type]
