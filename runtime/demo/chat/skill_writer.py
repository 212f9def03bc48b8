"""``skill-writer`` without a network: a draft that grows with what is said.

    topic ──► material ──► research ──► draft ◄──► exists
      │          └──────────────────────►│            │
      └──► left ◄────────────────────────┴──► written ◄

The draft is folded from the conversation each time: what the user said moves it on, and so does
what came of a call.  Then its step says what to do next.
"""

import re
from functools import reduce
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.built_in import COMPLETE, USE_AGENT
from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    ModelMessage,
    ModelReply,
    ModelRequest,
    ToolCall,
)
from hubbub.runtime.demo.chat.research import FOR_A_SKILL
from hubbub.runtime.demo.chat.words import as_name, cut, is_done, is_yes, slug
from hubbub.runtime.models.scripted import call, reply

__all__ = ["write_skill_offline"]

Step: TypeAlias = Literal[
    "topic", "material", "research", "draft", "exists", "write", "replace", "left", "written"
]

_WISH: Final = re.compile(
    r"^.*?\b(?:write|make|create|add|build|draft|new)\b.{0,30}?\bskills?\b[ ,:]*"
    r"(?:(?:that|which|to|for|about|on)\b[ ,:]*)?",
    re.I | re.DOTALL,
)
_NAME: Final = (
    r"[ :]+(?:[\"“'](?P<quoted>[^\"”'\n]+)[\"”']|(?P<plain>[^,;\n]+?))(?:\.md)?"
    r"(?=\s*(?:$|[,;\n]|[.!?]+(?:\s|$))|\s(?:and|then|please|instead|now{more})\b)"
)
_NAMED: Final = re.compile(
    r"\b(?:name (?:it|the skill)|call (?:it|the skill)|named|called)"
    + _NAME.format(more="|that|which|to|for|about|on|based|using|from"),
    re.I,
)
_RENAMED: Final = re.compile(
    r"\b(?:(?:re)?name (?:it|the skill)|call (?:it|the skill)|be (?:named|called))"
    + _NAME.format(more=""),
    re.I,
)
_AND: Final = re.compile(r"^(?:[\s,;.!]|(?:and|then|please|instead|now)\b)+", re.I)
_MATERIAL: Final = re.compile(
    r"[ ,;]*\b(?:based on|using|from (?=the\b|my\b|our\b|all\b|\S+\.\w))(.+)$", re.I | re.DOTALL
)
_LINK: Final = re.compile(r"^(?:that|which|to|for|about)\b", re.I)
_LOOK: Final = re.compile(r"^(?:please )?(?:research|look|read|find|search|ask research)\b", re.I)
_REPLACE: Final = re.compile(r"\b(?:replace|overwrite)\b", re.I)

ASK_TOPIC: Final = (
    "What is the skill to do? One sentence is enough, such as: reviews a text for passive voice."
)
ASK_FILES: Final = 'Name files or a subject, and research looks into them; or say "no".'


class _Draft(Struct, frozen=True, kw_only=True):
    """A skill as far as it has come."""

    step: Step = "topic"
    topic: str = ""
    name: str = ""
    material: str = ""
    found: str = ""
    changes: tuple[str, ...] = ()
    note: str = ""
    """What has to be said besides."""

    @property
    def instructions(self) -> str:
        parts = [
            f"Your task: {self.topic}.",
            "Talk with the user until it is done; then call complete and say what came of it.",
        ]
        parts += [f"Mind this: {each}" for each in self.changes]
        if self.found:
            parts.append(f"What was found for it:\n\n{self.found}")
        return "\n\n".join(parts)


def write_skill_offline(request: ModelRequest) -> ModelReply:
    """The next step of the skill writer."""
    return _act(reduce(_read, request.messages, _Draft()))


# ── what has been said and done ──────────────────────────────────────────────────────────────


def _read(draft: _Draft, message: ModelMessage) -> _Draft:
    if isinstance(message, AssistantMessage):
        return reduce(_called, message.calls, replace(draft, note=""))
    return _heard(draft, message.content.strip()) if message.role == "user" else draft


def _called(draft: _Draft, done: AnsweredCall) -> _Draft:
    """What came of a call."""
    problem = f"That did not work: {cut(done.output, 300)}" if done.is_error else ""
    match done.name:
        case "use_agent" if problem:
            return replace(draft, step="draft", note=f"Research found nothing: {cut(done.output)}")
        case "use_agent":
            return replace(draft, step="draft", found=done.output)
        case "write_skill" if problem and "exists already" in done.output:
            return replace(draft, step="exists", note=problem)
        case "write_skill" if problem:
            return replace(draft, step="draft", note=problem)
        case "write_skill":
            return replace(draft, step="written", note=done.output)
    return draft


def _heard(draft: _Draft, text: str) -> _Draft:
    """What the user's words make of the draft."""
    match draft.step:
        case "left" | "written":
            return draft
        case "topic":
            return _heard_topic(draft, text)
        case "material":
            return _heard_material(draft, text)
    if is_done(text):
        return replace(draft, step="left")
    if named := _RENAMED.search(text):
        return _named(draft, named, "draft")
    if draft.step == "exists" and (is_yes(text) or _REPLACE.search(text)):
        return replace(draft, step="replace")
    if is_yes(text):
        return replace(draft, step="write")
    if _LOOK.match(text):
        return replace(draft, step="research", material=text)
    return replace(draft, step="draft", changes=(*draft.changes, cut(text, 500)))


def _heard_topic(draft: _Draft, text: str) -> _Draft:
    if is_done(text):
        return replace(draft, step="left")
    rest = _WISH.sub("", text, count=1)
    named = _NAMED.search(rest)
    if named:
        rest = f"{rest[: named.start()]} {rest[named.end() :]}"
        draft = _named(draft, named, "topic")
    wanted = _MATERIAL.search(rest)
    rest = rest[: wanted.start()] if wanted else rest
    topic = cut(_LINK.sub("", rest.strip(" ,.;:\n")), 200).strip(" ,.;:")
    if not topic:
        return draft
    draft = replace(draft, topic=topic, name=draft.name or slug(topic))
    if wanted and wanted[1].strip():
        return replace(draft, step="research", material=wanted[1].strip())
    return replace(draft, step="material")


def _heard_material(draft: _Draft, text: str) -> _Draft:
    if is_done(text):
        return replace(draft, step="draft")
    if named := _RENAMED.match(text):
        rest = _AND.sub("", text[named.end() :])
        draft = _named(draft, named, "material")
        return _heard_material(draft, rest) if rest else draft
    return replace(draft, step="research", material=draft.topic if is_yes(text) else text)


def _named(draft: _Draft, named: re.Match[str], step: Step) -> _Draft:
    """The draft with a name that was given; what is no name is refused, and nothing else is."""
    given = named["quoted"] or named["plain"]
    if name := as_name(given):
        return replace(draft, step=step, name=name)
    why = "cannot be the name of a skill: letters, digits and '-' are wanted."
    return replace(draft, note=f"“{cut(given, 40)}” {why}")


# ── what to do next ──────────────────────────────────────────────────────────────────────────


def _act(draft: _Draft) -> ModelReply:
    match draft.step:
        case "topic":
            return reply(_noted(draft, ASK_TOPIC))
        case "material":
            return reply(
                _noted(
                    draft, f"I would call it {draft.name}. Is there material for it? {ASK_FILES}"
                )
            )
        case "research":
            task = f"{FOR_A_SKILL}{draft.name}: {draft.material}"
            return reply(
                _noted(draft, "I ask research."), call(USE_AGENT, name="research", message=task)
            )
        case "write" | "replace":
            return reply("", _write(draft))
        case "exists":
            return reply(_noted(draft, "Shall I replace it? Say yes, no, or “call it …”."))
        case "left":
            return reply("", call(COMPLETE, result="No skill was written."))
        case "written":
            return reply("", call(COMPLETE, result=draft.note))
        case "draft":
            return reply(_shown(draft))


def _write(draft: _Draft) -> ToolCall:
    return call(
        "write_skill", name=draft.name, description=draft.topic, instructions=draft.instructions,
        tools=[], replace=draft.step == "replace",
    )  # fmt: skip


def _shown(draft: _Draft) -> str:
    lines = [f"  {each}".rstrip() for each in draft.instructions.splitlines()]
    return _noted(
        draft,
        f"Here is {draft.name}.md, a skill for: {draft.topic}",
        *lines,
        'Say "write it", or "call it …", or what else to mind; "no" leaves it.',
    )


def _noted(draft: _Draft, *lines: str) -> str:
    """What is said, and first what has to be said besides."""
    return "\n".join((draft.note, *lines) if draft.note else lines)
