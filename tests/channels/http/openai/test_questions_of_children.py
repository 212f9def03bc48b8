"""What a child asks one after the other is shown so, and no request waits for its end."""

import anyio
import pytest
from support.openai_face import with_client

from hubbub import Agent, ScriptedModel, tool
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-05")]


async def test_a_child_that_asks_again_and_again_is_answered_by_a_request_each(ports):
    paid = []

    @tool(approval=True)
    def refund(order: str) -> str:
        """Pay back."""
        paid.append(order)
        return f"{order} is paid"

    calls = [call("refund", order=order) for order in "XYZ"]
    child = Agent("clerk", "You pay.", model=ScriptedModel([*calls, "Paid."]), tools=[refund])
    model = ScriptedModel([call("clerk", message="go"), "Finished."])
    main = Agent("main", "You ask.", model=model, tools=[child.as_tool(blocking=True)])
    async with with_client(ports, main) as (_, _, client):
        # The client's first request waits for a thread, which is no virtual time.
        found = [await client.responses.create(model="main", input="go", conversation="c")]
        for _ in range(3):
            with anyio.fail_after(60):
                made = await client.responses.create(
                    model="main", input="approve", conversation="c"
                )
            found.append(made)
        said = [made.output_text for made in found]
        for order, text in zip("XYZ", said, strict=False):
            assert f'{{"order":"{order}"}}' in text and '"approve"' in text
        assert said[3] == "Finished."
        again = [(await client.responses.retrieve(made.id)).output_text for made in found]
    assert again == said
    assert paid == ["X", "Y", "Z"]
