"""The arguments of a tool call: the text a model wrote, made into what the function takes.

Two readings.  msgspec decodes the text into the parameters' types; it refuses unknown names at
the top, but inside dataclasses, TypedDicts and Structs it would skip them.  So tools that have
such types read the text once more as plain JSON and compare it with their ``_Shape``.  The same
comparison explains a refusal: it finds *every* unknown, missing or unlisted value, where msgspec
stops at the first.
"""

import enum
import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, inspect

from hubbub.agents.ambiguity import MAX_MATCHED_CHARS, Effort
from hubbub.agents.definitions.signature import Parameter
from hubbub.agents.model import parse_arguments
from hubbub.hub.errors.copied import CopiedWhole
from hubbub.hub.events.sent_items import MAX_ARGUMENTS_CHARS
from hubbub.hub.masking import class_name_of, words_of
from hubbub.hub.tasks.raised import exit_in, is_of

__all__ = ["MAX_ARGUMENTS_CHARS", "Arguments", "ArgumentsReader", "BadArguments", "too_long"]

_MAX_PROBLEMS = 20
_MAX_NAMES = 50
_MAX_PROBLEM_CHARS = 500
_MAX_PATH_CHARS = 200


class BadArguments(CopiedWhole, Exception):
    """The arguments do not fit the tool; ``message`` tells the model what to fix."""

    def __init__(self, tool: str, problems: Iterable[str]) -> None:
        self.tool = tool
        self.problems = tuple(_clip(each) for each in problems)
        lines = "\n".join(f"- {each}" for each in self.problems)
        self.message = (
            f"Bad arguments for {tool}:\n{lines}\nCorrect the arguments and call {tool} again."
        )
        super().__init__(self.message)


def too_long(tool: str, text: str) -> BadArguments:
    """What is wrong with arguments of more than ``MAX_ARGUMENTS_CHARS``, which nobody reads."""
    what = f"{len(text):,} characters are too many; send at most {MAX_ARGUMENTS_CHARS:,}"
    return BadArguments(tool, [what])


class ArgumentsReader(Protocol):
    """Reads the arguments of one tool's calls."""

    def parse(self, text: str) -> dict[str, Any]:
        """Keyword arguments to call the tool with; raises ``BadArguments`` and nothing else."""
        ...


class Arguments:
    """The reader of one tool's arguments; its decoder is built once."""

    __slots__ = (
        "_decode", "_has_nested", "_has_optional", "_has_patterns", "_names", "_shape", "_tool",
    )  # fmt: skip

    def __init__(self, tool: str, parameters: Sequence[Parameter]) -> None:
        self._tool = tool
        self._names = tuple(each.name for each in parameters)
        self._has_optional = not all(each.is_required for each in parameters)
        # Fields have names of ours, so that a parameter may be called __class__ or the like.
        fields: list[Any] = [
            (f"p{index}", each.type) if each.is_required else (f"p{index}", each.type, UNSET)
            for index, each in enumerate(parameters)
        ]
        struct = msgspec.defstruct(
            "Arguments",
            fields,
            rename={f"p{index}": name for index, name in enumerate(self._names)},
            kw_only=True,
            forbid_unknown_fields=True,
            gc=False,
        )
        self._decode = msgspec.json.Decoder(struct).decode
        compiler = _Compiler()
        self._shape = compiler.compile(inspect.type_info(struct)) or _Shape()
        self._has_nested = compiler.objects > 1
        self._has_patterns = compiler.patterns > 0

    def parse(self, text: str) -> dict[str, Any]:
        """Keyword arguments to call the tool with; see ``Tool.parse``."""
        if len(text) > MAX_ARGUMENTS_CHARS:
            raise too_long(self._tool, text)
        try:
            if long := self._too_long(text) if self._has_patterns else ():
                raise BadArguments(self._tool, long)
            found = msgspec.structs.astuple(self._decode(text or "{}"))
            nested = self._refused(text) if self._has_nested else ()
        except BaseException as problem:  # also what a __post_init__ or _missing_ raises
            if exit_in(problem) is not None:
                raise
            if is_of(problem, BadArguments):
                raise
            raise BadArguments(self._tool, self._explain(text, problem)) from problem
        if nested:
            raise BadArguments(self._tool, nested)
        if self._has_optional:
            return {
                name: value
                for name, value in zip(self._names, found, strict=True)
                if value is not UNSET
            }
        return dict(zip(self._names, found, strict=True))

    def _too_long(self, text: str) -> list[str]:
        """The texts that are too long to be matched with a pattern; raises for what is no JSON."""
        problems: list[str] = []
        _find_long(self._shape, parse_arguments(text), "", problems)
        return problems

    def _refused(self, text: str) -> list[str]:
        problems: list[str] = []
        _compare(self._shape, parse_arguments(text), "", problems, explain=False)
        return problems

    def _explain(self, text: str, problem: BaseException) -> list[str]:
        if is_of(problem, RecursionError):
            return ["the JSON is nested too deeply"]
        if is_of(problem, UnicodeError):
            return ["the text is not valid Unicode"]
        if not is_of(problem, msgspec.DecodeError):
            return [f"{class_name_of(problem)}: {words_of(problem)}"]
        if not is_of(problem, msgspec.ValidationError):
            return [
                f"not valid JSON: {problem} (the text has {len(text)} characters); "
                "send one complete JSON object"
            ]
        found: list[str] = []
        try:
            _compare(self._shape, parse_arguments(text), "", found, explain=True)
        except Exception:  # malformed further on, or no object: msgspec's words will do
            found.clear()
        words = words_of(problem)
        if not found or not words.startswith(_EXPLAINED):
            found.insert(0, _path_first(words))
        return found


_EXPLAINED = ("Object contains unknown", "Object missing required", "Invalid enum value")
_PATH_LAST = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)


def _path_first(words: str) -> str:
    found = _PATH_LAST.fullmatch(words)
    if found is None:
        return words[:1].lower() + words[1:]
    return _at(found[2], found[1][:1].lower() + found[1][1:])


def _at(path: str, problem: str) -> str:
    return f"`{_clip(path, _MAX_PATH_CHARS)}`: {problem}" if path else problem


def _clip(text: str, limit: int = _MAX_PROBLEM_CHARS) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


# ── shapes ───────────────────────────────────────────────────────────────────────────────────


class _Shape:
    """Which names and listed values a JSON value may have; silent about all else.

    A value of another JSON kind than the shape speaks of passes: that is for msgspec to judge.
    So a union is its members side by side (``options``), told apart by kind and by tag.
    """

    __slots__ = (
        "choices", "effort", "fields", "items", "kinds", "listed", "names", "options", "prefix",
        "required", "tag", "values",
    )  # fmt: skip

    def __init__(self) -> None:
        self.fields: dict[str, _Shape | None] | None = None  # an object of known names
        self.required: tuple[str, ...] = ()
        self.tag: tuple[str | int, Any] | None = None  # its key or index, and its value
        self.values: _Shape | None = None  # an open object's
        self.items: _Shape | None = None  # a list's
        self.prefix: tuple[_Shape | None, ...] = ()  # a list's first items
        self.choices: tuple[Any, ...] = ()
        self.kinds: frozenset[type] = frozenset()  # of the choices
        self.listed: frozenset[Any] = frozenset()  # the choices, to look one up
        self.effort: Effort | None = None  # a text's with a pattern
        self.names: _Shape | None = None  # an open object's, if they are
        self.options: tuple[_Shape, ...] = ()


class _Compiler:
    """Makes shapes of types; recursive types become recursive shapes."""

    def __init__(self) -> None:
        self._made: dict[Any, _Shape] = {}
        self.objects = 0
        self.patterns = 0

    def compile(self, type_: inspect.Type) -> _Shape | None:
        match type_:
            case inspect.Metadata():
                return self.compile(type_.type)
            case inspect.StructType() | inspect.DataclassType():
                return self._record(type_)
            case inspect.TypedDictType() | inspect.NamedTupleType():
                return self._record(type_)
            case inspect.UnionType():
                return self._union(type_)
            case inspect.CollectionType():
                return _shape(items=self.compile(type_.item_type))
            case inspect.DictType():
                names, values = self.compile(type_.key_type), self.compile(type_.value_type)
                return _shape(values=values, names=names if names and names.effort else None)
            case inspect.StrType() if type_.pattern is not None:
                self.patterns += 1
                return _shape(effort=Effort(type_.pattern))
            case inspect.TupleType():
                parts = tuple(self.compile(each) for each in type_.item_types)
                return _shape(prefix=parts if any(parts) else ())
            case inspect.LiteralType():
                return _shape(choices=tuple(type_.values))
            case inspect.EnumType() if _is_closed(type_.cls):
                return _shape(choices=tuple(each.value for each in type_.cls))
        return None

    def _record(
        self,
        type_: inspect.StructType
        | inspect.DataclassType
        | inspect.TypedDictType
        | inspect.NamedTupleType,
    ) -> _Shape:
        if (known := self._made.get(type_.cls)) is not None:
            return known
        shape = self._made[type_.cls] = _Shape()
        tag_field = tag = None
        is_array = isinstance(type_, inspect.NamedTupleType)
        if isinstance(type_, inspect.StructType):
            tag_field, tag, is_array = type_.tag_field, type_.tag, type_.array_like
        if is_array:
            parts = tuple(self.compile(each.type) for each in type_.fields)
            shape.prefix = parts if tag_field is None else (None, *parts)
            shape.tag = None if tag_field is None else (0, tag)
            return shape
        self.objects += 1
        shape.fields = {} if tag_field is None else {tag_field: None}
        shape.tag = None if tag_field is None else (tag_field, tag)
        shape.required = tuple(each.encode_name for each in type_.fields if each.required)
        for each in type_.fields:
            shape.fields[each.encode_name] = self.compile(each.type)
        return shape

    def _union(self, type_: inspect.UnionType) -> _Shape | None:
        made = [shape for each in type_.types if (shape := self.compile(each)) is not None]
        listed = tuple(choice for each in made for choice in each.choices)
        options = [each for each in made if not each.choices]
        if listed:
            if any(isinstance(each, inspect.NoneType) for each in type_.types):
                listed = (*listed, None)
            options.append(_shape(choices=listed) or _Shape())
        if len(options) <= 1:
            return options[0] if options else None
        return _shape(options=tuple(options))


def _shape(**parts: Any) -> _Shape | None:
    """A shape of these parts, or None if they say nothing."""
    shape = _Shape()
    for name, part in parts.items():
        setattr(shape, name, part)
    shape.kinds, shape.listed = frozenset(map(type, shape.choices)), frozenset(shape.choices)
    return shape if any(parts.values()) else None


def _is_closed(cls: type[enum.Enum]) -> bool:
    """Whether the members are all that is accepted (no ``_missing_`` of its own)."""
    return getattr(cls._missing_, "__func__", None) is getattr(enum.Enum._missing_, "__func__", 0)


def _compare(shape: _Shape, value: Any, path: str, problems: list[str], *, explain: bool) -> None:
    """Add to ``problems`` what ``value`` has and ``shape`` does not know.

    With ``explain`` also what is missing or not among the choices, which msgspec has already
    refused.
    """
    if len(problems) >= _MAX_PROBLEMS:
        return
    for option in shape.options:
        if option.tag is None or _has_tag(value, option.tag):
            _compare(option, value, path, problems, explain=explain)
    if isinstance(value, dict):
        children: Iterable[tuple[Any, _Shape | None, Any]] = ()
        if shape.fields is not None:
            _compare_names(shape, value, path, problems, explain=explain)
            children = ((key, shape.fields.get(key), value[key]) for key in value)
        elif shape.values is not None:
            children = ((key, shape.values, value[key]) for key in value)
        for key, child, part in children:
            if child is not None:
                _compare(child, part, _inside(path, key), problems, explain=explain)
    elif isinstance(value, list):
        for index, part in enumerate(value if shape.items else value[: len(shape.prefix)]):
            child = shape.items or shape.prefix[index]
            if child is not None:
                _compare(child, part, _inside(path, index), problems, explain=explain)
    elif explain and type(value) in shape.kinds and value not in shape.listed:
        known = ", ".join(_listed(each) for each in shape.choices[:_MAX_NAMES])
        problems.append(_at(path, f"{_clip(_listed(value), 100)} is not one of {known}"))


def _listed(value: Any) -> str:
    """A value of a list of some, in the words of JSON."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _find_long(shape: _Shape, value: Any, path: str, problems: list[str]) -> None:
    """Add to ``problems`` the texts that would take too long to be matched with their patterns."""
    for option in shape.options:
        _find_long(option, value, path, problems)
    if isinstance(value, str):
        if shape.effort is None:
            return
        size = f"{len(value):,} characters"
        if len(value) > MAX_MATCHED_CHARS:
            problems.append(_at(path, f"{size}; at most {MAX_MATCHED_CHARS:,} are matched"))
        elif shape.effort.is_too_much(value):
            problems.append(_at(path, f"{size} that the pattern can read in too many ways"))
    elif isinstance(value, dict):
        for key, part in value.items():
            inner = _inside(path, key[:50])
            if shape.names is not None:
                _find_long(shape.names, key, inner, problems)
            child = shape.values or (shape.fields or {}).get(key)
            if child is not None:
                _find_long(child, part, inner, problems)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            child = shape.items or next(iter(shape.prefix[index : index + 1]), None)
            if child is not None:
                _find_long(child, part, _inside(path, index), problems)


def _inside(path: str, key: str | int) -> str:
    """The path of a part, as far as it is shown: each part has its own."""
    if len(path) > _MAX_PATH_CHARS:
        return path
    if isinstance(key, int):
        return f"{path}[{key}]"
    key = key[: _MAX_PATH_CHARS + 1]
    return f"{path}.{key}" if path else key


def _compare_names(
    shape: _Shape, value: dict[str, Any], path: str, problems: list[str], *, explain: bool
) -> None:
    fields = shape.fields or {}
    for key in value:
        if key not in fields and len(problems) < _MAX_PROBLEMS:
            known = ", ".join(f"`{each}`" for each in list(fields)[:_MAX_NAMES]) or "none"
            name = _clip(key, 100)
            problems.append(_at(path, f"unknown field `{name}`; known fields: {known}"))
    if explain:
        missing = [each for each in shape.required if each not in value][:_MAX_NAMES]
        problems.extend(_at(path, f"missing field `{each}`") for each in missing)


def _has_tag(value: Any, tag: tuple[str | int, Any]) -> bool:
    where, wanted = tag
    if isinstance(value, dict):
        return bool(value.get(where) == wanted)
    return isinstance(value, list) and where == 0 and bool(value) and bool(value[0] == wanted)
