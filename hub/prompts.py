"""Asking and replying (H-10).

A prompt has an id, and the first reply to it counts.  Whom it is for decides how it travels:

    user, or any name nobody serves   a ``session:prompt`` event; whoever listens may reply
    a run                             a message to the run, carrying the ``prompt_id``
    a service (``hub.serve``)         a call of the handler

The prompt of a run goes through that run's own lane, and its reply through that run's inbox, so
both are in its journal.  A prompt ends by a reply, by its timeout, with the run that asked or
was asked, or with the hub.
"""

import inspect
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import anyio
from msgspec import structs

from hubbub.hub.errors import BadValue, Closed, PromptClosed, PromptTimeout
from hubbub.hub.events import Event, SessionMessage, SessionPrompt, SessionPromptEnd, SessionReply
from hubbub.hub.masking import words_of
from hubbub.hub.raised import is_contained
from hubbub.hub.receipt import Receipt
from hubbub.hub.texts import check_label, check_text

if TYPE_CHECKING:
    from hubbub.hub.hub import Hub

__all__ = ["Prompts", "asker_of"]

REMEMBERED: Final = 1000
"""Ended prompts whose reason a late reply is still told."""

Service = Callable[[str], Any | Awaitable[Any]]


def asker_of(prompt_id: str) -> str:
    """The run that a prompt's id begins with; ids of versions before have a ``?`` behind it."""
    return re.split(r"[.?]", prompt_id, maxsplit=1)[0]


class _Prompt:
    """A prompt that waits for its reply."""

    __slots__ = ("answer", "asked", "asker", "ended", "id", "waiter")

    def __init__(self, id_: str, asker: str, asked: str) -> None:
        self.id = id_
        self.asker = asker
        self.asked = asked
        self.answer: str | None = None
        self.ended = ""
        self.waiter: anyio.Event | None = None

    def settle(self) -> None:
        if self.waiter is not None:
            self.waiter.set()

    async def wait(self) -> None:
        if self.answer is None and not self.ended:
            self.waiter = anyio.Event()
            await self.waiter.wait()


class Prompts:
    """The open prompts of one hub."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._open: dict[str, _Prompt] = {}
        self._of_run: dict[str, dict[str, _Prompt]] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._services: dict[str, Service] = {}
        self._number = 0

    # ── asking ───────────────────────────────────────────────────────────────────────────────

    async def ask(
        self,
        address: str,
        question: str,
        options: tuple[str, ...],
        timeout: float | None,
        *,
        asker: str = "",
        announce: Callable[[Event], None] | None = None,
    ) -> Any:
        """Ask on behalf of a run (``asker``, whose ``announce`` writes events) or of nobody."""
        check_label("address", address)
        check_text("question", question)
        for option in options:
            check_text("options", option)
        service = self._services.get(address)
        if service is not None:
            return await self._ask_service(service, question, timeout)
        self._number += 1
        # Not the number alone: a run that asks again after a restart asks another question.
        number = f"{self._hub.dispatcher.number:x}.{self._number}"
        prompt = _Prompt(f"{asker or 'hub'}.{number}", asker, address)
        self._register(prompt)
        try:
            event = SessionPrompt(
                prompt_id=prompt.id, question=question, to=address, options=options, timeout=timeout
            )
            if announce is not None:
                announce(event)
            if _is_run_id(address):
                self._send(prompt, question)
            elif announce is None:
                self._hub.emit(event)
            await self._wait(prompt, timeout)
        finally:
            self._forget(prompt)
            if prompt.ended and announce is not None:
                announce(SessionPromptEnd(prompt_id=prompt.id, reason=prompt.ended))
        if prompt.answer is None:
            raise (
                Closed("the hub")
                if prompt.ended == "hub closed"
                else PromptClosed(prompt.id, prompt.ended)
            )
        return prompt.answer

    def pause(self, prompt_id: str, run_id: str) -> None:
        """A run waits for the reply to a prompt, in its state and in no task of its own."""
        self._register(_Prompt(prompt_id, run_id, "user"))

    def resume(self, prompt_id: str) -> None:
        """It waits no longer."""
        if (prompt := self._open.get(prompt_id)) is not None:
            self._forget(prompt)

    def _send(self, prompt: _Prompt, question: str) -> None:
        message = SessionMessage(content=question, source=prompt.asker, prompt_id=prompt.id)
        commit = self._hub._deliver(message, to=prompt.asked)
        if commit.status == "rejected":
            prompt.ended = commit.reason
        elif commit.status == "pending":
            commit.watch(lambda receipt: self._rejected(prompt, receipt))

    def _rejected(self, prompt: _Prompt, receipt: Receipt) -> None:
        if receipt.status == "rejected":
            prompt.ended = receipt.reason
            prompt.settle()

    async def _wait(self, prompt: _Prompt, timeout: float | None) -> None:
        if timeout is not None and timeout < 0:
            raise BadValue("timeout", "seconds must not be negative")
        # People take their time, and keep their place meanwhile; a run may have none yet.
        asks_run = _is_run_id(prompt.asked)
        waiting = self._hub.dispatcher.waiting() if asks_run else nullcontext()
        with waiting, anyio.move_on_after(timeout) as scope:
            await prompt.wait()
        if scope.cancelled_caught and prompt.answer is None:
            assert timeout is not None
            prompt.ended = "expired"
            raise PromptTimeout(prompt.id, timeout)

    async def _ask_service(self, service: Service, question: str, timeout: float | None) -> Any:
        with anyio.move_on_after(timeout) as scope:
            try:
                answer = service(question)
                return await answer if inspect.isawaitable(answer) else answer
            except BaseException as error:
                if isinstance(error, Exception) or not is_contained(error):
                    raise
                # Passed on, it would end whoever asks.
                reason = f"who answers it raised {type(error).__name__}: {words_of(error)}"
                raise PromptClosed("of a service", reason[:2000]) from error
        assert scope.cancelled_caught and timeout is not None
        raise PromptTimeout("of a service", timeout)

    def _register(self, prompt: _Prompt) -> None:
        self._open[prompt.id] = prompt
        for run_id in (prompt.asker, prompt.asked):
            if run_id:
                self._of_run.setdefault(run_id, {})[prompt.id] = prompt

    def _forget(self, prompt: _Prompt) -> None:
        self._open.pop(prompt.id, None)
        for run_id in (prompt.asker, prompt.asked):
            if (prompts := self._of_run.get(run_id)) is not None:
                prompts.pop(prompt.id, None)
                if not prompts:
                    del self._of_run[run_id]
        reason = "answered" if prompt.answer is not None else prompt.ended or "closed"
        self._ended[prompt.id] = reason
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    # ── replying ─────────────────────────────────────────────────────────────────────────────

    def reply(self, prompt_id: str, content: str, source: str) -> Receipt:
        prompt = self._open.get(prompt_id)
        if prompt is None:
            return Receipt("rejected", self._ended.get(prompt_id, "unknown"))
        if prompt.answer is not None or prompt.ended:
            return Receipt("rejected", prompt.ended or "answered")
        prompt.answer = content
        event = SessionReply(prompt_id=prompt_id, content=content, source=source)
        if prompt.asker:
            # The asking run is told through its inbox, which also wakes the waiting ``ask``.
            return self._hub._deliver(event, to=prompt.asker)
        if self._hub.has(SessionReply.type):
            now = self._hub.ports.clock.now()
            self._hub._emit_ephemeral(structs.replace(event, at=now))
        prompt.settle()
        return Receipt("accepted")

    def taken(self, prompt_id: str) -> None:
        """The asking run has its reply in its journal: let ``ask`` return."""
        if (prompt := self._open.get(prompt_id)) is not None:
            prompt.settle()

    # ── ending ───────────────────────────────────────────────────────────────────────────────

    def run_ended(self, run_id: str) -> None:
        for prompt in tuple(self._of_run.get(run_id, {}).values()):
            if prompt.answer is None:
                prompt.ended = f"run {run_id} has ended"
                prompt.settle()

    def close(self) -> None:
        for prompt in self._open.values():
            prompt.ended = prompt.ended or "hub closed"
            prompt.settle()

    # ── services ─────────────────────────────────────────────────────────────────────────────

    def serve(self, address: str, handler: Service) -> Callable[[], None]:
        if address in self._services or address == "user" or _is_run_id(address):
            raise BadValue("serve", f"the address {address!r} is taken; choose another")
        self._services[address] = handler

        def stop() -> None:
            self._services.pop(address, None)

        return stop


def _is_run_id(address: str) -> bool:
    return len(address) == 36 and address[8] == address[13] == address[18] == address[23] == "-"
