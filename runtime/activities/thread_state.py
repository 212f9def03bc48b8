"""``ThreadState``: a run as its tools and hooks see it, and as its relatives do."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

from msgspec import structs

from hubbub.agents.built_in import USE_AGENT, USE_SKILL
from hubbub.agents.definitions.spawned import NamedAgent
from hubbub.agents.frames.activation import give_away
from hubbub.agents.model import ModelMessage
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.state.area import Area, find_files
from hubbub.agents.state.family import NOTICE
from hubbub.agents.state.registry import SubagentRegistryEntry, entry_of
from hubbub.agents.state.thread import Thread
from hubbub.hub.errors import BadValue, CallerError, NoSuchFile
from hubbub.hub.events import AgentRead, AgentStatus, ContentPart, Event
from hubbub.hub.hub import Hub
from hubbub.hub.masking import Masker
from hubbub.hub.message import Message, Sayable, contents_said, session_message
from hubbub.hub.near_misses import shown
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.receipt import Receipt
from hubbub.hub.run_hub import ACTS, RunHub
from hubbub.hub.texts import check_label, check_text
from hubbub.runtime.activities.agent_messages import tell_agent
from hubbub.runtime.activities.environment import Environment
from hubbub.runtime.activities.files import FileArea, KeyArea, part_content
from hubbub.runtime.activities.other_runs import OtherRuns
from hubbub.runtime.activities.questions import AskingCall, Question, RecordedQuestions, ask_once
from hubbub.runtime.activities.recorder import ForeignRecorder, Recorder
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.kernel.services import Services

__all__ = [
    "Outside", "ThreadState", "foreign_state", "notify_parent", "result_of_spawn",
]  # fmt: skip


class ThreadState:
    """One run (``RunState``).

    ``thread`` gives its state when it is looked at; ``record`` writes into its journal, and
    refuses where the run is another one's: all but sending to it and terminating it is then for
    looking only.
    """

    __slots__ = (
        "_asking", "_by", "_env", "_lane", "_others", "_questions", "_record", "_services", "_side",
        "_thread", "call_id", "hub",
    )  # fmt: skip

    def __init__(
        self,
        services: Services,
        others: OtherRuns,
        lane: OwnLane,
        thread: Callable[[], Thread],
        record: Recorder,
        *,
        hub: "RunHub | Outside",
        side: ActiveSide | None = None,
        call_id: str = "",
        by: "ThreadState | None" = None,
        asking: AskingCall | None = None,
    ) -> None:
        self._asking = asking
        """The call whose questions are on record; ``None`` in hooks and elsewhere."""
        self._questions: RecordedQuestions | None = None
        self._by = by or self
        """The run that looks."""
        self._services = services
        self._others = others
        self._lane = lane
        self._thread = thread
        self._record = record
        self._side = side
        self._env: Environment | None = None
        # What another run's may not do is refused where it is tried.
        self.hub: RunHub = hub  # type: ignore[assignment]
        self.call_id = call_id

    # ── who ──────────────────────────────────────────────────────────────────────────────────

    @property
    def run_id(self) -> str:
        return self._lane.run_id

    @property
    def root_run_id(self) -> str:
        return self._lane.root_run_id

    @property
    def parent_run_id(self) -> str | None:
        return self._lane.parent_run_id

    @property
    def agent(self) -> str:
        return self._lane.agent

    @property
    def messages(self) -> Sequence[ModelMessage]:
        return self._thread().view

    @property
    def terminated(self) -> int | None:
        return self._thread().terminated

    @property
    def status(self) -> str:
        """What the parent's registry says of this run."""
        return self._thread().status

    # ── variables, files, keys ───────────────────────────────────────────────────────────────

    @property
    def env(self) -> Mapping[str, str]:
        return self._environment

    @property
    def _environment(self) -> Environment:
        if self._env is None:
            self._env = Environment.of(self._services, self._lane, self._side)
        return self._env

    def masker(self) -> Masker:
        """What is said of this run's failures goes through it."""
        return self._environment.masker(self._side)

    def end_forked(self, error: BaseException | None = None) -> None:
        """End the process where it was forked off by the code that has returned, or raised."""
        self._services.hub.tasks.home.end_forked(error)

    def set_env(self, name: str, value: str) -> None:
        self._record.check("set_env")
        self._environment.set(name, value)

    @property
    def files(self) -> FileArea:
        return FileArea(self._services.hub.ports, self.root_run_id, self._area, self._record)

    @property
    def kv(self) -> KeyArea:
        return KeyArea(self._area, self._record)

    async def read_part(self, part: ContentPart) -> bytes:
        self._record.check_here("read_part")
        return await part_content(self._services.hub, self._lane, part)

    def _area(self) -> Area:
        return self._thread().area

    # ── questions ────────────────────────────────────────────────────────────────────────────

    async def ask(
        self,
        question: str,
        *,
        options: Sequence[str] = (),
        schema: Any = None,
        timeout: float | None = None,
    ) -> Any:
        self._record.check("ask")
        asked = Question(question, options, schema, timeout)
        asking = self._asking
        if asking is None or not self.call_id:
            return await ask_once(self.hub, asked)
        if self._questions is None:
            prompt_ids = f"{self.run_id}.ask_{self.call_id.replace('.', '_')}_"
            self._questions = RecordedQuestions(asking.run, self.hub, prompt_ids)
        with asking.standing_still():
            return await self._questions.ask(asked)

    def standing_still(self) -> AbstractContextManager[None]:
        """Inside, the time of the call at work does not pass."""
        return nullcontext() if self._asking is None else self._asking.standing_still()

    # ── what is said ─────────────────────────────────────────────────────────────────────────

    def queue_message(self, message: Sayable) -> Receipt:
        return self._send(message, triggers=True)

    def inject_message(self, message: Sayable) -> Receipt:
        return self._send(message, triggers=False)

    def _send(self, message: Sayable, *, triggers: bool) -> Receipt:
        """Send to this run on behalf of the one that looks; its files go along as copies."""
        self._by._record.check("sending")
        event = session_message(message, source=self._by.run_id, triggers=triggers)
        event = structs.replace(event, from_run=True)
        if self._by is not self and event.attachments:
            files, absent = find_files(self._by._area(), event.attachments)
            if absent:
                raise NoSuchFile(absent[0], "nothing was sent; list() shows the files there are")
            event = structs.replace(event, attachments=(), files=files)
        contents = contents_said(message) if event.parts else None
        return self._services.hub.pipeline.deliver(event, to=self.run_id, contents=contents)

    def notify_parent(self, content: str) -> Receipt:
        self._record.check("notify_parent")
        return notify_parent(self._services.hub, self._lane, content)

    async def send_agent_message(self, text: str, agent_id: str | None = None) -> Receipt:
        self._record.check("send_agent_message")
        return await tell_agent(self._services.hub, self._lane, text, agent_id)

    def set_status(self, status: str) -> None:
        if not isinstance(status, str):
            raise CallerError(f"set_status: expected a text, not {type(status).__name__}")
        self._record.check("set_status")
        self.hub.emit(AgentStatus(status=status))

    # ── relatives ────────────────────────────────────────────────────────────────────────────

    @property
    def children(self) -> Sequence[SubagentRegistryEntry]:
        statuses = self._others.statuses_of(self.run_id)
        return tuple(entry_of(child, statuses) for child in self._thread().family.registry)

    async def get_child_thread(self, reference: str) -> "ThreadState | None":
        self._record.check_here("get_child_thread")
        check_label("reference", reference)
        if self._thread().family.find(reference) is None:
            return None
        return await foreign_state(self._services, self._others, reference, by=self._by)

    async def get_parent_thread(self) -> "ThreadState | None":
        self._record.check_here("get_parent_thread")
        parent = self.parent_run_id
        return (
            None
            if parent is None
            else await foreign_state(self._services, self._others, parent, by=self._by)
        )

    def terminate(self, reason: str = "") -> Receipt:
        self._by._record.check("terminate")
        return self._services.hub.terminate(self.run_id, reason)

    def spawn(
        self,
        agent: str | NamedAgent,
        input: object = None,
        *,
        name: str | None = None,
        result: str | None = None,
    ) -> Run:
        self._record.check("spawn")
        fate = result_of_spawn(result, "call")
        child = self._others.spawn(
            self.run_id, agent, input, name=name, result=fate, call_id=self.call_id
        )
        if fate in ("call", "handle"):
            self._note_reading(child, is_told=fate == "call")
        return child

    def _note_reading(self, child: Run, *, is_told: bool) -> None:
        """Have it on record while the handle on a child is asked for its result.

        ``is_told``: the run is told of the end, so that it is not on record twice.
        """
        read = AgentRead(child_run_id=child.run_id, call_id=self.call_id)

        def asked() -> None:
            self._record.note(read)

        def left(is_read: bool) -> None:
            if not (is_read and is_told):
                child.on_read = asked
                self._record.note(structs.replace(read, left=True))

        child.on_read, child.on_left = asked, left

    # ── takeover ─────────────────────────────────────────────────────────────────────────────

    def use_agent(self, name: str, message: str) -> NoReturn:
        self._give_away(USE_AGENT, name, message)

    def use_skill(self, name: str, message: str) -> NoReturn:
        self._give_away(USE_SKILL, name, message)

    def _give_away(self, tool: str, name: str, message: str) -> NoReturn:
        self._record.check(tool)
        if isinstance(name, str) and isinstance(message, str):  # Else it is said of the arguments.
            check_label("name", name)
            check_text("message", message)
        if self._side is None or not self.call_id:
            raise CallerError(f"{tool}: only a tool can give the conversation away; call it there")
        frame_id = f"{self.run_id}.{self.call_id}"
        give_away(self._services.definitions, self._side, tool, name, message, frame_id)

    def __repr__(self) -> str:
        return f"<ThreadState {self.agent} {self.run_id}>"


def result_of_spawn(result: str | None, default: str) -> str:
    """What is to become of the result of a child that code starts."""
    if result is None:
        return default
    if result not in ("handle", "message", "ignore"):
        raise BadValue("result", f'expected "handle", "message" or "ignore", not {shown(result)}')
    return result


def notify_parent(hub: Hub, lane: OwnLane, content: str) -> Receipt:
    """Queue a silent message for a run's parent."""
    if not isinstance(content, str):
        raise CallerError(f"notify_parent: expected a text, not {type(content).__name__}")
    check_text("content", content)
    if lane.parent_run_id is None:
        raise CallerError(f"run {lane.run_id} is a root: it has no parent to notify")
    text = NOTICE.format(lane.run_id, content)
    message = Message(text, silent=True, metadata={"reference": lane.run_id})
    return hub.send_to_run(lane.parent_run_id, message, source=lane.run_id)


async def foreign_state(
    services: Services, others: OtherRuns, run_id: str, *, by: ThreadState | None = None
) -> ThreadState | None:
    """Another run's state, for the run ``by``: live while it is in memory, else as the journal
    has it."""
    found = await others.look_at(run_id)
    if found is None:
        return None
    lane, thread = found
    hub = services.hub
    record = ForeignRecorder(run_id, hub.pipeline.home)
    return ThreadState(
        services,
        others,
        lane,
        thread,
        record,
        hub=Outside(hub, run_id, by),
        by=by,
    )


class Outside:
    """The hub as far as another run's state needs it: nothing is emitted in its name.

    What acts is refused once the call that looks is over.
    """

    __slots__ = ("_by", "_hub", "_run_id")

    def __init__(self, hub: Hub, run_id: str, by: ThreadState | None = None) -> None:
        self._hub = hub
        self._run_id = run_id
        self._by = by

    def emit(self, event: Event) -> None:
        raise CallerError(f"{event.type}: only run {self._run_id} itself may say so")

    def __getattr__(self, name: str) -> Any:
        if self._by is not None and name in ACTS:
            self._by._record.check(name)
        return getattr(self._hub, name)
