"""The agents of ``hubbub chat`` without a network: rules that follow what the user types.

A model of each agent's own, all of them functions of the conversation so far.  ``main`` tells the
time, hands over to research and to skills when asked to, tells what came of it, and counts the
words of everything else; what it is, it says.
"""

import re
from collections.abc import Callable
from typing import Final

from hubbub.agents.built_in import COMPLETE, USE_AGENT, USE_SKILL
from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    ModelReply,
    ModelRequest,
    UserMessage,
    parse_arguments,
)
from hubbub.hub.ports import Ports
from hubbub.runtime.demo.chat.agents import ChatModels
from hubbub.runtime.demo.chat.research import research_offline
from hubbub.runtime.demo.chat.skill_writer import write_skill_offline
from hubbub.runtime.demo.chat.words import cut, is_done, last_said, named_file, wants_list
from hubbub.runtime.models.scripted import FunctionModel, call, reply

__all__ = ["offline_models"]

SHOWN: Final = 12
"""Lines of instructions that a skill shows of itself."""

_RESEARCH: Final = re.compile(
    r"^(?:please |can you |could you )*(?:research|investigate|find|look (?:up|into|for|at)"
    r"|search)\b",
    re.I,
)
_SKILL: Final = re.compile(
    r"\b(?:write|make|create|add|build|draft|new)\b.{0,30}?\bskills?\b", re.I | re.DOTALL
)
_USE: Final = re.compile(
    r"^(?:please )?(?:use|run|start)(?: the)?(?: skill)? [\"“']?([\w.-]+?)[\"”']?(?:[ ,:.!?]|$)",
    re.I,
)
_TIME: Final = re.compile(r"\b(?:time|date|day|clock)\b", re.I)
_WHO: Final = re.compile(r"\b(?:who|what) (?:are|r) you\b|\bhelp\b|\bwhat can you\b", re.I)


def offline_models(ports: Ports, *, latency: float = 0.0) -> ChatModels:
    """Models that converse by a few rules; ``latency`` in seconds is spread over their words."""

    def model(fn: Callable[[ModelRequest], ModelReply]) -> FunctionModel:
        return FunctionModel(fn, name="offline", latency=latency, clock=ports.clock)

    return ChatModels(
        main=model(_converse),
        research=model(research_offline),
        skill_writer=model(write_skill_offline),
    )


def _converse(request: ModelRequest) -> ModelReply:
    if COMPLETE in {each.name for each in request.tools}:
        return _be_a_skill(request)
    last = request.messages[-1]
    if isinstance(last, AssistantMessage):
        return reply("\n".join(map(_relate, last.calls)) or "What else?")
    text = last_said(request)
    agents, skills = _offered(request, USE_AGENT), _offered(request, USE_SKILL)
    used = _USE.match(text)
    if used and used[1] in skills:
        return reply("", call(USE_SKILL, name=used[1], message=text))
    if "skill-writer" in skills and _SKILL.search(text):
        return reply("", call(USE_SKILL, name="skill-writer", message=text))
    if "research" in agents and (_RESEARCH.match(text) or wants_list(text) or named_file(text)):
        return reply("", call(USE_AGENT, name="research", message=text))
    if _TIME.search(text) and any(each.name == "current_time" for each in request.tools):
        return reply("", call("current_time"))
    if _WHO.search(text):
        return reply(_introduction(skills))
    turns = sum(isinstance(each, UserMessage) for each in request.messages)
    return reply(_echo(text, turns))


def _be_a_skill(request: ModelRequest) -> ModelReply:
    """Stand in for a skill of the user's: rules cannot do what a text asks for."""
    last = request.messages[-1]
    text = last_said(request)
    if isinstance(last, AssistantMessage) or is_done(text):
        result = "The skill was not carried out: that takes a real model."
        return reply("", call(COMPLETE, result=result))
    if any(isinstance(each, AssistantMessage) for each in request.messages):
        return reply(f'Noted: “{cut(text)}”. Say "done" to give the conversation back.')
    lines = [cut(each) for each in request.system.splitlines() if each.strip()]
    shown = [f"  {each}" for each in lines[:SHOWN]] + ["  …"] * (len(lines) > SHOWN)
    begin = "I have the conversation now. These are my instructions; it takes a real model to"
    return reply("\n".join([f"{begin} follow them:", *shown, 'Say "done" to go back.']))


def _offered(request: ModelRequest, tool: str) -> tuple[str, ...]:
    """The names that a takeover tool takes."""
    for each in request.tools:
        if each.name == tool:
            return tuple(each.schema["properties"]["name"]["enum"])
    return ()


def _relate(done: AnsweredCall) -> str:
    """What a call came to, in words."""
    if done.name == "current_time" and not done.is_error:
        return f"It is {done.output}."
    if done.name not in (USE_AGENT, USE_SKILL):
        return f"That did not work: {done.output}" if done.is_error else done.output
    if done.is_error:
        return f"I am back: {done.output}."
    name = str(parse_arguments(done.arguments).get("name", done.name))
    return f"I am back. {name} says: {done.output}"


def _introduction(skills: tuple[str, ...]) -> str:
    own = [each for each in skills if each != "skill-writer"]
    use = f' "use {own[0]}",' if own else ""
    return (
        "I am hubbub's offline model: a few rules that stand in for a language model, so that you "
        "can see messages, tools and takeovers at work without a key. Try "
        f'"list files", "research README.md", "write a skill",{use} or ask me for the time. '
        'Whoever has the conversation gives it back when you say "done"; "/back" leaves them, '
        '"/stop" leaves them all. Anything else I count the words of.'
    )


def _echo(text: str, turns: int) -> str:
    words = len(text.split())
    hint = ' Say "help" to hear what I am.' if turns == 1 else ""
    if not words:
        return f"You said nothing.{hint}"
    count = "1 word" if words == 1 else f"{words:,} words"
    shown = text if len(text) <= 200 else text[:200] + "…"
    return f"You said “{shown}”: {count}.{hint}"
