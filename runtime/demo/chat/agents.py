"""The agents of ``hubbub chat``, and who may give the conversation to whom.

    main ──► research            reads files of a folder that the user names
      │  ──► skills of the user's folder
      └────► skill-writer        writes a skill into that folder
                 └──► research

``main`` is whom the user meets.  The others take the conversation over and give it back with
``complete`` (see ``agents/turn/takeover.py``).  All of them work on a real model, and on the
offline ones of ``offline_model``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, structs

from hubbub.agents.built_in import USE_AGENT
from hubbub.agents.definitions.agent import AgentDefinition, SideConfig
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.model import Model
from hubbub.hub.ports import Ports
from hubbub.runtime.demo.chat.tools import clock_tool, file_tools
from hubbub.runtime.loading.agents import LoadedAgents
from hubbub.runtime.loading.skills import load_skills
from hubbub.runtime.loading.write_skill import SkillFolder, write_skill_tool

__all__ = [
    "DEFAULT_SKILLS",
    "SYSTEM",
    "ChatModels",
    "chat_agents",
    "model_of_environment",
]

DEFAULT_SKILLS: Final = "skills"
"""The folder of the user's skills, where the program runs, unless another is named."""

SYSTEM: Final = """\
You are a helpful assistant in a terminal. Answer briefly, in plain text.
Whatever needs the user's files, give to the agent research. When the user wants a new skill, use \
the skill skill-writer. Both talk with the user themselves until they are done; then say in a \
sentence or two what came of it, without repeating what the user has read already."""

RESEARCH: Final = """\
You research in the text files of one folder. You talk with the user directly; answer briefly, in \
plain text.
Call list_files first, then read what bears on the task. Never guess what a file says. If it is \
unclear what is wanted, or which files are meant, ask the user one short question.
When you have found what was asked for, or the user has had enough, call complete. Its result is \
for whoever called you: what you found, with the names of the files you used. If the user wants \
something else, call complete with what you have, and say what the user wants."""

NO_FOLDER: Final = """\
You research in the text files of a folder, but the user has named none, so you can read nothing. \
Call complete at once; its result says that no folder was named, and that \
`hubbub chat --folder FOLDER` names one."""

DEFAULT_MODELS: Final = (
    ("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-4-5"),
    ("OPENAI_API_KEY", "openai:gpt-5-mini"),
)
"""What is talked to when only a key is given; the first one counts."""


class ChatModels(Struct, frozen=True):
    """Who speaks for each agent; the user's own skills are carried out by the model of ``main``."""

    main: str | Model
    research: str | Model
    skill_writer: str | Model


def chat_agents(
    models: ChatModels,
    ports: Ports,
    *,
    system: str = "",
    folder: Path | None = None,
    skills: Sequence[Skill] = (),
    skills_folder: Path = Path(DEFAULT_SKILLS),
) -> LoadedAgents:
    """``main``, ``research``, and the skills that ``main`` may use.

    ``folder`` is what ``research`` reads; ``skills`` are the user's own; new ones are written into
    ``skills_folder``.  A skill of the user's named ``skill-writer`` takes the place of ours.
    ``system`` replaces the prompt of ``main``.  Reads a file at once, so call it at start-up.
    """
    clock, reading = clock_tool(ports), file_tools(ports, folder)
    ours = [structs.replace(each, model=models.skill_writer) for each in _shipped_skills()]
    own = {each.name for each in skills}
    offered = (*(each for each in ours if each.name not in own), *skills)
    shelf = SkillFolder(
        folder=skills_folder,
        # Not those for files: they are there with a folder only, and a skill that names what is
        # not there keeps the next chat from starting.  Research has them.
        tools=(clock.name, USE_AGENT),
        agents=("research",),
        taken=[each.name for each in ours if each.name not in own],
        command=_command(skills_folder),
    )
    main = _main(models.main, system, clock, offered)
    agents = (main, _research(models.research, reading))
    return LoadedAgents(main, agents, (), (write_skill_tool(ports, shelf),))


def model_of_environment(environ: Mapping[str, str]) -> str | None:
    """The default model of the first provider that ``environ`` has a key for."""
    for variable, model in DEFAULT_MODELS:
        if environ.get(variable, "").strip():
            return model
    return None


def _main(
    model: str | Model, system: str, clock: Tool[..., Any], skills: Sequence[Skill]
) -> AgentDefinition:
    prompt = PromptDefinition(
        name="main", prompt=system or SYSTEM, model=model, tools=(clock,), agents=("research",),
        skills=tuple(skills),
    )  # fmt: skip
    return AgentDefinition(name="main", side_a=SideConfig(prompt=prompt))


def _research(model: str | Model, reading: Sequence[Tool[..., Any]]) -> AgentDefinition:
    prompt = PromptDefinition(
        name="research", prompt=RESEARCH if reading else NO_FOLDER, model=model, tools=reading
    )
    return AgentDefinition(
        name="research",
        description="Reads text files of the user's folder and reports what they say.",
        side_a=SideConfig(prompt=prompt),
        expose_as_tool=True,
    )


def _shipped_skills() -> tuple[Skill, ...]:
    return load_skills(Path(__file__).with_name("skills"))


def _command(skills_folder: Path) -> str:
    if skills_folder == Path(DEFAULT_SKILLS):
        return "hubbub chat"
    return f"hubbub chat --skills {skills_folder}"
