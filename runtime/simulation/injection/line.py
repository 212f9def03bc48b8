"""``Line``: what brings the messages of users to the hub."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeAlias

import anyio

from hubbub.hub.receipt import Receipt
from hubbub.hub.task_host import TaskHost
from hubbub.runtime.simulation.injection.plan import Plan
from hubbub.runtime.simulation.story.faults import ChannelFault

__all__ = ["Line", "Send"]

Send: TypeAlias = Callable[[bool], Awaitable[Receipt]]
"""Gives one message to whatever hub there is when it is called; ``True``: it was held up."""


class Line:
    """What brings messages from users to the hub, one after the other, unless a fault is due.

    ``async with`` it around all lives of a world: what is on its way outlives a process.  What it
    still holds when it is left is not sent any more; ``Plan.end`` sends it first.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._tasks = TaskHost()
        self._passed = anyio.Event()

    async def __aenter__(self) -> Self:
        await self._tasks.open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._tasks.aclose()

    async def bring(self, send: Send) -> Receipt:
        """Have a message sent: now, and its receipt as ``send`` has it; or later, and a receipt
        that is pending until then.  Do not await that one before other messages are sent."""
        for fault in self._plan.due_on_line():
            if self._plan.strike(fault):
                if fault.kind == "duplicate":
                    receipt = await self._pass(send, held_up=False)
                    await self._pass(send, held_up=False)
                    return receipt
                held = Receipt()
                self._tasks.start(self._hold(fault, send, held, self._passed))
                return held
        return await self._pass(send, held_up=False)

    async def _pass(self, send: Send, *, held_up: bool) -> Receipt:
        receipt = await send(held_up)
        passed, self._passed = self._passed, anyio.Event()
        passed.set()
        return receipt

    async def _hold(
        self, fault: ChannelFault, send: Send, held: Receipt, passed: anyio.Event
    ) -> None:
        if fault.kind == "late":
            await self._plan.wait_over(fault.seconds)
        else:
            await self._wait_passed(passed, max(fault.seconds, 1.0))
        receipt = await (await self._pass(send, held_up=True))
        held.run_id, held.run_ids, held.key = receipt.run_id, receipt.run_ids, receipt.key
        held.settle(receipt.status, receipt.reason)

    async def _wait_passed(self, passed: anyio.Event, seconds: float) -> None:
        """Wait until another message has passed or the faults are over, at most ``seconds``."""
        async with anyio.create_task_group() as group:

            async def give_up() -> None:
                await self._plan.wait_over(seconds)
                group.cancel_scope.cancel()

            group.start_soon(give_up)
            await passed.wait()
            group.cancel_scope.cancel()
