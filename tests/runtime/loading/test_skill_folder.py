"""A folder of Markdown files is a tuple of skills, or a list of everything that is wrong."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec.yaml
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

import hubbub
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.hub.errors import MissingExtra, OperatorError
from hubbub.runtime.loading import skills as skill_folder
from hubbub.runtime.loading.skills import BadSkills, load_skills

RESEARCH = "---\ndescription: Finds facts.\n---\nFind facts.\n"


def write(folder: Path, **files: str | bytes) -> Path:
    """Files by their names; ``__`` is a ``/``, and ``.md`` is added."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def problems(folder: Path | str) -> list[str]:
    with pytest.raises(BadSkills) as caught:
        load_skills(folder)
    told = list(caught.value.problems)
    assert str(caught.value).split("\n")[1:] == [f"- {each}" for each in told]
    return told


def problems_of(folder: Path, front_matter: str, body: str = "Do it.") -> list[str]:
    found = problems(write(folder, a=f"---\n{front_matter}\n---\n{body}\n"))
    assert all(each.startswith("a.md: ") for each in found)
    return [each.removeprefix("a.md: ") for each in found]


def skill_of(folder: Path, front_matter: str, body: str = "Do it.") -> Skill:
    (skill,) = load_skills(write(folder, a=f"---\n{front_matter}\n---\n{body}\n"))
    return skill


# ── what is read ─────────────────────────────────────────────────────────────────────────────


def test_files_and_folders_of_a_folder_are_skills_by_name(tmp_path: Path) -> None:
    write(tmp_path, zeal=RESEARCH, research__SKILL=RESEARCH, other=RESEARCH)
    write(tmp_path, named="---\nname: alpha\ndescription: Finds.\n---\nFind.")
    loaded = load_skills(str(tmp_path))
    assert [each.name for each in loaded] == ["alpha", "other", "research", "zeal"]
    assert loaded[2] == Skill(
        name="research", description="Finds facts.", instructions="Find facts."
    )


def test_what_is_hidden_deeper_or_no_skill_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, good=RESEARCH)
    write(tmp_path, **{".hidden": "no", ".git__SKILL": "no", "deep__er__SKILL": "no"})
    write(tmp_path, good__reference="no front matter")
    (tmp_path / "notes.txt").write_text("no")
    assert [each.name for each in load_skills(tmp_path)] == ["good"]


def test_an_empty_folder_has_no_skills(tmp_path: Path) -> None:
    assert load_skills(tmp_path) == ()


def test_the_front_door_has_it() -> None:
    assert hubbub.load_skills is load_skills


def test_every_key_is_read(tmp_path: Path) -> None:
    made = skill_of(
        tmp_path,
        "name: review\n"
        "description: |\n  Reviews texts.\n  Slowly.\n"
        "tools: [look, use_agent]\n"
        "agents: critic, editor\n"
        'model: "openai:llama3.2@http://localhost:11434/v1"\n'
        "max_iterations: 7\n"
        'env: {TOKEN: , EMPTY: "", PORT: "8080"}',
        "# Review\n\n    indented\n---\nbelow a rule",
    )
    assert made == Skill(
        name="review",
        description="Reviews texts.\nSlowly.\n",
        instructions="# Review\n\n    indented\n---\nbelow a rule",
        tools=("look", "use_agent"),
        agents=("critic", "editor"),
        model="openai:llama3.2@http://localhost:11434/v1",
        max_iterations=7,
        variables=(
            VariableDefinition(name="TOKEN", required=True),
            VariableDefinition(name="EMPTY", required=True),
            VariableDefinition(name="PORT", type="text"),
        ),
        env={"PORT": "8080"},
    )


def test_a_list_of_variables_are_required_secrets(tmp_path: Path) -> None:
    made = skill_of(tmp_path, "description: x\nenv: [TOKEN, KEY]")
    assert made.variables == tuple(
        VariableDefinition(name=name, type="secret", required=True) for name in ("TOKEN", "KEY")
    )
    assert made.env == {}


def test_a_tool_may_be_the_skill(tmp_path: Path) -> None:
    made = skill_of(tmp_path, "description: x\npassthrough: run_tests", "")
    assert made.is_passthrough
    assert made.passthrough == "run_tests"


def test_no_tools_are_not_all_tools(tmp_path: Path) -> None:
    assert skill_of(tmp_path, "description: x").tools is None
    assert skill_of(tmp_path, "description: x\ntools: []").tools == ()


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_byte_order_marks_and_line_ends_make_no_difference(
    tmp_path: Path, ends: str, mark: str
) -> None:
    text = f"{mark}---  \ndescription: Fände\n---\t\n\n \n  Erst.\n\nDann.\n\n".replace("\n", ends)
    (made,) = load_skills(write(tmp_path, a=text))
    assert (made.description, made.instructions) == ("Fände", "  Erst.\n\nDann.")


def test_a_link_inside_of_the_folder_is_followed(tmp_path: Path) -> None:
    write(tmp_path, **{".kept__research": RESEARCH})
    (tmp_path / "shown.md").symlink_to(tmp_path / ".kept" / "research.md")
    link = tmp_path.with_name(f"{tmp_path.name}-link")
    link.symlink_to(tmp_path)
    assert [each.name for each in load_skills(link)] == ["shown"]


# ── as it was written ────────────────────────────────────────────────────────────────────────

NAMES = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,30}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"))
VARIABLES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
LISTS = st.none() | st.lists(NAMES.filter(lambda name: name != "use_skill"), unique=True)


def is_body(text: str) -> bool:
    first = text.partition("\n")[0]
    return bool(text) and text == text.rstrip() and bool(first.strip(" \t")) and "{{" not in text


@st.composite
def skills(draw: st.DrawFn) -> Skill:
    agents = draw(LISTS)
    tools = draw(LISTS)
    if tools is not None and agents:
        tools = [*dict.fromkeys([*tools, "use_agent"])]
    defaults = draw(st.dictionaries(VARIABLES, TEXTS, max_size=4))
    return Skill(
        name=draw(NAMES),
        description=draw(TEXTS.filter(lambda text: bool(text.strip()))),
        instructions=draw(TEXTS.map(str.rstrip).filter(is_body)),
        tools=tools,
        agents=agents,
        model=draw(TEXTS),
        max_iterations=draw(st.integers(1, 2**63 - 1)),
        variables=[
            VariableDefinition(name=name, required=not value, type="text" if value else "secret")
            for name, value in defaults.items()
        ],
        env={name: value for name, value in defaults.items() if value},
    )


def written(skill: Skill, *, name: bool, as_text: bool) -> bytes:
    front: dict[str, Any] = {"description": skill.description, "model": skill.model}
    front["max_iterations"] = skill.max_iterations
    front["env"] = {each.name: skill.env.get(each.name) for each in skill.variables}
    for field in ("tools", "agents"):
        names = getattr(skill, field)
        if names is not None:
            front[field] = ", ".join(names) if as_text and names else names
    if name:
        front["name"] = skill.name
    return b"---\n" + msgspec.yaml.encode(front) + b"---\n" + skill.instructions.encode()


@given(skills(), st.booleans(), st.booleans(), st.booleans())
def test_a_skill_loads_as_it_was_written(
    skill: Skill, name: bool, as_text: bool, in_folder: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stem = "anything" if name else skill.name
        path = Path(folder, f"{stem}/SKILL.md" if in_folder else f"{stem}.md")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(written(skill, name=name, as_text=as_text))
        assert load_skills(folder) == (skill,)


YAML_PIECES = st.sampled_from(
    [*"[]{}:,-?&*!|>'\"#%@`=~\n \t", "\n  ", "- ", ": ", "<<: ", "2024-13-45", "0b_", "1_e",
     "!!bool ", "description: ", "tools: ", "env: ", "name: ", "x", "\x85", "\u2028", "...",
     "yes", ".inf"]
)  # fmt: skip


@given(st.lists(YAML_PIECES, max_size=30).map("".join) | TEXTS)
@example("description: =")
@example("a: 2024-13-45")
@example("? {a: b}\n: c")
@example("max_iterations: " + "9" * 5000)
def test_whatever_the_front_matter_is_nothing_but_a_line_a_problem_comes_of_it(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), a=f"---\n{text}\n---\nDo it.")
        try:
            (skill,) = load_skills(folder)
        except BadSkills:
            told = problems(Path(folder))
            assert all(each.startswith("a.md: ") and each.isprintable() for each in told)
        else:
            assert skill.description.strip()


# ── what is wrong ────────────────────────────────────────────────────────────────────────────

QUOTES = "put numbers, dates, yes and no in quotes"
KNOWN = "name, description, tools, agents, model, max_iterations, env, passthrough"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no front matter; begin with the lines '---', 'description: …' and '---'"),
        ("\n" + RESEARCH, "no front matter; begin with the lines"),
        ("# Research\n", "no front matter; begin with the lines"),
        ("---\ndescription: x\n", "its front matter does not end; put '---' alone on a line"),
        ("---\ndescription: x\n ---\nDo.", "its front matter does not end; put '---' alone"),
        (b"---\ndescription: \xff\n---\nx", "it is not UTF-8; save it as UTF-8"),
        (RESEARCH.encode("utf-16"), "it is not UTF-8; save it as UTF-8"),
        (RESEARCH + "\0", "it has a NUL character; save it as UTF-8 text"),
        ("x" * (1024 * 1024 + 1), "it is longer than 1 MiB; make it shorter"),
        (
            f"---\ndescription: {'x' * 65536}\n---\nDo it.",
            "its front matter is longer than 64 KiB; put instructions below it",
        ),
        ("---\ndescription: x\n---\n \n", "the text below the front matter: required; say what"),
        ("---\ndescription: x\nenv: [T]\n---\n{{T}}", "the text below the front matter: {{T}} is"),
    ],
)
def test_a_file_that_is_no_skill_is_told_in_one_line(
    tmp_path: Path, text: str | bytes, problem: str
) -> None:
    (told,) = problems(write(tmp_path, a=text))
    assert told.startswith(f"a.md: {problem}")


@pytest.mark.parametrize("loader", ["C", "Python"])
@pytest.mark.parametrize(
    ("front_matter", "problem"),
    [
        ("- a", "its front matter has no keys; write lines such as 'description: …'"),
        ("text", "its front matter has no keys; write lines such as"),
        ("a: [", "line 3: not YAML: "),
        ("a: x\ndescription: Use: it", "line 3: not YAML: mapping values are not allowed"),
        ("\ta: b", "line 2: not YAML: found character"),
        ("a: \x01", "not YAML: "),
        ("a: x\n...\nb: y", "line 4: not YAML: "),
        ("a: 1\nenv: *a", "line 3: anchors (&), aliases (*) and tags (!) are refused; write the"),
        ("env: &a {}\n", "line 2: anchors (&)"),
        ("a: !!python/object:os.system x", "line 2: anchors (&)"),
        ("? [a]\n: b", "line 2: a list or mapping is no key; write 'key: value'"),
        ("description: a\ndescription: b", "line 3: the key 'description' is given twice; keep"),
        ("description: a\nenv: {A: x, A: y}", "line 3: the key 'A' is given twice; keep one"),
        ("a: " + "[" * 30_000, "line 2: nested too deep; expected lists and mappings of texts"),
        ("a: 2024-13-45", "a value cannot be read (ValueError: month must be in 1..12); put it in"),
    ],
)  # fmt: skip
def test_front_matter_that_cannot_be_read_is_told_with_its_line(
    tmp_path: Path, front_matter: str, problem: str, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loader == "Python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML was built without libyaml")
    elif problem.startswith("line 3: not YAML: ") and front_matter == "a: [":
        problem = "line 3: not YAML: did not find expected node content"
    (told,) = problems_of(tmp_path, front_matter)
    assert told.startswith(problem)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("allowed-tools: x", f"'allowed-tools' is no key of a skill; known keys: {KNOWN}"),
        ("no: x", "'False' is no key of a skill; known keys: "),
        ("name: no", f"name: expected a text; {QUOTES}"),
        ("name: skill:x", "name: expected 1 to 100 letters, digits, '_', '-' or '.'"),
        ("name:", "name: nothing is given; leave the key out"),
        ("tools:", "tools: nothing is given; write [] for no tools, or leave the key out for all"),
        ("tools: ''", "tools: nothing is given; write [] for no tools, or leave the key out"),
        ("tools: ' , '", "tools: nothing is given; write [] for no tools, or leave the key out"),
        ("agents:", "agents: nothing is given; write [] for no agents, or leave the key out for"),
        ("tools: 3", f"tools: expected a list of names; {QUOTES}"),
        ("tools: {look: 3}", f"tools: expected a list of names; {QUOTES}"),
        ("tools: [look, 3]", f"tools[1]: expected a text; {QUOTES}"),
        ("tools: look, use_skill", "tools[1]: a skill may not call skills; leave it out"),
        ("tools: look, look", "tools[1]: 'look' is listed twice"),
        ("agents: [on]", f"agents[0]: expected a text; {QUOTES}"),
        ("model: 4.5", f"model: expected a text; {QUOTES}"),
        ("max_iterations: '3'", "max_iterations: expected a whole number, without quotes"),
        ("max_iterations: yes", "max_iterations: expected a whole number, without quotes"),
        ("max_iterations: 0", "max_iterations: at least 1"),
        ("env: TOKEN", "env: expected a list of names, or lines 'NAME: value'"),
        ("env:", "env: nothing is given; leave the key out"),
        ("env: {PORT: 8080}", f"env.PORT: expected a text; {QUOTES}"),
        ("env: {NO: x}", f"env.False: expected a text; {QUOTES}"),
        ("env: {a b: x}", "env: 'a b' is no variable's name; use letters, digits and '_'"),
        ("env: [a b]", "env: 'a b' is no variable's name; use letters, digits and '_'"),
        ("env: [A, A]", "env: a name is listed twice; list it once"),
        ("passthrough: [look]", f"passthrough: expected the name of a tool; {QUOTES}"),
        ("passthrough: use_skill", "passthrough: 'use_skill' is no tool of your own"),
    ],
)
def test_a_wrong_value_is_told_in_one_line_with_its_key(
    tmp_path: Path, line: str, problem: str
) -> None:
    (told,) = problems_of(tmp_path, f"description: x\n{line}")
    assert told.startswith(problem)


@pytest.mark.parametrize(
    ("front_matter", "problem"),
    [
        ("", "description: required; say when to use the skill"),
        ("# none", "description: required; say when to use the skill"),
        ("description: ' '", "description: required; say when to use the skill"),
        ("description:", "description: nothing is given; say when to use the skill"),
        ("description: 3", f"description: expected a text; {QUOTES}"),
    ],
)
def test_a_description_is_required(tmp_path: Path, front_matter: str, problem: str) -> None:
    assert problems_of(tmp_path, front_matter) == [problem]


def test_a_default_value_is_never_shown(tmp_path: Path) -> None:
    (told,) = problems_of(tmp_path, "description: x\nenv: {KEY: 31415926}")
    assert "31415926" not in told


def test_a_bad_name_of_a_file_is_told_with_both_remedies(tmp_path: Path) -> None:
    (tmp_path / "My skill.md").write_text(RESEARCH)
    (told,) = problems(tmp_path)
    assert told.startswith("My skill.md: name: expected 1 to 100 letters")
    assert told.endswith("; rename it, or give a name")


def test_all_problems_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, good=RESEARCH, a="no", b__SKILL="---\nname: 3\ntools: 4\n---\nDo it.")
    assert problems(tmp_path) == [
        "a.md: no front matter; begin with the lines '---', 'description: …' and '---'",
        f"b/SKILL.md: name: expected a text; {QUOTES}",
        f"b/SKILL.md: tools: expected a list of names; {QUOTES}",
        "b/SKILL.md: description: required; say when to use the skill",
    ]


def test_two_skills_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path, research=RESEARCH, research__SKILL=RESEARCH)
    assert problems(tmp_path) == [
        "research.md: the name 'research' is that of research/SKILL.md; give it another name"
    ]


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", secret=RESEARCH, linked__SKILL=RESEARCH)
    inside = write(tmp_path / "skills", good=RESEARCH)
    (inside / "a.md").symlink_to(outside / "secret.md")
    (inside / "b").symlink_to(outside / "linked")
    (inside / "c.md").symlink_to("../outside/secret.md")
    refused = "a link that leads out of the folder; copy the file into it"
    assert problems(inside) == [f"a.md: {refused}", f"b/SKILL.md: {refused}", f"c.md: {refused}"]


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "loop.md").symlink_to("loop.md")
    (tmp_path / "nothing.md").symlink_to("gone")
    (tmp_path / "sub" / "SKILL.md").mkdir(parents=True)
    told = problems(tmp_path)
    assert [each.partition(":")[0] for each in told] == [
        "loop.md", "nothing.md", "pipe.md", "sub/SKILL.md",
    ]  # fmt: skip
    assert all("cannot be read: " in each and "; repair or remove it" in each for each in told)


def test_names_of_files_cannot_act_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[2J\n.md").write_text("no")
    (told,) = problems(tmp_path)
    assert told.startswith("a\\x1b[2J\\n.md: no front matter")


def test_a_folder_that_is_none_is_told_with_the_remedy(tmp_path: Path) -> None:
    remedy = "; name a folder of Markdown files"
    gone = tmp_path / "gone"
    assert problems(gone) == [f"it cannot be listed: No such file or directory{remedy}"]
    gone.write_text("x")
    assert problems(gone) == [f"it cannot be listed: Not a directory{remedy}"]
    assert problems("a\0b")[0].startswith("it cannot be listed: ")
    with pytest.raises(OperatorError, match=r"the skills of .*gone cannot be used"):
        load_skills(gone)


@pytest.mark.parametrize("folder", [None, 5, [], {"a": 1}, object, Path])
def test_what_is_no_path_is_told_as_any_folder_that_is_none(folder: Any) -> None:
    with pytest.raises(BadSkills, match="expected the path of a folder, not ") as caught:
        load_skills(folder)
    assert len(caught.value.problems) == 1


def test_a_folder_has_a_thousand_skills_at_the_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert skill_folder.MAX_SKILLS == 1_000
    monkeypatch.setattr(skill_folder, "MAX_SKILLS", 2)
    write(tmp_path, a=RESEARCH, b=RESEARCH)
    assert len(load_skills(tmp_path)) == 2
    write(tmp_path, c__SKILL=RESEARCH)
    assert problems(tmp_path) == ["it has more than 2 skills; make several folders"]


# ── the extra ────────────────────────────────────────────────────────────────────────────────


def test_without_the_extra_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert load_skills(tmp_path) == (), "nothing is there to read"
    write(tmp_path, a=RESEARCH)
    with pytest.raises(
        MissingExtra, match=r"uv sync --extra skills, or pip install '\.\[skills\]'"
    ):
        load_skills(tmp_path)


def test_importing_hubbub_loads_neither_yaml_nor_what_reads_folders() -> None:
    names = "'yaml' in sys.modules, 'hubbub.runtime.loading.skills' in sys.modules"
    code = f"import sys, hubbub; print({names})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_what_has_its_value_in_the_file_may_stand_in_the_text(tmp_path: Path) -> None:
    text = "---\ndescription: d\nenv: {CITY: Paris}\n---\nGreet {{CITY}}.\n"
    (tmp_path / "greet.md").write_text(text)
    (greet,) = load_skills(tmp_path)
    assert (greet.env, greet.variables[0].type) == ({"CITY": "Paris"}, "text")
