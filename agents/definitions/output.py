"""The value that a prompt's answers are: its schema, and what makes it of a model's words.

    output=                            checked by                       what callers get
    ─────────────────────────────────  ───────────────────────────────  ─────────────────────
    a Struct, dataclass or TypedDict   the type itself, unknown fields  an instance, a dict
                                       at any depth besides
    a pydantic model                   the model itself                 an instance
    a JSON Schema                      what ``schema`` reads of it      a dict

Rules
-----
* An answer is one JSON object, by itself or in a single code fence.  What the type's own code
  raises (``__post_init__``, a validator) is a misfit like any other: its words go to the model.
* On record is the value with its defaults; where code of the type has changed it, and of a pydantic
  model, what was said: that code runs again whenever the value is asked for.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from hubbub.agents.built_in import FINAL_ANSWER
from hubbub.agents.definitions.arguments import MAX_ARGUMENTS_CHARS, Arguments, BadArguments
from hubbub.agents.definitions.schema import plain_json, read_schema
from hubbub.agents.definitions.signature import is_pydantic
from hubbub.agents.model import OutputSpec, ToolSpec
from hubbub.hub.errors import BadValue
from hubbub.hub.errors.copied import CopiedWhole
from hubbub.hub.masking import class_name_of, words_of
from hubbub.hub.tasks.raised import exit_in
from hubbub.hub.values import NULL, Json, encode_value

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Output_co = TypeVar("Output_co", default=Any, covariant=True)
    Output = TypeVar("Output", default=Any)
else:
    from typing import TypeVar

    Output_co = TypeVar("Output_co", covariant=True)
    Output = TypeVar("Output")

__all__ = [
    "Misfit", "Output", "OutputForm", "Output_co", "output_form", "output_problems", "unfenced",
]  # fmt: skip

_FENCE: Final = re.compile(r"\s*```[a-zA-Z]*\s*\n(.*)\n\s*```\s*", re.DOTALL)
_WORDS: Final = "Give the final answer, once, when nothing is left to do. It ends your turn."
_MAX_PROBLEMS: Final = 20
_MAX_PROBLEM_CHARS: Final = 500
_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")


class Misfit(CopiedWhole, Exception):
    """An answer is not of the form; ``problems`` say why, each in a line for the model."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        problems = tuple([each[:_MAX_PROBLEM_CHARS] for each in problems[:_MAX_PROBLEMS]])
        self.problems = problems
        super().__init__("; ".join(problems))

    @property
    def lines(self) -> str:
        """The problems as the model reads them."""
        return "\n".join(f"- {each}" for each in self.problems)


class OutputForm(Struct, frozen=True, eq=False, kw_only=True):
    """What ``output=`` means; made once for each side."""

    given: Any
    spec: OutputSpec
    tool: ToolSpec
    """By which a model answers that cannot be bound to a schema."""
    check: Callable[[str], Any]
    """The value of an answer's text, ready to be encoded; raises ``Misfit``."""
    make: Callable[[Json], Any]

    def read(self, text: str) -> Json:
        """The value that an answer is, as it is recorded; raises ``Misfit``."""
        if len(text) > MAX_ARGUMENTS_CHARS:
            most = f"send at most {MAX_ARGUMENTS_CHARS:,}"
            raise Misfit((f"{len(text):,} characters are too many; {most}",))
        try:
            return encode_value("output", self.check(unfenced(text)))
        except BadValue as error:
            raise Misfit((str(error),)) from None

    def problem(self, text: str) -> str:
        """Why an answer does not fit, in lines for the model; empty where it does."""
        try:
            self.read(text)
        except Misfit as misfit:
            return misfit.lines
        return ""

    def value(self, output: Json) -> Any:
        """What callers get of a recorded value, anew each time.

        Raises ``BadValue`` where it does not fit: it was recorded under another ``output=``.
        """
        if output is NULL or bytes(output) == b"null":
            return None
        try:
            return self.make(output)
        except Exception as error:
            words = f"what is on record is no {self.spec.name}: {words_of(error)}"
            raise BadValue("output", words) from None


def unfenced(text: str) -> str:
    """What an answer is without a byte order mark before it and a code fence around it."""
    text = text.removeprefix("\ufeff")
    fenced = _FENCE.fullmatch(text)
    return text if fenced is None else fenced[1]


def output_problems(output: object) -> tuple[str, ...]:
    """What is wrong with the value of ``output=``, with paths."""
    if isinstance(output, OutputForm):
        return ()
    if is_pydantic(output):
        try:
            plain_json(output.model_json_schema(), "")  # type: ignore[attr-defined]
        except Exception as error:
            return (str(error) or class_name_of(error),)
        return ()
    return read_schema(output, is_made=True)[2]  # type: ignore[arg-type]


def output_form(output: Any) -> OutputForm:
    """The form of a valid ``output=``; one that is given as such is itself."""
    if isinstance(output, OutputForm):
        return output
    if is_pydantic(output):
        schema = plain_json(output.model_json_schema(), "")
        return _form(output, schema, _checked_by_model(output), _model_maker(output))
    parameters, schema, _ = read_schema(output, is_made=True)
    arguments = Arguments(FINAL_ANSWER, parameters)
    if isinstance(output, Mapping):
        return _form(output, schema, _checked_by_schema(arguments), msgspec.json.decode)
    decode = msgspec.json.Decoder(output).decode
    return _form(output, schema, _checked_by_type(arguments, decode), decode)


def _form(
    output: Any, schema: dict[str, Any], check: Callable[[str], Any], make: Callable[[Json], Any]
) -> OutputForm:
    title = output.get("title") if isinstance(output, Mapping) else output.__name__
    name = _NAME.sub("_", title if isinstance(title, str) else "")[:64] or "answer"
    told = schema.get("description")
    words = f"{_WORDS}\n\n{told}" if isinstance(told, str) else _WORDS
    return OutputForm(
        given=output,
        spec=OutputSpec(name=name, schema=schema),
        tool=ToolSpec(name=FINAL_ANSWER, description=words, schema=schema),
        check=check,
        make=make,
    )


def _checked_by_schema(arguments: Arguments) -> Callable[[str], Any]:
    def check(text: str) -> Any:
        try:
            return msgspec.to_builtins(arguments.parse(text.strip() or "null"))
        except BadArguments as error:
            raise Misfit(error.problems) from None

    return check


def _checked_by_type(
    arguments: Arguments, decode: Callable[[str | bytes], Any]
) -> Callable[[str], Any]:
    """Names at any depth are checked ahead of it: to the type itself unknown ones are nothing."""

    def check(text: str) -> Any:
        text = text.strip() or "null"
        try:
            arguments.parse(text)
            return _recorded(text, decode)
        except BadArguments as error:
            raise Misfit(error.problems) from None
        except BaseException as error:  # What the type's own code raises.
            if exit_in(error) is not None:
                raise
            is_said = isinstance(error, ValueError)
            words = words_of(error) if is_said else f"{class_name_of(error)}: {words_of(error)}"
            raise Misfit((words,)) from None

    return check


def _recorded(text: str, decode: Callable[[str | bytes], Any]) -> Any:
    """What of an answer is recorded: the value with its defaults, the same in each process; or,
    where the type would make something else of that, what was said."""
    plain = _plain(decode(text))
    try:
        is_stable = _plain(decode(msgspec.json.encode(plain))) == plain
    except Exception:
        is_stable = False
    return plain if is_stable else msgspec.json.decode(text)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(_with_defaults(value), order="deterministic")


def _with_defaults(value: Any) -> Any:
    """A value whose dataclasses have their defaults as their own: those that msgspec reads leave
    plain ones to the class, which is not encoded."""
    inner: Iterable[Any] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    elif isinstance(value, Struct):
        inner = [getattr(value, name) for name in value.__struct_fields__]
    elif dataclasses.is_dataclass(value):
        named = {x.name: getattr(value, x.name) for x in dataclasses.fields(value)}
        for name in named.keys() - getattr(value, "__dict__", named).keys():
            object.__setattr__(value, name, named[name])
        inner = named.values()
    for each in inner:
        _with_defaults(each)
    return value


def _checked_by_model(model: Any) -> Callable[[str], Any]:
    def check(text: str) -> Any:
        try:
            model.model_validate_json(text.strip() or "null")
            return msgspec.json.decode(text)
        except BaseException as error:
            if exit_in(error) is not None:
                raise
            raise Misfit(_words_of_model(error)) from None

    return check


def _model_maker(model: Any) -> Callable[[Json], Any]:
    def make(output: Json) -> Any:
        return model.model_validate_json(bytes(output))

    return make


def _words_of_model(error: BaseException) -> tuple[str, ...]:
    """What a pydantic model says, a line for each place."""
    listed = getattr(error, "errors", None)
    if not callable(listed):
        return (words_of(error),)
    return tuple(
        f"`{'.'.join(map(str, each['loc']))}`: {each['msg']}" if each["loc"] else str(each["msg"])
        for each in listed()
    )
