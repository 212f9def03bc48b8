"""A reply with a request: what was accepted with it is found, and no other prompt is answered."""

import anyio
import pytest

from hubbub import Runtime, agent
from hubbub.hub import RequestKey
from hubbub.hub.errors import BadValue, PromptTimeout

pytestmark = pytest.mark.anyio


async def test_a_request_that_was_used_leaves_the_prompt_open(ports):
    request = RequestKey("r", "d")

    @agent("asks")
    async def asks(input: str, ctx):
        first = await ctx.hub.ask("user", "one?")
        try:
            return first + await ctx.hub.ask("user", "two?", timeout=60)
        except PromptTimeout:
            return first + " late"

    for is_answered in (True, False):
        async with Runtime([asks], store="memory", ports=ports) as rt:
            hub = rt.hub
            assert (await hub.find_request(request)).reason == "unknown"
            run = await rt.start("asks", "go")
            await anyio.sleep(1)
            one = (await hub.read(types="session:prompt"))[-1].prompt_id
            first = await hub.reply(one, "yes", request=request)
            assert first.accepted
            await anyio.sleep(1)
            two = (await hub.read(types="session:prompt"))[-1].prompt_id
            again = await hub.reply(two, "yes", request=request)
            assert again.duplicate and again.run_id == first.run_id
            assert (await hub.find_request(request)).cursor == again.cursor
            other = RequestKey("r", "e")
            assert (await hub.reply(two, "no", request=other)).reason == "key reused"
            assert (await hub.find_request(other)).reason == "key reused"
            if is_answered:
                assert (await hub.reply(two, " sure")).accepted
            assert (await run.result()).output == ("yes sure" if is_answered else "yes late")


async def test_what_is_said_beside_a_reply_is_on_record_with_it(ports):
    @agent("asks")
    async def asks(input: str, ctx):
        return await ctx.hub.ask("user", "one?")

    async with Runtime([asks], store="memory", ports=ports) as rt:
        hub = rt.hub
        run = await rt.start("asks", "go")
        await anyio.sleep(1)
        prompt_id = (await hub.read(types="session:prompt"))[-1].prompt_id
        for wrong in ("x", 1, {"a": object()}, {"a": "\ud800"}):
            with pytest.raises(BadValue, match="metadata"):
                hub.reply(prompt_id, "yes", metadata=wrong)
        await hub.reply(prompt_id, "yes", metadata={"from": ["a page", 1]})
        assert (await run.result()).output == "yes"
        (event,) = await hub.read(types="session:reply")
        assert event.metadata == {"from": ["a page", 1]}
