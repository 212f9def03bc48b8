"""Which run a request is told to: its session's, the one that waits for its results, or a new one.

    results of calls that a run waits for     the run, as replies to its prompts
    a response that is its run's latest       the run, as a message
    what a run told that asks its user        the run, as the answer
    the same as before, sent again            where it went before
    a session (conversation, headers)         its run, as a message; a new one where there is none
    anything else                             a run of its own, with the history that was given

A request that does not extend its session (another agent, other tools, another transcript, a
response that is not the latest) gets a run of its own, too, with the history up to there.

Official clients repeat a request by themselves and without a key.  What answered something would
then answer what was asked next, which nobody has meant; so a repeated answer goes where the first
one went.  That is looked for later than what is asked: who has taken it has then answered that.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from msgspec import structs

from hubbub.channels.http.openai.answers.answer import approves
from hubbub.channels.http.openai.answers.identifiers import (
    call_id_of,
    prompt_id_of,
    read_response_id,
)
from hubbub.channels.http.openai.answers.question import (
    NOTES,
    ClientQuestion,
    find_question,
    is_latest,
    notes_of,
    state_of,
)
from hubbub.channels.http.openai.answers.refusals import Refused, refused_by, unknown_model
from hubbub.channels.http.openai.requests.extending import INSTRUCTIONS
from hubbub.channels.http.openai.requests.lone_chats import lone_run_id, waiting_chats
from hubbub.channels.http.openai.requests.recent_requests import RecentRequests, RequestPlace
from hubbub.channels.http.openai.requests.saying_again import SayingAgain
from hubbub.channels.http.openai.requests.transcript import read_history
from hubbub.channels.http.openai.requests.wanted import (
    CONTINUE,
    Split,
    WantedAnswer,
    history_of,
    split,
)
from hubbub.channels.http.wire.host import SOURCE
from hubbub.channels.http.wire.parts import parts_shown
from hubbub.channels.http.wire.request_keys import request_key
from hubbub.channels.http.wire.runtime_answers import ask_runtime
from hubbub.hub.events import (
    HistoryMessage,
    SessionReply,
    SessionTaken,
)
from hubbub.hub.events.parts import Audio, Document, Image
from hubbub.hub.hub import Hub
from hubbub.hub.message import Message
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.cursor import seq_of
from hubbub.hub.store.journal import RequestKey

__all__ = ["place"]

LIFE: Final = 24 * 3600.0
"""Seconds after which a run that nobody named is over: it may wait for results for ever."""


async def place(hub: Hub, wanted: WantedAnswer, where: str, recent: RecentRequests) -> RequestPlace:
    """Tell a run what a request says.  Raises ``Refused``; ``where`` is its field."""
    if wanted.model not in await ask_runtime(hub, "agents"):
        raise unknown_model(wanted.model)
    placing = _Placing(hub, wanted, where)
    if wanted.key:
        return await placing.place(None)
    digest = f"{where} {wanted.session_key} {wanted.digest}"
    async with recent.alone(digest):
        before = recent.find(digest)
        if before is not None and wanted.is_retry:
            return before
        placed = await placing.place(before)
        recent.note(digest, placed)
    return placed


class _Placing:
    def __init__(self, hub: Hub, wanted: WantedAnswer, where: str) -> None:
        self._hub = hub
        self._wanted = wanted
        self._where = where
        self._split: Split = split(wanted.entries, where)
        self._ignored = list(wanted.ignored)
        said = structs.replace(
            wanted, key="", stream=False, has_usage=False, is_retry=False, digest=""
        )
        self._request = request_key(wanted.key, ("v1", where), said)
        self._approving = request_key(wanted.key, ("v1", where, "approve"), said)
        """Noted with what a child is told, before its conversation hears it by the request."""

        self._notes = {NOTES: dict(wanted.notes)}
        self._again = SayingAgain(hub, wanted, self._shown_with)

    async def place(self, before: RequestPlace | None) -> RequestPlace:
        """Find the run, and tell it; ``before``: where the same request has gone before."""
        placed = await self._place(before)
        return structs.replace(placed, ignored=tuple(dict.fromkeys(self._ignored)))

    async def _place(self, before: RequestPlace | None) -> RequestPlace:
        wanted = self._wanted
        if self._split.outputs:
            placed = await self._reply() or await self._repeated()
            if placed is not None:
                return placed
        if wanted.previous:
            return await self._continue()
        if wanted.session_key:
            return await self._speak()
        answered = await self._answer_without_session(before)
        return answered or await self._throw_away(self._given_history())

    # ── results of calls ─────────────────────────────────────────────────────────────────────

    async def _reply(self) -> RequestPlace | None:
        """Reply to the calls that a run waits for; ``None`` where none does."""
        given: dict[str, str] = {}
        run_ids = set()
        for output in self._split.outputs:
            if (found := prompt_id_of(output.call_id)) is not None:
                run_ids.add(found[0])
                given[found[1]] = output.text
        if len(run_ids) != 1:
            return None
        (run_id,) = run_ids
        state = await state_of(self._hub, run_id)
        if state is None or not await self._is_asked_for(state):
            return None
        calls = [x for x in state.pending.prompts.values() if state.is_call(x)]
        if not calls or not given.keys() <= {x.prompt_id for x in calls}:
            return await self._replied_before(state, given)
        if not await self._fits(state):
            return None
        missing = [call_id_of(x.prompt_id) for x in calls if x.prompt_id not in given]
        if missing and self._split.text is None:
            raise Refused(
                400, f"No tool output found for function call(s) {', '.join(missing)}.",
                param=self._where,
            )  # fmt: skip
        seq = 0
        last = next(reversed(given)) if self._split.text is None else ""
        for prompt_id, result in given.items():
            request = self._request if prompt_id == last else None
            notes = self._notes if prompt_id == last else None
            receipt = await self._hub.reply(
                prompt_id, result, source=SOURCE, metadata=notes, request=request
            )
            if receipt.rejected:
                before = await self._repeated() or await self._replied_before(state, given)
                if before is not None:  # Told by another of the same request, at the same time.
                    return before
                raise Refused(409, f"the result was not taken: {receipt.explanation}")
            seq = seq_of(receipt.cursor)
        if self._split.text is None:
            return RequestPlace(run_id=run_id, seq=seq)
        placed = await self._send(state, self._split.text, self._wanted.key)
        return placed or RequestPlace(run_id=run_id, seq=seq)

    async def _replied_before(
        self, state: ClientQuestion, given: dict[str, str]
    ) -> RequestPlace | None:
        """Where a run was told these results before: a client that has heard nothing of it sends
        them again, maybe with what its user said then."""
        seqs = [
            event.seq
            for event in await self._hub.read(state.run_id, types="session:reply")
            if isinstance(event, SessionReply)
            and given.get(event.prompt_id) == event.content
            and event.source == SOURCE
        ]
        if len(seqs) != len(given):
            return None
        if self._split.text is None:
            return RequestPlace(run_id=state.run_id, seq=max(seqs))
        return await self._again.said_with(state, max(seqs), self._split.text)

    # ── a run that there is ──────────────────────────────────────────────────────────────────

    async def _continue(self) -> RequestPlace:
        """Continue from a response."""
        hub, wanted = self._hub, self._wanted
        found = read_response_id(wanted.previous)
        question = None if found is None else await find_question(hub, *found)
        if question is None:
            raise Refused(
                400, f"Previous response with id '{wanted.previous[:100]}' not found.",
                param="previous_response_id", code="previous_response_not_found",
            )  # fmt: skip
        text, state = self._new_text(), await state_of(hub, question.run_id)
        if text is not None and state is not None and await self._fits(question):
            placed = None
            if await is_latest(hub, question):
                key = wanted.key or f"after {wanted.previous}"
                placed = await self._send(state, text, key)
            elif not wanted.key:
                placed = await self._again.said_before(state, text, behind=question.seq)
            if placed is not None:
                return placed
        history = await read_history(hub, question, question.run_id)
        return await self._throw_away((*history, *self._given_history()))

    async def _speak(self) -> RequestPlace:
        """Say it in the conversation of a session's key."""
        hub, wanted = self._hub, self._wanted
        if wanted.session_key.lstrip().startswith("{"):
            raise Refused(400, "a conversation's name does not begin with '{'")
        info = await ask_runtime(hub, "find", wanted.session_key)
        if info is None:
            return await self._open(self._given_history(), session_key=wanted.session_key)
        run_id = info["run_id"]
        state = await state_of(hub, run_id)
        text = self._split.text if self._again.is_transcript else self._new_text()
        if state is not None and text is not None and await self._fits(state):
            placed, goes_on = await self._again.compare(state, text)
            if goes_on:
                placed = await self._send(state, text, wanted.key)
            if placed is not None:
                return placed
        history = self._given_history()
        if not self._again.is_transcript:
            history = (*await read_history(hub, None, run_id), *history)
        return await self._throw_away(history)

    async def _answer_without_session(self, before: RequestPlace | None) -> RequestPlace | None:
        """Say it to the run that waits for an answer, where a client that names no session repeats
        what led there; ``None`` where none does.

        Of runs that are alike one may have the answer already: a client that has yet to hear what
        comes of that is taken to say it again, and any other to be another one.
        """
        wanted, entries = self._wanted, self._wanted.entries
        if entries[-1].role != "user":
            return None
        again = before if before is not None and before.is_answer else None
        if again is not None and await self._again.is_coming(again):
            return again
        waits = None
        for run_id in await waiting_chats(self._hub, entries[:-1]):
            state = await state_of(self._hub, run_id)
            if state is None or not notes_of(state.opening.message).get("thrown_away"):
                continue
            if not await self._fits(state):
                continue
            placed, goes_on = await self._again.compare(state, entries[-1].text)
            if placed is not None and (wanted.is_retry or await self._again.is_coming(placed)):
                return placed
            again = again or placed
            if goes_on and state.asked:
                waits = waits or state
        if waits is not None:
            again = await self._send(waits, entries[-1].text, wanted.key) or again
        return again

    # ── saying it ────────────────────────────────────────────────────────────────────────────

    async def _fits(self, question: ClientQuestion) -> bool:
        """Whether a run can take it: it is asked for, and open."""
        info = await ask_runtime(self._hub, "run", question.run_id)
        is_open = info is not None and info["inbox"] == "open"
        return is_open and await self._is_asked_for(question)

    async def _is_asked_for(self, question: ClientQuestion) -> bool:
        """Whether a run is of the agent that is asked for, and has the tools."""
        info = await ask_runtime(self._hub, "run", question.run_id)
        wanted = self._wanted
        known = {tool.name: tool for tool in question.tools}
        return (
            info is not None and wanted.model in (info["agent"], question.opening.open_agent)
            and all(known.get(tool.name) == tool for tool in wanted.tools)
        )  # fmt: skip

    async def _send(self, state: ClientQuestion, text: str, key: str) -> RequestPlace | None:
        """Say it to a run that asks what ``state`` says; ``None`` where it does not take it, or has
        under another's key."""
        if (answered := await self._answer(state, text)) is not None:
            return answered
        is_once = not key and bool(state.asked)
        if is_once:
            key = await self._key_of_answer(state)
        message = Message(
            text, key=key or None, metadata=self._notes,
            parts=self._shown_with(text),
        )  # fmt: skip
        receipt = await self._hub.send_to_run(
            state.run_id, message, source=SOURCE, request=self._request
        )
        if receipt.accepted or (receipt.duplicate and (self._request is not None or is_once)):
            is_answer = bool(state.asked) or approves(text)
            return RequestPlace(
                run_id=receipt.run_id, seq=seq_of(receipt.cursor), is_answer=is_answer
            )
        if receipt.reason in ("ended", "terminated", "unknown"):
            return None
        if key != self._wanted.key and (receipt.duplicate or receipt.reason == "key reused"):
            return None  # Somebody else has continued from there.
        raise refused_by(receipt)

    async def _key_of_answer(self, state: ClientQuestion) -> str:
        """Under which a message counts once as the answer to what is asked."""
        taken = await self._hub.journal.latest(state.run_id, (SessionTaken.type,))
        asked = (str(taken.seq if taken is not None else 0), *(x.prompt_id for x in state.asked))
        return f"to {hashlib.sha256(' '.join(asked).encode()).hexdigest()[:40]}"

    async def _answer(self, state: ClientQuestion, text: str) -> RequestPlace | None:
        """Reply to what is asked, where a message would not: approve the oldest call that waits for
        it, or answer the oldest question of a code agent, which reads its messages itself."""
        hub, run_id = self._hub, state.run_id
        kinds = {"approval"} if approves(text) else set()
        if state.is_code:
            kinds.add("question")
        asked = next((x for x in state.pending.prompts.values() if x.kind in kinds), None)
        if asked is None:
            return None
        # Later than the prompts are read: if the request has answered an older one, that is noted.
        if (before := await self._repeated()) is not None:
            return before
        if self._approving is not None and (await hub.find_request(self._approving)).duplicate:
            return None  # The conversation has yet to hear it.
        is_own = asked.run_id == run_id
        receipt = await hub.reply(
            asked.prompt_id, "approve" if asked.kind == "approval" else text, source=SOURCE,
            metadata=self._notes, request=self._request if is_own else self._approving,
        )  # fmt: skip
        if not is_own:
            return None  # What a child asked is answered; the conversation hears it, too.
        if not receipt.rejected:
            return RequestPlace(run_id=receipt.run_id, seq=seq_of(receipt.cursor), is_answer=True)
        if receipt.reason != "answered":
            again = await state_of(hub, run_id)
            if again is not None and asked.prompt_id in again.pending.prompts:
                raise refused_by(receipt)  # Such an answer it does not take, and it asks on.
        # It is answered, maybe by the same, at the same time: that is on record when the store has
        # looked for what was sent behind it.
        await hub.find_request(RequestKey("", ""))
        return await self._again.said_before(state, text, is_taken=True)

    async def _repeated(self) -> RequestPlace | None:
        """Where the same request was taken before."""
        if self._request is None:
            return None
        found = await self._hub.find_request(self._request)
        if found.duplicate:
            return RequestPlace(run_id=found.run_id, seq=seq_of(found.cursor))
        if found.reason != "unknown":
            raise refused_by(found)
        return None

    def _shown_with(self, text: str) -> tuple[Image | Document | Audio, ...]:
        """What is shown with a text: that of the last message, or of all that are one."""
        parts = self._split.parts
        if text != self._split.text:
            parts = tuple(part for entry in self._wanted.entries for part in entry.parts)
        return parts_shown(parts)

    def _joined(self) -> str:
        return "\n\n".join(x.text for x in self._wanted.entries)

    # ── a new run ────────────────────────────────────────────────────────────────────────────

    async def _throw_away(self, history: Sequence[HistoryMessage]) -> RequestPlace:
        """A run for this request: it is over with its answer, or with its last."""
        return await self._open(history, is_thrown_away=True)

    async def _open(
        self,
        history: Sequence[HistoryMessage],
        *,
        session_key: str = "",
        is_thrown_away: bool = False,
    ) -> RequestPlace:
        wanted = self._wanted
        once = is_thrown_away and (wanted.is_whole or not wanted.is_stored)
        notes = dict(wanted.notes)
        if is_thrown_away and not wanted.is_background:
            notes["thrown_away"] = True
        text = self._split.text
        if text is None:
            text = CONTINUE
        if wanted.instructions:
            said = HistoryMessage(role="user", content=INSTRUCTIONS + wanted.instructions)
            history = (said, *history)
        run_id = None
        if not session_key:
            key = f"{wanted.model}\n{wanted.key}" if wanted.key else ""
            run_id = lone_run_id(self._hub, wanted.entries, key)
        message = Message(
            text, key=wanted.key or None, metadata={NOTES: notes},
            parts=parts_shown(self._split.parts),
        )  # fmt: skip
        how: dict[str, Any] = {
            "session_key": session_key, "once": once, "run_id": run_id, "source": SOURCE,
            "timeout": None if session_key else LIFE, "request": self._request,
        }  # fmt: skip
        receipt = await self._hub.open(
            wanted.model, message, history=history or None, tools=wanted.tools or None, **how
        )
        if receipt.rejected and history and not wanted.tools and _is_refused(receipt):
            # Of an agent that has no transcript nobody can say what was before.
            again = await self._hub.open(wanted.model, message, **how)
            if not again.rejected:
                receipt = again
                self._ignored.append("history")
        if receipt.rejected:
            raise refused_by(receipt)
        # A duplicate, too, says where it was recorded: by its request, or by the message's key.
        return RequestPlace(run_id=receipt.run_id, seq=seq_of(receipt.cursor))

    # ── what it says ─────────────────────────────────────────────────────────────────────────

    def _given_history(self) -> tuple[HistoryMessage, ...]:
        """What the request says was before, with the results of calls at its end."""
        entries = self._wanted.entries
        if entries and entries[-1].role == "user":
            entries = entries[:-1]
        return history_of(entries, self._where)

    def _new_text(self) -> str | None:
        """What is new, where only that was sent; ``None`` where it is more than a message."""
        entries = self._wanted.entries
        if any(x.role != "user" for x in entries):
            return None
        if self._wanted.instructions:
            self._ignored.append("instructions")
        return self._joined()


def _is_refused(receipt: Receipt) -> bool:
    """Whether it was rejected for what it asked for, and not for the state of things."""
    return not receipt.failed_store and receipt.reason not in ("hub closed", "inbox full")
