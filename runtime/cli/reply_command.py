"""``hubbub reply``: what the runs of a store wait for people to answer, and the answers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.runtime.cli.printing import CommandScreen, document, write_all
from hubbub.runtime.stores.open import DEFAULT_STORE, open_reader

if TYPE_CHECKING:
    from hubbub.runtime.inspection.answering import PromptAnswer
    from hubbub.runtime.inspection.prompts import ShownPrompt

__all__ = ["reply_command"]


def reply_command(screen: CommandScreen) -> Callable[..., int]:
    from cyclopts import Parameter

    def reply(
        prompt: Annotated[str | None, Parameter(name="PROMPT")] = None,
        text: Annotated[str | None, Parameter(name="TEXT")] = None,
        /,
        *,
        approve: bool = False,
        arguments: str | None = None,
        deny: str | None = None,
        error: bool = False,
        json: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """Answer what a run of a store waits for; without PROMPT, list what is asked.

        The list works beside a runtime at work. An answer goes into the inbox of the run that
        asks, and the next runtime on the store goes on with it: while one is at work, answer in
        its program (a console, hub.approve, hub.deny, hub.reply). The first answer counts.

        Parameters
        ----------
        prompt
            A prompt's id, or its beginning or end (4 characters or more).
        text
            The answer to a question, or the result of an external tool.
        approve
            The tool may run.
        arguments
            With --approve: a JSON object, to run it with instead of what is shown. The store does
            not know the tool: they are checked when the next runtime runs it, and what does not
            fit is an error that the model reads.
        deny
            Why not: the tool does not run, the question gets no answer. The model reads it.
        error
            TEXT says how the external tool failed.
        json
            Print one JSON object instead: prompts (times in µs since 1970), or what was sent.
        store
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
        """
        answer = _answer(text, approve=approve, arguments=arguments, deny=deny, error=error)
        if prompt is None:
            if answer is not None:
                raise OperatorError("name the prompt; hubbub reply alone lists those that are open")
            return _list(screen, store, as_json=json)
        if answer is None:
            raise OperatorError(f"prompt {prompt!r}: give TEXT, --approve or --deny REASON with it")
        _reply(screen, store, prompt, answer, as_json=json)
        return 0

    return reply


def _answer(
    text: str | None, *, approve: bool, arguments: str | None, deny: str | None, error: bool
) -> "PromptAnswer | None":
    """What is answered; ``None`` for nothing.  Raises ``OperatorError`` for two answers at once."""
    from hubbub.runtime.inspection.answering import PromptAnswer

    if (text is not None) + approve + (deny is not None) > 1:
        raise OperatorError("TEXT, --approve, --deny: any two are two answers; give one of them")
    if arguments is not None and not approve:
        raise OperatorError("--arguments says what to run the tool with; give --approve with it")
    if error and text is None:
        raise OperatorError("--error says that TEXT is a failure; give TEXT with it")
    if approve:
        return PromptAnswer(decision="approve", arguments=_object(arguments))
    if deny is not None:
        return PromptAnswer(decision="deny", text=deny)
    return None if text is None else PromptAnswer(decision="reply", text=text, is_error=error)


def _object(arguments: str | None) -> dict[str, Any] | None:
    if arguments is None:
        return None
    try:
        return msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise OperatorError(
            f"--arguments: expected a JSON object ({error}); write '{{\"NAME\": VALUE}}'"
        ) from None


def _list(screen: CommandScreen, store: str, *, as_json: bool) -> int:
    from hubbub.runtime.cli.text import prompt_lines
    from hubbub.runtime.inspection.prompts import open_prompts

    damage: dict[str, str] = {}
    with open_reader(store) as opened:
        prompts = open_prompts(opened, damage=damage)
    if as_json:
        screen.write(document({"prompts": prompts}))
    else:
        write_all(screen.write, prompt_lines(prompts, Ports().clock.now()))
    for run_id, words in damage.items():
        screen.notice(f"run {run_id}: {words}")
    return 1 if damage else 0


def _reply(
    screen: CommandScreen, store: str, given: str, answer: "PromptAnswer", *, as_json: bool
) -> None:
    from hubbub.runtime.inspection.answering import answer_prompt, check_answerable
    from hubbub.runtime.inspection.prompts import find_prompt
    from hubbub.runtime.stores.sql.in_use import StoreInUse

    with open_reader(store) as opened:
        prompt, place = find_prompt(opened, given), opened.place
    ports = Ports()
    check_answerable(prompt, answer, ports.clock.now())
    try:
        screen.loop(lambda: answer_prompt(store, prompt.prompt_id, answer, ports), "asyncio")
    except StoreInUse as error:
        if error.command:
            raise
        raise OperatorError(
            f"{place}: a runtime is at work on this store; answer in its program (its console, or "
            f"hub.approve, hub.deny, hub.reply with {prompt.prompt_id}), or stop it and give this "
            "command again"
        ) from None
    if as_json:
        screen.write(document(_sent(prompt, answer)))
    else:
        what = {"reply": "answered", "approve": "approved", "deny": "denied"}[answer.decision]
        goes_on = "the next runtime on the store goes on with it"
        if prompt.waits_in == "code":
            goes_on = (
                "it is taken if what asked is run again: an idempotent tool, or code with "
                'on_restart="resume"; else the question is lost with its process'
            )
        if answer.arguments is not None:
            goes_on += "; the arguments are checked then, and the model reads what does not fit"
        screen.write(f"{what} {prompt.prompt_id}: {goes_on}")


def _sent(prompt: "ShownPrompt", answer: "PromptAnswer") -> dict[str, Any]:
    return {
        "prompt_id": prompt.prompt_id, "run_id": prompt.run_id,
        **msgspec.structs.asdict(answer),
    }  # fmt: skip
