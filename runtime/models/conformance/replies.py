"""What a model makes of its provider's answers."""

import json
from typing import Final

from msgspec import structs

from hubbub.agents.model import CallDelta, ModelReply, TextDelta, ThinkingDelta, ToolCall
from hubbub.runtime.models.conformance.samples import HELLO, REPLY
from hubbub.runtime.models.conformance.server import ServerAnswer, serving
from hubbub.runtime.models.conformance.wire import (
    ProviderCheck,
    ProviderWire,
    answered,
    model_at,
)

__all__ = ["REPLY_CHECKS"]

_JSON: Final = {"content-type": "application/json"}


async def check_a_streamed_reply_arrives_whole(wire: ProviderWire) -> None:
    """Text, thinking, calls, usage, stop reason and name; the deltas are its pieces in order."""
    sent = wire.carried(REPLY)
    reply, deltas = await answered(wire, ServerAnswer(wire.stream(sent)))
    assert reply == sent
    assert "".join(each.text for each in deltas if isinstance(each, TextDelta)) == reply.text
    thought = "".join(each.text for each in deltas if isinstance(each, ThinkingDelta))
    assert thought == "".join(each.text for each in reply.thinking)
    calls = [each for each in deltas if isinstance(each, CallDelta)]
    for index, call in enumerate(reply.calls):
        pieces = [each.text for each in calls if (each.index, each.name) == (index, call.name)]
        assert "".join(pieces) == call.arguments


async def check_a_stream_may_come_byte_by_byte_and_without_framing(wire: ProviderWire) -> None:
    """Neither the cuts between writes nor line ends nor comments make a difference."""
    stream = b"".join(wire.stream(wire.carried(REPLY))).replace(b"\n", b"\r\n")
    single = [stream[at : at + 1] for at in range(len(stream))]
    answers = (
        ServerAnswer(single), ServerAnswer([stream], end="close"), ServerAnswer([b":\n\n" + stream])
    )  # fmt: skip
    async with serving(*answers) as server, model_at(wire, server) as model:
        texts = [(await model.call(HELLO)).text for _ in answers]
    assert texts == [REPLY.text] * 3


async def check_a_server_that_does_not_stream_is_understood(wire: ProviderWire) -> None:
    """One JSON body is a reply, too."""
    plain = structs.replace(wire.carried(REPLY), thinking=())
    reply, deltas = await answered(wire, ServerAnswer([wire.whole(plain)], headers=_JSON))
    calls = [(call.id, call.name, json.loads(call.arguments)) for call in reply.calls]
    assert calls == [(call.id, call.name, json.loads(call.arguments)) for call in plain.calls]
    assert structs.replace(reply, calls=plain.calls) == plain
    assert "".join(each.text for each in deltas if isinstance(each, TextDelta)) == plain.text


async def check_stop_reasons_are_translated(wire: ProviderWire) -> None:
    """The provider's words for an end become ours; one that we have no word for is kept."""
    for theirs, ours in {**wire.stop_reasons, "of_tomorrow": "of_tomorrow"}.items():
        sent = ModelReply(text="so far", stop_reason=theirs, model="m")
        reply, _ = await answered(wire, ServerAnswer(wire.stream(sent)))
        assert (reply.text, reply.stop_reason) == ("so far", ours), theirs


async def check_cut_off_arguments_and_empty_output_are_replies(wire: ProviderWire) -> None:
    """What came is the reply, be it half a call or nothing."""
    call = ToolCall(id="t", name="get_weather", arguments='{"city": "Par')
    cut_off = ModelReply(calls=(call,), stop_reason="length", model="m")
    assert (await answered(wire, ServerAnswer(wire.stream(cut_off))))[0] == cut_off
    empty, _ = await answered(wire, ServerAnswer(wire.stream(ModelReply(model="m"))))
    assert empty.is_empty


async def check_a_call_without_arguments_has_an_empty_object(wire: ProviderWire) -> None:
    """A tool without parameters may be called with no arguments at all."""
    call = ToolCall(id="t", name="now", arguments="")
    bare = ModelReply(calls=(call,), stop_reason="tools", model="m")
    reply, _ = await answered(wire, ServerAnswer(wire.stream(bare)))
    assert reply.calls == (structs.replace(call, arguments="{}"),)


REPLY_CHECKS: Final[tuple[ProviderCheck, ...]] = (
    check_a_streamed_reply_arrives_whole,
    check_a_stream_may_come_byte_by_byte_and_without_framing,
    check_a_server_that_does_not_stream_is_understood,
    check_stop_reasons_are_translated,
    check_cut_off_arguments_and_empty_output_are_replies,
    check_a_call_without_arguments_has_an_empty_object,
)
"""What becomes of answers."""
