"""The shape an author demands of an agent's arguments, read into parameters.

Read once, when the prompt is defined; every problem is collected, none is raised here.

    in a schema                            means
    ─────────────────────────────────────  ──────────────────────────────────────────────────
    the schema itself                      ``"type": "object"`` with ``properties``
    ``type``, one or a list                these kinds of value; absent: any value
    ``properties``, ``required``           a closed object: unknown fields are refused
    ``additionalProperties``               a dict of such values, if there are no ``properties``
    an object with none of these           an open dict
    ``items``, ``minimum``, ``pattern``,…  limits on values of the kind named in ``type``
    ``enum``, ``const``                    one of these strings, integers, booleans, nulls
    ``anyOf``                              each kind of value in one branch, except for ``enum``
    ``title``, ``default``, ``format``,…   shown to the model, not validated
    ``$ref`` to ``$defs`` at the top       the part referred to, written in its place
    anything else                          a problem that says what to use instead

What msgspec would judge otherwise than the schema says is a problem, never an approximation.  Two
readings are ours: ``1.0`` is no integer, and a pattern is searched as Python's ``re`` does.
"""

import functools
import math
import re
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, Union

import msgspec
from msgspec import UNSET, Meta, inspect

from hubbub.agents.ambiguity import ambiguity_of
from hubbub.agents.definitions.signature import (
    EMPTY,
    Parameter,
    demand_readable,
    is_pydantic,
    own_text,
    schema_of,
)
from hubbub.agents.shared_parts import in_place, refers_to_itself

__all__ = ["path_inside", "plain_json", "read_schema"]

_Found = tuple[tuple[Parameter, ...], dict[str, Any]]


def read_schema(
    schema: Mapping[str, Any] | type, *, is_made: bool = False, tries_patterns: bool = True
) -> tuple[tuple[Parameter, ...], dict[str, Any], tuple[str, ...]]:
    """The parameters, the closed JSON schema to show to a model, and the problems with paths.

    With problems, the first two are empty.  A parameter that may be left out has a default:
    ``UNSET``, if a JSON schema says so.  ``Arguments`` then reads nested objects as Structs;
    ``msgspec.to_builtins`` makes the whole plain again.  ``is_made``: values of a type are made
    afterwards, so code of its own does run.  A pattern that may take without end is a problem,
    unless it is only shown.
    """
    problems: list[str] = []
    found: _Found = (), {}
    try:
        if isinstance(schema, type):
            found = _read_type(schema, problems, is_made=is_made)
        elif isinstance(schema, Mapping):
            plain = plain_json(schema, "")
            if refers_to_itself(plain):
                raise ValueError(f"it refers to itself; give {_types(is_made)} that holds itself")
            found = _read_json(in_place(plain), problems, tries_patterns)
        else:
            problems.append(f"give a JSON schema (a dict), or {_types(is_made)} of named fields")
    except Exception as problem:
        problems.append(str(problem) or type(problem).__name__)
    return ((), {}, tuple(dict.fromkeys(problems))) if problems else (*found, ())


def _types(is_made: bool) -> str:
    """Which types may be in the place of a schema."""
    return f"a Struct, dataclass{', TypedDict or pydantic model' if is_made else ' or TypedDict'}"


def _read_type(cls: type, problems: list[str], *, is_made: bool) -> _Found:
    known = inspect.type_info(cls)
    records = inspect.StructType | inspect.DataclassType | inspect.TypedDictType
    if not isinstance(known, records) or getattr(known, "array_like", False):
        kinds = f"{_types(is_made)} of named fields"
        if is_pydantic(cls):
            kinds = f"{kinds}; give {cls.__qualname__}.model_json_schema()"
        raise TypeError(f"{cls.__qualname__} is not {kinds}")
    if hasattr(cls, "__post_init__") and not is_made:
        problems.append("__post_init__: would not run, only fields are read; constrain their types")
    hints = typing.get_type_hints(cls, include_extras=True)
    parameters = []
    for each in known.fields:
        hint, default = hints[each.name], EMPTY if each.required else each.default
        while typing.get_origin(hint) in (typing.Required, typing.NotRequired):
            hint = typing.get_args(hint)[0]
        try:
            demand_readable(hint)
        except Exception as problem:
            problems.append(f"{each.encode_name}: {problem}")
        default = UNSET if default is msgspec.NODEFAULT else default
        text = own_text(hint)
        parameters.append(
            Parameter(name=each.encode_name, type=hint, default=default, description=text)
        )
    return tuple(parameters), {} if problems else schema_of(parameters)


def _read_json(schema: dict[str, Any], problems: list[str], tries_patterns: bool) -> _Found:
    msgspec.json.encode(schema)  # raises for lone surrogates and the like
    if schema.get("type") != "object" or "properties" not in schema:
        problems.append('the top must be {"type": "object", "properties": {…}, "required": […]}')
    top: Any = _Compiler(problems, tries_patterns).compile(schema, "").get("object")
    if problems:
        return (), {}
    parameters = [
        Parameter(
            name=each.encode_name,
            type=each.type,
            default=EMPTY if each.required else UNSET,
            description=str(schema["properties"][each.encode_name].get("description", "")),
        )
        for each in msgspec.structs.fields(top)
    ]
    return tuple(parameters), schema


def plain_json(value: Any, path: str, depth: int = 0) -> Any:
    """A deep copy of JSON data; raises for anything else."""
    # Most parts hold nothing: these are told at a glance, and have no path made for them.
    if depth > _MAX_DEPTH:
        raise ValueError(f"{path[:80]}…: nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        if odd := [key for key in value if type(key) is not str]:
            raise TypeError(f"{path_inside(path, repr(odd[0]))}: a name must be a string")
        return {
            key: each
            if type(each := value[key]) in _KIND_OF
            else plain_json(each, path_inside(path, key), depth + 1)
            for key in value
        }
    if isinstance(value, list | tuple):
        return [
            each if type(each) in _KIND_OF else plain_json(each, f"{path}[{i}]", depth + 1)
            for i, each in enumerate(value)
        ]
    if type(value) not in (float, *_KIND_OF) or (type(value) is float and not math.isfinite(value)):
        raise TypeError(f"{path}: {value!r:.80} is not JSON")
    return value


def path_inside(path: str, key: str) -> str:
    """The path of a part; each part has its own, so what is long is not repeated in all of them."""
    if len(path) > _MAX_PATH:
        return path if path.endswith("…") else f"{path}…"
    key = key if len(key) <= _MAX_PATH else f"{key[:_MAX_PATH]}…"
    return f"{path}.{key}" if path else key


# ── keywords ─────────────────────────────────────────────────────────────────────────────────

_MAX_DEPTH: Final = 64
_MAX_PATH: Final = 1_000
_PLAIN: Final = {"string": str, "integer": int, "float": float, "boolean": bool, "null": None}
_KIND_OF: Final = {str: "string", int: "integer", bool: "boolean", type(None): "null"}
_KINDS: Final = {  # the kinds of value of a type
    **{each: (each,) for each in ("string", "integer", "boolean", "null", "object", "array")},
    "number": ("integer", "float"),
}
_Type = Literal["string", "integer", "boolean", "null", "object", "array", "number"]
_Some = Meta(min_length=1)
_SHOWN: Final = ("title", "description", "default", "examples", "format", "$schema")
_KEYWORDS: Final[dict[str, Any]] = {  # the values that each may have
    "type": _Type | Annotated[list[_Type], _Some],
    "enum": Annotated[list[str | int | bool | None], _Some],
    "const": str | int | bool | None,
    "anyOf": Annotated[list[Any], _Some],
    **dict.fromkeys(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"), int | float),
    "multipleOf": Annotated[int, Meta(ge=1)],  # msgspec cannot tell multiples of 0.1
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), Annotated[int, Meta(ge=0)]),
    "pattern": str,
    **dict.fromkeys(("items", "properties"), dict[str, Any]),
    "required": list[str],
    "additionalProperties": bool | dict[str, Any],
    **dict.fromkeys(_SHOWN, Any),
}
_LIMITS: Final = {  # the types that a keyword speaks of
    **dict.fromkeys(("minimum", "exclusiveMinimum"), ("integer", "number")),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "multipleOf"), ("integer", "number")),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), ("string",)),
    **dict.fromkeys(("items", "minItems", "maxItems"), ("array",)),
    **dict.fromkeys(("properties", "required", "additionalProperties"), ("object",)),
}
_BOUNDS: Final = {
    "minimum": "ge",
    "exclusiveMinimum": "gt",
    "maximum": "le",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}
_INSTEAD: Final = {
    **dict.fromkeys(("$ref", "$defs", "definitions"), "the schema itself, written in place"),
    "oneOf": "anyOf",
    "allOf": "one schema of all the parts",
    "patternProperties": "additionalProperties",
    "prefixItems": "an object with properties",
    "nullable": '"null" in type',
}


class _Compiler:
    """Makes of a schema a type for each kind of value; listed values are a tuple of them."""

    def __init__(self, problems: list[str], tries_patterns: bool) -> None:
        self._problems = problems
        self._tries_patterns = tries_patterns

    def compile(self, schema: Any, path: str) -> dict[str, Any]:
        if not isinstance(schema, dict):
            self._say(path, "expected a schema, an object")
            return {}
        good = {key: value for key, value in schema.items() if self._is_good(key, value, path)}
        types = good.get("type", list(_KINDS))
        types = types if isinstance(types, list) else [types]
        whole = next((key for key in ("enum", "const", "anyOf") if key in good), "")
        for key in good:
            if whole and key not in (whole, "type" if whole != "anyOf" else "", *_SHOWN):
                self._say(path_inside(path, key), f"cannot stand beside {whole}")
            elif key in _LIMITS and ("type" not in schema or not {*_LIMITS[key]} & {*types}):
                self._say(path_inside(path, key), f"needs the type {' or '.join(_LIMITS[key])}")
        if whole == "anyOf":
            return self._any_of(good[whole], path_inside(path, whole))
        kinds = [kind for each in types for kind in _KINDS[each]]
        if whole:
            values = good[whole] if whole == "enum" else [good[whole]]
            return self._listed(values, kinds, path_inside(path, whole))
        if "object" in kinds and "properties" in schema:
            schema.setdefault("additionalProperties", False)  # in the shown schema
        return {kind: self._kind(kind, good, path) for kind in kinds}

    def _part(self, schema: Any, path: str) -> Any:
        kinds = {} if schema == {} else self.compile(schema, path)
        is_open = typing.get_origin(kinds.get("object")) is dict
        if _has_pattern(kinds.get("string")) and ("array" in kinds or is_open):
            # msgspec (0.22) corrupts memory when such a type is garbage-collected.
            self._say(path, "a string with a pattern cannot stand beside a list or an open dict")
            return Any
        return _union(kinds)

    def _say(self, path: str, problem: str) -> None:
        self._problems.append(f"{path}: {problem}" if path else problem)

    def _is_good(self, key: str, value: Any, path: str) -> bool:
        if key not in _KEYWORDS:
            remedy = f"use {_INSTEAD[key]}" if key in _INSTEAD else "remove it"
            self._say(path_inside(path, key), f"not supported; {remedy}")
            return False
        try:
            msgspec.convert(value, _KEYWORDS[key])
        except msgspec.ValidationError as problem:
            self._say(path_inside(path, key), str(problem))
            return False
        return True

    def _build(self, make: Callable[[], Any], path: str) -> Any:
        """What ``make`` makes, if msgspec can read it; else Any and a problem."""
        try:
            msgspec.json.Decoder(made := make())
        except Exception as problem:
            self._say(path, str(problem))
            return Any
        return made

    def _any_of(self, branches: list[Any], path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for index, branch in enumerate(branches):
            for kind, type_ in self.compile(branch, f"{path}[{index}]").items():
                is_listed = isinstance(type_, tuple)
                known = found.setdefault(kind, [] if is_listed else type_)
                if is_listed and isinstance(known, list):
                    known += type_
                elif is_listed or known != type_:
                    name = "number" if kind == "float" else kind
                    self._say(f"{path}[{index}]", f"a second branch for {name}; make them one")
        return {kind: _whole(type_) for kind, type_ in found.items()}

    def _listed(self, values: list[Any], kinds: list[str], path: str) -> dict[str, Any]:
        listed: dict[str, list[Any]] = {}
        for value in values:
            kind = _KIND_OF[type(value)]
            if kind not in kinds:
                self._say(path, f"{value!r} is not of the type")
            listed.setdefault(kind, []).append(value)
        found = {kind: _whole(each) for kind, each in listed.items()}
        return {} if self._build(lambda: _union(found), path) is Any else found

    def _kind(self, kind: str, schema: dict[str, Any], path: str) -> Any:
        if kind == "object":
            return self._object(schema, path)
        type_: Any = _PLAIN.get(kind)
        limits: dict[str, Any] = {}
        if kind == "array":
            items: Any = self._part(schema.get("items", {}), path_inside(path, "items"))
            type_ = list[items]
            limits = {"min_length": schema.get("minItems"), "max_length": schema.get("maxItems")}
        elif kind == "string":
            limits = {"min_length": schema.get("minLength"), "max_length": schema.get("maxLength")}
            limits["pattern"] = self._pattern(schema, path)
        elif kind in ("integer", "float"):
            return self._build(lambda: _number(schema, is_whole=kind == "integer"), path)
        given = {name: limit for name, limit in limits.items() if limit is not None}
        return self._build(lambda: Annotated[type_, Meta(**given)], path) if given else type_

    def _pattern(self, schema: dict[str, Any], path: str) -> str | None:
        pattern: str | None = schema.get("pattern")
        if pattern is not None and self._tries_patterns:
            try:
                problem = ambiguity_of(pattern)
            except re.error:
                return pattern  # What is wrong with it is said where it is used.
            if problem:
                self._say(path_inside(path, "pattern"), problem)
                return None
        return pattern

    def _object(self, schema: dict[str, Any], path: str) -> Any:
        properties, required = schema.get("properties", {}), {*schema.get("required", ())}
        others = schema.get("additionalProperties", "properties" not in schema)
        if missing := [each for each in schema.get("required", ()) if each not in properties]:
            self._say(path_inside(path, "required"), f"{missing[0]!r} is not among the properties")
        if others is not False and "properties" in schema:
            self._say(path_inside(path, "additionalProperties"), "must be false beside properties")
        if others is not False and "properties" not in schema:
            others = {} if others is True else others
            values: Any = self._part(others, path_inside(path, "additionalProperties"))
            return dict[str, values]
        fields: list[Any] = []
        for index, (name, part) in enumerate(properties.items()):
            type_ = self._part(part, path_inside(path, f"properties.{name}"))
            fields.append((f"p{index}", type_, *(() if name in required else (UNSET,))))
        rename = {f"p{index}": name for index, name in enumerate(properties)}
        make = functools.partial(msgspec.defstruct, "Object", fields, rename=rename, kw_only=True)
        return self._build(lambda: make(forbid_unknown_fields=True), path)


def _whole(type_: Any) -> Any:
    """A type; listed values as the tuple of them."""
    return tuple(type_) if isinstance(type_, list) else type_


def _union(kinds: dict[str, Any]) -> Any:
    parts = [Literal[each] if isinstance(each, tuple) else each for each in kinds.values()]
    return Union[tuple(parts)] if parts else Any  # noqa: UP007


def _has_pattern(type_: Any) -> bool:
    return any(each.pattern is not None for each in getattr(type_, "__metadata__", ()))


def _number(schema: dict[str, Any], *, is_whole: bool) -> Any:
    """A number type with its bounds; those of integers are made whole."""
    bounds = {word: schema[key] for key, word in _BOUNDS.items() if key in schema}
    if "ge" in bounds and "gt" in bounds:
        del bounds["ge" if bounds["gt"] >= bounds["ge"] else "gt"]
    if "le" in bounds and "lt" in bounds:
        del bounds["le" if bounds["lt"] <= bounds["le"] else "lt"]
    for word, bound in bounds.items():
        if is_whole:
            bounds[word] = math.ceil(bound) if word in ("ge", "lt") else math.floor(bound)
        elif (number := float(bound)) == bound:
            bounds[word] = number
        else:
            raise ValueError(f"{bound} is too precise a bound for a number")
    type_: Any = int if is_whole else float
    return Annotated[type_, Meta(**bounds)] if bounds else type_
