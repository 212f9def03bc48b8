"""Conversations whose messages are programs: who hears one does what it says, one step a call.

    m7 [["note"], ["use", "ann", [["say"]]], ["say"]]

So the models need no script of their own: the same request always gets the same answer, over any
restart, and whoever knows what was said can tell what must come of it.  Every text, result and
note carries the label of its message and the number of its step.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from hubbub import AgentDefinition, PromptDefinition, SideConfig
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AssistantMessage, ModelReply, ModelRequest, UserMessage
from hubbub.runtime.models.scripted import Fault, FunctionModel, call, reply

__all__ = ["LIMITS", "MAIN", "Program", "Programs", "label_of", "spoken"]

Program = Sequence[Sequence[Any]]

MAIN: Final = "main"
LIMITS: Final = {"main": 6, "ann": 4, "bob": 30}
"""The limits of the sides; that of a frame is at most 25 (I-05)."""

_OTHERS: Final = {"main": ("ann", "bob"), "ann": ("bob",), "bob": ("ann",)}


def spoken(label: str, program: Program) -> str:
    """The message that has its hearer do ``program``."""
    return f"{label} {msgspec.json.encode(program).decode()}"


def label_of(text: str) -> str:
    """The label of a message; of one that is no program, the message."""
    return text.partition(" ")[0] if " [" in text else text


def _program_of(text: str) -> Program:
    _, _, program = text.partition(" ")
    found: Program = msgspec.json.decode(program) if program.startswith("[") else ()
    return found


class Programs:
    """The agents that obey, and what they have noted.  ``latency`` is that of models and notes."""

    def __init__(self, latency: float = 0.0) -> None:
        self.noted: list[str] = []
        self.requests: list[ModelRequest] = []
        self._latency = latency

    def agents(self, *, idempotent: bool = True) -> list[AgentDefinition]:
        """``main``, and ``ann`` and ``bob``, who can take over from it and from each other."""

        @tool(idempotent=idempotent)
        async def note(text: str) -> str:
            """Note something."""
            self.noted.append(text)
            return f"noted {text}"

        return [self._agent(name, note) for name in _OTHERS]

    def _agent(self, name: str, *tools: Any) -> AgentDefinition:
        prompt = PromptDefinition(
            name=f"prompt-of-{name}", prompt=name, tools=tools, agents=_OTHERS[name],
            model=FunctionModel(self._answer, name=name, latency=self._latency),
        )  # fmt: skip
        side = SideConfig(prompt=prompt, max_steps=LIMITS[name])
        return AgentDefinition(name=name, side_a=side, expose_as_tool=name != MAIN)

    def _answer(self, request: ModelRequest) -> ModelReply | Fault:
        self.requests.append(request)
        heard = [
            (at, message.content)
            for at, message in enumerate(request.messages)
            if isinstance(message, UserMessage) and message.content != "(continue)"
        ]
        at, text = heard[-1]
        done = sum(isinstance(m, AssistantMessage) for m in request.messages[at:])
        program = _program_of(text)
        step = program[done] if done < len(program) else ("say",)
        return _reply(f"{label_of(text)}.{done}", step, request.attempt)


def _reply(name: str, step: Sequence[Any], attempt: int) -> ModelReply | Fault:
    match step:
        case ["note"]:
            return reply("", call("note", text=name))
        case ["tell"]:
            return reply(name, call("note", text=name))
        case ["use", agent, program]:
            return reply("", _use(name, agent, program))
        case ["three", one, two]:
            return reply(
                "", call("note", text=name), _use(f"{name}-1", *one), _use(f"{name}-2", *two)
            )
        case ["complete"]:
            return reply("", call("complete", result=name))
        case ["last"]:
            return reply("", call("complete", result=name), call("note", text=name))
        case ["fail"]:
            return Fault("request")
        case ["empty"]:
            return Fault("empty")
        case ["flaky"] if attempt < 3:
            return Fault("server")
        case _:
            return reply(name)


def _use(label: str, agent: str, program: Program) -> Any:
    return call("use_agent", name=agent, message=spoken(label, program))


def labels(texts: Iterable[str]) -> list[str]:
    return [label_of(text) for text in texts]
