"""The values that a recording's agents answered with, and the answers that did not fit.

What their ``output`` was is not on record, but what became of each answer is: the stand-ins accept
and refuse the same ones, in the same words.
"""

from typing import Any

import msgspec

from hubbub.agents.built_in import FINAL_ANSWER
from hubbub.agents.definitions.output import Misfit, OutputForm, unfenced
from hubbub.agents.model import OutputSpec, ToolSpec
from hubbub.agents.state.steps import is_said
from hubbub.agents.turn.calls import COMPLETED, misfit_words
from hubbub.agents.turn.stop import NO_FIT
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.values import Json, decode_value

__all__ = ["RecordedOutputs", "is_answer"]

_BEFORE, _BEHIND = misfit_words("\n").split("\n\n\n")


def is_answer(event: Event) -> bool:
    """Whether the result of a call is that of ``final_answer``, and not of a tool of that name."""
    return (
        isinstance(event, e.AgentToolComplete)
        and event.name == FINAL_ANSWER
        and (event.output == COMPLETED or event.output.startswith(_BEFORE))
    )


class RecordedOutputs:
    """What became of the answers of all agents; those of one run are seen in order."""

    def __init__(self) -> None:
        self._values: dict[str, Json] = {}
        self._misfits: dict[str, str] = {}
        self._words: dict[int, str] = {}
        """What was said in the steps of the run that is looked at."""
        self._answer = ""
        self._calls: dict[str, str] = {}
        self._is_code = False

    def begin(self, *, is_code: bool) -> None:
        """The next events are another run's."""
        self._is_code = is_code
        self._words, self._answer, self._calls = {}, "", {}

    def see(self, event: Event) -> bool:
        """Take note of an event; whether it shows that its agent answers with values."""
        match event:
            case _ if self._is_code:  # What code returns needs no form.
                return False
            case e.AgentText() if event.step:
                self._words[event.step] = self._words.get(event.step, "") + event.text
            case e.AgentStep():
                self._answer = unfenced(self._words.get(event.step, ""))
                self._calls = {f"{event.step}.{n}": x.arguments for n, x in enumerate(event.calls)}
            case e.AgentToolComplete() if is_answer(event):
                self._answer = unfenced(self._calls.get(event.call_id) or "{}")
                if event.is_error:
                    self._misfits[self._answer] = _problem(event.output)
                return True
            case e.AgentRetry() if is_said(event):
                self._misfits[self._answer] = _problem(event.error)
                return True
            case e.SessionEnd() if event.reason.startswith(NO_FIT):
                self._misfits[self._answer] = event.reason.removeprefix(f"{NO_FIT}\n")
                return True
            case e.SessionEnd() if event.success and isinstance(event.output, dict):
                self._values[self._answer] = event.output_json
                return True
            case _:
                pass
        return False

    @property
    def form(self) -> OutputForm:
        """The output of the stand-ins."""
        schema: dict[str, Any] = {"type": "object"}
        return OutputForm(
            given=None,
            spec=OutputSpec(name="recorded", schema=schema),
            tool=ToolSpec(name=FINAL_ANSWER, description="", schema=schema),
            check=self._check,
            make=decode_value,
        )

    def _check(self, answer: str) -> Any:
        if answer in self._values:
            return msgspec.Raw(bytes(self._values[answer]))
        problem = self._misfits.get(answer, "the recording has no such answer")
        raise Misfit(tuple(problem.removeprefix("- ").split("\n- ")))


def _problem(words: str) -> str:
    return words.removeprefix(f"{_BEFORE}\n").removesuffix(f"\n{_BEHIND}")
