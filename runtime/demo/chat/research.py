"""``research`` without a network: rules for reading files and telling what they say.

    a task or an answer ─► names of files, "all"     read them
                           other words               read some, and see who mentions them
                           none of it                ask which one
    files are read      ─► tell what was found and ask on; for a skill: complete
    "done", "thanks"    ─► complete

One line of the user's costs at most a listing, a reading and an answer.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from hubbub.agents.built_in import COMPLETE
from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    ModelReply,
    ModelRequest,
    UserMessage,
    parse_arguments,
)
from hubbub.runtime.demo.chat.words import (
    cut,
    first_task,
    is_done,
    last_said,
    named_file,
    named_files,
    topic_words,
    wants_all,
    wants_list,
)
from hubbub.runtime.demo.documents import is_document
from hubbub.runtime.models.scripted import call, reply

__all__ = ["FOR_A_SKILL", "research_offline"]

FOR_A_SKILL: Final = "For the skill "
"""How a task begins whose result is awaited by another agent."""

MAX_AT_ONCE: Final = 6
"""Files that one answer reads."""
MAX_NAMED: Final = 12
"""Files that are listed in a question."""
MAX_QUOTED: Final = 3
"""Lines of a file that are quoted."""

NO_FOLDER: Final = (
    "I have no folder to read, so I found nothing: `hubbub chat --folder FOLDER` names one."
)


class _Plan(Struct, frozen=True):
    """Which files a text is about, and whether that is a guess."""

    names: tuple[str, ...]
    words: tuple[str, ...]
    is_search: bool = False


class _Finding(Struct, frozen=True):
    """What a file says."""

    name: str
    text: str
    is_match: bool


def research_offline(request: ModelRequest) -> ModelReply:
    """The next step of a research."""
    if "read_file" not in {each.name for each in request.tools}:
        return reply("", call(COMPLETE, result=NO_FOLDER))
    text = _wish(last_said(request))
    last = request.messages[-1]
    calls = last.calls if isinstance(last, AssistantMessage) else ()
    if any(each.name == "read_file" for each in calls):
        return _tell(request, calls, text)
    if calls and calls[-1].name == "list_files":
        return _look_into(request, calls[-1], text)
    if calls or is_done(text):
        return reply("", call(COMPLETE, result=_summary(request)))
    names = _listed(request)
    if not names or wants_list(text):
        return reply("", call("list_files"))
    return _choose(text, names)


def _look_into(request: ModelRequest, listing: AnsweredCall, text: str) -> ModelReply:
    """Go on with the names of the files."""
    names = _listed(request)
    if listing.is_error:
        problem = f"The folder cannot be listed: {cut(listing.output)}"
        return reply("", call(COMPLETE, result=problem))
    if not names:
        return reply("", call(COMPLETE, result="There are no text files in the folder."))
    if wants_list(text):
        return reply(_question(names))
    return _choose(text, names)


def _wish(text: str) -> str:
    """A text without the name of the skill that it is for."""
    return text.partition(":")[2].strip() if text.startswith(FOR_A_SKILL) else text


def _choose(text: str, names: tuple[str, ...]) -> ModelReply:
    plan = _plan(text, names)
    if not plan.names:
        return reply(_question(names))
    return reply("", *(call("read_file", name=each) for each in plan.names))


def _plan(text: str, names: tuple[str, ...]) -> _Plan:
    words = topic_words(text)
    found = named_files(text, names)
    wish = named_file(text)
    if found or wish:
        about = tuple(each for each in words if not any(each in n.casefold() for n in found))
        return _Plan(found[:MAX_AT_ONCE] or (wish,), about)
    likely = (*filter(is_document, names), *(each for each in names if not is_document(each)))
    if wants_all(text):
        return _Plan(likely[:MAX_AT_ONCE], words)
    return _Plan(likely[:MAX_AT_ONCE] if words else (), words, is_search=True)


# ── what is told ─────────────────────────────────────────────────────────────────────────────


def _tell(request: ModelRequest, calls: Iterable[AnsweredCall], text: str) -> ModelReply:
    names = _listed(request)
    plan = _plan(text, names)
    findings = list(_findings(calls, plan))
    problems = [f"That did not work: {cut(each.output)}" for each in calls if each.is_error]
    if not findings:
        looked = f"I have looked into {len(plan.names)} of {len(names)} files"
        about = " or ".join(f"“{cut(each, 40)}”" for each in plan.words[:5])
        nothing = problems or [f"{looked}, and none mentions {about}."]
        return reply("\n".join((*nothing, _question(names))))
    if first_task(request).startswith(FOR_A_SKILL):
        return reply("", call(COMPLETE, result=_summary(request)))
    told = "\n".join((*(each.text for each in findings), *problems))
    return reply(f'{told}\nAnything else? Name a file or a word, or say "done".')


def _question(names: tuple[str, ...]) -> str:
    shown = [f"  {each}" for each in names[:MAX_NAMED]]
    more = [f"  … and {len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
    ask = 'Which one shall I read? Say a name, a word to look for, "all", or "done".'
    return "\n".join(["I see these text files:", *shown, *more, ask])


def _summary(request: ModelRequest) -> str:
    """Everything that was found, for the caller: one entry for each file, the latest."""
    found: dict[str, str] = {}
    text, names = "", _listed(request)
    for message in request.messages:
        if isinstance(message, UserMessage):
            text = _wish(message.content)
            continue
        read = [each for each in message.calls if each.name == "read_file"]
        found |= {each.name: each.text for each in _findings(read, _plan(text, names))}
    if not found:
        return "Research has read no file: nothing was asked for that it could find."
    return "\n".join((f"Found in {', '.join(found)}.", *found.values()))


def _findings(calls: Iterable[AnsweredCall], plan: _Plan) -> Iterator[_Finding]:
    """What the files that could be read say; after a search, those that say anything."""
    for each in calls:
        if each.is_error:
            continue
        name = str(parse_arguments(each.arguments).get("name", ""))
        finding = _finding(name, each.output, plan.words)
        if finding.is_match or not plan.is_search:
            yield finding


def _finding(name: str, content: str, words: tuple[str, ...]) -> _Finding:
    """A file in a few lines: those that mention one of the words, or else the first ones."""
    lines = content.splitlines()
    count = f"{_counted(len(content.split()), 'word')} in {_counted(len(lines), 'line')}"
    folded = [each.casefold() for each in lines]
    hits = [n for n, line in enumerate(folded) if any(word in line for word in words)]
    if hits:
        told = [f"  line {n + 1}: {cut(lines[n])}" for n in hits[:MAX_QUOTED]]
        return _Finding(name, "\n".join((f"{name}: {count}.", *told)), is_match=True)
    first = [f"  {cut(each)}" for each in lines if each.strip()][:MAX_QUOTED]
    head = f"{name}: {count}. It begins:" if first else f"{name} is empty."
    return _Finding(name, "\n".join((head, *first)), is_match=False)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _listed(request: ModelRequest) -> tuple[str, ...]:
    """The names of the files, as they were listed last."""
    for message in reversed(request.messages):
        for each in message.calls if isinstance(message, AssistantMessage) else ():
            if each.name == "list_files" and not each.is_error:
                names = msgspec.json.decode(each.output, type=list[str])
                return tuple(name for name in names if not name.startswith("(and "))
    return ()
