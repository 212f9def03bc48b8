"""hubbub's own channels pass the kit that it ships, and the kit finds what is wrong."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
from support.channel_drivers import attach_console, attach_http, open_partner

from hubbub.channels.conformance import (
    CHANNEL_CHECKS,
    CROWD_CHECKS,
    REDELIVERY_CHECKS,
    ChannelCheck,
    ChannelKit,
)
from hubbub.hub.ports import Ports
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-08")]


def _named(check: ChannelCheck) -> str:
    return getattr(check, "__name__", "")


@pytest.fixture(params=["at once", "late"])
def store(request: pytest.FixtureRequest) -> Any:
    if request.param == "at once":
        return MemoryJournal
    return lambda: LateJournal(MemoryJournal())


@pytest.mark.parametrize("check", CHANNEL_CHECKS, ids=_named)
async def test_the_console_conforms(check: ChannelCheck, store: Any, ports: Ports) -> None:
    await check(ChannelKit(open_partner(store, ports), attach_console))


@pytest.mark.parametrize("check", [*CHANNEL_CHECKS, *REDELIVERY_CHECKS, *CROWD_CHECKS], ids=_named)
async def test_http_conforms(check: ChannelCheck, store: Any, ports: Ports) -> None:
    await check(ChannelKit(open_partner(store, ports), attach_http))


# ── what the kit finds ───────────────────────────────────────────────────────────────────────

PAGE: Final = Path(__file__).parents[2] / "docs" / "channels.md"
"""Has a channel of a chat service that conforms."""

SAY: Final = "service.post(person, event.text)"
OPENS: Final = "context.hub.open(PARTNER, message,"
BEGINS: Final = "context.state.asked = {}\n"

MISTAKES: Final = {
    "a conversation per attachment": ('f"chat_{person}"', 'f"chat_{person}_{id(context)}"'),
    "no session key": ('session_key=f"chat_{person}", ', ""),
    "messages without keys": ("key=key or None", "key=None"),
    "each text twice": (SAY, f"{SAY}; {SAY}"),
    "texts of everybody for everybody": (SAY, 'service.post("ann", event.text)\n'
        '            service.post("bob", event.text)'),
    "a run that ends with its answer": (SAY, f"{SAY}\n"
        "            await context.hub.close_run(event.root_run_id)"),
    "questions that are not shown": ('"session:prompt": ask, ', ""),
    "questions that are forgotten": ('types="session:prompt")', 'types="no:such:type")'),
    "answers that are only said": ("if prompt_id and", "if False and"),
    "what falls behind": ("lossless=True", "buffer=10"),
    "a failure that ends it": (SAY, "\n".join((
        'if getattr(context.state, "is_dead", False):',
        "                return",
        "            context.state.is_dead = service.is_down",
        f"            {SAY}",
    ))),
    "a task left behind": (
        BEGINS, f"{BEGINS}        context.hub.tasks.start(anyio.sleep_forever())\n"
    ),
    "a subscription left behind": (
        BEGINS, f'{BEGINS}        context.hub.subscribe("*", lambda event: None)\n'
    ),
    "its token in what it sends": (", source=context.name)\n\n", ', source="token-5e6c2e")\n\n'),
}  # fmt: skip
"""What may be wrong with it, as a change of its source."""


@pytest.mark.parametrize("mistake", [*MISTAKES.values()], ids=[*MISTAKES])
async def test_the_kit_finds_a_channel_that_is_wrong(mistake: tuple[str, str]) -> None:
    (source,) = re.findall(r"```python\n(# test_chat.py.*?)```", PAGE.read_text(), re.DOTALL)
    right, wrong = mistake
    assert source.count(right) == 1, right
    chat: dict[str, Any] = {"__name__": "chat"}
    exec(compile(source.replace(right, wrong), "chat.py", "exec"), chat)
    chat["Driver"].secrets = ("token-5e6c2e",)
    for check in chat["CHECKS"]:
        try:
            await check(ChannelKit(chat["open_hub"], chat["attach"]))
        except (AssertionError, ExceptionGroup) as error:
            if not _is_assertion(error):
                raise
            return
    pytest.fail("no check has found it")


def _is_assertion(error: BaseException) -> bool:
    """Whether it is one, or a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_assertion, error.exceptions))
    return isinstance(error, AssertionError)
