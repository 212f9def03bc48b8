"""What a function's signature says about a tool: its parameters, its schema, its words.

Read once, when the tool is defined; every problem is collected, none is raised here.

    kind of parameter                      becomes
    ─────────────────────────────────────  ──────────────────────────────────────────────────
    ``city: str``                          a required property
    ``days: int = 3``                      an optional property; when left out, it is not passed
    ``Annotated[str, "text"]``             … with that description (before ``msgspec.Meta``'s,
                                           before the docstring's ``Args:`` or ``:param city:``)
    ``state: RunState``                    injected, absent from the schema
    ``*args``, ``**kwargs``, ``a, /``      a problem: a model writes names
    no annotation, or an unreadable type   a problem
"""

import datetime
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Union

import msgspec
import msgspec.inspect
from msgspec import Meta, Struct

from hubbub.agents.ambiguity import ambiguity_of
from hubbub.agents.definitions.run_state import RunState
from hubbub.hub.near_misses import shown

__all__ = [
    "Parameter", "Signature", "demand_readable", "is_pydantic", "own_text", "plain_function",
    "read_signature", "schema_of",
]  # fmt: skip

EMPTY = inspect.Parameter.empty


class Parameter(Struct, frozen=True, kw_only=True):
    """A parameter that the model fills in; ``type`` is its resolved annotation."""

    name: str
    type: Any
    default: Any = EMPTY
    description: str = ""

    @property
    def is_required(self) -> bool:
        return self.default is EMPTY


class Signature(Struct, frozen=True, kw_only=True):
    """What was read; use it only if there are no ``problems``."""

    summary: str = ""
    parameters: tuple[Parameter, ...] = ()
    state_parameter: str | None = None
    schema: dict[str, Any] = {}
    problems: tuple[str, ...] = ()


def read_signature(fn: Callable[..., Any], scope: Mapping[str, Any]) -> Signature:
    """Read ``fn``; ``scope`` holds names for string annotations that its globals lack."""
    summary, texts = _read_docstring(_docstring(fn))
    try:
        declared = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError, NameError) as problem:
        return Signature(problems=(f"the signature cannot be read ({problem})",))
    problems: list[str] = []
    parameters: list[Parameter] = []
    states: list[str] = []
    resolve = _resolver(fn, scope)
    for each in declared:
        try:
            hint = resolve(_usable_annotation(each))
            if _is_run_state(hint):
                states.append(each.name)
                continue
            demand_readable(hint)
        except Exception as problem:
            problems.append(f"parameter {each.name!r}: {problem}")
            continue
        text = own_text(hint) or texts.get(each.name, "")
        parameters.append(
            Parameter(name=each.name, type=hint, default=each.default, description=text)
        )
    if len(states) > 1:
        problems.append(f"parameters {', '.join(states)}: only one may be a RunState")
    schema: dict[str, Any] = {}
    if not problems:
        try:
            schema = schema_of(parameters)
        except Exception as problem:
            problems.append(f"schema: {problem}")
    return Signature(
        summary=summary,
        parameters=tuple(parameters),
        state_parameter=states[0] if states else None,
        schema=schema,
        problems=tuple(problems),
    )


def plain_function(fn: Any) -> Any:
    """The function behind partials, bound methods and callable objects."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.ismethod(fn):
        return fn.__func__
    if inspect.isroutine(fn) or inspect.isclass(fn):
        return fn
    return plain_function(type(fn).__call__)


# ── annotations ──────────────────────────────────────────────────────────────────────────────


def _usable_annotation(parameter: inspect.Parameter) -> Any:
    """The annotation as written; raises TypeError where a model could not fill it in."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise TypeError(
            f"{stars}{parameter.name} cannot be described to a model; name the parameters"
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError("positional-only cannot be filled in by name; remove the '/'")
    if parameter.annotation is EMPTY:
        if parameter.name in ("self", "cls"):
            raise TypeError("make a tool of the bound method, for example  tool(object.method)")
        raise TypeError(f"annotate it, for example  {parameter.name}: str")
    return parameter.annotation


def _resolver(fn: Callable[..., Any], scope: Mapping[str, Any]) -> Callable[[Any], Any]:
    """A function that turns an annotation, text or not, into a type."""
    function = inspect.unwrap(plain_function(inspect.unwrap(fn)))
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    names = getattr(function, "__globals__", None) or vars(module or typing)
    closure = _closure(function)

    def resolve(annotation: Any) -> Any:
        def holder() -> None: ...

        holder.__annotations__ = {"it": annotation}
        try:
            try:
                hints = typing.get_type_hints(holder, names, closure, include_extras=True)
            except NameError:  # perhaps local to the function in which the tool is defined
                hints = typing.get_type_hints(
                    holder, names, {**scope, **closure}, include_extras=True
                )
        except NameError as problem:
            raise TypeError(
                f"cannot resolve {annotation!r} ({problem}); import or define the name where "
                "it exists at run time, not under TYPE_CHECKING"
            ) from problem
        return hints["it"]

    return resolve


def _closure(function: Any) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return found


def _is_run_state(hint: Any) -> bool:
    if typing.get_origin(hint) is Annotated:
        hint = hint.__origin__
    members = typing.get_args(hint) if _is_union(hint) else (hint,)
    return {each for each in members if each is not type(None)} == {RunState}


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (Union, types.UnionType)


def own_text(hint: Any) -> str:
    """What an ``Annotated`` type says of itself."""
    found = (each for each in getattr(hint, "__metadata__", ()) if isinstance(each, str))
    return next(found, "")


def demand_readable(hint: Any) -> None:
    """Raise TypeError for a type that msgspec cannot read from JSON or describe, or may not end
    reading."""
    msgspec.json.Decoder(hint)
    msgspec.json.schema(hint, schema_hook=_refuse_custom)
    for pattern in dict.fromkeys(_patterns(msgspec.inspect.type_info(hint), set())):
        if problem := ambiguity_of(pattern):
            raise TypeError(f"pattern {shown(pattern)}: {problem}")


def _patterns(found: Any, seen: set[int]) -> Iterator[str]:
    """The patterns in what msgspec says of a type; types may be recursive."""
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, msgspec.inspect.StrType) and found.pattern is not None:
        yield found.pattern
    elif isinstance(found, tuple | list):
        for each in found:
            yield from _patterns(each, seen)
    elif isinstance(found, msgspec.inspect.Type | msgspec.inspect.Field):
        for name in found.__struct_fields__:
            yield from _patterns(getattr(found, name), seen)


def _refuse_custom(cls: Any) -> dict[str, Any]:
    name = getattr(cls, "__qualname__", repr(cls))
    if is_pydantic(cls):
        raise TypeError(
            f"{name} is a pydantic model; for a schema= give {name}.model_json_schema(), as a type "
            f"a dataclass, TypedDict or Struct, or a dict for {name}.model_validate"
        )
    raise TypeError(
        f"{name} cannot be read from JSON; use str, int, a dataclass, TypedDict, Struct, …, or Any"
    )


def is_pydantic(cls: Any) -> bool:
    """Whether it is a class of pydantic's, which writes its own schema and validates itself."""
    return isinstance(cls, type) and callable(getattr(cls, "model_json_schema", None))


# ── the schema ───────────────────────────────────────────────────────────────────────────────


def schema_of(parameters: list[Parameter]) -> dict[str, Any]:
    """A closed object with a property for each parameter; references stay inside it."""
    parts, shared = msgspec.json.schema_components([_formatted(each.type) for each in parameters])
    for part in shared.values():
        if "properties" in part:  # every object type of known fields is a shared part
            part["additionalProperties"] = False
    properties = {}
    for parameter, part in zip(parameters, parts, strict=True):
        if parameter.description and (own_text(parameter.type) or "description" not in part):
            part["description"] = parameter.description
        if not parameter.is_required:
            _write_default(part, parameter.default)
        properties[parameter.name] = part
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": [each.name for each in parameters if each.is_required],
        "additionalProperties": False,
    }
    if shared:
        schema["$defs"] = shared
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema))
    return plain


def _write_default(part: dict[str, Any], default: Any) -> None:
    try:
        part["default"] = msgspec.json.decode(msgspec.json.encode(default))
    except Exception:  # a sentinel, say: the function knows it, the model need not
        part.pop("default", None)


def _formatted(hint: Any) -> Any:
    """``hint`` with the format of a datetime spelled out, which msgspec leaves open."""
    if hint is datetime.datetime:
        return Annotated[hint, Meta(extra_json_schema={"format": "date-time"})]
    if _is_union(hint):
        return Union[tuple(_formatted(each) for each in typing.get_args(hint))]  # noqa: UP007
    if typing.get_origin(hint) is Annotated:
        metas = [each for each in hint.__metadata__ if isinstance(each, Meta)]
        if all(each.tz is None for each in metas):
            return Annotated[(_formatted(hint.__origin__), *hint.__metadata__)]
    return hint


# ── the docstring ────────────────────────────────────────────────────────────────────────────

_SECTION = re.compile(r"(Args|Arguments|Parameters):\s*$")
_GOOGLE = re.compile(r"(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_FIELD = re.compile(r"\s*:param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)")


def _docstring(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not (inspect.isroutine(fn) or inspect.isclass(fn)):
        return inspect.getdoc(type(fn).__call__) or inspect.getdoc(type(fn)) or ""
    return inspect.getdoc(fn) or ""


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and the text for each parameter it describes."""
    lines = text.splitlines()
    summary: list[str] = []
    for line in lines:
        if not line.strip() or _SECTION.match(line) or line.lstrip().startswith(":"):
            break
        summary.append(line.strip())
    return " ".join(summary), _parameter_texts(lines)


def _parameter_texts(lines: list[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    in_section, indent, current = False, "", ""
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if _SECTION.match(line):
            in_section, indent, current = True, "", ""
        elif found := _FIELD.match(line):
            current, indent = found[1], line[:depth]
            texts[current] = found[2].strip()
        elif not line.strip() or (in_section and depth == 0):
            current, in_section = "", in_section and not line.strip()
        elif in_section and (found := _GOOGLE.match(line)) and found[1] == (indent or found[1]):
            indent, current = found[1], found[2]
            texts[current] = found[3].strip()
        elif current and depth > len(indent):
            texts[current] = f"{texts[current]} {line.strip()}".strip()
        else:
            current = ""
    return texts
