"""The console: a conversation in a terminal, or through a pipe (K-03).

    lines typed ──► hub.open(agent, line, session_key)      events ──► Transcript ──► Screen
    Ctrl-C      ──► hub.interrupt(run)                      ask    ──► the next line is the reply

Rules
-----
* A line typed while the agent works is sent at once: it steers.  From a pipe the next line is
  sent when the answer to the one before is finished.
* While a question is open, the next line is its answer; the number of an option stands for it.
* Ctrl-C interrupts the turn at work.  When nothing is at work, or within two seconds of the one
  before, it leaves; and from a pipe always.
* The end of input leaves when the last answer is finished.  A question that nobody can answer
  any more interrupts its turn.
* A conversation that was given no ``session_key`` ends with the console: the run is closed.  One
  with a key stays open, and a later console goes on with it.
* The console is *plain* when either end is no terminal: answers on standard output, trouble on
  standard error, no prompt, no colour, no activity.

When is an answer finished?  A model's, when its session has ended.  A code agent's run is one
session, so there it counts as finished when the agent has said something, has no call open and
has been quiet for a quarter of a second; this decides over the prompt and over the pace of a
pipe, never over what is sent or shown.
"""

from contextlib import suppress
from typing import Final, Literal, TypeAlias

import anyio
import anyio.lowlevel

from hubbub.channels.channel import Channel, ChannelContext, Channels
from hubbub.channels.screen import Screen, Writer
from hubbub.channels.terminal import LineReader, TerminalReader, TerminalWriter
from hubbub.channels.transcript import Transcript
from hubbub.hub import events as e
from hubbub.hub.errors import CallerError
from hubbub.hub.events import Event
from hubbub.hub.hub import Hub

__all__ = ["Console", "run_console"]

TWICE: Final = 2.0
"""Seconds within which a second Ctrl-C leaves."""

QUIET: Final = 0.25
"""Seconds of silence after which a code agent that has spoken counts as waiting."""

INTERRUPTED: Final = 130
"""The exit code of a program that Ctrl-C ended, as shells have it."""

Phase: TypeAlias = Literal["working", "perhaps", "resting"]


async def run_console(
    hub: Hub,
    agent: str,
    *,
    session_key: str | None = None,
    reader: LineReader | None = None,
    writer: Writer | None = None,
    first: str | None = None,
) -> int:
    """Hold a conversation with ``agent`` and return the exit code of the program.

    ``reader`` and ``writer`` are by default the program's standard streams; ``first`` is said
    before anything is read.  Returns 0; from or into a pipe 1 when the last answer was not
    completed, 130 after Ctrl-C.  Raises ``BadValue`` when the hub has a console already.

        async with Runtime(agents=[assistant], prompts=[prompt]) as rt:
            sys.exit(await run_console(rt.hub, "assistant"))
    """
    console = Console(
        hub, agent, session_key=session_key, reader=reader, writer=writer, first=first
    )
    return await console.run()


class Console:
    """One conversation; ``run`` it once.  See ``run_console``."""

    def __init__(
        self,
        hub: Hub,
        agent: str,
        *,
        session_key: str | None = None,
        reader: LineReader | None = None,
        writer: Writer | None = None,
        first: str | None = None,
    ) -> None:
        self._hub = hub
        self._agent = agent
        self._reader: LineReader = reader or TerminalReader()
        writer = writer or TerminalWriter()
        self._is_plain = not (self._reader.is_terminal and writer.is_terminal)
        self._screen = Screen(writer, is_plain=self._is_plain)
        self._transcript = Transcript(self._screen)
        self._first = first
        self._keeps_run = session_key is not None
        if session_key is None:
            session_key = f"console:{hub.ports.ids.number():012x}"
        self._session_key = session_key
        self._changed = anyio.Event()
        # The conversation.
        self._root = ""
        self._is_sending = False
        self._untaken: set[str] = set()
        self._in_session = False
        self._open_calls: set[str] = set()
        self._phase_of_code: Phase = "working"
        self._questions: dict[str, e.SessionPrompt] = {}
        # The way out.
        self._has_input_ended = False
        self._is_leaving = False
        self._interrupted_at = float("-inf")
        self._code = 0
        self._failure: Exception | None = None

    async def run(self) -> int:
        """Converse until it is time to leave; returns the exit code."""
        channel = Channel(
            "console",
            {("agent:*", "session:*", "hub:dead_letter"): self._take_event},
            on_complete=self._detached,
            lossless=True,
        )
        async with Channels(self._hub, channel):
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._reader.watch_interrupts, self._interrupt)
                    await anyio.lowlevel.checkpoint()
                    group.start_soon(self._read_lines)
                    await self._converse()
                    group.cancel_scope.cancel()
            finally:
                self._part()
        if self._failure is not None and not isinstance(self._failure, BrokenPipeError):
            raise self._failure
        return self._code

    # ── the way through ──────────────────────────────────────────────────────────────────────

    async def _converse(self) -> None:
        """Show the prompt whenever the agent rests; return when it is time to leave."""
        while not self._is_leaving:
            changed = self._changed
            phase = self._phase()
            if phase == "resting" or self._questions:
                if self._has_input_ended and phase == "resting":
                    return
                self._screen.show_prompt()
            if phase == "perhaps":
                with anyio.move_on_after(QUIET):
                    await changed.wait()
                if not changed.is_set():
                    self._phase_of_code = "resting"
                    self._change()
            else:
                await changed.wait()

    def _phase(self) -> Phase:
        """What the run is at, as far as one can know."""
        if self._is_sending or self._untaken:
            return "working"
        if not self._in_session:
            return "resting"
        if self._has_input_ended and not self._keeps_run:
            return "working"  # It is being closed, and its end will tell.
        return self._phase_of_code

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _leave(self, code: int) -> None:
        self._is_leaving = True
        self._code = code
        self._change()

    def _part(self) -> None:
        """Leave the screen and the run as they should be found."""
        if self._failure is None:
            with suppress(OSError):
                self._screen.begin_line()
        if self._root and not self._keeps_run and not self._hub.is_closed:
            self._hub.close_run(self._root, "the console was left")

    def _detached(self, context: ChannelContext) -> None:
        # The hub has closed, or ``run`` is on its way out.
        self._leave(self._code)

    # ── what is typed ────────────────────────────────────────────────────────────────────────

    async def _read_lines(self) -> None:
        if self._first is not None:
            await self._send(self._first)
        while True:
            while not self._reader.is_terminal and not self._questions:
                changed = self._changed
                if self._phase() == "resting":
                    break
                await changed.wait()
            line = await self._reader.read_line()
            if line is None:
                break
            self._screen.line_entered()
            await self._take_line(line)
            self._change()
        self._has_input_ended = True
        if self._root and not self._keeps_run:
            self._hub.close_run(self._root, "the input has ended")
        self._give_up_questions()
        self._change()

    async def _take_line(self, line: str) -> None:
        """Answer the open question, or say ``line`` to the agent; a blank line says nothing."""
        question = next(iter(self._questions.values()), None)
        if question is None:
            if line.strip():
                await self._send(line)
            return
        answer = _chosen(line.strip(), question.options)
        if not answer and question.options:
            return
        self._questions.pop(question.prompt_id, None)
        receipt = await self._hub.reply(question.prompt_id, answer, source="console")
        if receipt.rejected:
            self._screen.trouble(f"not sent: the question is closed ({receipt.reason})", "warning")

    async def _send(self, line: str) -> None:
        """Say ``line`` in the conversation, beginning it if there is none."""
        self._is_sending = True
        try:
            receipt = await self._hub.open(self._agent, line, session_key=self._session_key)
        except CallerError as error:
            self._refuse(str(error))
            return
        finally:
            # Until here events wait, so that none comes before its run is known.
            self._is_sending = False
            self._change()
        if receipt.rejected:
            self._refuse(receipt.reason)
            return
        if receipt.run_id != self._root:
            self._begin(receipt.run_id)
        if receipt.cursor:
            self._untaken.add(receipt.cursor)
        self._transcript.begin()

    def _refuse(self, reason: str) -> None:
        self._screen.trouble(f"not sent: {reason}")
        self._code = int(self._is_plain)

    def _begin(self, run_id: str) -> None:
        self._root = run_id
        self._untaken.clear()
        self._open_calls.clear()
        self._in_session = False

    def _interrupt(self) -> None:
        """Ctrl-C was pressed."""
        now = self._hub.ports.clock.monotonic()
        is_second = now - self._interrupted_at < TWICE
        self._interrupted_at = now
        # A code agent that rests as far as one can see may be at work all the same.
        is_working = bool(self._root) and (self._phase() != "resting" or self._in_session)
        if is_working and not self._hub.is_closed:
            self._hub.interrupt(self._root, "Ctrl-C")
        if self._is_plain:
            self._leave(INTERRUPTED)
        elif is_second or not is_working:
            self._leave(0)
        else:
            self._screen.interrupted()
            self._screen.line("interrupting; press Ctrl-C again to leave", "dim")

    # ── what happens ─────────────────────────────────────────────────────────────────────────

    async def _take_event(self, event: Event, context: ChannelContext) -> None:
        while self._is_sending:
            await self._changed.wait()
        if self._failure is not None:
            return
        if isinstance(event, e.SessionPrompt) and event.to != "user":
            return
        if event.root_run_id != self._root and not _is_for_any_console(event):
            return
        try:
            self._follow(event)
            self._transcript.show(event)
        except Exception as error:
            # Nobody reads any more, or a defect here: either way the conversation is over.
            self._failure = error
            self._leave(1)
        else:
            self._change()

    def _follow(self, event: Event) -> None:
        """Note what ``event`` says about questions and about the state of the root run."""
        match event:
            case e.SessionPrompt():
                self._questions[event.prompt_id] = event
                self._give_up_questions()
            case e.SessionReply() | e.SessionPromptEnd():
                self._questions.pop(event.prompt_id, None)
            case e.SessionEnd() | e.AgentComplete():
                self._close_questions(event.run_id)
        if event.run_id == self._root:
            self._follow_root(event)

    def _follow_root(self, event: Event) -> None:
        if isinstance(event, e.AgentTextDelta | e.AgentThinkingDelta) or (
            # Taking says nothing: a code agent takes a message when it asks for the next.
            event.lane == "own" and not isinstance(event, e.SessionTaken)
        ):
            self._phase_of_code = "working"
        match event:
            case e.SessionStart():
                self._in_session = True
            case e.SessionTaken():
                self._untaken.difference_update(map(self._hub.cursor, event.items))
            case e.SessionEnd() | e.AgentComplete():
                self._in_session = False
                self._open_calls.clear()
                if isinstance(event, e.AgentComplete):
                    self._untaken.clear()
                if not self._is_leaving:
                    self._code = int(self._is_plain and not event.success)
            case e.AgentToolStart():
                self._open_calls.add(event.call_id)
            case e.AgentToolComplete():
                self._open_calls.discard(event.call_id)
            case e.AgentText(step=0) | e.AgentStep(calls=()) if not self._open_calls:
                self._phase_of_code = "perhaps"

    def _close_questions(self, run_id: str) -> None:
        for prompt_id, question in tuple(self._questions.items()):
            if question.run_id == run_id:
                del self._questions[prompt_id]

    def _give_up_questions(self) -> None:
        """With no more input, nobody can answer: the turn that waits for it must not."""
        if not self._has_input_ended:
            return
        for question in self._questions.values():
            self._screen.trouble(f"no more input to answer: {question.question}")
            if question.run_id:
                self._hub.interrupt(question.run_id, "there is no more input to answer from")
        self._questions.clear()


def _is_for_any_console(event: Event) -> bool:
    """Whether ``event`` is a question, or its reply, from outside any run: ``hub.ask``."""
    return not event.root_run_id and isinstance(
        event, e.SessionPrompt | e.SessionReply | e.SessionPromptEnd
    )


def _chosen(line: str, options: tuple[str, ...]) -> str:
    """The option that ``line`` is the number of, or ``line`` itself."""
    if line not in options and line.isdecimal() and 1 <= int(line) <= len(options):
        return options[int(line) - 1]
    return line
