"""What a channel outlives: a far end that fails, events it does not know, and falling behind.

And what it leaves behind: nothing.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import anyio
import anyio.lowlevel

from hubbub.channels.conformance.driver import ChannelCheck, ChannelKit
from hubbub.channels.conformance.partner_agent import FLOOD, MUCH, PARTNER, heard
from hubbub.channels.conformance.watch import HubWatch, eventually, shows, watched
from hubbub.hub.events import CustomEvent
from hubbub.hub.events.codec import encode_event
from hubbub.hub.logs import log

__all__ = ["FAULT_CHECKS"]

VALUE: Final = "value-5e6c2e74d1"
"""Of a variable: it is no channel's to know."""


async def check_a_far_end_that_fails_ends_no_run(kit: ChannelKit) -> None:
    """What is shown next is shown again: by this attachment, or by the one after it."""
    async with watched(kit) as watch:
        async with kit.attach(watch.hub) as driver:
            await driver.say("one")
            await shows(driver, heard(1, "one"))
            driver.fail_next()
            await driver.say("two")
            await _has_said(watch, heard(2, "two"))
            if driver.is_attached:
                await driver.say("three")
                await shows(driver, heard(3, "three"))
        async with kit.attach(watch.hub) as driver:
            await driver.say("four")
            await eventually(lambda: ": four." in driver.shown(), "it shows nothing any more")
        run = await watch.only_run()
        assert not watch.is_over(run.run_id), "the run was ended"


async def check_events_of_others_are_no_surprise(kit: ChannelKit) -> None:
    """Types that nobody knows, and whatever texts they bring."""
    strange = (" ", "\x1b]0;title\x07", "<script>alert(1)</script>", "\u202e", "x" * 100_000)
    async with watched(kit) as watch, kit.attach(watch.hub) as driver:
        await driver.say("hello")
        await shows(driver, heard(1, "hello"))
        run = await watch.only_run()
        for text in strange:
            watch.hub.emit(CustomEvent.of("conformance:strange", text=text, deep=[{"a": [text]}]))
            receipt = await watch.hub.send_to_run(run.run_id, text, source="conformance")
            assert receipt.accepted, receipt.reason
        await driver.say("still there?")
        await shows(driver, heard(2 + len(strange), "still there?"))


async def check_who_falls_behind_is_shown_the_end(kit: ChannelKit) -> None:
    """More happens at once than a mailbox holds; what was said after it is shown all the same."""
    async with watched(kit) as watch, kit.attach(watch.hub) as driver:
        await driver.say(FLOOD)
        await shows(driver, heard(1, "enough"))
        await shows(driver, f"{MUCH - 1} of {MUCH} things")
        await driver.say("and now")
        await shows(driver, heard(2, "and now"))


async def check_attached_again_and_again_it_leaves_nothing_behind(kit: ChannelKit) -> None:
    """Neither a task nor a subscription of it is left after it was detached."""
    async with watched(kit) as watch:
        for _ in range(2):  # What is made once, at first use, is no leak.
            async with kit.attach(watch.hub):
                pass
        before = await _left(watch)
        for count in range(1, 4):
            async with kit.attach(watch.hub) as driver:
                await driver.say("hello")
                await shows(driver, heard(count, "hello"))
            await _settled(watch)
        after = await _left(watch)
        assert after[1] <= before[1], f"{after[1] - before[1]} subscriptions are left"
        runs = {each.run_id for each in watch.conversations}  # These are at work as before.
        new = [name for name in after[0] - before[0] if name not in runs]
        assert not new, f"tasks are left: {new}"


async def check_what_is_secret_is_passed_on_to_nobody(kit: ChannelKit) -> None:
    """Not the channel's own tokens to the hub and the logs, nor a run's variables to a person."""
    said: list[str] = []

    def take(level: str, event: str, fields: Mapping[str, Any]) -> None:
        said.append(f"{level} {event} {dict(fields)}")

    undivert = log.divert(take)
    try:
        async with watched(kit) as watch, kit.attach(watch.hub) as driver:
            await driver.say("hello")
            key = (await watch.only_run()).session_key
            await shows(driver, heard(1, "hello"))
            driver.fail_next()
            await driver.say("again")
            await _has_said(watch, heard(2, "again"))
            secrets = (*driver.secrets, VALUE)
            said += [encode_event(each).decode() for each in watch.events]
        async with watched(kit) as watch:
            await watch.hub.open(PARTNER, "hello", session_key=key, env={"KEY": VALUE})
            async with kit.attach(watch.hub) as driver:
                await driver.say("again")
                await shows(driver, heard(2, "again"))
                said.append(driver.shown())
    finally:
        undivert()
    for secret in secrets:
        found = [each for each in said if secret in each]
        assert not found, f"a secret is in: {found[0][:200].replace(secret, '***')}"


async def _has_said(watch: HubWatch, text: str) -> None:
    await eventually(
        lambda: any(getattr(each, "text", "") == text for each in watch.events),
        f"the run did not say {text!r}",
    )


async def _settled(watch: HubWatch) -> None:
    """A few turns of the loop, in which what was detached ends."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


async def _left(watch: HubWatch) -> tuple[Counter[str], int]:
    await _settled(watch)
    names = Counter(str(task.name) for task in anyio.get_running_tasks())
    return names, watch.hub.statistics().subscribers


FAULT_CHECKS: Final[tuple[ChannelCheck, ...]] = (
    check_a_far_end_that_fails_ends_no_run,
    check_events_of_others_are_no_surprise,
    check_who_falls_behind_is_shown_the_end,
    check_attached_again_and_again_it_leaves_nothing_behind,
    check_what_is_secret_is_passed_on_to_nobody,
)
