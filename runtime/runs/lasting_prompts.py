"""``LastingPrompts``: the prompts of one runtime's runs that outlive a process.

    a prompt opens ─► a note in the same commit, a prompt that can be replied to, a timer
    it ends        ─► all three go; nobody answers in time ─► ``session:timer`` to the run

The note is what the next runtime on the store finds; the run itself stays where it is.  A run that
is imported comes with its notes.

What a person says to a conversation answers what its run asks, and the prompts of every run below
it, too: those that were open when it was said.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from hubbub.agents.definitions.answers import answer_problem
from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.state.commands import CANCELLED, command_of
from hubbub.agents.state.lasting_prompts import (
    LastingPrompt,
    kept_prompt,
    note_of,
    read_note,
)
from hubbub.agents.state.prompts import LASTING, OpenPrompt, Prompts, find_prompt
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.signals import Taken
from hubbub.hub import events as e
from hubbub.hub.addressing import is_from_user, is_run_id
from hubbub.hub.delivery.ended_prompts import asker_of, is_asked_by_run
from hubbub.hub.errors import BadValue, HubbubError
from hubbub.hub.events import Event, InLane, SessionMessage, SessionReply
from hubbub.hub.logs import log
from hubbub.hub.near_misses import shown
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.store.journal import Commit, FoundTree
from hubbub.hub.values import NULL
from hubbub.runtime.activities.approvals import parsed
from hubbub.runtime.kernel.families import Families
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.kernel.timers import Timer

__all__ = ["LastingPrompts"]

SET_BACK: Final = 60_000_000
"""A message that was accepted while a prompt was open, but is older than it by more than this (µs),
was said after the clock had been set back: recording it takes less."""

UNATTENDED: Final = "nobody attends this run, so nobody can answer"
"""The reason where ``Runtime(unattended="deny")`` answers."""


class LastingPrompts:
    """Kept in memory by prompt and by tree, in the store by its notes."""

    __slots__ = (
        "_before", "_damaged", "_denies_unattended", "_families", "_heard", "_kept", "_services",
        "_timers", "_unread", "by_root", "under_way",
    )  # fmt: skip

    def __init__(self, services: Services, families: Families, unattended: str = "wait") -> None:
        if unattended not in ("wait", "deny"):
            raise BadValue("unattended", f'expected "wait" or "deny", not {shown(unattended)}')
        self._services = services
        self._families = families
        self._denies_unattended = unattended == "deny"
        """Whether what is asked where no person is, is denied at once."""
        self._timers: dict[str, Timer] = {}
        self._kept: dict[str, LastingPrompt] = {}
        self.by_root: dict[str, dict[str, LastingPrompt]] = {}
        self._heard: dict[str, dict[str, int]] = {}
        """The first item of each inbox that came after a prompt, but has an earlier time."""
        self._before: dict[str, dict[str, int]] = {}
        """The last item of each inbox that came before a prompt, as far as was heard of it here."""
        self.under_way: set[str] = set()
        """The prompts that the store has yet to write.  What is heard until it has stands before
        them, whatever its time: of several processes each has another moment of its own."""
        self._damaged: set[str] = set()
        """The keys of notes that cannot be read."""
        self._unread: set[str] = set()
        """The runs that are to say themselves what they ask."""

    async def begin(self) -> Sequence[str]:
        """Go on waiting where an earlier runtime did.

        Returns the runs whose record is to be read for that: where a note is damaged, even its
        key, each run that waits and has no other.
        """
        journal = self._services.hub.journal
        if self._services.hub.share.sharing is not None:  # Nothing is this process's yet.
            return ()
        for key, note in (await journal.notes()).items():
            prompt_id, is_lasting = key[len(LASTING) :], key.startswith(LASTING)
            if not note or not (is_lasting or await self._is_of_run(prompt_id)):
                continue
            try:
                if not is_lasting:
                    raise ValueError(f"its key begins with {key[: len(LASTING)]!r}")
                self._open(read_note(prompt_id, note))
            except ValueError as error:
                log.warning("prompt.note_damaged", prompt_id=prompt_id, error=str(error))
                self._damaged.add(key)
        if self._damaged:
            noted = {kept.run_id for kept in self._kept.values()}
            for run_id in await journal.find("", "every"):
                info = await journal.info(run_id) if run_id not in noted else None
                if info is not None and info.status == "waiting":
                    self._unread.add(run_id)
        return sorted(self._unread)

    async def _is_of_run(self, prompt_id: str) -> bool:
        """Whether a run has asked what has this id."""
        run_id = asker_of(prompt_id)
        if not (is_asked_by_run(prompt_id) and is_run_id(run_id)):
            return False
        return await self._services.hub.journal.info(run_id) is not None

    # ── coming and going ─────────────────────────────────────────────────────────────────────

    async def claimed(self, roots: Mapping[str, str]) -> None:
        """Go on waiting where another process did, for these runs, given with their roots."""
        share = self._services.hub.share
        for key, note in (await self._services.hub.journal.notes(LASTING)).items():
            try:
                kept = read_note(key[len(LASTING) :], note) if note else None
            except ValueError as error:
                log.warning("prompt.note_damaged", prompt_id=key[len(LASTING) :], error=str(error))
                continue
            # A question's note does not say what is above its run.
            if kept is not None and share.owns(root := roots.get(kept.run_id, "")):
                above = kept.above or ((root,) if root != kept.run_id else ())
                self._open(msgspec.structs.replace(kept, above=above))

    def came_in(self, tree: FoundTree) -> None:
        """Wait for what a tree asks that has come into the store whole, with what waits in it."""
        numbers = {run.new.run_id: max(run.waiting, default=0) for run in tree.runs}
        for key, note in tree.notes.items():
            if not key.startswith(LASTING):
                continue
            self._open(kept := read_note(key[len(LASTING) :], note))
            self._before[kept.prompt_id] = numbers

    def lost(self, root_run_id: str) -> None:
        """Another process waits for the replies to what is asked in a tree."""
        for prompt_id in tuple(self.by_root.get(root_run_id, ())):
            self._services.hub.prompts.let_go(prompt_id)
            self._forget_here(prompt_id)

    def follow(
        self,
        lane: OwnLane,
        events: Iterable[Event],
        before: Prompts,
        after: Prompts,
        side: str = "",
        commit: Commit | None = None,
        *,
        is_with_run: bool = False,
    ) -> None:
        """The open prompts of a run are about to change by ``events``, those of ``commit``, where
        it is given; else ``recorded`` is to be called.

        Only what waits in no task is noted, with the commit: a run that is at work is read when the
        store opens.
        """
        notes: dict[str, str] = {}
        for event in events:
            if isinstance(event, e.SessionPromptEnd):
                # No reply is accepted from here on, whenever the store takes the record.
                prompts = self._services.hub.prompts
                prompts.end(event.prompt_id, event.reason, is_with_run=is_with_run)
        for prompt in before:
            if prompt.is_lasting and find_prompt(after, prompt.prompt_id) is None:
                self._forget(prompt.prompt_id)
                if prompt.is_held:
                    notes[LASTING + prompt.prompt_id] = ""
        for prompt in after:
            if prompt.is_lasting and find_prompt(before, prompt.prompt_id) is None:
                kept = _kept(prompt, lane, side)
                self._open(kept)
                numbers = {
                    each: self._families.seen_by(each) for each in (kept.run_id, *kept.above)
                }
                self._before[prompt.prompt_id] = numbers
                self.under_way.add(prompt.prompt_id)
                if prompt.is_held:
                    notes[LASTING + prompt.prompt_id] = note_of(kept)
        if commit is not None:
            commit.before = self.recorded
            if notes:
                commit.notes = {**(commit.notes or {}), **notes}

    def recorded(self, commit: Commit) -> None:
        """The store has written what a run says, or refused it: what is heard from now on stands
        behind the prompts in it."""
        for event in commit.events:
            if isinstance(event, e.SessionPrompt):
                self.under_way.discard(event.prompt_id)

    def found(self, lane: OwnLane, prompts: Prompts, side: str = "") -> None:
        """A run has come into memory, with these open prompts."""
        kept = [_kept(prompt, lane, side) for prompt in prompts if prompt.is_lasting]
        for each in kept:
            self._open(each)
        if lane.run_id in self._unread:
            held = {prompt.prompt_id for prompt in prompts if prompt.is_held}
            self._note_again(lane.run_id, [each for each in kept if each.prompt_id in held])

    def _note_again(self, run_id: str, held: Iterable[LastingPrompt]) -> None:
        """Note what a run asks whose note was damaged; what is damaged goes with the last one."""
        self._unread.discard(run_id)
        notes = {LASTING + kept.prompt_id: note_of(kept) for kept in held}
        self._damaged -= notes.keys()
        if not self._unread:
            notes.update(dict.fromkeys(self._damaged, ""))
            self._damaged.clear()
        if notes:
            self._services.hub.journal.submit(Commit(notes=notes))

    def _open(self, kept: LastingPrompt) -> None:
        known, self._kept[kept.prompt_id] = self._kept.get(kept.prompt_id), kept
        if known is not None:  # The run has come, which knows more than the note.
            self._leave_tree(known)
        self.by_root.setdefault(kept.root_run_id, {})[kept.prompt_id] = kept
        if known is not None:
            return
        hub = self._services.hub
        fits = partial(self._check, kept)
        hub.prompts.hold(kept.prompt_id, kept.run_id, kept.kind, fits, kept.expires_at)
        if kept.expires_at:
            left = kept.expires_at - hub.ports.clock.now()
            if kept.since:  # Else the time that is left grows when the clock is set back.
                left = min(left, kept.expires_at - kept.since)
            seconds = max(0.0, left / 1_000_000)
            expire = partial(self._expire, kept)
            self._timers[kept.prompt_id] = self._services.timers.after(seconds, expire)
        if self._denies_unattended:
            hub.tasks.start(self._deny_unattended(kept), name="hubbub unattended", steady=True)

    async def _deny_unattended(self, kept: LastingPrompt) -> None:
        """Refuse what is asked below a root that no person talks with."""
        try:
            found = await self._families.look_at(kept.root_run_id)
        except HubbubError as error:
            log.warning("prompt.unreadable", prompt_id=kept.prompt_id, error=str(error))
            return
        if found is not None and not found[1]().origin.is_conversation:
            reply = SessionReply(prompt_id=kept.prompt_id, content=UNATTENDED, decision="deny")
            self._services.hub.prompts.reply(reply)

    def _leave_tree(self, kept: LastingPrompt) -> None:
        tree = self.by_root[kept.root_run_id]
        del tree[kept.prompt_id]
        if not tree:
            del self.by_root[kept.root_run_id]

    def _expire(self, kept: LastingPrompt) -> None:
        hub = self._services.hub
        if not hub.is_closed and not self._services.phase.is_leaving:
            hub.pipeline.deliver(e.SessionTimer(timer=kept.prompt_id), to=kept.run_id)

    def _forget(self, prompt_id: str) -> None:
        self._services.hub.prompts.end(prompt_id, "closed")
        self._forget_here(prompt_id)

    def _forget_here(self, prompt_id: str) -> None:
        self._heard.pop(prompt_id, None)
        self._before.pop(prompt_id, None)
        self.under_way.discard(prompt_id)
        if (kept := self._kept.pop(prompt_id, None)) is not None:
            self._leave_tree(kept)
        timer = self._timers.pop(prompt_id, None)
        if timer is not None:
            timer.cancel()

    # ── how replies are checked ──────────────────────────────────────────────────────────────

    def _check(self, kept: LastingPrompt, reply: SessionReply) -> str:
        """Why a reply does not fit; empty where it does."""
        if kept.schema:
            return answer_problem(msgspec.Raw(kept.schema.encode()), reply)
        if kept.kind != "approval" or reply.arguments_json is NULL:
            return ""
        side = self._services.servers.definitions.find_side(kept.agent, kept.side)
        arguments = bytes(reply.arguments_json).decode()
        tool = side.tool_of(kept.tool, arguments) if side is not None else None
        if tool is None:
            if side is not None and side.server_of(kept.tool) is not None:
                return ""  # Its server is away: the call itself says whether they fit.
            return f"there is no tool {kept.tool!r} any more"
        try:
            parsed(tool, kept.tool, arguments)
        except BadArguments as problem:
            return "; ".join(problem.problems)
        return ""

    def misfit(self, asked: e.SessionPrompt, reply: SessionReply) -> str:
        """Why a reply does not fit what a run asks that another process drives; empty where it
        does, or where that is not known here."""
        if asked.schema_json is not NULL:
            return answer_problem(asked.schema_json, reply)
        if asked.kind != "approval" or reply.arguments_json is NULL:
            return ""
        problem = ""
        for side in ("side_a", "side_b"):
            if self._services.definitions.find_side(asked.agent, side) is not None:
                kept = LastingPrompt(
                    asked.prompt_id, asked.kind, agent=asked.agent, side=side, tool=asked.tool
                )
                if not (problem := self._check(kept, reply)):
                    return ""
        return problem

    # ── what a person's words answer ─────────────────────────────────────────────────────────

    def heard(self, item: InLane) -> None:
        """An item was accepted for a run of a tree in which something is asked."""
        for kept in self.by_root[item.root_run_id].values():
            if kept.prompt_id in self.under_way:
                self._before[kept.prompt_id][item.run_id] = item.seq
            elif kept.since - item.at > SET_BACK:
                self._heard.setdefault(kept.prompt_id, {}).setdefault(item.run_id, item.seq)

    def first_answer(self, lane: OwnLane, said: Iterable[InLane]) -> tuple[InLane, ...]:
        """What was said first of what is an answer to ``lane``'s run, or to one it waits for."""
        return tuple([each for each in said if self._awaits(lane, each)][:1])

    def _awaits(self, lane: OwnLane, said: InLane) -> bool:
        """Whether what a person says is an answer to ``lane``'s run, or to one it waits for."""
        return any(
            kept.run_id == lane.run_id and self._takes(kept, said, gives_up=bool(command_of(said)))
            for kept in self.by_root[lane.root_run_id].values()
        ) or any(
            _child_below(kept, lane.run_id) in self._families.waits.directly(lane.run_id)
            for kept in self._asked_before(lane, said)
        )

    def with_replies(self, lane: OwnLane, thread: Thread, taken: Taken) -> Taken:
        """What a run takes, with what a person's words among it answer: what other runs of its
        tree ask, and the run's own tools; and what its calls had not asked yet.

        A word that gives up what is asked is for what is asked later, too.
        """
        is_said = (x for x in taken.items if isinstance(x, SessionMessage) and is_from_user(x))
        if (said := next(is_said, None)) is None:
            return taken
        tree, gives_up = self.by_root[lane.root_run_id].values(), bool(command_of(said))
        own = [x for x in tree if x.run_id == lane.run_id]
        meant = [x for x in own if self._takes(x, said, gives_up=gives_up)]
        kept = [x for x in meant if _asks_itself(thread, x)]
        if lane.parent_run_id is None or thread.converses:
            kept += self._asked_before(lane, said)
        replies = [(x.run_id, self._reply(x, said)) for x in kept]
        for _, reply in replies:
            self._services.hub.prompts.answered(reply)
        unasked = frozenset([] if gives_up else [x.prompt_id for x in own if x not in meant])
        return msgspec.structs.replace(taken, replies=tuple(replies), unasked=unasked)

    def _asked_before(self, lane: OwnLane, said: InLane) -> list[LastingPrompt]:
        return [
            kept
            for kept in self.by_root.get(lane.root_run_id, {}).values()
            if kept.run_id != lane.run_id and self._takes(kept, said)
        ]

    def _takes(self, kept: LastingPrompt, said: InLane, *, gives_up: bool = False) -> bool:
        """Whether what a person says is an answer to a prompt: said in time, and the first one.

        What is no answer to any is said in the conversation, when its turn comes.
        """
        return (
            (gives_up or self._was_asked(kept, said))
            and not kept.is_over_at(said.at)
            and self._services.hub.prompts.is_unanswered(kept.prompt_id)
        )

    def _was_asked(self, kept: LastingPrompt, said: InLane) -> bool:
        """Whether a prompt was open already when a message was accepted."""
        # The clock may have been set meanwhile: one with a later time may have come before the
        # prompt nevertheless, and one with an earlier time after it.
        if kept.since <= said.at:
            return said.seq > self._before.get(kept.prompt_id, {}).get(said.run_id, 0)
        first = self._heard.get(kept.prompt_id, {}).get(said.run_id)
        return first is not None and said.seq >= first

    def _reply(self, kept: LastingPrompt, said: SessionMessage) -> SessionReply:
        reply = SessionReply(prompt_id=kept.prompt_id, content=said.content, source=said.source)
        if kept.is_over_at(self._services.hub.ports.clock.now()):  # It was said in time.
            reply = msgspec.structs.replace(reply, at=said.at)
        if command_of(said):
            return msgspec.structs.replace(reply, content=CANCELLED, decision="deny")
        if kept.kind == "question" and not self._services.hub.prompts.problem_of(reply):
            return reply
        return msgspec.structs.replace(reply, decision="deny")


def _asks_itself(thread: Thread, kept: LastingPrompt) -> bool:
    """Whether a tool of the run has asked, rather than a call, which is answered in its status."""
    prompt = find_prompt(thread.prompts, kept.prompt_id)
    return prompt is not None and not prompt.is_held


def _child_below(kept: LastingPrompt, run_id: str) -> str:
    """The child of ``run_id`` that asks, or below which the run is that does."""
    path = (kept.run_id, *kept.above)
    return path[path.index(run_id) - 1] if run_id in kept.above else ""


def _kept(prompt: OpenPrompt, lane: OwnLane, side: str) -> LastingPrompt:
    return kept_prompt(prompt, lane.agent, side, tuple([run_id for run_id, _ in lane.ancestors]))
