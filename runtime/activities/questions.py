"""Questions of tools and code to people, whose answers are on record.

    asked for the first time          a prompt opens, and the asker waits
    asked again, after a crash        the recorded answer; or the same prompt, if it is still open
    ended without an answer           ``PromptClosed``, or ``PromptTimeout``, each time
    withdrawn, as its asker was       asked again, by another prompt
    cancelled and went on

A question is known by who asks and by its place among what that asks (``CallOrder``).
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import Any, Protocol

import anyio

from hubbub.agents.definitions.answers import AnswerReader
from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.state.call_order import CallOrder, RecordedCall, identity_of, keyed
from hubbub.agents.state.prompts import (
    WITHDRAWN,
    Answered,
    OpenPrompt,
    Prompts,
    find_answer,
    find_prompt,
)
from hubbub.hub.delivery.pending_prompt import EXPIRED
from hubbub.hub.errors import BadValue, PromptClosed, PromptTimeout
from hubbub.hub.events import SessionPrompt, SessionPromptEnd, SessionReply
from hubbub.hub.run_hub import RunHub
from hubbub.hub.texts import check_text
from hubbub.hub.values import NULL, Json, check_options, check_seconds

__all__ = ["AskingCall", "AskingRun", "Question", "RecordedQuestions", "ask_once", "extended"]


class AskingThread(Protocol):
    """What a run's record says of its questions."""

    @property
    def prompts(self) -> Prompts: ...

    @property
    def answers(self) -> tuple[Answered, ...]: ...


class AskingRun(Protocol):
    """A run whose tool or code asks."""

    @property
    def thread(self) -> AskingThread: ...


class AskingCall(Protocol):
    """A call whose tool asks."""

    @property
    def run(self) -> AskingRun: ...

    def standing_still(self) -> AbstractContextManager[None]:
        """Inside, the call's time does not pass."""
        ...


class Question:
    """What is asked, checked."""

    __slots__ = ("identity", "options", "reader", "text", "timeout")

    def __init__(
        self,
        text: str,
        options: Sequence[str],
        schema: Any,
        timeout: float | None,
        key: str | None = None,
    ) -> None:
        check_text("question", text)
        self.text = text
        self.options = check_options("options", options)
        for option in self.options:
            check_text("options", option)
        check_seconds("timeout", timeout)
        self.timeout = timeout
        self.reader = None if schema is None else AnswerReader(schema)
        self.identity = identity_of("question", text, self.options) if key is None else keyed(key)

    @property
    def schema(self) -> Json:
        return NULL if self.reader is None else self.reader.schema

    def check(self, reply: SessionReply) -> str:
        """Why a reply does not fit; empty where it does."""
        return "" if self.reader is None else self.reader.problem(reply)

    def read(self, content: str) -> Any:
        """The answer, as the asker wants it; raises ``BadValue`` for what an earlier version of
        the code has taken."""
        if self.reader is None:
            return content
        try:
            return self.reader.read(content)
        except BadArguments as problem:
            raise BadValue("answer", "; ".join(problem.problems)) from None


class RecordedQuestions:
    """What a tool's call asks on record, or a code agent, or a step of one.

    ``prompt_ids`` is how the ids of all its prompts begin; the number of each follows.  The first
    ones that are answered, ``handled``, are not found where one ``passes`` over them.
    """

    __slots__ = ("_handled", "_hub", "_order", "_prompt_ids", "_run")

    def __init__(self, run: AskingRun, hub: RunHub, prompt_ids: str, handled: int = 0) -> None:
        self._run = run
        self._hub = hub
        self._prompt_ids = prompt_ids
        every: Iterator[Answered | OpenPrompt] = chain(run.thread.answers, run.thread.prompts)
        recorded, withdrawn = [], []
        for each in every:
            if not each.ordinal or each.prompt_id != f"{prompt_ids}{each.ordinal}":
                continue
            if isinstance(each, Answered) and each.is_withdrawn:
                withdrawn.append(each.ordinal)
            else:
                recorded.append(RecordedCall(each.ordinal, each.identity))
        self._order = CallOrder(recorded, withdrawn)
        first = run.thread.answers[:handled]
        self._handled = frozenset(
            [x.ordinal for x in first if x.prompt_id == f"{prompt_ids}{x.ordinal}"]
        )

    async def ask(self, asked: Question, *, passes: bool = False) -> Any:
        """Ask a person in the run's name, or find the answer on record.

        Raises ``PromptTimeout``, and ``PromptClosed`` where the question has ended without an
        answer.
        """
        place = self._order.place(asked.identity, passed=self._handled if passes else ())
        prompt_id = f"{self._prompt_ids}{place.number}"
        found = find_answer(self._run.thread.answers, prompt_id)
        if found is None:
            reply = await self._wait(SessionPrompt(
                prompt_id=prompt_id, question=asked.text, options=asked.options,
                timeout=asked.timeout, schema_json=asked.schema, ordinal=place.number,
                identity=asked.identity,
            ), asked)  # fmt: skip
            return asked.read(reply.content)
        if found.content is not None:
            return asked.read(found.content)
        raise _closed(prompt_id, found.reason, asked)

    async def _wait(self, event: SessionPrompt, asked: Question) -> SessionReply:
        run, hub, prompt_id = self._run, self._hub, event.prompt_id
        prompts = hub.hub.prompts
        # Before it is shown: it may be answered by who is shown it, at once.
        prompt = prompts.hold(prompt_id, hub.run_id)
        prompt.check = asked.check
        if find_prompt(run.thread.prompts, prompt_id) is None:
            hub.open_prompt(event)
            if find_prompt(run.thread.prompts, prompt_id) is None:
                prompts.end(prompt_id, WITHDRAWN)  # Unless it has its answer: nobody asks any more.
        try:
            with hub.hub.dispatcher.waiting():
                return await prompts.wait(prompt)
        except PromptClosed as error:
            raise _closed(prompt_id, error.reason, asked) from None
        except anyio.get_cancelled_exc_class():
            self._order.give_up(asked.identity)
            raise
        finally:
            hub.end_prompt(SessionPromptEnd(prompt_id=prompt_id, reason=WITHDRAWN))


async def ask_once(hub: Any, asked: Question) -> Any:
    """Ask a person in the scope of a hook, where nothing is run again: the question is lost with
    its process."""
    if not isinstance(hub, RunHub):  # Where there are no runs, it says why it cannot.
        return await hub.ask("user", asked.text, options=asked.options, timeout=asked.timeout)
    content = await hub.hub.prompts.ask(
        "user", asked.text, asked.options, asked.timeout, asker=hub, check=asked.check
    )
    return asked.read(content)


@contextmanager
def extended(limit: anyio.CancelScope | None) -> Iterator[None]:
    """Inside, the time of ``limit``, if there is one, does not pass."""
    if limit is None or limit.deadline == math.inf:
        yield
        return
    left = limit.deadline - anyio.current_time()
    limit.deadline = math.inf
    try:
        yield
    finally:
        limit.deadline = anyio.current_time() + left


def _closed(prompt_id: str, reason: str, asked: Question) -> PromptClosed | PromptTimeout:
    if reason == EXPIRED:
        return PromptTimeout(prompt_id, asked.timeout or 0.0)
    return PromptClosed(prompt_id, reason)
