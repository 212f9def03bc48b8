"""``Sending``: the part of a hub by which runs are opened, spoken to and stopped, and by which it
asks and is answered."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from hubbub.hub.errors import BadValue
from hubbub.hub.events import (
    GivenTool,
    HistoryMessage,
    InLane,
    Limits,
    SessionAbort,
    SessionClose,
    SessionCompact,
    SessionReply,
    SessionReset,
    SessionTerminate,
)
from hubbub.hub.events.given_tools import ExternalTool
from hubbub.hub.events.sent_items import MAX_MESSAGE_CHARS, TOO_LONG
from hubbub.hub.logs import log
from hubbub.hub.message import Sayable, contents_said, opening_event, session_message
from hubbub.hub.near_misses import kind_of
from hubbub.hub.pipeline import Pipeline
from hubbub.hub.prompts import Prompts
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import Addressing as By
from hubbub.hub.store.journal import Delivery, RequestKey
from hubbub.hub.texts import check_key_size, check_label, check_labels, check_text
from hubbub.hub.values import NULL, check_flag, encode_mapping

__all__ = ["Sending", "UnusedHistory"]


class UnusedHistory:
    """Watches openings with a history or tools: one that finds a run adds a message to that, and
    it is warned of once per hub that they were not used."""

    __slots__ = ("_has_warned",)

    def __init__(self) -> None:
        self._has_warned = False

    def watch(self, receipt: Receipt) -> None:
        """Look at what becomes of such an opening."""
        if not self._has_warned:
            receipt.watch(self._look)

    def _look(self, receipt: Receipt) -> None:
        if receipt.accepted and not receipt.created and not self._has_warned:
            self._has_warned = True
            log.warning(
                "history.unused", run_id=receipt.run_id,
                remedy="the run was there already (see receipt.created): it has its own history, "
                "tools and limits, and got the input as a message",
            )  # fmt: skip


class Sending:
    """What ``Hub`` does with inboxes and prompts: sending and replying act at the call.

    A ``request`` makes a call count once, whatever it is addressed to and whatever has become of
    that since: see ``RequestKey``.
    """

    pipeline: Pipeline
    prompts: Prompts
    _unused_history: UnusedHistory

    # ── sending ──────────────────────────────────────────────────────────────────────────────

    def send_to_run(
        self,
        run_id: str,
        message: Sayable,
        *,
        source: str = "",
        request: RequestKey | None = None,
    ) -> Receipt:
        """Put a message into a run's inbox.

        The message is accepted durably, reported as a duplicate, or rejected with a reason;
        awaiting the receipt tells which.  Raises ``BadValue`` for what is no message.
        """
        event = session_message(message, source=source)
        contents = contents_said(message) if event.parts else None
        return self.pipeline.deliver(event, to=run_id, request=checked(request), contents=contents)

    def send_to(
        self,
        agent_name: str,
        message: Sayable,
        *,
        source: str = "",
        request: RequestKey | None = None,
    ) -> Receipt:
        """Send to the one live run of an agent; rejected when there is none or more."""
        event = session_message(message, source=source)
        contents = contents_said(message) if event.parts else None
        return self.pipeline.deliver(
            event, to=agent_name, by="name", request=checked(request), contents=contents
        )

    def send(
        self,
        message: Sayable,
        *,
        session_key: str | None = None,
        source: str = "",
        request: RequestKey | None = None,
    ) -> Receipt:
        """Send to a conversation by its key, or to the only open one."""
        event = session_message(message, source=source)
        contents = contents_said(message) if event.parts else None
        by: By = "only" if session_key is None else "key"
        return self.pipeline.deliver(
            event, to=session_key or "", by=by, request=checked(request), contents=contents
        )

    def open(
        self,
        agent: str = "",
        input: object = None,
        *,
        run_id: str | None = None,
        session_key: str = "",
        correlation_id: str = "",
        name: str = "",
        once: bool = False,
        timeout: float | None = None,
        descriptor: object = None,
        env: dict[str, str] | None = None,
        source: str = "",
        history: Sequence[HistoryMessage | Mapping[str, Any]] | None = None,
        tools: Sequence[ExternalTool | GivenTool] | None = None,
        limits: Limits | None = None,
        request: RequestKey | None = None,
    ) -> Receipt:
        """Start a run of ``agent``, or find the one of ``session_key`` or ``descriptor``.

        Without a name the agent is the runtime's ``default_agent``.  A ``descriptor`` (a struct of
        ``hubbub.hub.events.descriptors`` or its JSON) of a user, cron task or heartbeat finds the
        agent that represents it; a user's key spells the same (``telegram_123_456``).  One of a
        subagent starts a child of an open run, and is rejected without one.

        Idempotent by ``run_id``: without a key a later opening of it is a duplicate whatever it
        says, and its input is dropped; to be sure that what it says arrives, give it a key, or
        ``send_to_run`` it.  In a run found otherwise ``input`` becomes a message.  An ``input``
        that is a ``Message`` is one from the start: the run gets its text as input, and its ``key``
        counts (per run and ``source``) whether the run is new or found, also by its id: again it is
        a duplicate, other content is rejected, a new key brings a live run a message and is
        rejected by an ended one.  Openings without address make new runs.  With a ``request`` the
        same again is a duplicate, also of a conversation that is over and would be opened anew.

        ``history`` is what was said before, for a new run of a model agent: the user's and the
        assistant's messages, calls with their results (``HistoryMessage``, or mappings of the chat
        completions form).  Its model sees it before ``input``.  ``tools`` are external ones
        (``external_tool``) that this run has beside its agent's.  Both are durable with the
        opening.  A run that is found keeps its own, and these are not used: the receipt's
        ``created`` is false then, and a warning is logged, once per hub.  ``limits`` are what the
        new run and all below it may use, together, in place of the runtime's.

        The receipt's ``run_id`` may be sent to at once.  Values of ``env`` are in the ``Secrets``
        port alone, until the run ends.  A run that is found gets those that it lacks; if it has
        another value of one, the opening is rejected.  ``timeout`` bounds the run (seconds).
        Raises ``BadValue`` for an input that cannot be encoded, a timeout that is none, a
        ``run_id`` with anything but letters, digits, ``-`` and ``_``, a name or key that holds NUL
        or no Unicode, a descriptor or a history that is none, or a key that spells another one.
        """
        if run_id is not None:
            check_label("run_id", run_id)
        event = opening_event(
            agent, input, run_id=run_id or "", session_key=session_key,
            correlation_id=correlation_id, name=name, once=once, timeout=timeout,
            descriptor=descriptor, env=env, source=source, history=history,
            tools=tools, limits=limits,
        )  # fmt: skip
        is_new = not (run_id or session_key or descriptor or request)
        contents = contents_said(input, history) if event.message or history else None
        receipt = self.pipeline.open(
            event, is_new=is_new, request=checked(request), contents=contents
        )
        if history or tools or limits:
            self._unused_history.watch(receipt)
        return receipt

    def interrupt(self, run_id: str | None = None, reason: str = "") -> Receipt:
        """Interrupt the turn at work of one run, or of all of them.

        The children that a run waits for, by calls that block or by their handles, are interrupted
        with it, others continue; the receipt's ``run_ids`` lists every run that is reached.
        """
        if run_id is not None:
            check_label("run_id", run_id)
        check_text("reason", reason)
        event = SessionAbort(reason=reason)
        return self.pipeline.deliver(event, to=run_id or "", by="run" if run_id else "every")

    def close_run(self, run_id: str, reason: str = "") -> Receipt:
        """Accept no more messages, handle what waits, then end the run."""
        check_text("reason", reason)
        return self.pipeline.deliver(SessionClose(reason=reason), to=run_id)

    def terminate(self, run_id: str, reason: str = "") -> Receipt:
        """End a run and its live descendants now and permanently; the receipt's ``run_ids`` lists
        them.  From its acceptance on nothing reaches the run, and no other end of it counts; a run
        that has ended before rejects it."""
        check_text("reason", reason)
        return self.pipeline.deliver(SessionTerminate(reason=reason), to=run_id)

    def reset(
        self, run_id: str, message: str = "", *, request: RequestKey | None = None
    ) -> Receipt:
        """Interrupt the turn at work and begin anew: the model sees nothing of what was said, but
        for ``message``.  What waits, children, files and variables stay, and so does the record.

        A ``message`` is heard in the session that begins with it, or is a dead letter: where the
        run ends first, and of a code agent, of which nothing begins anew.  A run that is being
        closed refuses it."""
        check_text("message", message)
        if len(message) > MAX_MESSAGE_CHARS:
            raise BadValue("message", TOO_LONG)
        event = SessionReset(message=message)
        return self.pipeline.deliver(event, to=run_id, request=checked(request))

    def compact(self, run_id: str) -> Receipt:
        """Have the model summarise the older messages of a run, as soon as none of its calls is
        open: the summary takes their place in what it is shown.  The record keeps them; a
        ``session:compaction`` says what came of it."""
        return self.pipeline.deliver(SessionCompact(), to=run_id)

    def delivery(self, event: InLane, *, to: str | None = None, by: By = "run") -> Delivery:
        """Address ``event``, for an owner's own commits."""
        if not isinstance(event, InLane):
            raise BadValue("event", f"expected an item of an inbox, not {kind_of(event)}")
        return self.pipeline.addressing.delivery(event, to=to, by=by)

    # ── asking ───────────────────────────────────────────────────────────────────────────────

    async def ask(
        self,
        address: str,
        question: str,
        *,
        options: Sequence[str] = (),
        timeout: float | None = None,
        given: object = None,
    ) -> Any:
        """Ask and wait for the answer.

        ``address`` is ``"user"`` (anybody who answers ``session:prompt`` events), a service such as
        ``"runtime"``, or a run id: the run gets the question as a message with a ``prompt_id``
        and answers with ``hub.reply``.  ``given`` goes with the question to a service, as it is:
        contents of files, or values as ``Secret``; no event has it.

        Raises ``PromptTimeout`` after ``timeout`` seconds, ``PromptClosed`` when the run asked is
        gone, the address is nobody's or the answer is refused, ``Closed`` when the hub closes (a
        service still at work is cancelled), ``BadValue`` for an empty address and where something
        is given to somebody else, and what a service raises.
        """
        self.pipeline.check("ask")
        if given is not None and not self.is_served(address):
            raise BadValue("given", f"only a service gets it, and {address!r} is none")
        return await self.prompts.ask(address, question, options, timeout, given=given)

    def reply(
        self,
        prompt_id: str,
        content: str,
        *,
        is_error: bool = False,
        source: str = "",
        metadata: Mapping[str, Any] | None = None,
        request: RequestKey | None = None,
    ) -> Receipt:
        """Answer a prompt; the first reply wins, later and unknown ones are rejected.

        To an external tool ``content`` is the result, with ``is_error`` a failure.  To an approval
        ``approve`` approves, and any other text denies and is the reason; see ``approve``.  An
        answer that does not fit the question's schema is rejected with the reason, and the prompt
        stays open.  Accepted is what is durable.

        ``metadata`` is on record with the answer to what a run asks, as a message's is, and so is a
        ``request``.  Who does not know which prompt
        it has answered the first time asks ``find_request`` before choosing one.
        """
        check_text("content", content)
        if is_error is not False:
            check_flag("is_error", is_error)
        if metadata is not None and not isinstance(metadata, Mapping):
            raise BadValue("metadata", f"expected a mapping, not {kind_of(metadata)}")
        encoded = encode_mapping("metadata", metadata) if metadata else NULL
        reply = SessionReply(
            prompt_id=prompt_id, content=content, source=source, is_error=is_error,
            metadata_json=encoded,
        )  # fmt: skip
        return self._reply(reply, checked(request))

    def find_request(self, request: RequestKey) -> Receipt:
        """What was accepted with a request; nothing is sent.

        The receipt says ``duplicate``, with the run and the cursor, or is rejected: as ``key
        reused`` where something else was said with it, as ``unknown`` where nothing was accepted.
        """
        # An item for nobody: the store looks the request up before it looks for whom it is.
        return self.pipeline.deliver(SessionCompact(), to="", request=checked(request))

    def approve(
        self, prompt_id: str, arguments: Mapping[str, Any] | None = None, *, source: str = ""
    ) -> Receipt:
        """Approve the call that a prompt of kind ``approval`` is about.

        ``arguments`` are those to run it with instead of the model's; where they do not fit the
        tool the receipt is rejected with the reason, and the prompt stays open.  The call begins
        in its turn, runs at most once unless its tool is idempotent, over crashes too, and is not
        asked about again.  Raises ``BadValue`` for arguments that JSON cannot hold or
        that a ``Secret`` is in.
        """
        if arguments is not None and not isinstance(arguments, Mapping):
            raise BadValue("arguments", f"expected a dict, not {kind_of(arguments)}")
        encoded = NULL if arguments is None else encode_mapping("arguments", arguments)
        check_text("arguments", bytes(encoded).decode())
        return self._reply(
            SessionReply(
                prompt_id=prompt_id, source=source, decision="approve", arguments_json=encoded
            )
        )

    def deny(self, prompt_id: str, reason: str = "", *, source: str = "") -> Receipt:
        """Refuse what a prompt asks for; the model reads the reason.

        A call that was to be approved does not run; an external call has no result; who has asked
        a question gets ``PromptClosed``.
        """
        check_text("reason", reason)
        return self._reply(
            SessionReply(prompt_id=prompt_id, content=reason, source=source, decision="deny")
        )

    def _reply(self, reply: SessionReply, request: RequestKey | None = None) -> Receipt:
        check_labels(prompt_id=reply.prompt_id, source=reply.source)
        check_key_size("source", reply.source)
        if self.pipeline.is_closed:
            receipt = Receipt()
            receipt.settle("rejected", "hub closed")
            return receipt
        self.pipeline.check("reply")
        return self.prompts.reply(reply, request)

    def serve(
        self, address: str, handler: Callable[..., Any | Awaitable[Any]]
    ) -> Callable[[], None]:
        """Answer what is asked of ``address``; returns a function that stops it.

        ``handler(question)`` is called, or ``handler(question, given)`` where something was given.
        No run is opened here under that id meanwhile.  Raises ``BadValue`` for an address that is
        empty, taken, ``"user"`` or a run's that is in memory (one that rests cannot be asked while
        its address is served), and for a handler that cannot be called.
        """
        self.pipeline.check("serve")
        return self.prompts.services.serve(address, handler)

    def is_served(self, address: str) -> bool:
        """Whether somebody on this hub answers what is asked of ``address``."""
        check_label("address", address)
        return address in self.prompts.services.by_address


def checked(request: RequestKey | None) -> RequestKey | None:
    """The request; raises ``BadValue`` for what is none, or no store could keep."""
    if request is not None:
        if not isinstance(request, RequestKey):
            raise BadValue("request", f"expected a RequestKey, not {kind_of(request)}")
        check_label("request.name", request.name)
        check_key_size("request.name", request.name)
        check_label("request.digest", request.digest)
    return request
