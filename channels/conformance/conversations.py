"""Whom a channel lets a person speak with: one run per conversation, found by its session key."""

from typing import Final

from hubbub.channels.conformance.driver import ANN, BOB, ChannelCheck, ChannelKit
from hubbub.channels.conformance.partner_agent import LEAVE, PARTNER, heard
from hubbub.channels.conformance.watch import eventually, shows, watched

__all__ = ["CONVERSATION_CHECKS", "CROWD_CHECKS", "REDELIVERY_CHECKS"]


async def check_what_is_said_is_heard_and_what_is_answered_is_shown_once(kit: ChannelKit) -> None:
    """Nothing begins before a person speaks, and then one run, which has a session key."""
    async with watched(kit) as watch, kit.attach(watch.hub) as driver:
        assert watch.conversations == [], "a run was started before anybody spoke"
        await driver.say("hello")
        await shows(driver, heard(1, "hello"))
        await driver.say("more")
        await shows(driver, heard(2, "more"))
        await shows(driver, heard(1, "hello"))
        await watch.only_run()


async def check_a_channel_attached_again_goes_on_with_the_conversation(kit: ChannelKit) -> None:
    """Whom a person speaks with is in the hub's store, and nowhere in the channel."""
    async with watched(kit) as watch:
        for count, text in enumerate(("one", "two", "three"), 1):
            async with kit.attach(watch.hub) as driver:
                await driver.say(text)
                await shows(driver, heard(count, text))
        await watch.only_run()


async def check_a_conversation_that_another_channel_began_is_found(kit: ChannelKit) -> None:
    """The key alone decides: another channel may have begun the run."""
    async with watched(kit) as watch, kit.attach(watch.hub) as driver:
        await driver.say("hello")
        key = (await watch.only_run()).session_key
    async with watched(kit) as watch:
        await watch.hub.open(PARTNER, "from elsewhere", session_key=key)
        async with kit.attach(watch.hub) as driver:
            await driver.say("and from here")
            await shows(driver, heard(2, "and from here"))
        assert (await watch.only_run()).session_key == key


async def check_after_a_run_has_ended_the_next_one_begins(kit: ChannelKit) -> None:
    """A conversation outlives its runs: who speaks after an end is heard by a new one."""
    async with watched(kit) as watch, kit.attach(watch.hub) as driver:
        await driver.say(LEAVE)
        await shows(driver, heard(1, LEAVE))
        first = await watch.only_run()
        await eventually(lambda: watch.is_over(first.run_id), "the run did not end")
        await driver.say("hello again")
        await shows(driver, heard(1, "hello again"))
        keys = [each.session_key for each in watch.conversations]
        assert keys == [first.session_key] * 2, f"the session key has changed: {keys}"


async def check_detaching_ends_no_conversation(kit: ChannelKit) -> None:
    """Neither that of its person nor anybody else's: both are heard afterwards."""
    async with watched(kit) as watch:
        other = await watch.hub.open(PARTNER, "elsewhere", session_key="elsewhere_1_x")
        async with kit.attach(watch.hub) as driver:
            await driver.say("hello")
            await shows(driver, heard(1, "hello"))
        for run in watch.conversations:
            assert not watch.is_over(run.run_id), f"the run of {run.session_key!r} was ended"
            receipt = await watch.hub.send_to_run(run.run_id, "still there?")
            assert receipt.accepted, f"the run of {run.session_key!r} takes nothing any more"
        assert other.run_id in {run.run_id for run in watch.conversations}


# ── where the far end gives ids to messages ──────────────────────────────────────────────────


async def check_a_message_delivered_again_is_taken_once(kit: ChannelKit) -> None:
    """Messages are sent with keys made of the far end's ids, also by a channel attached again."""
    async with watched(kit) as watch:
        async with kit.attach(watch.hub) as driver:
            for _ in range(3):
                await driver.say("hello", key="m1")
            await shows(driver, heard(1, "hello"))
        async with kit.attach(watch.hub) as driver:
            await driver.say("hello", key="m1")
            await driver.say("hello", key="m2")
            await shows(driver, heard(2, "hello"))
            await driver.say("more", key="m3")
            await shows(driver, heard(3, "more"))
        await watch.only_run()


# ── where several people speak ───────────────────────────────────────────────────────────────


async def check_people_have_conversations_of_their_own(kit: ChannelKit) -> None:
    """Each has a run and a key, and is shown nothing of the other's."""
    async with watched(kit) as watch, kit.attach(watch.hub) as driver:
        await driver.say("I am ann", person=ANN)
        await driver.say("I am bob", person=BOB)
        await shows(driver, heard(1, "I am ann"), person=ANN)
        await shows(driver, heard(1, "I am bob"), person=BOB)
        await driver.say("secret of ann", person=ANN)
        await shows(driver, heard(2, "secret of ann"), person=ANN)
        assert "ann" not in driver.shown(BOB), "bob is shown what is ann's"
        assert "bob" not in driver.shown(ANN), "ann is shown what is bob's"
        keys = {each.session_key for each in watch.conversations}
        assert len(keys) == len(watch.conversations) == 2, f"two people, but the keys are {keys}"


CONVERSATION_CHECKS: Final[tuple[ChannelCheck, ...]] = (
    check_what_is_said_is_heard_and_what_is_answered_is_shown_once,
    check_a_channel_attached_again_goes_on_with_the_conversation,
    check_a_conversation_that_another_channel_began_is_found,
    check_after_a_run_has_ended_the_next_one_begins,
    check_detaching_ends_no_conversation,
)

REDELIVERY_CHECKS: Final[tuple[ChannelCheck, ...]] = (
    check_a_message_delivered_again_is_taken_once,
)
"""For a far end that gives ids to messages and may deliver one again."""

CROWD_CHECKS: Final[tuple[ChannelCheck, ...]] = (check_people_have_conversations_of_their_own,)
"""For a channel with more than one person at its far end."""
