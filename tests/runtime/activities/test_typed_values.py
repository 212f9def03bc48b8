"""Values by key are read as JSON, or as the class that is asked for."""

from typing import Any

import pytest
from msgspec import Struct

from hubbub import RunContext, Runtime, agent
from hubbub.hub.errors import BadValue
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal

pytestmark = pytest.mark.anyio


class Order(Struct):
    number: int


@pytest.mark.spec("U-10")
async def test_a_value_is_read_as_the_class_that_is_asked_for(
    journal: Journal, ports: Ports
) -> None:
    @agent("shop")
    async def shop(input: None, ctx: RunContext) -> list[Any]:
        await ctx.kv.set("order", Order(7))
        found = ctx.kv.get("order", type=Order)
        assert found == Order(7) and ctx.kv.get("order") == {"number": 7}
        assert ctx.kv.get("none", type=Order) is None and ctx.kv.get("none", 3, type=int) == 3
        with pytest.raises(BadValue, match="order: "):
            ctx.kv.get("order", type=int)
        return [ctx.kv.get("none", "nothing"), found.number]

    async with Runtime([shop], store=journal, ports=ports) as rt:  # type: ignore[arg-type]
        assert (await rt.run("shop")).value() == ["nothing", 7]
