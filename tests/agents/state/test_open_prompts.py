"""What a run waits for people to answer, by its thread."""

from hubbub.agents.code.lifecycle import CodeThread, fold_code
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.prompts import open_prompts_of
from hubbub.agents.state.thread import EMPTY
from hubbub.hub import events as e
from hubbub.hub.events import ToolCall

STEP = (
    e.AgentStart(agent="main"),
    e.SessionStart(session=1),
    e.AgentStep(step=1, calls=(ToolCall(name="interrupt"),)),
    e.AgentToolStart(step=1, index=0, name="interrupt"),
)
PAUSE = e.SessionPrompt(
    prompt_id="r.call_1_0", question="Which?", options=("a", "b"), timeout=60, pauses=True,
    call_id="1.0", at=5,
)  # fmt: skip


def test_a_paused_run_waits_for_the_answer_to_its_call_until_it_expires() -> None:
    thread = fold_all(EMPTY, (*STEP, PAUSE))
    (prompt,) = open_prompts_of(thread)
    assert (prompt.prompt_id, prompt.kind, prompt.question) == ("r.call_1_0", "question", "Which?")
    assert (prompt.since, prompt.expires_at, prompt.is_held) == (5, 60_000_005, True)
    after = fold_all(thread, (e.SessionPromptEnd(prompt_id="r.call_1_0"),))
    assert open_prompts_of(after) == ()


def test_what_is_asked_of_a_run_or_a_service_is_asked_of_nobody_who_could_answer_here() -> None:
    run_id = "01234567-89ab-7cde-8f01-23456789abcd"
    asked = (
        e.SessionPrompt(prompt_id="r.1", question="Done?", to=run_id),
        e.SessionPrompt(prompt_id="r.2", question="Sure?", to="support"),
        e.SessionPrompt(prompt_id="r.3", question="Really?", to="user"),
    )
    assert [x.prompt_id for x in open_prompts_of(fold_all(EMPTY, asked))] == ["r.3"]


def test_code_waits_for_what_it_has_asked() -> None:
    thread = fold_code(CodeThread(), e.SessionPrompt(prompt_id="r.1", question="Sure?", at=7))
    assert [(x.question, x.since) for x in open_prompts_of(thread)] == [("Sure?", 7)]
    taken = e.SessionTaken(items=(e.SessionReply(prompt_id="r.1", content="yes"),))
    assert open_prompts_of(fold_code(thread, taken)) == ()
