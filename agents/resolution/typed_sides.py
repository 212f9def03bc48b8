"""Sides that answer with values: what their ``output`` is, and what cannot stand beside it.

Every end of a session of such an agent that completes it comes with a value of its output.  So
what could end one otherwise is refused: tools that end it, a second model, and agents that take
over and answer in another form.
"""

from collections.abc import Iterable

from hubbub.agents.built_in import FINAL_ANSWER
from hubbub.agents.definitions.agent import AgentDefinition, SideConfig
from hubbub.agents.definitions.output import OutputForm, output_form
from hubbub.agents.definitions.prompt import PromptDefinition

__all__ = ["form_of", "typing_problems"]


def form_of(prompt: PromptDefinition) -> OutputForm | None:
    """What the answers of a prompt are, where they are not words."""
    return None if prompt.output is None else output_form(prompt.output)


def typing_problems(
    agent: AgentDefinition,
    config: SideConfig,
    prompt: PromptDefinition,
    names: Iterable[str],
    takers: Iterable[tuple[str, PromptDefinition | None]],
) -> Iterable[str]:
    """What cannot be so, with paths below that of the side.

    ``names`` are those of its tools; ``takers`` the prompts that a plain call, or ``use_agent``,
    gives the conversation to, by agent.
    """
    for name, other in takers:
        if other is not None and other.output != prompt.output:
            yield (
                f".prompt: {name!r} can be given the conversation and has another output; give it "
                "the same, or as a tool (agent.as_tool())"
            )
    if prompt.output is None:
        return
    if agent.is_two_sided:
        yield (
            ".prompt.output: two models end by session_stop, not by an answer; give the schema to "
            "the tool of session_stop, or make one of them an agent of its own"
        )
    for field in ("stop_tool", "session_stop"):
        if getattr(config, field) is not None:
            yield f".{field}: only an answer ends a turn with output; leave one of the two out"
    if not config.stop_on_response:
        yield ".stop_on_response: an answer ends the turn; leave it out beside output"
    if FINAL_ANSWER in names:
        yield f".prompt.tools: {FINAL_ANSWER!r} is how an output is given; rename the tool"
