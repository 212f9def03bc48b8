"""``ServedAddresses``: where a function answers what is asked of a hub."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import anyio

from hubbub.hub.delivery.dispatch import Dispatcher
from hubbub.hub.delivery.ended_prompts import is_uuid
from hubbub.hub.errors import BadValue, Closed, PromptClosed, PromptTimeout
from hubbub.hub.masking import class_name_of, words_of
from hubbub.hub.task_host import TaskHost
from hubbub.hub.tasks.callables import function_problem
from hubbub.hub.tasks.raised import is_of, uncontained
from hubbub.hub.tasks.stepped import stepped
from hubbub.hub.texts import check_label

__all__ = ["USER", "ServedAddresses", "Service", "check_address"]

USER: Final = "user"
"""The address of anybody who answers ``session:prompt`` events."""

Service: TypeAlias = Callable[..., Any | Awaitable[Any]]


class ServedAddresses:
    """Those of one hub.  What is at work when it closes is cancelled."""

    __slots__ = ("_at_work", "_dispatcher", "_is_closed", "_tasks", "by_address")

    def __init__(self, dispatcher: Dispatcher, tasks: TaskHost) -> None:
        self._dispatcher = dispatcher
        self._tasks = tasks
        self.by_address: dict[str, Service] = {}
        self._at_work: dict[anyio.CancelScope, None] = {}
        """The calls that are under way."""
        self._is_closed = False

    async def ask(self, service: Service, asked: tuple[object, ...], timeout: float | None) -> Any:
        """Call one; raises ``PromptTimeout``, ``Closed``, and what the service raises."""
        with anyio.move_on_after(timeout) as scope:
            self._at_work[scope] = None
            try:
                answer = service(*asked)
                if inspect.isawaitable(answer):
                    answer = await stepped(self._tasks.lend(answer), is_lent=True)
                return answer
            except BaseException as error:
                if is_of(error, Exception):
                    raise
                passed = uncontained(error)
                if passed is not None:
                    raise passed from None
                # Passed on, it would end the asker.
                reason = f"who answers it raised {class_name_of(error)}: {words_of(error)}"
                raise PromptClosed(
                    "of a service", self._dispatcher.masker()(reason, 2000)
                ) from error
            finally:
                del self._at_work[scope]
        if self._is_closed:
            raise Closed("the hub")
        assert scope.cancelled_caught and timeout is not None
        raise PromptTimeout("of a service", timeout)

    def serve(self, address: str, handler: Service) -> Callable[[], None]:
        """Answer what is asked of an address; returns what stops it."""
        check_address(address)
        if problem := function_problem(handler):
            raise BadValue("serve", problem)
        owner = self._dispatcher.owner
        is_run = is_uuid(address) or (owner is not None and owner.is_busy(address))
        if address in self.by_address or address == USER or is_run:
            raise BadValue("serve", f"the address {address!r} is taken; choose another")
        self.by_address[address] = handler

        def stop() -> None:
            self.by_address.pop(address, None)

        return stop

    def close(self) -> None:
        """Cancel what is at work: the hub closes."""
        self._is_closed = True
        for scope in tuple(self._at_work):
            scope.cancel()


def check_address(address: str) -> None:
    """Raise ``BadValue`` for what nobody can be asked by."""
    check_label("address", address)
    if not address:
        raise BadValue("address", "expected 'user', a service or a run id, not an empty text")
