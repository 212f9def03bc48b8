"""``InlineCalls``: runs that are started, driven and waited for by one task (``rt.run``)."""

from collections.abc import Mapping
from typing import Any, Final, Generic

from msgspec import structs

from hubbub.agents.definitions.output import Output_co
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, RunFailed
from hubbub.hub.events import Limits
from hubbub.hub.message import MAX_MESSAGE_CHARS, contents_said, opening_message, variables_of
from hubbub.hub.values import NULL, encode_given
from hubbub.runtime.kernel.current_run import CURRENT_RUN
from hubbub.runtime.kernel.inline import InlineCaller
from hubbub.runtime.kernel.outcome import RunOutcome
from hubbub.runtime.kernel.outcomes import Outcomes
from hubbub.runtime.kernel.returns import Return
from hubbub.runtime.kernel.services import Services, definition_of
from hubbub.runtime.supervision.supervisor import Supervisor

__all__ = ["ExecutableAgent", "InlineCalls"]

_NOTHING_SAID: Final = (
    'a model agent answers what it is told; give it an input, such as "Hello", '
    "or start it with rt.start and send to it later"
)


class InlineCalls:
    """Starts runs for callers that lend their tasks to them."""

    __slots__ = ("_outcomes", "_runs", "_services")

    def __init__(self, services: Services, outcomes: Outcomes, runs: Supervisor) -> None:
        self._services = services
        self._outcomes = outcomes
        self._runs = runs

    async def run(
        self, agent: str, input: Any, env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> tuple[RunOutcome, Exception | None]:  # fmt: skip
        """One session of a new run; its outcome, and what it raised.

        A caller that is cancelled terminates the run.  Raises ``BadValue`` for a model agent that
        is given nothing: it would wait for a message that nobody can send.
        """
        if input is None and self._is_model(agent):
            raise BadValue("input", _NOTHING_SAID)
        hub, runs, expected = self._services.hub, self._runs, self._services.returns.expected
        input_json, message = (
            (encode_given("input", input), None)
            if input.__class__ is str and len(input) <= MAX_MESSAGE_CHARS
            else opening_message(input)
        )
        contents = contents_said(input) if message is not None else None
        run_id = hub.ports.ids.run_id(hub.ports.clock.now())
        opening = e.SessionOpen(
            run_id=run_id, open_agent=agent, input_json=input_json, message=message, once=True,
            variables=variables_of(env) if env else (), limits=limits,
        )  # fmt: skip
        # Of everybody who waits it would all stay in memory.
        del input_json, message, env, limits
        kept = expected[run_id] = Return()
        caller = runs.callers[run_id] = InlineCaller(hub.tasks)
        try:
            sent = hub.pipeline.open(opening, is_new=True, contents=contents)
            receipt = None if sent.status == "accepted" else sent
            del opening, contents, sent
            if receipt is not None and (receipt.status == "rejected" or runs.get(run_id) is None):
                await receipt
                receipt.raise_if_rejected()
            sharing = hub.share.sharing
            if sharing is not None and not sharing.owns(run_id):
                caller.dismiss()  # Another process drives it.
            # Others run too, however fast the model is; and a caller cancelled before ends here.
            await hub.tasks.breathe()
            if CURRENT_RUN.get():
                await self._serve_for_a_run(run_id, caller)
            else:
                runs.serve_now(run_id)
                await caller.serve()
            if receipt is not None:
                await receipt
                receipt.raise_if_rejected()
            outcome = caller.outcome or await self._outcomes.finished(run_id)
            if kept.lingering is not None:
                await kept.lingering.wait_function()
            # A function that was stopped may have returned all the same: that counts for nothing.
            if outcome.success and outcome.output_json is NULL and kept.output is not None:
                outcome = structs.replace(outcome, output_json=kept.output)
            if outputs := self._services.definitions.outputs:
                form = outputs.get(agent)
                outcome = structs.replace(outcome, output_form=form)
        except BaseException:
            caller.cancel()
            runs.look_for_ready()
            # A runtime that is left ends no run: the next one on this store continues.
            if not self._services.phase.is_gone and not hub.is_closed:
                hub.terminate(run_id, "its caller was cancelled")
            raise
        finally:
            runs.callers.pop(run_id, None)
            expected.pop(run_id, None)
        return outcome, kept.error

    def _is_model(self, agent: str) -> bool:
        definition = self._services.definitions.find_agent(agent)
        return definition is not None and not definition.is_code

    async def _serve_for_a_run(self, run_id: str, caller: InlineCaller) -> None:
        """The caller is a run's code, whose wait may be what makes room for the run it is for."""
        with self._outcomes.expecting(run_id), self._outcomes.waiting(caller.is_dismissed):
            self._runs.serve_now(run_id)
            await caller.serve()


class ExecutableAgent(Generic[Output_co]):
    """An agent as workflow code sees it: a name and ``execute(input)``."""

    __slots__ = ("_calls", "_services", "name")

    def __init__(self, services: Services, calls: InlineCalls, name: str) -> None:
        self._services = services
        self._calls = calls
        self.name = name

    async def execute(self, input: object = None) -> Output_co:
        """Run the agent to its end and return its output.

        Raises what a code agent raised, ``RunFailed`` for every other ending than success.
        """
        self._services.phase.check_open()
        definition_of(self._services, self.name, input)
        outcome, error = await self._calls.run(self.name, input)
        if error is not None:
            raise error
        if not outcome.success:
            raise RunFailed(outcome.run_id, outcome.outcome, outcome.reason)
        result: Output_co = outcome.output
        return result
