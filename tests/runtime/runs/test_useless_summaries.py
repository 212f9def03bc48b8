"""A window that is full however much is summarised: that is said, and what helps."""

import pytest
from support.agents import Observer, model_agent

from hubbub import Compaction, FunctionModel, ModelReply, ModelRequest, Runtime, Usage
from hubbub.hub.ports import Ports

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-04")]


def answer(request: ModelRequest) -> ModelReply:
    text = "They counted." if request.purpose == "summary" else "Yes."
    return ModelReply(text=text, usage=Usage(input_tokens=350, output_tokens=10))


@pytest.mark.parametrize("window", [1, 2, 100, 400])
async def test_a_window_that_the_prompt_fills_alone_is_named_once(
    ports: Ports, caplog: pytest.LogCaptureFixture, window: int
) -> None:
    compaction = Compaction(window=window, keep=0.1)
    agents = [model_agent(FunctionModel(answer), compaction=compaction)]
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "question 0 " + "q" * 60)
        for number in range(1, 26):
            await run.ask(f"question {number} " + "q" * 60)
    assert len(observer.all("session:compaction")) == 3
    (line,) = [x for x in caplog.messages if "compaction.useless" in x]
    assert "prompt-of-assistant" in line
    assert "tokens=360" in line
    assert f"limit={max(1, int(window * 0.8))}" in line
    assert "greater window=" in line


async def test_where_summaries_help_nothing_is_said(
    ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    def counted(request: ModelRequest) -> ModelReply:
        size = sum(len(message.content) for message in request.messages)
        return ModelReply(text="Yes." * 10, usage=Usage(input_tokens=size, output_tokens=10))

    agents = [model_agent(FunctionModel(counted), compaction=Compaction(window=1000))]
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "question 0")
        for number in range(1, 26):
            await run.ask(f"question {number} " + "q" * 60)
    assert len(observer.all("session:compaction")) > 1
    assert "compaction.useless" not in caplog.text
