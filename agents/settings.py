"""``ModelSettings``: how a model is to answer, in words that every provider's client translates.

    ModelSettings ──client──► the provider's own fields ──► the body ◄── provider_options (win)

``None``, and an empty ``stop``, say nothing: the provider's default holds.  A setting that a
provider or one of its models does not have is refused when a runtime is built, never left out.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from hubbub.hub.errors import DefinitionError
from hubbub.hub.near_misses import did_you_mean, shown, told_fields
from hubbub.hub.texts import text_problem
from hubbub.hub.values import LIMIT_OF_TIME, is_time_limit

__all__ = ["LEVELS", "ModelSettings", "ThinkingLevel"]

ThinkingLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]

LEVELS: Final[tuple[str, ...]] = get_args(ThinkingLevel)
"""The levels of thinking, from none at all upwards."""

MAX_STOPS: Final = 16
_MAX_SEED: Final = 2**63


class ModelSettings(Struct, metaclass=told_fields, frozen=True, kw_only=True, omit_defaults=True):
    """How a model is to answer.  What is ``None`` is left to the provider.

    * ``temperature`` (0 to 2) and ``top_p`` (above 0, at most 1) say how freely it chooses words.
    * ``max_tokens``: the most it may write in one step, its thinking included.
    * ``stop``: texts at which it stops; up to 16, each of at least one character.
    * ``seed``: the same one asks for the same answer, as far as the provider can.
    * ``thinking``: ``"off"``, a level (``minimal``, ``low``, ``medium``, ``high``, ``xhigh``,
      ``max``), or a budget of tokens from 1 upwards.
    * ``timeout``: seconds that one call of the model may take, 600 if it is not given.
    * ``service_tier``: the provider's own word for how urgent it is (``"flex"``, ``"priority"``).

    Raises ``DefinitionError`` listing every problem.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    seed: int | None = None
    thinking: ThinkingLevel | int | None = None
    timeout: float | None = None
    service_tier: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, Iterable) and not isinstance(self.stop, str):
            # One more than may be: it need not have an end.
            force_setattr(self, "stop", tuple(islice(self.stop, MAX_STOPS + 1)))
        if problems := list(_problems(self)):
            raise DefinitionError("ModelSettings", problems)

    @property
    def thinks(self) -> bool:
        """Whether thinking is asked for, by a level or a budget."""
        return self.thinking is not None and self.thinking != "off"

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the settings that say something."""
        return tuple(each for each in self.__struct_fields__ if getattr(self, each) not in _NOTHING)


_NOTHING: Final[tuple[Any, ...]] = (None, ())


def _problems(settings: ModelSettings) -> Iterable[str]:
    if not _is_number(settings.temperature, 0, 2):
        yield f"temperature: expected a number from 0 to 2, not {shown(settings.temperature)}"
    if not _is_number(settings.top_p, 0, 1) or settings.top_p == 0:
        yield f"top_p: expected a number above 0, at most 1, not {shown(settings.top_p)}"
    if not _is_whole(settings.max_tokens, 1):
        yield f"max_tokens: expected a whole number from 1, not {shown(settings.max_tokens)}"
    if not _is_whole(settings.seed, -_MAX_SEED):
        yield f"seed: expected a whole number of 64 bits, not {shown(settings.seed)}"
    if settings.timeout is not None and not is_time_limit(settings.timeout):
        yield f"timeout: expected {LIMIT_OF_TIME}, not {shown(settings.timeout)}"
    yield from _stop_problems(settings.stop)
    yield from _thinking_problems(settings.thinking)
    tier: object = settings.service_tier
    if tier is not None and (not isinstance(tier, str) or not tier or text_problem(tier)):
        yield f"service_tier: expected the provider's word, not {shown(tier)}"


def _stop_problems(stop: object) -> Iterable[str]:
    if not isinstance(stop, tuple):
        yield f"stop: expected a list of texts, not {shown(stop)}"
        return
    if len(stop) > MAX_STOPS:
        yield f"stop: at most {MAX_STOPS} texts"
        return
    for index, each in enumerate(stop):
        if problem := text_problem(each):
            yield f"stop[{index}]: {problem}"
        elif not each:
            yield f"stop[{index}]: expected at least one character"


def _thinking_problems(thinking: object) -> Iterable[str]:
    if thinking is None or (isinstance(thinking, str) and thinking in LEVELS):
        return
    if isinstance(thinking, int) and not isinstance(thinking, bool):
        if not _is_whole(thinking, 1):
            given = shown(thinking)
            yield f'thinking: a budget is from 1 token upwards, not {given}; none is "off"'
        return
    meant = ""
    if isinstance(thinking, bool):
        meant = '; give a level such as "high"' if thinking else '; did you mean "off"?'
    elif isinstance(thinking, str):
        meant = did_you_mean(thinking, LEVELS)
    levels = ", ".join(map(repr, LEVELS))
    yield f"thinking: expected {levels} or a number of tokens, not {shown(thinking)}{meant}"


def _is_number(value: object, least: float, most: float) -> bool:
    """Whether it is a number within these bounds, or absent."""
    if value is None:
        return True
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return least <= value <= most


def _is_whole(value: object, least: int) -> bool:
    """Whether it is a whole number that fits into 64 bits, or absent."""
    if value is None:
        return True
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63
