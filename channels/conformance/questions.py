"""How a channel shows what a person is asked, and brings the answer back, once."""

from typing import Final

from hubbub.channels.conformance.driver import ChannelCheck, ChannelKit
from hubbub.channels.conformance.partner_agent import ASK, OPTIONS, heard
from hubbub.channels.conformance.watch import HubWatch, eventually, shows, watched
from hubbub.hub import events as e

__all__ = ["QUESTION_CHECKS"]

RED, BLUE = OPTIONS


async def check_a_question_is_shown_and_answered_once(kit: ChannelKit) -> None:
    """Said again, the answer is no second one: it is refused, or the next thing that is said."""
    async with watched(kit) as watch, kit.attach(watch.hub) as driver:
        await driver.say(ASK)
        await shows(driver, "Which colour?")
        await driver.answer(BLUE)
        await shows(driver, heard(1, f"{BLUE} it is"))
        await driver.answer(RED)
        await driver.say("done")
        await eventually(lambda: ": done." in driver.shown(), "nothing is heard after an answer")
        assert _answers(watch) == [BLUE], f"the question has the answers {_answers(watch)}"


async def check_a_question_from_before_is_shown_when_the_channel_comes_back(
    kit: ChannelKit,
) -> None:
    """A question waits for its answer whether or not a channel is attached."""
    async with watched(kit) as watch:
        async with kit.attach(watch.hub) as driver:
            await driver.say(ASK)
            await shows(driver, "Which colour?")
        async with kit.attach(watch.hub) as driver:
            await shows(driver, "Which colour?")
            await driver.answer(RED)
            await shows(driver, heard(1, f"{RED} it is"))
        assert _answers(watch) == [RED]


async def check_a_question_that_another_has_answered_is_closed(kit: ChannelKit) -> None:
    """Of two who answer the first counts, and the other one's channel goes on."""
    async with watched(kit) as watch, kit.attach(watch.hub) as driver:
        await driver.say(ASK)
        await shows(driver, "Which colour?")
        (prompt,) = watch.prompts
        assert (await watch.hub.reply(prompt.prompt_id, RED)).accepted
        await shows(driver, heard(1, f"{RED} it is"))
        await driver.answer(BLUE)
        await driver.say("done")
        await eventually(lambda: ": done." in driver.shown(), "nothing is heard after an answer")
        assert _answers(watch) == [RED], f"the question has the answers {_answers(watch)}"


def _answers(watch: HubWatch) -> list[str]:
    """What was answered to the only question."""
    (prompt,) = watch.prompts
    return [
        each.content
        for each in watch.events
        if isinstance(each, e.SessionReply) and each.prompt_id == prompt.prompt_id
    ]


QUESTION_CHECKS: Final[tuple[ChannelCheck, ...]] = (
    check_a_question_is_shown_and_answered_once,
    check_a_question_from_before_is_shown_when_the_channel_comes_back,
    check_a_question_that_another_has_answered_is_closed,
)
