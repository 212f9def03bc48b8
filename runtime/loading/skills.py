"""``load_skills``: a folder of Markdown files with front matter, as skills.

    FOLDER/research.md          ---
    FOLDER/review/SKILL.md      description: Finds facts and their sources.
                                tools: [search, use_agent]
                                ---
                                You research.  …

    key             value                                             when it is left out
    ──────────────  ────────────────────────────────────────────────  ────────────────────────
    name            a text                                            the file's, the folder's
    description     a text: when to use the skill                     required
    tools           a list of names, or names with commas between     every tool; ``[]``: none
    agents          the same, of agents that ``use_agent`` may call   every exposed one
    model           ``"provider:name"`` or a registered name          its caller's
    max_iterations  a number                                          25
    env             names of variables that are required, or names    none
                    with their default values (no value: required)
    passthrough     the name of the tool that is the skill            none

Rules
-----
* Looked at: ``NAME.md`` in the folder, ``NAME/SKILL.md`` one level down.  Hidden names are passed
  over; links that lead out of the folder are refused.
* Text is UTF-8, with or without a byte order mark; any line ends.  The instructions are all that
  stands below the front matter, except for blank lines before and blanks after them.
* Front matter is YAML without anchors, aliases and tags: these are for other programs, and may
  expand to any size.
* A skill is wrong as a whole or not at all, and one wrong file fails the folder: an agent with
  some of its skills would be another agent.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import msgspec.yaml
from msgspec import Struct

from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import error_text
from hubbub.agents.definitions.variables import VariableDefinition, env_problems
from hubbub.hub.errors import DefinitionError, MissingExtra, OperatorError
from hubbub.hub.errors.copied import CopiedWhole
from hubbub.hub.near_misses import shown
from hubbub.runtime.text import printable, read_head

__all__ = ["BadSkills", "load_skills"]

MAX_SKILLS: Final = 1_000
MAX_BYTES: Final = 1024 * 1024
MAX_FRONT_MATTER: Final = 64 * 1024
MAX_DEPTH: Final = 8

_FRONT_MATTER: Final = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_BLANK_LINES: Final = re.compile(r"\A(?:[ \t]*\n)+")
_FIELD: Final = re.compile(r"\w+")
_QUOTES: Final = "put numbers, dates, yes and no in quotes"
_TEXT: Final = f"expected a text; {_QUOTES}"


class _Key(Struct, frozen=True):
    """What a key of the front matter may hold, in types and in words."""

    type: Any
    wanted: str
    if_null: str = "leave the key out"


_KEYS: Final[Mapping[str, _Key]] = {
    "name": _Key(str, _TEXT),
    "description": _Key(str, _TEXT, "say when to use the skill"),
    "tools": _Key(
        list[str] | str,
        f"expected a list of names; {_QUOTES}",
        "write [] for no tools, or leave the key out for all",
    ),
    "agents": _Key(
        list[str] | str,
        f"expected a list of names; {_QUOTES}",
        "write [] for no agents, or leave the key out for all that are exposed",
    ),
    "model": _Key(str, _TEXT),
    "max_iterations": _Key(int, "expected a whole number, without quotes"),
    "env": _Key(
        list[str] | dict[str, str | None],
        "expected a list of names, or lines 'NAME: value'",
    ),
    "passthrough": _Key(str, f"expected the name of a tool; {_QUOTES}"),
}


class BadSkills(OperatorError):
    """Files of a folder are no skills; ``problems`` has a line for everything that is wrong."""

    def __init__(self, folder: str, problems: Iterable[str]) -> None:
        self.folder = folder
        self.problems = tuple(problems)
        lines = [f"the skills of {printable(folder)} cannot be used", *self.problems]
        super().__init__("\n- ".join(lines))


class _Wrong(CopiedWhole, Exception):
    """A file is no skill; ``problems`` says why."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems


def load_skills(folder: str | Path) -> tuple[Skill, ...]:
    """Read the skills of a folder, in the order of their names.

    Reads files at once, so call it at start-up.  All files are looked at before anything is
    raised: ``BadSkills``, with one line ``FILE: problem; remedy`` for each problem of each file,
    for two skills of one name, and for a folder that cannot be listed.  Raises ``MissingExtra``
    without PyYAML, which comes with the extras ``skills`` and ``cli``, if there is any skill.
    """
    try:
        given = os.fsdecode(folder)
    except TypeError:
        problem = f"expected the path of a folder, not {type(folder).__name__}"
        raise BadSkills(shown(folder), [problem]) from None
    try:
        root = os.path.realpath(given)
        files = list(islice(_files(root), MAX_SKILLS + 1))
    except (OSError, ValueError) as error:
        problem = f"it cannot be listed: {_words(error)}; name a folder of Markdown files"
        raise BadSkills(given, [problem]) from None
    if len(files) > MAX_SKILLS:
        raise BadSkills(given, [f"it has more than {MAX_SKILLS:,} skills; make several folders"])
    if files:
        _require_yaml()
    skills: dict[str, Skill] = {}
    files_of: dict[str, str] = {}
    problems: list[str] = []
    for path, name in files:
        where = printable(path)
        try:
            skill = _read_skill(root, path, name)
            if (first := files_of.setdefault(skill.name, path)) != path:
                raise _Wrong(f"the name {skill.name!r} is that of {first}; give it another name")
        except _Wrong as wrong:
            problems += [f"{where}: {printable(each)}" for each in wrong.problems]
        else:
            skills[skill.name] = skill
    if problems:
        raise BadSkills(given, problems)
    return tuple(skills[name] for name in sorted(skills))


# ── files ────────────────────────────────────────────────────────────────────────────────────


def _files(root: str) -> Iterator[tuple[str, str]]:
    """The path of each skill's file below ``root``, and the name it has by that."""
    for name in sorted(os.listdir(root)):
        if name.startswith("."):
            continue
        path = os.path.join(root, name)
        if not os.path.isdir(path):
            stem, suffix = os.path.splitext(name)
            if suffix.lower() == ".md":
                yield name, stem
            continue
        try:
            os.lstat(os.path.join(path, "SKILL.md"))
        except FileNotFoundError:
            continue
        except OSError:
            pass  # Reading says why.
        yield os.path.join(name, "SKILL.md"), name


def _read_skill(root: str, path: str, name: str) -> Skill:
    """The skill of one file; raises ``_Wrong``."""
    found = _FRONT_MATTER.match(text := _text(root, path))
    if found is None:
        if text.startswith("---"):
            raise _Wrong("its front matter does not end; put '---' alone on a line below it")
        raise _Wrong("no front matter; begin with the lines '---', 'description: …' and '---'")
    if len(found[1]) > MAX_FRONT_MATTER:
        limit = f"{MAX_FRONT_MATTER // 1024} KiB"
        raise _Wrong(f"its front matter is longer than {limit}; put instructions below it")
    body = _BLANK_LINES.sub("", text[found.end() :]).rstrip()
    return _skill(_front_matter(found[1]), name, body)


def _text(root: str, path: str) -> str:
    whole = os.path.realpath(os.path.join(root, path))
    if not Path(whole).is_relative_to(root):
        raise _Wrong("a link that leads out of the folder; copy the file into it")
    try:
        data, _ = read_head(whole, MAX_BYTES + 1)
    except OSError as error:
        raise _Wrong(f"it cannot be read: {_words(error)}; repair or remove it") from None
    if len(data) > MAX_BYTES:
        raise _Wrong(f"it is longer than {MAX_BYTES // 1024**2} MiB; make it shorter")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _Wrong("it is not UTF-8; save it as UTF-8") from None
    if "\0" in text:
        raise _Wrong("it has a NUL character; save it as UTF-8 text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


# ── front matter ─────────────────────────────────────────────────────────────────────────────


def _require_yaml() -> None:
    try:
        import yaml  # noqa: F401
    except ImportError:
        raise MissingExtra("reading skills from files", "skills") from None


def _front_matter(text: str) -> dict[Any, Any]:
    """The keys and values of a YAML mapping; raises ``_Wrong``."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _demand_plain(yaml.parse(text, loader))
        node = yaml.compose(text, loader)
        if node is None:
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise _Wrong("its front matter has no keys; write lines such as 'description: …'")
        _demand_keys(node)
        found = msgspec.yaml.decode(text, type=dict[Any, Any])
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        remedy = "put a text with ':', '#' or other signs in quotes"
        raise _Wrong(f"{_line(mark)}not YAML: {problem}; {remedy}") from None
    except _Wrong:
        raise
    except Exception as error:  # PyYAML lets what int() and datetime() raise pass.
        what = error_text(error).partition("\n")[0]
        raise _Wrong(f"a value cannot be read ({what}); put it in quotes") from None
    return found


def _demand_plain(events: Iterable[Any]) -> None:
    """Refuse, before anything is built, what could grow without bounds."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        tag = getattr(event, "tag", None)
        if kind == "AliasEvent" or getattr(event, "anchor", None) or tag not in (None, "!"):
            where = _line(event.start_mark)
            remedy = "write the value out, in quotes if it is a text"
            raise _Wrong(f"{where}anchors (&), aliases (*) and tags (!) are refused; {remedy}")
        if depth > MAX_DEPTH:
            where = _line(event.start_mark)
            raise _Wrong(f"{where}nested too deep; expected lists and mappings of texts")


def _demand_keys(node: Any) -> None:
    """Refuse a key that is given twice: PyYAML would take the last one without a word."""
    seen: set[str] = set()
    for key, value in node.value if node.id == "mapping" else ():
        where = _line(key.start_mark)
        if key.id != "scalar":
            raise _Wrong(f"{where}a list or mapping is no key; write 'key: value'")
        if key.value in seen:
            raise _Wrong(f"{where}the key {key.value!r} is given twice; keep one of them")
        seen.add(key.value)
        _demand_keys(value)


def _line(mark: Any) -> str:
    return "" if mark is None else f"line {mark.line + 2}: "


# ── skills ───────────────────────────────────────────────────────────────────────────────────


def _skill(found: Mapping[Any, Any], name: str, body: str) -> Skill:
    """Make the skill; raises ``_Wrong`` with everything that is, in the words of a file."""
    fields: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in found.items():
        problem = _misfit(key, value)
        if problem:
            problems.append(problem)
        elif key == "env":
            problems += _read_env(value, fields)
        elif key in ("tools", "agents") and isinstance(value, str):
            fields[key] = _names(value)
        else:
            fields[key] = value
    wrong = {each.partition(":")[0].partition("[")[0].partition(".")[0] for each in problems}
    fields = {"name": name, "description": "", "instructions": body} | fields
    try:
        skill = Skill(**fields)
    except DefinitionError as error:
        for each in error.problems:
            field = each.partition(":")[0]
            if field in wrong:
                continue
            if field == "name" and "name" not in found:
                each += "; rename it, or give a name"
            elif field == "instructions":
                each = each.replace(field, "the text below the front matter", 1)
            problems.append(each)
    if problems:
        raise _Wrong(*problems)
    return skill


def _names(text: str) -> list[str]:
    names = (each.strip() for each in text.split(","))
    return [each for each in names if each]


def _misfit(key: Any, value: Any) -> str | None:
    """What is wrong with the type of a value; the value itself is not shown."""
    known = _KEYS.get(key) if isinstance(key, str) else None
    if known is None:
        return f"{str(key)[:80]!r} is no key of a skill; known keys: {', '.join(_KEYS)}"
    is_list = key in ("tools", "agents")
    if value is None or (is_list and isinstance(value, str) and not _names(value)):
        return f"{key}: nothing is given; {known.if_null}"
    try:
        msgspec.convert(value, known.type, strict=True)
    except msgspec.ValidationError:
        place = _place(key, value)
        return f"{place}: {known.wanted if place == key else _TEXT}"
    return None


def _place(key: str, value: Any) -> str:
    """Where in a list or mapping stands what is no text."""
    if isinstance(value, list):
        odd = [f"[{index}]" for index, each in enumerate(value) if not isinstance(each, str)]
    elif isinstance(value, dict) and key == "env":
        odd = [
            f".{name}"
            for name, each in value.items()
            if not (isinstance(name, str) and isinstance(each, str | None))
        ]
    else:
        odd = []
    return f"{key}{odd[0]}" if odd else key


def _read_env(env: list[str] | dict[str, str | None], fields: dict[str, Any]) -> Iterable[str]:
    """Declare the variables, with the defaults that are given for them.

    What has its value in the file is no secret: the instructions may show it, as ``{{NAME}}``.
    """
    defaults = {name: value or "" for name, value in env.items()} if isinstance(env, dict) else {}
    problems = list(env_problems("env", defaults or dict.fromkeys(env, "")))
    if len(set(env)) < len(env):
        problems.append("env: a name is listed twice; list it once")
    if not problems:
        fields["variables"] = tuple(
            VariableDefinition(name=name, type="text")
            if defaults.get(name)
            else VariableDefinition(name=name, required=True)
            for name in env
        )
        fields["env"] = {name: value for name, value in defaults.items() if value}
    return problems


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
