"""Hypothesis strategies for what a provider may be asked: any history, however odd."""

from collections.abc import Callable
from typing import Final

from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    ModelRequest,
    Thinking,
    UserMessage,
)
from hubbub.hub.errors import MissingExtra
from hubbub.runtime.models.conformance.samples import (
    CONTENTS,
    CONVERSATION,
    ILLUSTRATED,
    NOTED,
    PARTS,
    WEATHER,
)

try:
    from hypothesis import example, given, settings
    from hypothesis import strategies as st
except ImportError as missing:
    raise MissingExtra("generated histories", "testing") from missing

__all__ = ["HISTORIES", "REQUESTS", "for_requests"]

_texts = st.one_of(
    st.sampled_from(["", " ", "\n\t", "hello", "half \ud83d", "a\x00b"]), st.text(max_size=8)
)
_notes = st.one_of(st.just(()), st.lists(_texts, max_size=3).map(tuple))
_parts = st.one_of(st.just(()), st.lists(st.sampled_from(PARTS), max_size=2).map(tuple))
_answered_calls = st.builds(
    AnsweredCall,
    id=st.one_of(
        st.sampled_from(["", "a", "a_2", "toolu_1", "with blank", "x" * 60]), st.text(max_size=4)
    ),
    name=st.sampled_from(["get_weather", "no such tool!", "", "n" * 90]),
    arguments=st.sampled_from(
        [
            *("{}", "", " ", '{"city": "Paris"}', '{"city":', "[1]", "null", "NaN", "[" * 3000),
            *('{"a": 1e999}', '{"a": 123456789012345678901234567890}'),
            *('{"a": "\ud83d"}', '{"a": "\\ud83d"}'),
        ]
    ),
    output=_texts,
    is_error=st.booleans(),
    notes=_notes,
    parts=_parts,
)
_thoughts = st.builds(
    Thinking,
    text=_texts,
    signature=st.sampled_from(["", "c2ln"]),
    redacted=st.sampled_from(["", "", "cmVk"]),
)
HISTORIES: Final = st.lists(
    st.one_of(
        st.builds(
            UserMessage,
            content=_texts,
            role=st.sampled_from(["user", "user", "system"]),
            notes=_notes,
            parts=_parts,
        ),
        st.builds(
            AssistantMessage,
            text=_texts,
            thinking=st.lists(_thoughts, max_size=2).map(tuple),
            calls=st.lists(_answered_calls, max_size=3).map(tuple),
            is_given=st.booleans(),
        ),
    ),
    max_size=7,
).map(tuple)
"""Messages of a conversation."""

REQUESTS: Final = st.builds(
    ModelRequest,
    messages=HISTORIES,
    system=_texts,
    system_notes=_notes,
    tools=st.sampled_from([(), (WEATHER,)]),
    tool_choice=st.sampled_from(["auto", "none", "any", "get_weather"]),
    parallel_tool_calls=st.booleans(),
    cache=st.sampled_from(["", "5m", "1h"]),
    cache_key=st.sampled_from(["", "0190-run:side_a"]),
    contents=st.sampled_from([CONTENTS, {}]),
)
"""Whole requests."""


def for_requests(holds: Callable[[ModelRequest], None]) -> None:
    """Call ``holds`` with the samples and with as many generated requests as the profile says."""

    @settings(deadline=None)
    @given(REQUESTS)
    @example(CONVERSATION)
    @example(NOTED)
    @example(ILLUSTRATED)
    def check(request: ModelRequest) -> None:
        holds(request)

    check()
