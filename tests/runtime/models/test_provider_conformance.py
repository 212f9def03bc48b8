"""Each provider of the table passes the suite that the library ships, and a broken one does not."""

import json
from typing import Any

import pytest
from msgspec import structs
from support.anthropic_wire import AnthropicWire
from support.openai_wire import OpenAIWire
from support.responses_wire import ResponsesWire

from hubbub.agents.model import ModelReply, ModelRequest, OnDelta
from hubbub.hub.errors import ProviderError
from hubbub.runtime.models.conformance import PROVIDER_CHECKS, ProviderCheck, ProviderWire
from hubbub.runtime.models.conformance.requests import REQUEST_CHECKS
from hubbub.runtime.models.openai.model import OpenAIModel
from hubbub.runtime.models.providers import PROVIDERS
from hubbub.runtime.models.services import SERVICES

pytestmark = [pytest.mark.anyio, pytest.mark.spec("M-02", "L-08")]

WIRES: tuple[ProviderWire, ...] = (AnthropicWire(), OpenAIWire(), ResponsesWire())
SERVED: tuple[ProviderWire, ...] = tuple(map(OpenAIWire, SERVICES))
"""The services that speak what ``OpenAIWire`` does, each with fields of its own."""

CLAIMS = {
    "check_stop_reasons_are_translated": ("M-03",),
    "check_cut_off_arguments_and_empty_output_are_replies": ("M-03",),
    "check_every_history_makes_a_valid_request": ("M-03", "S-07"),
    "check_each_status_has_one_meaning": ("M-03", "M-04"),
    "check_a_stream_cut_at_any_event_is_worth_another_try": ("M-03",),
    "check_what_cannot_be_read_is_garbled": ("M-03",),
    "check_only_the_providers_own_service_needs_a_key": ("M-04",),
    "check_the_key_reaches_the_provider_and_nobody_else": ("M-04",),
}
"""What a check proves beside M-02."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: sockets know no other."""
    return request.param


def claimed(check: ProviderCheck) -> Any:
    name = check.__name__
    return pytest.param(check, id=name, marks=pytest.mark.spec(*CLAIMS.get(name, ())))


@pytest.mark.parametrize("check", [claimed(each) for each in PROVIDER_CHECKS])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.provider.name)
async def test_a_provider_conforms(wire: ProviderWire, check: ProviderCheck) -> None:
    await check(wire)


@pytest.mark.long
@pytest.mark.parametrize("check", [claimed(each) for each in PROVIDER_CHECKS])
@pytest.mark.parametrize("wire", SERVED, ids=lambda wire: wire.provider.name)
async def test_a_service_conforms(wire: ProviderWire, check: ProviderCheck) -> None:
    await check(wire)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("wire", SERVED, ids=lambda wire: wire.provider.name)
async def test_what_a_service_is_sent_conforms(wire: ProviderWire) -> None:
    for check in REQUEST_CHECKS:
        if "every_history" not in check.__name__ and "blank_notes" not in check.__name__:
            await check(wire)


def test_each_provider_of_the_table_is_under_test() -> None:
    assert [wire.provider for wire in (*WIRES, *SERVED)] == list(PROVIDERS.values())
    assert set(CLAIMS) <= {check.__name__ for check in PROVIDER_CHECKS}


# ── what the suite finds ─────────────────────────────────────────────────────────────────────


async def failed_checks(wire: ProviderWire) -> set[str]:
    """The checks that find something."""
    found = set()
    for check in PROVIDER_CHECKS:
        try:
            await check(wire)
        except (AssertionError, ProviderError):
            found.add(check.__name__.removeprefix("check_"))
    return found


class Talkative(OpenAIModel):
    """Keeps its key at hand and forgets what came as thinking."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.key = options.get("key")

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        return structs.replace(await super().call(request, on_delta), thinking=())


class TalkativeWire(OpenAIWire):
    def make(self, server: str, **options: Any) -> OpenAIModel:
        url = server if server == self.provider.url else f"{server}/v1"
        return Talkative("the-model", base_url=url, **options)

    def body(self, request: ModelRequest) -> bytes:
        body = json.loads(super().body(request))
        return json.dumps({**body, "tool_choice": request.tool_choice}).encode()


async def test_the_suite_finds_what_is_wrong() -> None:
    failed = await failed_checks(TalkativeWire())
    assert {
        "a_streamed_reply_arrives_whole",
        "the_key_reaches_the_provider_and_nobody_else",
        "without_tools_nothing_is_said_of_them",
    } <= failed
    assert "a_server_that_does_not_stream_is_understood" not in failed
