"""The console: a conversation in a terminal, or through a pipe.

    lines typed ──► hub.open(agent, line, session_key)      events ──► Transcript ──► Screen
    Ctrl-C      ──► CtrlC ──► hub.interrupt(run)                   └──► Stack (who speaks)
                                                            ask    ──► the next line is the reply

Rules
-----
* A line typed while the agent works is sent at once: it steers.  From a pipe the next line is
  sent when the answer to the one before is finished.
* While a child has the conversation (takeover, IA) the prompt shows the stack.  Every line goes
  to the conversation all the same: who hears it, and what ``stop`` or ``/back`` mean, is decided
  where the agents run.
* While a question is open, the next line is its answer; an option may be given by its number.
* A tool that needs approval, or whose result comes from outside, is shown with its arguments and
  how to answer (see ``answers``).  Only words that say so approve; what is no answer is the user's
  next message, which denies.  Of several prompts the oldest is shown, and answered, first; an
  approval within half a second of its being shown was meant for something else and does not count.
* Ctrl-C interrupts the turn at work, of the agent that has the conversation.  A child that waits
  for the user is sent back to the main agent by it, with those below.  At main two presses within
  two seconds leave; the first drops what was typed, and says so.  From a pipe one leaves.
* The end of input leaves when the last answer is finished.  A question that nobody can answer
  any more interrupts its turn; one over which a model has paused, in the conversation or in a child
  that it waits for, stays for a later console.
* A conversation that was given no ``session_key`` ends with the console: the run is closed.  One
  with a key stays open, and a later console continues with it, with whomever it has reached.
* A later console that finds the user being waited for shows what was said last.
* The console is *plain* when either end is no terminal: answers on standard output, trouble on
  standard error, no prompt, no colour, no activity.

An answer is finished with the session of the agent that has the conversation; see ``pace``.
"""

from contextlib import suppress
from typing import Final, assert_never

import anyio
import anyio.lowlevel

from hubbub.channels.attachment import Channels
from hubbub.channels.channel import Channel, ChannelContext
from hubbub.channels.console.answers import Answer, answer_to, give
from hubbub.channels.console.attached import with_attached, words_of_attached
from hubbub.channels.console.ctrl_c import CtrlC, hint
from hubbub.channels.console.pace import QUIET, Pace, Phase
from hubbub.channels.console.questions import BY_WORD, Questions, is_for_anybody
from hubbub.channels.console.screen import Screen, Writer
from hubbub.channels.console.stack import Stack
from hubbub.channels.console.terminal import LineReader, TerminalReader, TerminalWriter
from hubbub.channels.console.transcript import Transcript
from hubbub.hub import events as e
from hubbub.hub.errors import CallerError
from hubbub.hub.events import Event
from hubbub.hub.hub import Hub
from hubbub.hub.message import Sayable
from hubbub.hub.receipt import Receipt

__all__ = ["Console", "run_console"]

ASKED: Final = (
    "session:prompt", "session:prompt:end", "session:reply", "session:end", "agent:complete",
)  # fmt: skip
"""The types that tell what a conversation's runs wait for people to answer."""

INTERRUPTED: Final = 130
"""The exit code of a program that Ctrl-C ended, as shells have it."""


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
    before anything is read.  ``@path`` in a line typed at a terminal shows the agent a file.
    Returns 0; from or into a pipe 1 when the last answer was not completed, unless the user's own
    word has ended it, and 130 after Ctrl-C.  Raises ``BadValue`` when the hub has a console.

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
        self._stack = Stack()
        self._transcript = Transcript(self._screen, self._stack)
        self._first = first
        self._keeps_run = session_key is not None
        if session_key is None:
            session_key = f"console:{hub.ports.ids.number():012x}"
        self._session_key = session_key
        self._changed = anyio.Event()
        # The conversation.
        self._root = ""
        self._is_sending = False
        self._is_untouched = True
        """Whether nothing has come from it, and nothing was said in it, since it was found."""
        self._untaken: set[str] = set()
        self._pace = Pace()
        self._questions = Questions()
        # The way out.
        self._has_input_ended = False
        self._is_leaving = False
        self._ctrl_c = CtrlC(once=self._is_plain)
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
                    await self._find()
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
            self._settle()
            if phase == "resting" or self._questions:
                if self._has_input_ended and phase == "resting":
                    return
                self._screen.show_prompt(self._stack.names)
            if phase == "perhaps" or self._transcript.is_holding:
                with anyio.move_on_after(QUIET):
                    await changed.wait()
                if not changed.is_set():
                    self._settle(is_quiet=True)
                    self._pace.stayed_quiet()
                    self._change()
            else:  # Code may come to wait for a child without a word.
                polls = self._has_input_ended and bool(self._questions)
                with anyio.move_on_after(QUIET if polls else None):
                    await changed.wait()

    def _settle(self, *, is_quiet: bool = False) -> None:
        try:
            self._transcript.settle(is_quiet=is_quiet)
        except OSError as error:
            self._fail(error)

    def _phase(self) -> Phase:
        """What the agent that has the conversation is doing, as far as one can know."""
        if self._is_sending or self._untaken:
            return "working"
        has_frames = self._stack.has_frames
        if self._has_input_ended and not self._keeps_run and (has_frames or self._stack.is_at_work):
            return "working"  # It is being closed, and its end will tell.
        if self._is_untouched or not self._stack.is_at_work:
            return "resting"
        if self._keeps_run and any(self._stack.is_held_by(x, self._hub) for x in self._questions):
            return "resting"
        return "working" if has_frames else self._pace.phase

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _leave(self, code: int) -> None:
        self._is_leaving = True
        self._code = code
        self._change()

    def _fail(self, error: Exception) -> None:
        """Nobody reads any more, or a defect here: either way the conversation is over."""
        self._failure = error
        self._leave(1)

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
        question = self._questions.first
        if question is None:
            if line.strip():
                await self._send(line)
            return
        answer = answer_to(question, line)
        match answer.meaning:
            case "nothing":
                pass
            case "word":
                await self._give_up(line, question)
            case "message":
                await self._send(line)
            case "unclear":
                self._screen.trouble(f"not understood: {answer.text}", "warning")
            case "approve" if self._reader.is_terminal and self._questions.is_new(self._now):
                text = "not approved: it was asked only now; read it and answer again"
                self._screen.trouble(text, "warning")
            case "approve" | "deny" | "reply":
                await self._answer(question, answer)
            case _:
                assert_never(answer.meaning)

    async def _answer(self, question: e.SessionPrompt, answer: Answer) -> None:
        """Give an answer; where it does not fit, the question stays."""
        prompt_id, hub = question.prompt_id, self._hub
        self._questions.close(prompt_id)
        try:
            receipt = await give(hub, prompt_id, answer)
            reason = receipt.reason if receipt.rejected else ""
        except CallerError as error:
            reason = str(error)
        self._is_untouched = False  # The agent that asked continues.
        if reason and hub.prompts.is_unanswered(prompt_id):
            self._questions.open_again(question)
            self._screen.trouble(f"not sent: {reason}", "warning")
        elif reason:
            self._screen.trouble(f"not sent: the question is closed ({reason})", "warning")
        self._show_question()

    async def _give_up(self, word: str, question: e.SessionPrompt) -> None:
        """Say ``word`` to whom it concerns: to the conversation, or to a child that has paused."""
        if self._stack.find(question.run_id) is not None:
            await self._send(word)
        else:
            await self._hub.send_to_run(question.run_id, word)

    async def _send(self, line: str) -> None:
        """Say ``line`` in the conversation, beginning it if there is none."""
        # Until this is over events wait, so that none comes before its run is known.
        self._is_sending = True
        try:
            said = await with_attached(self._hub, self._reader, line)
            receipt = await self._hub.open(self._agent, said, session_key=self._session_key)
            if receipt.accepted:
                self._sent(receipt, said)
            else:
                self._refuse(receipt.explanation)
        except CallerError as error:
            self._refuse(str(error))
        finally:
            self._is_sending = False
            self._change()

    def _sent(self, receipt: Receipt, said: Sayable) -> None:
        self._screen.attached(words_of_attached(said))
        if receipt.run_id != self._root:
            self._begin(receipt.run_id)
        if receipt.cursor:
            self._untaken.add(receipt.cursor)
        self._is_untouched = False
        self._ctrl_c.spoke()
        self._transcript.user_spoke()

    def _refuse(self, reason: str) -> None:
        self._screen.trouble(f"not sent: {reason}")
        self._code = int(self._is_plain)

    async def _find(self) -> None:
        """Go on with the conversation of the key, if there is one, from where it is."""
        if not self._keeps_run:
            await anyio.lowlevel.checkpoint()
            return
        self._is_sending = True
        try:
            for run_id in await self._hub.journal.find(self._session_key, "key"):
                self._begin(run_id)
                past = await self._stack.read(self._hub)
                asked = await self._hub.read(root_run_id=run_id, types=ASKED)
                self._questions.resume(asked, self._hub.prompts.is_unanswered)
                if not self._stack.is_at_work:
                    self._transcript.remind(past)
                self._show_question()
        finally:
            self._is_sending = False
            self._change()

    def _begin(self, run_id: str) -> None:
        self._root = run_id
        self._untaken.clear()
        self._pace = Pace()
        self._stack.begin(run_id, self._agent)
        self._transcript.begin()

    def _interrupt(self) -> None:
        """Ctrl-C was pressed."""
        # A code agent that rests as far as one can see may be at work all the same.
        is_working = self._stack.is_at_work or (bool(self._root) and self._phase() != "resting")
        effect = self._ctrl_c.press(
            self._hub.ports.clock.monotonic(),
            has_frames=self._stack.has_frames,
            is_working=is_working,
        )
        if (is_working or effect == "go back") and not self._hub.is_closed:
            run_id = self._root if effect == "go back" else self._stack.at_work.run_id
            self._hub.interrupt(run_id, "Ctrl-C")
        if effect == "leave":
            self._leave(INTERRUPTED if self._is_plain else 0)
            return
        self._screen.interrupted()
        if text := hint(effect):
            self._screen.line(text, "dim")
        self._change()

    # ── what happens ─────────────────────────────────────────────────────────────────────────

    async def _take_event(self, event: Event, context: ChannelContext) -> None:
        while self._is_sending:
            await self._changed.wait()
        if self._failure is not None:
            return
        if isinstance(event, e.SessionPrompt) and event.to != "user":
            return
        if isinstance(event, e.AgentStart) and self._keeps_run:
            self._perhaps_begin(event)
        if event.root_run_id != self._root and not is_for_anybody(event):
            return
        if self._stack.has_followed(event):
            return  # It was there when the console came.
        try:
            if not isinstance(event, e.SessionPrompt):
                self._transcript.show(event)
            self._follow(event)
        except Exception as error:
            self._fail(error)
        else:
            self._change()

    def _perhaps_begin(self, event: e.AgentStart) -> None:
        """Go along when somebody else begins the conversation, on another channel."""
        if event.session_key == self._session_key and event.run_id != self._root:
            self._begin(event.run_id)

    def _follow(self, event: Event) -> None:
        """Note what ``event`` says about questions, and about who has the conversation."""
        self._stack.follow(event)
        self._questions.follow(event)
        self._show_question()
        if isinstance(event, e.SessionPrompt):
            if self._questions.first is not event:
                self._transcript.announce(event)
            self._give_up_questions()
        self._is_untouched = self._is_untouched and event.lane != "own"
        is_heard = self._stack.find(event.run_id) is not None
        match event:
            case e.SessionTaken():
                # The conversation's items are taken by the agent that has it.
                self._untaken.difference_update(map(self._hub.cursor, event.items))
            case e.SessionPop():
                self._ctrl_c.went_back()
            case e.SessionEnd() | e.AgentComplete() if is_heard and not self._is_leaving:
                failed = not event.success and event.reason not in BY_WORD
                self._code = int(self._is_plain and failed)
        if event.run_id == self._root:
            self._pace.follow(event)
            if isinstance(event, e.AgentComplete):
                self._untaken.clear()

    def _show_question(self) -> None:
        """Show what the user is asked first, once."""
        question = self._questions.to_show(self._now)
        if question is not None:
            self._transcript.show(question)

    @property
    def _now(self) -> float:
        return self._hub.ports.clock.monotonic()

    def _give_up_questions(self) -> None:
        """With no more input, nobody can answer: the turn that waits for it must not."""
        if not self._has_input_ended:
            return
        for question in self._questions:
            if self._keeps_run and question.pauses:
                continue
            self._questions.close(question.prompt_id)
            self._screen.trouble(f"no more input to answer: {question.question}")
            if question.run_id:
                self._hub.interrupt(question.run_id, "there is no more input to answer from")
