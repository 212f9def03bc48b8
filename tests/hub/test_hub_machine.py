"""The hub beside a model of plain data: inboxes, deduplication, closing, dead letters, order, and
what goes from one inbox of a tree to another.

Whatever is called, in whatever order, awaited or not, over a store that commits at once or late:
the receipts, the inboxes, what was dispatched and what was kept are the model's.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from hubbub import CustomEvent, Hub, Message
from hubbub.hub.events import AgentComplete, AgentStatus, SessionOpen, SessionTaken
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports

pytestmark = pytest.mark.anyio

MAX_INBOX = 3
AGENTS = ("ann", "bob")
KEYS = ("", "chat-1", "chat-2")


# ── the model ────────────────────────────────────────────────────────────────────────────────


@dataclass
class Address:
    """A run, as its sender sees it."""

    agent: str
    key: str
    state: str = "open"
    is_terminated: bool = False
    items: int = 0
    waiting: dict = field(default_factory=dict)
    keys: dict = field(default_factory=dict)
    root: int | None = None

    def put(self, text):
        self.items += 1
        self.waiting[self.items] = text

    @property
    def messages(self):
        return sum(text.startswith("say ") for text in self.waiting.values())


class Model:
    """Runs by number, what was dispatched (in order), and the dead letters."""

    def __init__(self):
        self.runs = []
        self.log = []
        self.dead = []

    @property
    def live(self):
        return [number for number, run in enumerate(self.runs) if run.state != "ended"]

    @property
    def open_ones(self):
        """A run that is closed frees its key: the next message begins a new one (P-06)."""
        return [number for number in self.live if self.runs[number].state == "open"]

    def by_key(self, key):
        return next((n for n in self.open_ones if self.runs[n].key == key), None)

    def open(self, agent, key):
        if key and (found := self.by_key(key)) is not None:
            return self.send(found, "again", "", "")
        self.runs.append(Address(agent, key))
        self.runs[-1].put("open")
        self.log.append((len(self.runs) - 1, "open"))
        return "accepted", ""

    def send(self, number, text, source, key):
        if number is None:
            return self._reject(text, "unknown")
        run = self.runs[number]
        if key and (source, key) in run.keys:  # Also after its end: it was accepted before.
            if run.keys[source, key] == text:
                return "duplicate", ""
            return self._reject(text, "key reused")
        if run.state != "open":
            return self._reject(text, "terminated" if run.is_terminated else "ended")
        if run.messages >= MAX_INBOX:
            return self._reject(text, "inbox full")
        if key:
            run.keys[source, key] = text
        run.put(f"say {text}")
        self.log.append((number, f"say {text}"))
        return "accepted", ""

    def spawn(self, number, agent):
        run = self.runs[number]
        self.runs.append(Address(agent, "", root=number if run.root is None else run.root))
        self.runs[-1].put("open")
        self.log.append((len(self.runs) - 1, "open"))

    def _reject(self, text, reason):
        self.dead.append((text, reason))
        return "rejected", reason

    def send_to(self, candidates, text):
        if len(candidates) > 1:
            return self._reject(text, "ambiguous")
        return self.send(candidates[0] if candidates else None, text, "", "")

    def named(self, agent):
        return [n for n in self.live if self.runs[n].agent == agent]

    def only(self):
        keyed = [n for n in self.open_ones if self.runs[n].key]
        return keyed or [n for n in self.live if self.runs[n].root is None]

    def control(self, number, act):
        run = self.runs[number]
        if run.state == "ended" or (run.state == "terminated" and act != "terminate"):
            return "rejected", "terminated" if run.is_terminated else "ended"
        run.put(act)
        self.log.append((number, act))
        if act == "close" and run.state == "open":
            run.state = "closing"
        elif act == "terminate":
            run.state, run.is_terminated = "terminated", True
        return "accepted", ""

    def take(self, number, count):
        run = self.runs[number]
        if run.state == "ended":
            return []
        taken = list(run.waiting)[:count]
        for seq in taken:
            del run.waiting[seq]
        self.log.append((number, "take"))
        return taken

    def lend(self, taker, lender, seqs):
        """Whether all of them wait in another inbox of the same tree."""
        trees = {n if self.runs[n].root is None else self.runs[n].root for n in (taker, lender)}
        waiting = self.runs[lender].waiting
        if taker == lender or len(trees) > 1 or not waiting.keys() >= set(seqs):
            return not seqs
        for seq in seqs:
            del waiting[seq]
        return True

    def end(self, number, heir=None):
        """Whether it is over: no end is written over a termination that waits."""
        run = self.runs[number]
        if "terminate" in run.waiting.values():
            return False
        run.state = "ended"
        self.log.append((number, "end"))
        said = [text for text in run.waiting.values() if text.startswith("say ")]
        run.waiting.clear()
        if heir is not None and self.runs[heir].state == "open":
            for text in said:
                self.runs[heir].put(text)
                self.log.append((heir, text))
        else:
            self.dead += [(text[4:], "ended") for text in said]
        return True

    def emit(self, text):
        self.log.append((None, text))


# ── what is done ─────────────────────────────────────────────────────────────────────────────

runs = st.integers(0, 5)
texts = st.sampled_from(["a", "b"])
keys = st.sampled_from(["", "", "k1", "k2"])
sources = st.sampled_from(["", "web"])
acts = st.one_of(
    st.tuples(st.just("open"), st.sampled_from(AGENTS), st.sampled_from(KEYS)),
    st.tuples(st.just("send"), runs, texts, sources, keys),
    st.tuples(st.just("send"), runs, texts, sources, keys),
    st.tuples(st.just("send_to"), st.sampled_from(AGENTS), texts),
    st.tuples(st.just("send_by_key"), st.sampled_from(KEYS), texts),
    st.tuples(st.just("close"), runs),
    st.tuples(st.just("terminate"), runs),
    st.tuples(st.just("interrupt"), runs),
    st.tuples(st.just("take"), runs, st.integers(0, 4)),
    st.tuples(st.just("end"), runs),
    st.tuples(st.just("spawn"), runs, st.sampled_from(AGENTS)),
    st.tuples(st.just("lend"), runs, runs, st.lists(st.integers(1, 4), max_size=2, unique=True)),
    st.tuples(st.just("leave"), runs, runs),
    st.tuples(st.just("emit"), texts),
)


class Both:
    """Does everything to the hub and to the model, and compares in the end."""

    def __init__(self, hub):
        self.hub = hub
        self.model = Model()
        self.ids = []
        self.lanes = []
        self.receipts = []
        self.lent = []
        self.seen = []
        self.dead = []
        hub.subscribe("*", self._see)
        hub.subscribe("hub:dead_letter", self.dead.append)

    def _see(self, event):
        if event.is_durable:
            self.seen.append(event)

    def do(self, act, *args):
        getattr(self, f"_{act}")(*args)

    def _expect(self, receipt, outcome):
        self.receipts.append((receipt, outcome))

    def _number(self, wanted):
        return wanted % len(self.model.runs) if self.model.runs else None

    def _open(self, agent, key):
        before = len(self.model.runs)
        outcome = self.model.open(agent, key)
        receipt = self.hub.open(agent, "again", session_key=key)
        if len(self.model.runs) > before:
            run_id = receipt.run_id
            self.ids.append(run_id)
            self.lanes.append(
                OwnLane(
                    self.hub.pipeline,
                    run_id=run_id,
                    root_run_id=run_id,
                    parent_run_id=None,
                    agent=agent,
                )
            )
        self._expect(receipt, outcome)

    def _send(self, wanted, text, source, key):
        number = self._number(wanted)
        run_id = "nobody" if number is None else self.ids[number]
        message = Message(text, key=key)
        self._expect(
            self.hub.send_to_run(run_id, message, source=source),
            self.model.send(number, text, source, key),
        )

    def _send_to(self, agent, text):
        self._expect(
            self.hub.send_to(agent, text), self.model.send_to(self.model.named(agent), text)
        )

    def _send_by_key(self, key, text):
        if key:
            found = self.model.by_key(key)
            outcome = self.model.send(found, text, "", "")
        else:
            outcome = self.model.send_to(self.model.only(), text)
        self._expect(self.hub.send(text, session_key=key or None), outcome)

    def _control(self, wanted, act, call):
        number = self._number(wanted)
        if number is not None:
            self._expect(call(self.ids[number]), self.model.control(number, act))

    def _close(self, wanted):
        self._control(wanted, "close", self.hub.close_run)

    def _terminate(self, wanted):
        self._control(wanted, "terminate", self.hub.terminate)

    def _interrupt(self, wanted):
        self._control(wanted, "interrupt", self.hub.interrupt)

    def _take(self, wanted, count):
        number = self._number(wanted)
        if number is not None and self.model.runs[number].state != "ended":
            taken = self.model.take(number, count)
            self.lanes[number].append((SessionTaken(), AgentStatus()), taken=taken)

    def _end(self, wanted):
        number = self._number(wanted)
        if number is not None and self.model.runs[number].state != "ended":
            is_over = self.model.end(number)
            self.lanes[number].append((AgentComplete(),), status="ended")
            self.lanes[number].seq -= not is_over

    def _spawn(self, wanted, agent):
        number = self._number(wanted)
        if number is None or self.model.runs[number].state == "ended":
            return
        self.model.spawn(number, agent)
        above, run_id = self.lanes[number], f"child-{len(self.ids)}"
        ids = {"root_run_id": above.root_run_id, "parent_run_id": above.run_id}
        opening = self.hub.addressing.delivery(SessionOpen(open_agent=agent, **ids), to=run_id)
        above.append((), deliveries=(opening,))
        self.ids.append(run_id)
        self.lanes.append(OwnLane(self.hub.pipeline, run_id=run_id, agent=agent, **ids))

    def _lend(self, wanted, other, seqs):
        taker, lender = self._number(wanted), self._number(other)
        if taker is None or self.model.runs[taker].state == "ended":
            return
        lane, lent = self.lanes[taker], [(self.ids[lender], seq) for seq in seqs]
        is_lent = self.model.lend(taker, lender, seqs)
        commit = lane.append((AgentStatus(),), lent=lent)
        if not is_lent:
            lane.seq -= 1
        self.lent.append((commit, is_lent))

    def _leave(self, wanted, other):
        number, heir = self._number(wanted), self._number(other)
        if number is not None and self.model.runs[number].state != "ended":
            is_over = self.model.end(number, heir)
            self.lanes[number].append((AgentComplete(),), status="ended", leave_to=self.ids[heir])
            self.lanes[number].seq -= not is_over

    def _emit(self, text):
        self.model.emit(text)
        self.hub.emit(CustomEvent.of("test:tick", text=text))

    # ── comparing ────────────────────────────────────────────────────────────────────────────

    async def compare(self):
        while self.hub.statistics().uncommitted:
            await self.hub.journal.flush()
        for receipt, outcome in self.receipts:
            await receipt
            assert (receipt.status, receipt.reason) == outcome
        for commit, is_lent in self.lent:
            assert (commit.error, len(commit.written)) == (("", 1) if is_lent else ("conflict", 0))
        assert [self._words(event) for event in self.seen if event.type != "agent:status"] == (
            self.model.log
        )
        assert await self.hub.read() == self.seen, "live order is the journal's"
        assert [(letter.message.content, letter.reason) for letter in self.dead] == self.model.dead
        for number, run in enumerate(self.model.runs):
            loaded = await self.hub.journal.load(self.ids[number])
            waiting = {item.seq: self._words(item)[1] for item in loaded.waiting}
            assert waiting == run.waiting
            assert [event.seq for event in loaded.events] == list(range(1, len(loaded.events) + 1))
        figures = self.hub.statistics()
        assert figures.live == len(self.model.live)
        assert figures.waiting == sum(len(run.waiting) for run in self.model.runs)

    def _words(self, event):
        match event.type:
            case "test:tick":
                return None, event.data["text"]
            case "session:message":
                words = f"say {event.content}"
            case "session:taken":
                words = "take"
            case "agent:complete":
                words = "end"
            case type_:
                words = {"session:abort": "interrupt"}.get(type_, type_.removeprefix("session:"))
        return self.ids.index(event.run_id), words


@pytest.mark.spec("H-07", "H-08", "H-09", "H-14", "H-17", "I-13", "P-06")
@settings(max_examples=examples(200), deadline=None)
@given(plan=st.lists(st.tuples(acts, st.booleans()), max_size=40), turns=st.integers(0, 2))
async def test_hub_does_what_the_model_does(plan, turns):
    journal = LateJournal(MemoryJournal(), turns=turns) if turns else MemoryJournal()
    async with Hub(journal=journal, ports=virtual_ports(), max_inbox=MAX_INBOX) as hub:
        both = Both(hub)
        for act, settle in plan:
            both.do(*act)
            if settle:
                await both.compare()
        await both.compare()


@pytest.mark.spec("H-04", "H-17")
@settings(max_examples=examples(50), deadline=None)
@given(plan=st.lists(acts, max_size=25), turns=st.integers(0, 2))
async def test_hub_does_the_same_when_a_listener_does_it(plan, turns):
    """Everything from inside one dispatch: it acts at the call, and is seen after the event."""
    journal = LateJournal(MemoryJournal(), turns=turns) if turns else MemoryJournal()
    async with Hub(journal=journal, ports=virtual_ports(), max_inbox=MAX_INBOX) as hub:
        both = Both(hub)

        def listener(event):
            subscription.close()
            for act in plan:
                both.do(*act)

        subscription = hub.subscribe("test:tick", listener)
        both.do("emit", "a")
        await both.compare()
