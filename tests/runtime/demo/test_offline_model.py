"""The agents of ``hubbub chat`` without a network: they follow what is typed, and never stall."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.chats import FILES, Chat, open_chat, write_files
from support.profiles import examples

from hubbub.agents.model import AssistantMessage, ModelRequest, UserMessage
from hubbub.agents.state.commands import command_of
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.runtime.demo.chat.model import offline_models
from hubbub.runtime.demo.chat.words import is_done, is_yes, named_files, slug, topic_words
from hubbub.runtime.loading.skills import load_skills

WRITER = "skill:skill-writer"


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[Chat]:
    write_files(tmp_path)
    async with open_chat(tmp_path) as chat:
        yield chat


# ── main ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("one two three", "main: You said “one two three”: 3 words."),
        ("who are you?", "main: I am hubbub's offline model"),
        ("what is the time?", "main: It is Thursday, 2026-01-01"),
        ("show me the time", "main: It is Thursday, 2026-01-01"),
        ("please list the files", "research: I see these text files:\n  hubs.txt\n  style.md"),
        ("Read hubs.txt.", "research: hubs.txt: 6 words in 2 lines. It begins:\n  Hubs carry"),
        ("show me the file missing.txt", "research: That did not work: 'missing.txt'"),
        ("research the style", "research: style.md: 9 words in 4 lines."),
        (
            "research passive",
            "research: style.md: 9 words in 4 lines.\n  line 4: Avoid",
        ),
        ("find out about nothingness", "research: I have looked into 3 of 3 files, and none"),
        ("research everything", "research: hubs.txt: 6 words"),
        ("research", "research: I see these text files:"),
        ("write a skill", f"{WRITER}: What is the skill to do?"),
        ("make a skill that greets people", f"{WRITER}: I would call it greets-people."),
    ],
)
async def test_a_line_is_answered_by_whom_it_is_for(chat: Chat, said: str, expected: str) -> None:
    assert (await chat.says(said)).startswith(expected)


@pytest.mark.anyio
async def test_help_says_what_to_try(chat: Chat) -> None:
    told = await chat.says("help")
    for each in ("list files", "research README.md", "write a skill", '"/back"', '"/stop"'):
        assert each in told


@pytest.mark.anyio
async def test_the_offline_model_is_a_function_of_the_conversation(ports: Ports) -> None:
    model = offline_models(ports).main
    assert not isinstance(model, str)
    history = (UserMessage(content="a"), AssistantMessage(text="b"), UserMessage(content="c d"))
    answer = await model.call(ModelRequest(messages=history))
    assert answer == await model.call(ModelRequest(messages=history))
    assert answer.text == "You said “c d”: 2 words."


# ── research ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
async def test_research_asks_back_and_main_tells_what_it_found_and_where(chat: Chat) -> None:
    assert (await chat.says("research")).startswith("research: ")
    assert (await chat.says("actors")).startswith("research: deep/actors.md: 7 words")
    told = await chat.says("hubs", "thanks!")
    assert told.startswith("main: I am back. research says: Found in deep/actors.md, hubs.txt.")
    assert "An actor has an inbox." in told and "Hubs carry events." in told
    assert chat.stack == ["main"]


@pytest.mark.anyio
async def test_without_a_folder_research_says_how_to_name_one(tmp_path: Path) -> None:
    async with open_chat(tmp_path, has_files=False) as chat:
        told = await chat.says("research README.md")
    assert told.startswith("main: I am back. research says: I have no folder to read")
    assert "`hubbub chat --folder FOLDER`" in told


@pytest.mark.anyio
async def test_an_empty_folder_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    async with open_chat(tmp_path) as chat:
        assert "no text files" in await chat.says("list files")


@pytest.mark.anyio
async def test_going_back_to_main_is_told_of(chat: Chat) -> None:
    assert (await chat.says("research", "/back")).startswith("main: I am back: research did not")


# ── skill-writer ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
@pytest.mark.spec("I-01")
async def test_three_deep_each_speaks_and_the_skill_is_there_in_the_next_chat(
    chat: Chat, tmp_path: Path
) -> None:
    assert (await chat.say("write a skill"))[-1][0] == WRITER
    said = await chat.say("reviews texts, based on the notes")
    assert [speaker for speaker, _ in said] == [WRITER, "research"]
    assert chat.stack == ["main", WRITER, "research"]
    said = await chat.say("style")
    assert [speaker for speaker, _ in said] == [WRITER]
    assert "Avoid the passive voice." in said[0][1]
    await chat.say("give an example each time")
    said = await chat.say("write it")
    assert [speaker for speaker, _ in said] == ["main"]
    assert "reviews-texts.md" in said[0][1] and "offers the skill 'reviews-texts'" in said[0][1]
    (skill,) = load_skills(tmp_path / "skills")
    assert (skill.name, skill.description) == ("reviews-texts", "reviews texts")
    assert "Avoid the passive voice." in skill.instructions
    assert "Mind this: give an example each time" in skill.instructions
    async with open_chat(tmp_path) as again:
        assert 'Try "list files"' in await again.says("help")
        told = await again.says("use reviews-texts")
        assert told.startswith("skill:reviews-texts: I have the conversation now.")
        assert "Your task: reviews texts." in told
        assert (await again.says("and now?")).startswith("skill:reviews-texts: Noted: “and now?”")
        assert (await again.says("done")).startswith("main: I am back. reviews-texts says:")


@pytest.mark.anyio
async def test_all_of_it_can_be_said_in_one_line(chat: Chat, tmp_path: Path) -> None:
    line = "make a skill that reviews texts, named review, based on style.md"
    told = await chat.says(line)
    assert told.startswith(f"{WRITER}: Here is review.md, a skill for: reviews texts")
    await chat.say("yes")
    assert [each.name for each in load_skills(tmp_path / "skills")] == ["review"]


@pytest.mark.anyio
async def test_a_skill_that_is_there_is_replaced_after_a_yes_only(
    chat: Chat, tmp_path: Path
) -> None:
    begin = ("make a skill that reviews texts", "no")
    await chat.says(*begin, "write it")
    path = tmp_path / "skills" / "reviews-texts.md"
    before = path.read_text()
    told = await chat.says(*begin, "be kind", "write it")
    assert "exists already" in told and "Shall I replace it?" in told
    assert path.read_text() == before
    assert "No skill was written" in await chat.says("no")
    assert path.read_text() == before
    assert "wrote" in await chat.says(*begin, "be kind", "write it", "yes")
    assert "Mind this: be kind" in path.read_text()
    told = await chat.says(*begin, "write it", "call it other", "ok")
    assert "wrote" in told and (tmp_path / "skills" / "other.md").exists()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("call it my reviewer", "my-reviewer"),
        ("ok, please name it My Kind Reviewer, please", "my-kind-reviewer"),
        ("call it “how to write”.", "how-to-write"),
        ("call it how to write and go on", "how-to-write"),
        ("it should be named Prüfer now", "prufer"),
        ("rename the skill review.md", "review"),
    ],
)
async def test_a_name_of_several_words_becomes_one(chat: Chat, line: str, name: str) -> None:
    told = await chat.says("write a skill that sings", "no", line)
    assert told.startswith(f"{WRITER}: Here is {name}.md, a skill for: sings")
    assert "Mind this" not in told


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["../../evil", "a/b", "..", "日本", "{{NAME}}", "~root", "x.py"])
async def test_what_is_no_name_is_refused_in_words_and_gets_into_no_text(
    chat: Chat, name: str, tmp_path: Path
) -> None:
    refusal = "” cannot be the name of a skill: letters, digits and '-' are wanted."
    begin = "write a skill that sings"
    told = await chat.says(f"{begin}, called {name}")
    assert refusal in told and "I would call it sings." in told
    told = await chat.says(f"call it {name}")
    assert refusal in told and "I would call it sings." in told
    told = await chat.says("no", f"call it {name}")
    assert told.startswith(f"{WRITER}: “{name[0]}") and refusal in told
    assert "Here is sings.md" in told and name not in told.partition("\n")[2]
    assert "wrote" in await chat.says("write it")
    told = await chat.says(begin, "no", "write it", f"call it {name}")
    assert refusal in told and told.endswith("Shall I replace it? Say yes, no, or “call it …”.")
    assert "wrote" in await chat.says("call it my second one", "write it")
    assert {x.name for x in load_skills(tmp_path / "skills")} == {"sings", "my-second-one"}


@pytest.mark.anyio
async def test_a_name_beside_other_wishes_leaves_them(chat: Chat) -> None:
    told = await chat.says("write a skill named my singer that sings")
    assert "I would call it my-singer." in told
    told = await chat.says("call it our singer, and look into hubs")
    assert "Here is our-singer.md, a skill for: sings" in told and "Hubs carry events." in told


@pytest.mark.anyio
async def test_leaving_the_skill_writer_is_told_of_by_its_own_name(chat: Chat) -> None:
    told = await chat.says("write a skill", "/back")
    assert told.startswith("main: I am back: skill-writer did not complete: ")


@pytest.mark.anyio
@pytest.mark.parametrize("line", ["no", "never mind", "forget it", "done"])
async def test_whoever_wants_no_skill_gets_none(chat: Chat, tmp_path: Path, line: str) -> None:
    assert "No skill was written" in await chat.says("write a skill", line)
    told = await chat.says("write a skill that sings", "no", line)
    assert "No skill was written" in told
    assert not (tmp_path / "skills").exists()


@pytest.mark.anyio
async def test_when_research_is_left_the_draft_goes_on_without(chat: Chat) -> None:
    told = await chat.says("write a skill that sings, based on the scores", "/back")
    assert told.startswith(f"{WRITER}: Research found nothing: research did not complete")
    assert "Here is sings.md" in told
    told = await chat.says("look into hubs")
    assert "Hubs carry events." in told


# ── whatever is typed ────────────────────────────────────────────────────────────────────────

VOCABULARY = (
    "hi", "help", "what time is it?", "list files", "research", "research style", "research all",
    "find out about kiwis", "read ../secret", "read style.md", "all", "hubs", "write a skill",
    "make a skill that sings", "write a skill for letters, based on the style", "call it x/y",
    "call it my reviewer", "call it ../../evil",
    "call it skill-writer", "write it", "yes", "no", "done", "thanks", "replace it",
    "look into hubs", "use sings", "/stop", "stop", "cancel", "/back", "BACK", ".", "?",
    "{{NAME}}", "---",
)  # fmt: skip

lines = st.one_of(
    st.sampled_from(VOCABULARY),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(str.strip),
    st.builds(" ".join, st.lists(st.sampled_from(VOCABULARY), min_size=2, max_size=3)),
)


@pytest.mark.anyio
@example(["write a skill for letters, based on the scores", "/back", "yes", "write a skill"])
@example(["make a skill that sings", "no", "yes", "make a skill that sings", "no", "yes", "yes"])
@given(st.lists(lines, max_size=12))
@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_every_line_is_answered_by_who_is_on_top_and_stop_brings_main_back(
    typed: list[str],
) -> None:
    with tempfile.TemporaryDirectory() as home:
        write_files(Path(home))
        async with open_chat(Path(home)) as chat:
            for line in typed:
                await _answered(chat, line)
            depth = len(chat.stack)
            said = await chat.say("/stop")
            assert depth == 1 or said == []
            assert chat.stack == ["main"]
            assert (await chat.says("hi")).startswith("main: You said “hi”: 1 word.")
        skills = Path(home) / "skills"
        assert not skills.exists() or load_skills(skills) is not None, "and all of them load"


async def _answered(chat: Chat, line: str) -> None:
    """Type a line; it is answered in a few steps, by whoever has the conversation then."""
    before, begin = list(chat.stack), len(chat.events)
    said = await chat.say(line)
    happened = chat.events[begin:]
    word = command_of(e.SessionMessage(content=line)) if len(before) > 1 else ""
    ends = [x for x in happened if isinstance(x, e.SessionEnd | e.AgentComplete)]
    assert {x.outcome for x in ends} <= {"completed", "interrupted"}
    # What was above a frame that is left ends a moment later, maybe during the next line.
    assert word or all(x.outcome == "completed" for x in ends if x.agent == "main")
    assert sum(isinstance(x, e.AgentStep) for x in happened) <= 6
    if word == "stop":
        assert chat.stack == ["main"]
        return
    if word == "back":
        assert chat.stack == before[:-1]
    assert said, line
    assert said[-1][0] == chat.stack[-1]
    assert said[-1][1].strip()


# ── readings of a line ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text", ["done", "Done.", "thanks!", "Thank you", "that’s all", "no", "ok, thanks", "enough"]
)
def test_who_has_had_enough_is_understood(text: str) -> None:
    assert is_done(text) and not is_yes(text)


@pytest.mark.parametrize("text", ["yes", "Yes, please", "ok", "write it", "do it!"])
def test_a_yes_is_understood(text: str) -> None:
    assert is_yes(text) and not is_done(text)


@pytest.mark.parametrize("text", ["no passive voice", "done with style", "yes men", "not yet", ""])
def test_longer_sentences_are_neither(text: str) -> None:
    assert not is_yes(text) and not is_done(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("style.md", ("style.md",)), ("read STYLE, please", ("style.md",)),
        ("actors and hubs", ("hubs.txt", "deep/actors.md")), ("actors.md", ("deep/actors.md",)),
        ("restyle", ()), ("", ()),
    ],
)  # fmt: skip
def test_files_are_named_by_path_name_or_stem(text: str, expected: tuple[str, ...]) -> None:
    assert named_files(text, FILES) == expected


def test_a_topic_is_what_is_left_of_the_common_words() -> None:
    assert topic_words("Find out what the passive voice is, and Passive") == ("passive", "voice")
    assert slug("reviews a text for the Passive Voice") == "reviews-text-passive"
    assert slug("…") == "my-skill"
