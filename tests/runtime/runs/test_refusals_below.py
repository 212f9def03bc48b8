"""What a provider refuses in a frame, or in a child that stays, fails nothing of who called it."""

from typing import Any

import pytest
from support.agents import Observer
from support.families import Recorder, answers, child, config, parent
from support.frames import Talk, frame, open_runtime, use

from hubbub import FunctionModel, ModelRequest, Runtime
from hubbub.agents.model import UserMessage
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import Fault, call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("T-12")]

REFUSED = Fault("request", times=None, status=400, message="it cannot be read")


def said_in(request: ModelRequest) -> list[str]:
    return [each.content for each in request.messages if isinstance(each, UserMessage)]


def is_refused(request: ModelRequest) -> bool:
    """Whether a provider refuses it, as it would each time that the word is in a request."""
    return any("poison" in each for each in said_in(request))


async def test_in_a_frame_it_ends_the_frame_and_the_conversation_goes_on(
    journal: Journal, ports: Ports
) -> None:
    def guide(request: ModelRequest) -> Any:
        return REFUSED if is_refused(request) else said_in(request)[-1]

    main = Recorder("Hello.", use("guide", "Begin."), "Sorry.", use("guide", "Begin again."))
    agents = (frame(main, agents=("guide",)), frame(FunctionModel(guide), name="guide"))
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("Hello.") == [("main", "Hello.")]
        assert await talk.say("Guide me.") == [("guide", "Begin.")]
        assert await talk.say("This is poison.") == [("main", "Sorry.")]
        assert talk.stack == [], "as where a frame's model fails for another reason"
        (failed,) = answers(main.requests[-1])
        assert failed.is_error and "it cannot be read" in failed.output
        (said,) = [x for x in talk.of(e.SessionEnd) if not x.success]
        assert said.agent == "guide", "no turn of the caller has failed"
        assert not is_refused(main.requests[-1]), "and the caller has not to show it"
        assert await talk.say("Guide me.") == [("guide", "Begin again.")]
        assert await talk.say("And now?") == [("guide", "And now?")]


@pytest.mark.parametrize("poisoned", ["First.", "Second."])
async def test_a_child_that_stays_goes_on_without_what_was_refused(
    journal: Journal, ports: Ports, poisoned: str
) -> None:
    said = [f"{each} It is poison." if each == poisoned else each for each in ORDERS]
    script: list[Any] = [call("subagent_create", agent="helper", name="Bob",
                              arguments={"message": said[0]})]  # fmt: skip
    script += [to_first(each) for each in said[1:]]
    boss = Recorder(*script, "Thanks.")

    def work(request: ModelRequest) -> Any:
        return REFUSED if is_refused(request) else call("finish", result=said_in(request)[-1])

    agents = (parent(boss, config(stays=True)), child(FunctionModel(work)))
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        seen = Observer(runtime.hub)
        run = await runtime.start("main", "Please.")
        assert (await run.result()).output == "Thanks."
        told = [(each.output, each.is_error) for each in answers(boss.requests[-1])]
        for order, (output, is_error) in zip(said, told, strict=True):
            assert is_error == ("poison" in order)
            assert is_error or output == order
        ends = [x for x in seen.all("session:end") if x.left_out]
        assert [x.agent for x in ends] == ["helper"], "the parent's turn is not its child's"


ORDERS = ("First.", "Second.", "Third.")


def to_first(message: str) -> Any:
    """A step of a script: write to the first child in the registry."""

    def step(request: ModelRequest) -> Any:
        (note,) = request.system_notes
        reference = note.splitlines()[1].removeprefix("- ").partition(":")[0]
        return call("subagent_message", reference=reference, message=message)

    return step
