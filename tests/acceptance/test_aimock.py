"""The clients of models against a fake of the providers' interfaces that others have written."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from support.node import Node

from hubbub import Agent, ModelSettings, Runtime, tool
from hubbub.hub.events import AgentRetry, AgentStep, AgentThinking, Event

pytestmark = [pytest.mark.long, pytest.mark.spec("L-08")]

HERE = Path(__file__).parent
LOOPS = ("asyncio", "trio")


@pytest.fixture(scope="module")
def fake(node: Node) -> Iterator[dict[str, str]]:
    """What the environment has to say for the fake to be asked."""
    with node.serving(HERE / "aimock.mjs") as url:
        yield {
            "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k",
            "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "k",
            "GROQ_BASE_URL": f"{url}/v1", "GROQ_API_KEY": "k",
        }  # fmt: skip


@tool
def get_weather(city: str) -> str:
    """Current weather for a city."""
    return f"sunny in {city}"


def conversation(models: list[str], environ: dict[str, str], loop: str) -> tuple[str, list[Event]]:
    """What an agent with a tool answers, and its events."""
    agent = Agent(
        "a", "You help.", model=models, tools=[get_weather],
        settings=ModelSettings(max_tokens=3000),
    )  # fmt: skip

    async def main() -> tuple[str, list[Event]]:
        async with Runtime([agent], store="memory", environ=environ) as rt:
            run = await rt.start("a", "What is the weather?")
            outcome = await run.result()
            return str(outcome.value()), list(await run.read())

    return anyio.run(main, backend=loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("model", "thinks"),
    [
        ("anthropic:claude-sonnet-4-5", True),
        ("openai:gpt-4o", False),
        ("openai-responses:o3", True),
        ("groq:llama", True),
    ],
)
def test_a_conversation_with_a_tool_and_thoughts(
    model: str, thinks: bool, fake: dict[str, str], loop: str
) -> None:
    answer, events = conversation([model], fake, loop)
    assert answer == "It is sunny."
    asked, said = [x for x in events if isinstance(x, AgentStep)]
    assert [each.name for each in asked.calls] == ["get_weather"]
    assert said.calls == ()
    thoughts = [x.text for x in events if isinstance(x, AgentThinking)]
    assert thoughts == (["Look it up.", "Say it."] if thinks else [])


@pytest.mark.spec("L-06")
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("other", ["openai:gpt-4o", "openai-responses:o3"])
def test_a_model_that_is_refused_is_followed_by_another_providers(
    other: str, fake: dict[str, str], loop: str
) -> None:
    answer, events = conversation(["anthropic:claude-down", other], fake, loop)
    assert answer == "It is sunny."
    (retry,) = [x for x in events if isinstance(x, AgentRetry)]
    assert (retry.choice, retry.model) == (1, other)
    assert "no such thing" in retry.error
    assert [x.choice for x in events if isinstance(x, AgentStep)] == [1, 1]
