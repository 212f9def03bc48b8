"""What a model sends: bodies that its provider accepts, for whatever history."""

import json
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec import structs

from hubbub.agents.model import AssistantMessage, ModelRequest, UserMessage
from hubbub.hub.errors import MissingKey, ModelRefused
from hubbub.runtime.models.conformance.samples import (
    CONTENTS,
    CONVERSATION,
    HELLO,
    ILLUSTRATED,
    OUTPUT,
    PARTS,
    REPLY,
    SETTINGS,
    with_notes,
)
from hubbub.runtime.models.conformance.server import ServerAnswer, serving
from hubbub.runtime.models.conformance.wire import ProviderCheck, ProviderWire, model_at

__all__ = ["REQUEST_CHECKS"]


async def check_every_history_makes_a_valid_request(wire: ProviderWire) -> None:
    """Nothing that a history may hold makes a body that the provider refuses."""
    from hubbub.runtime.models.conformance.histories import for_requests

    def is_valid(request: ModelRequest) -> None:
        assert wire.problems(_decoded(wire, request)) == []

    for_requests(is_valid)


async def check_blank_notes_change_no_byte(wire: ProviderWire) -> None:
    """The provider's prompt cache holds, whether or not there was something to note."""
    from hubbub.runtime.models.conformance.histories import for_requests

    def is_equal(request: ModelRequest) -> None:
        assert wire.body(with_notes(request, "", "\n")) == wire.body(with_notes(request))

    for_requests(is_equal)


async def check_every_part_is_shown_or_named(wire: ProviderWire) -> None:
    """What a model is not shown it is told of; a content is the same text in each request."""
    body = wire.body(ILLUSTRATED)
    assert wire.problems(json.loads(body)) == []
    assert body == wire.body(ILLUSTRATED)
    for part in PARTS:
        request = ModelRequest(
            messages=(UserMessage(content="Look.", parts=(part,)),), contents=CONTENTS
        )
        text = wire.body(request).decode()
        content = b64encode(CONTENTS.get(part.digest, b"")).decode()
        assert (content and content in text) or (part.name or part.url or part.kind) in text, part


async def check_given_words_are_the_assistants_own(wire: ProviderWire) -> None:
    """Messages that the agent was made to say stay messages of its own, one each."""
    history = (
        AssistantMessage(text="Ask me.", is_given=True),
        AssistantMessage(text="Anything.", is_given=True),
        AssistantMessage(text="I wait."),
    )
    body = _decoded(wire, ModelRequest(messages=history))
    assert wire.problems(body) == []
    own = [text for role, text in wire.said(body) if role == "assistant"]
    assert own == ["Ask me.", "Anything.", "I wait."]


async def check_without_tools_nothing_is_said_of_them(wire: ProviderWire) -> None:
    """A choice among no tools is refused by providers, so it is not sent."""
    for choice in ("auto", "none", "any", "get_weather"):
        for parallel in (False, True):
            asked = structs.replace(HELLO, tool_choice=choice, parallel_tool_calls=parallel)
            assert wire.body(asked) == wire.body(HELLO)


async def check_options_come_last_and_win(wire: ProviderWire) -> None:
    """``options`` are fields of the body, in place of ours where there is one."""
    (ours, *_) = _decoded(wire, HELLO)
    body = _decoded(wire, structs.replace(HELLO, options={"of_mine": 7, ours: "mine"}))
    assert (body["of_mine"], body[ours]) == (7, "mine")


async def check_settings_are_fields_of_its_own_or_refused(wire: ProviderWire) -> None:
    """What a model lacks it says by name; the rest is sent, and is what the provider knows."""
    ask = getattr(wire.make("http://localhost:1"), "settings_problems", None)
    for settings in SETTINGS:
        problems = [] if ask is None else [str(each) for each in ask(settings)]
        if problems:
            assert all(each.partition(":")[0] in settings.given for each in problems), problems
            continue
        asked = structs.replace(HELLO, settings=settings)
        body = _decoded(wire, asked)
        assert wire.problems(body) == [], settings
        if settings.given != ("timeout",):
            assert body != _decoded(wire, HELLO), f"{settings} is lost"
        mine = {name: "mine" for name in body if name not in _decoded(wire, HELLO)}
        assert _decoded(wire, structs.replace(asked, options=mine)) == body | mine


async def check_an_output_is_in_a_field_that_the_provider_knows(wire: ProviderWire) -> None:
    """What binds an answer to a schema is the provider's own, beside tools and settings, too."""
    for asked in (HELLO, structs.replace(CONVERSATION, settings=SETTINGS[0])):
        body = _decoded(wire, structs.replace(asked, output=OUTPUT))
        assert wire.problems(body) == []
        assert body != _decoded(wire, asked), "the schema is lost"
        mine = {name: "mine" for name in body if body[name] != _decoded(wire, asked).get(name)}
        told = structs.replace(asked, output=OUTPUT, options=mine)
        assert _decoded(wire, told) == body | mine


async def check_what_is_not_json_is_refused_before_it_is_sent(wire: ProviderWire) -> None:
    """An option that cannot be encoded is the caller's mistake and says so."""
    refused = ""
    async with serving() as server, model_at(wire, server) as model:
        try:
            await model.call(structs.replace(HELLO, options={"x": object()}))
        except ModelRefused as error:
            refused = str(error)
        assert "not JSON" in refused
        assert server.requests == []


async def check_headers_of_the_callers_own_win(wire: ProviderWire) -> None:
    """Whatever their case, they replace those that the model would send."""
    headers = {wire.key_header.title(): "other", "X-Own": "1", "User-Agent": "mine"}
    async with (
        serving(ServerAnswer(wire.stream(REPLY))) as server,
        model_at(wire, server, key="k", headers=headers) as model,
    ):
        await model.call(HELLO)
        sent = server.requests[0].headers
    assert {name: sent[name.lower()] for name in headers} == headers


async def check_only_the_providers_own_service_needs_a_key(wire: ProviderWire) -> None:
    """There a missing key is an error that names the variable; elsewhere none is needed."""
    provider = wire.provider
    environ: dict[str, str] = dict(getattr(wire, "environ", {}))
    own = partial(provider.make, "m", "", environ)
    makers: list[Callable[[], object]] = [own, partial(wire.make, provider.url)]
    if environ:  # Its own URL is known to the environment alone.
        makers.pop()
    for make in makers if provider.needs_key else ():
        refused = ""
        try:
            make()
        except MissingKey as error:
            refused = str(error)
        assert provider.key_variable in refused
    assert wire.make("http://localhost:1").name == "the-model"
    assert provider.make("m", "", {provider.key_variable: "k", **environ}).name == "m"


def _decoded(wire: ProviderWire, request: ModelRequest) -> Any:
    return json.loads(wire.body(request))


REQUEST_CHECKS: Final[tuple[ProviderCheck, ...]] = (
    check_every_history_makes_a_valid_request,
    check_blank_notes_change_no_byte,
    check_every_part_is_shown_or_named,
    check_given_words_are_the_assistants_own,
    check_without_tools_nothing_is_said_of_them,
    check_options_come_last_and_win,
    check_settings_are_fields_of_its_own_or_refused,
    check_an_output_is_in_a_field_that_the_provider_knows,
    check_what_is_not_json_is_refused_before_it_is_sent,
    check_headers_of_the_callers_own_win,
    check_only_the_providers_own_service_needs_a_key,
)
"""What is sent, and with which key."""
