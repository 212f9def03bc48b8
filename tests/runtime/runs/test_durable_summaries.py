"""A summary is on record before the model is asked for the step behind it."""

from pathlib import Path
from typing import Any

import pytest
from support.agents import Observer, model_agent

from hubbub import Compaction, FunctionModel, ModelReply, ModelRequest, Runtime, Usage
from hubbub.hub.ports import Ports
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-04")]


async def test_the_model_is_asked_again_only_when_its_summary_is_on_record(
    tmp_path: Path, ports: Ports
) -> None:
    seen: list[Any] = []
    on_record: list[int] = []

    def answer(request: ModelRequest) -> ModelReply:
        if request.purpose == "summary":
            seen.append("summary")
            return ModelReply(text="They counted.", usage=Usage(input_tokens=700))
        on_record.append(len(observer.all("session:compaction")))
        seen.append("step")
        size = sum(len(message.content) for message in request.messages)
        return ModelReply(text="a" * 80, usage=Usage(input_tokens=size, output_tokens=20))

    agents = [model_agent(FunctionModel(answer), compaction=Compaction(window=1000))]
    store = sqlite_store(tmp_path / "store", ports=ports)
    async with Runtime(agents, store=store, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "question 0")
        for number in range(1, 9):
            await run.ask(f"question {number} " + "q" * 60)
    made = seen.index("summary")
    assert seen[made + 1] == "step"
    assert on_record[made] == 1
