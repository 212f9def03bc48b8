"""The agents of the demo of several workers, offline; ``hubbub worker`` is given this module.

``counter`` is told some documents and counts the words of each, a step and a call for each, and
repeats in its report what it was told meanwhile.  ``story`` is told what happens to the processes,
so that it can be read in the page: it answers each time that it is written down.
"""

import os
from typing import Final

import msgspec
from msgspec import Struct

from hubbub.agents.definitions.agent import AgentDefinition, SideConfig
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AssistantMessage, ModelReply, ModelRequest, UserMessage
from hubbub.hub.ports import Ports
from hubbub.runtime.demo.documents import FoundDocument, document_facts
from hubbub.runtime.demo.survey_model import many
from hubbub.runtime.models.scripted import FunctionModel, call, reply

__all__ = ["COUNTER", "SAID", "STORY", "TASK", "Counted", "agents", "task_of_tree"]

COUNTER: Final = "counter"
STORY: Final = "story"

TASK: Final = "Count the words of these documents:"
SAID: Final = "You also said: "

LATENCY: Final = 0.8
"""Seconds that the model thinks about a step, so that a person can follow."""


class Counted(Struct, frozen=True, kw_only=True):
    """What a call of ``count_words`` found, and the number of the process that ran it."""

    uri: str
    words: int
    process: int


def task_of_tree(uris: list[str]) -> str:
    """What a counter is told."""
    return "\n".join((TASK, *uris))


@tool(idempotent=True)
def count_words(uri: str) -> Counted:
    """Count the words of a document."""
    facts = document_facts(FoundDocument(path=uri, uri=uri, size=0))
    return Counted(uri=uri, words=facts.words, process=os.getpid())


def _count(request: ModelRequest) -> ModelReply:
    """The next document, or the report."""
    first, *said = [each.content for each in request.messages if isinstance(each, UserMessage)]
    uris = first.splitlines()[1:]
    calls = [each for m in request.messages if isinstance(m, AssistantMessage) for each in m.calls]
    if len(calls) < len(uris):
        return reply("", call("count_words", uri=uris[len(calls)]))
    found = [msgspec.json.decode(each.output, type=Counted) for each in calls if not each.is_error]
    total = sum(each.words for each in found)
    report = f"{many(len(found), 'document')}, {many(total, 'word')}."
    return reply("\n".join((report, *(f"{SAID}{text}" for text in said))))


def _write_down(request: ModelRequest) -> ModelReply:
    told = sum(isinstance(each, UserMessage) for each in request.messages)
    return reply(f"Written down, as number {told}.")


_clock = Ports().clock

agents: Final = (
    AgentDefinition(
        name=COUNTER,
        side_a=SideConfig(
            prompt=PromptDefinition(
                name=COUNTER, prompt="You count words.", tools=[count_words],
                model=FunctionModel(_count, latency=LATENCY, clock=_clock),
            )
        ),
    ),
    AgentDefinition(
        name=STORY,
        side_a=SideConfig(
            prompt=PromptDefinition(
                name=STORY, prompt="You write down what happens.",
                model=FunctionModel(_write_down, clock=_clock),
            )
        ),
    ),
)  # fmt: skip
