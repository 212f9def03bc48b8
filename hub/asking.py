"""``Asking``: the part of a hub by which it asks and is answered."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from hubbub.hub.errors import BadValue
from hubbub.hub.events import SessionReply
from hubbub.hub.pipeline import Pipeline
from hubbub.hub.prompts import Prompts
from hubbub.hub.receipt import Receipt
from hubbub.hub.texts import check_label, check_labels, check_text
from hubbub.hub.values import NULL, check_flag, encode_mapping

__all__ = ["Asking"]


class Asking:
    """What ``Hub`` does with prompts."""

    pipeline: Pipeline
    prompts: Prompts

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
        self, prompt_id: str, content: str, *, is_error: bool = False, source: str = ""
    ) -> Receipt:
        """Answer a prompt; the first reply wins, later and unknown ones are rejected.

        To an external tool ``content`` is the result, with ``is_error`` a failure.  To an approval
        ``approve`` approves, and any other text denies and is the reason; see ``approve``.  An
        answer that does not fit the question's schema is rejected with the reason, and the prompt
        stays open.  Accepted is what is durable.
        """
        check_text("content", content)
        check_flag("is_error", is_error)
        return self._reply(
            SessionReply(prompt_id=prompt_id, content=content, source=source, is_error=is_error)
        )

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
            raise BadValue("arguments", f"expected a dict, not {type(arguments).__name__}")
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

    def _reply(self, reply: SessionReply) -> Receipt:
        check_labels(prompt_id=reply.prompt_id, source=reply.source)
        if self.pipeline.is_closed:
            receipt = Receipt()
            receipt.settle("rejected", "hub closed")
            return receipt
        self.pipeline.check("reply")
        return self.prompts.reply(reply)

    def serve(
        self, address: str, handler: Callable[..., Any | Awaitable[Any]]
    ) -> Callable[[], None]:
        """Answer what is asked of ``address``; returns a function that stops it.

        ``handler(question)`` is called, or ``handler(question, given)`` where something was given.
        Raises ``BadValue`` for an address that is empty, taken, ``"user"`` or a run's, and for a
        handler that cannot be called.
        """
        self.pipeline.check("serve")
        return self.prompts.serve(address, handler)

    def is_served(self, address: str) -> bool:
        """Whether somebody on this hub answers what is asked of ``address``."""
        check_label("address", address)
        return self.prompts.is_served(address)
