"""Asking and replying.

A prompt has an id, and the first reply to it counts.  Its recipient decides how it is delivered:

    user                        a ``session:prompt`` event; any listener may reply
    a service (``hub.serve``)   a call of the handler
    a run                       a message to the run, carrying the ``prompt_id``

Any other address is that of no run: the prompt is closed at once.  A service that is still at work
when the hub closes is cancelled.

The prompt of a run goes through that run's own lane, and its reply through that run's inbox, so
both are in its journal.

A prompt ends exactly once, by a ``session:prompt:end`` with a reason.  If a run asked, the event is
written to that run's lane when the reply is taken, the prompt times out, the run is interrupted or
ends, or a restart finds the prompt lost with its process.  Otherwise it is written to the hub's
lane, upon the reply, a timeout, the asker's cancellation, the end of the hub, or the death of its
process (``hub/delivery/asked_notes.py``).  From then on replies are rejected.  They are rejected
already while an interruption or termination of the asker is on its way to the store, which would be
committed first.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, Protocol

import anyio
import anyio.lowlevel

from hubbub.hub.delivery.asked_notes import AskedNotes
from hubbub.hub.delivery.dispatch import Owner
from hubbub.hub.delivery.ended_prompts import HUB_CLOSED, NOBODY, EndedPrompts
from hubbub.hub.delivery.pending_prompt import (
    ANSWERED,
    EXPIRED,
    Check,
    PendingPrompt,
    end_of,
    problem_of,
    read_reply,
)
from hubbub.hub.delivery.services import USER, ServedAddresses, check_address
from hubbub.hub.errors import Closed, PromptClosed, PromptTimeout
from hubbub.hub.events import (
    PromptKind,
    SessionMessage,
    SessionPrompt,
    SessionPromptEnd,
    SessionReply,
)
from hubbub.hub.pipeline import Pipeline
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import RequestKey
from hubbub.hub.store.sharing import sharing_of
from hubbub.hub.task_host import TaskHost
from hubbub.hub.texts import check_text
from hubbub.hub.values import check_options, check_seconds

__all__ = ["Asker", "Prompts"]

NO_OPTIONS: Final[tuple[str, ...]] = ()


class Asker(Protocol):
    """The run that asks; its lane records when a prompt opens and ends."""

    @property
    def run_id(self) -> str:
        """The id of the run."""
        ...

    def open_prompt(self, event: SessionPrompt) -> None:
        """Record that a prompt is open."""
        ...

    def end_prompt(self, event: SessionPromptEnd) -> None:
        """Record that a prompt has ended, unless that is recorded already."""
        ...


class Prompts:
    """The open prompts of one hub."""

    def __init__(self, pipeline: Pipeline, tasks: TaskHost) -> None:
        self._pipeline = pipeline
        self._open: dict[str, PendingPrompt] = {}
        self._of_run: dict[str, dict[str, PendingPrompt]] = {}
        self._asleep: dict[str, list[PendingPrompt]] = {}
        """Prompts that end with their asker's run, whose end is not committed yet."""
        self._is_shared = sharing_of(pipeline.journal) is not None
        deliver = pipeline.deliver if self._is_shared else None
        self._ended = EndedPrompts(
            pipeline.journal, tasks, pipeline.ports.clock, deliver, pipeline.addressing
        )
        self.noted = AskedNotes(
            pipeline.journal, tasks, pipeline.ports.clock, pipeline.submit, self._ended.remember
        )
        self._stopping: dict[str, list[str]] = {}
        """Reasons of the interruptions and terminations on their way to runs that ask, in order."""
        self.services = ServedAddresses(pipeline.dispatcher, tasks)
        pipeline.addressing.services = self.services.by_address.keys()
        self._number = 0

    # ── asking ───────────────────────────────────────────────────────────────────────────────

    async def ask(
        self,
        address: str,
        question: str,
        options: Sequence[str],
        timeout: float | None,
        *,
        asker: Asker | None = None,
        check: Check = None,
        given: object = None,
    ) -> Any:
        """Ask on behalf of a run or of nobody; ``check`` says which replies do not fit."""
        check_address(address)
        check_text("question", question)
        given_options = NO_OPTIONS if options is NO_OPTIONS else _checked_options(options)
        if timeout is not None:
            check_seconds("timeout", timeout)
        service = self.services.by_address.get(address)
        if service is not None:
            asked = (question,) if given is None else (question, given)
            return await self.services.ask(service, asked, timeout)
        run_id = asker.run_id if asker is not None else ""
        owner = self._pipeline.dispatcher.owner
        if owner is None or address == USER:
            prompt = self._new(run_id, address, check)
            return await self._ask(prompt, asker, question, given_options, timeout)
        if asker is None and self._is_shared:
            await self._ended.check_here(address)
        if not owner.waiter_of(run_id):
            prompt = self._new(run_id, address, check)
            return await self._ask(prompt, asker, question, given_options, timeout)
        await owner.read_waits(address)
        prompt = self._new(run_id, address, check)
        with owner.asking(run_id, address, lambda: prompt.is_open):
            return await self._ask(prompt, asker, question, given_options, timeout, owner)

    def _new(self, run_id: str, address: str, check: Check) -> PendingPrompt:
        self._number += 1
        # Not the number alone: a run that asks again after a restart asks another question.
        number = f"{self._pipeline.dispatcher.number:x}.{self._number}"
        return PendingPrompt(f"{run_id or NOBODY}.{number}", run_id, address, check=check)

    async def _ask(
        self, prompt: PendingPrompt, asker: Asker | None, question: str, options: tuple[str, ...],
        timeout: float | None, waits_in: Owner | None = None,
    ) -> Any:  # fmt: skip
        """Show a prompt to whom it asks, and wait for the answer; ``waits_in``: whose run waits."""
        self._register(prompt)
        try:
            if asker is not None or prompt.asked == USER:
                self._announce(prompt, asker, question, options, timeout)
            if prompt.asked != USER:
                self._send(prompt, question, is_checked=waits_in is None and not self._is_shared)
            if timeout is None and waits_in is None:
                await prompt.wait(self._pipeline.home.make_waiter)
            else:
                await self._wait(prompt, timeout, waits_in)
        finally:
            reason = prompt.ended or "closed"
            if asker is not None:
                asker.end_prompt(SessionPromptEnd(prompt_id=prompt.id, reason=reason))
            if reason != ANSWERED or prompt.id in self._open:  # Who replies has ended it, too.
                self.end(prompt.id, reason)
        if prompt.answer is not None and prompt.ended == ANSWERED:
            return prompt.answer.content
        return (await self._answer_of(prompt)).content

    async def _answer_of(self, prompt: PendingPrompt) -> SessionReply:
        """The reply to a prompt that is over."""
        if prompt.answer is None or prompt.ended != ANSWERED:
            # Who is being cancelled for the same reason learns of that alone.
            await anyio.lowlevel.checkpoint_if_cancelled()
            if prompt.ended == HUB_CLOSED:
                raise Closed("the hub")
            raise PromptClosed(prompt.id, prompt.ended)
        return prompt.answer

    def _announce(
        self, prompt: PendingPrompt, asker: Asker | None, question: str, options: tuple[str, ...],
        timeout: float | None,
    ) -> None:  # fmt: skip
        event = SessionPrompt(
            prompt_id=prompt.id, question=question, to=prompt.asked, options=options,
            timeout=timeout,
        )  # fmt: skip
        if asker is not None:
            asker.open_prompt(event)
        elif prompt.asked == USER:
            prompt.is_announced = True
            self.noted.opens(event)

    def hold(
        self, prompt_id: str, run_id: str, kind: PromptKind = "question", check: Check = None,
        expires_at: int = 0,
    ) -> PendingPrompt:  # fmt: skip
        """A run waits for the reply to a prompt, according to its record; again, it is the same."""
        prompt = self._open.get(prompt_id)
        if prompt is None:
            prompt = PendingPrompt(prompt_id, run_id, "user", kind, check)
            self._register(prompt)
        prompt.expires_at = expires_at or prompt.expires_at
        return prompt

    async def wait(self, prompt: PendingPrompt) -> SessionReply:
        """The reply to a prompt that is held; raises ``PromptClosed`` where it ends without."""
        await prompt.wait(self._pipeline.home.make_waiter)
        return await self._answer_of(prompt)

    def is_unanswered(self, prompt_id: str) -> bool:
        """Whether a reply to it would count."""
        prompt = self._open.get(prompt_id)
        return prompt is not None and prompt.is_open

    def problem_of(self, reply: SessionReply) -> str:
        """Why a reply does not fit its prompt; empty where it does."""
        prompt = self._open.get(reply.prompt_id)
        return problem_of(prompt, reply) if prompt is not None else ""

    def answered(self, reply: SessionReply) -> None:
        """A reply is on its way to its prompt's run, in a commit of another run."""
        prompt = self._open.get(reply.prompt_id)
        if prompt is not None and prompt.answer is None:
            prompt.answer = reply

    def _send(self, prompt: PendingPrompt, question: str, *, is_checked: bool) -> None:
        message = SessionMessage(
            content=question, source=prompt.asker, prompt_id=prompt.id,
            from_run=prompt.asker != "",
        )  # fmt: skip
        receipt = self._pipeline.deliver(message, to=prompt.asked, is_checked=is_checked)
        if receipt.status == "rejected":
            prompt.ended = _why_not(prompt, receipt)
        elif receipt.status == "pending":
            receipt.watch(lambda receipt: self._rejected(prompt, receipt))

    def _rejected(self, prompt: PendingPrompt, receipt: Receipt) -> None:
        if receipt.status == "rejected" and not prompt.ended:
            prompt.end(_why_not(prompt, receipt))

    async def _wait(
        self, prompt: PendingPrompt, timeout: float | None, waits_in: Owner | None
    ) -> None:
        # People take their time, and keep their place meanwhile; a run may have none yet.
        make_waiter = self._pipeline.home.make_waiter
        with nullcontext() if waits_in is None else waits_in.waiting():
            with anyio.move_on_after(timeout) as scope:
                await prompt.wait(make_waiter)
            if scope.cancelled_caught and not prompt.ended:
                assert timeout is not None
                if prompt.answer is None:
                    prompt.ended = EXPIRED
                    raise PromptTimeout(prompt.id, timeout)
                prompt.expires_at = self._pipeline.ports.clock.now()
                await prompt.wait(make_waiter)  # It came in time, and is on its way.
                if prompt.is_expired:  # It was an answer to another one.
                    raise PromptTimeout(prompt.id, timeout)

    def _register(self, prompt: PendingPrompt) -> None:
        self._open[prompt.id] = prompt
        if prompt.asker:
            self._of_run.setdefault(prompt.asker, {})[prompt.id] = prompt
        self._of_run.setdefault(prompt.asked, {})[prompt.id] = prompt

    # ── replying ─────────────────────────────────────────────────────────────────────────────

    def reply(self, reply: SessionReply, request: RequestKey | None = None) -> Receipt:
        """Answer a prompt; the first reply wins.  The ``request`` is noted with that of a run."""
        prompt_id = reply.prompt_id
        prompt = self._open.get(prompt_id)
        if prompt is None:
            return self._ended.refuse(reply, request)
        if prompt.answer is not None or prompt.ended:
            return Receipt("rejected", prompt.ended or "answered")
        if stops := self._stopping.get(prompt.asker):
            return Receipt("rejected", stops[0])
        now = self._pipeline.ports.clock.now()
        if prompt.is_over_at(now):
            return Receipt("rejected", EXPIRED)
        event = read_reply(prompt, reply, now)
        if problem := problem_of(prompt, event):
            return Receipt("rejected", problem)
        prompt.answer = event
        if prompt.asker:
            # The asking run gets it through its inbox; by taking it, it ends the prompt.
            receipt = self._pipeline.deliver(event, to=prompt.asker, request=request)
            receipt.watch(partial(self._replied, prompt, request))
            return receipt
        if self._pipeline.dispatcher.has(SessionReply.type):
            self._pipeline.emit_ephemeral(event)
        self.end(prompt_id, end_of(event))
        return Receipt("accepted")

    def _replied(self, prompt: PendingPrompt, request: RequestKey | None, receipt: Receipt) -> None:
        """The store has taken a reply, or not: by its request it may be none to this prompt."""
        is_other = receipt.status == "duplicate" or receipt.reason == "key reused"
        if request is None or not is_other:
            self._rejected(prompt, receipt)
        elif not prompt.ended:
            prompt.answer = None
            if prompt.is_over_at(self._pipeline.ports.clock.now()):
                prompt.end(EXPIRED)

    def replied_elsewhere(self, reply: SessionReply) -> None:
        """Another process has brought a reply to a run: it is the first one, as the store says."""
        prompt = self._open.get(reply.prompt_id)
        if prompt is not None and not prompt.ended:
            prompt.answer = reply

    def heard_elsewhere(self, event: SessionPrompt | SessionPromptEnd) -> None:
        """Another process asks in nobody's name, or has ended such a prompt: for the one that asks,
        where that seemed to have died."""
        if isinstance(event, SessionPrompt):
            self.noted.watch()
            return
        if (prompt := self._open.get(event.prompt_id)) is not None:
            prompt.is_announced = False  # Its end is on record.
            self.noted.ended_elsewhere(event.prompt_id)
        self.end(event.prompt_id, event.reason)

    # ── ending ───────────────────────────────────────────────────────────────────────────────

    def end(self, prompt_id: str, reason: str, *, is_with_run: bool = False) -> None:
        """A prompt has ended: its asker continues, and no reply is accepted any more.

        ``is_with_run``: its asker's run ends with it; the asker waits until that is on record.
        """
        prompt = self._open.pop(prompt_id, None)
        self._ended.remember(prompt_id, reason)
        if prompt is None:
            return  # Its process has stopped, or it has ended already.
        self._leave_runs(prompt)
        prompt.ended = reason
        if is_with_run:
            self._asleep.setdefault(prompt.asker, []).append(prompt)
        else:
            prompt.wake()
        if prompt.is_announced:
            self.noted.ends(SessionPromptEnd(prompt_id=prompt_id, reason=reason))

    def let_go(self, prompt_id: str) -> None:
        """Another process waits for the reply: whether it counts is not decided here any more."""
        prompt = self._open.pop(prompt_id, None)
        if prompt is not None:
            self._leave_runs(prompt)

    def _leave_runs(self, prompt: PendingPrompt) -> None:
        for run_id in (prompt.asker, prompt.asked) if prompt.asker else (prompt.asked,):
            if (prompts := self._of_run.get(run_id)) is not None:
                prompts.pop(prompt.id, None)
                if not prompts:
                    del self._of_run[run_id]

    def run_ended(self, run_id: str) -> None:
        """A run is over: its askers get no answer.  What it asked, its lane has ended."""
        for prompt in self._asleep.pop(run_id, ()):
            prompt.wake()
        for prompt in tuple(self._of_run.get(run_id, {}).values()):
            if prompt.asker == run_id:
                self.end(prompt.id, f"run {run_id} has ended")
            elif not prompt.ended and prompt.answer is None:
                prompt.end(f"run {run_id} has ended")

    def stopping(self, run_id: str, why: str) -> Callable[[], None]:
        """A run, or where there is no id every one, is about to be stopped; ``why`` in words.

        Returns what must be called when it has been.
        """
        askers = [x for x in ([run_id] if run_id else self._of_run) if x in self._of_run]
        for asker in askers:
            self._stopping.setdefault(asker, []).append(why)

        def stopped() -> None:
            for asker in askers:
                self._stopping[asker].remove(why)
                if not self._stopping[asker]:
                    del self._stopping[asker]

        return stopped

    def close(self) -> None:
        """The hub closes: who asks, user or run or service, gets no answer any more."""
        self.services.close()
        for prompt in tuple(self._open.values()):
            if prompt.asker:
                prompt.end(prompt.ended or HUB_CLOSED)
            else:
                self.end(prompt.id, prompt.ended or HUB_CLOSED)
        self._ended.close()


def _why_not(prompt: PendingPrompt, receipt: Receipt) -> str:
    """Why a prompt has not reached whom it asks."""
    if receipt.reason != "unknown":
        return receipt.reason
    return f"unknown: {prompt.asked!r} is no service, no run, and not 'user'"


def _checked_options(options: Sequence[str]) -> tuple[str, ...]:
    checked = check_options("options", options)
    for option in checked:
        check_text("options", option)
    return checked
