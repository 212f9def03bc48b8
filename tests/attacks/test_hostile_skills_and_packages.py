"""Whatever stands in a skill's file or a package, it is loaded, or refused in words."""

import json
import random
from pathlib import Path

import pytest

from attacks.hostile_values import TEXTS, mutated
from attacks.scale import scale
from hubbub import AgentDefinition, PromptDefinition, SideConfig, Skill
from hubbub.agents.packaging.pack import pack, unpack
from hubbub.agents.resolution.definitions import Definitions
from hubbub.hub.errors import DefinitionError
from hubbub.runtime.loading.skills import BadSkills, load_skills

SKILL = b"""---
name: research
description: "Finds facts: and their sources."
tools: [search, use_agent]
max_iterations: 7
env:
  TOKEN:
  PLACE: "here"
---
You research {{PLACE}}.
"""


def package() -> bytes:
    skill = Skill(name="look", description="Looks.", instructions="Look.", tools=())
    prompt = PromptDefinition(
        name="p", prompt="x", model="openai:m", skills=[skill], env={"A": "b"},
        provider_options={"seed": 1},
    )  # fmt: skip
    lead = AgentDefinition(name="lead", side_a=SideConfig(prompt=prompt), title="Lead")
    return pack(Definitions([lead]), "lead")


@pytest.mark.spec("G-04")
def test_a_package_with_any_value_replaced_is_loaded_or_refused_with_its_path() -> None:
    chance = random.Random(9)
    data = package()
    whole = json.loads(data)
    refused = 0
    for number in range(scale(600, 40_000)):
        match number % 4:
            case 0:
                bad = data[: chance.randrange(len(data))]
            case 1 if number % 8 == 1:
                bad = chance.choice(TEXTS)
            case _:
                bad = json.dumps(mutated(chance, whole)).encode()
        try:
            unpack(bad, tools=())
        except DefinitionError as error:
            problems = error.problems
        else:
            continue
        refused += 1
        assert problems and all(len(each) < 1_000 for each in problems)
    assert refused > scale(600, 40_000) // 3


@pytest.mark.spec("G-04")
def test_a_skill_of_any_bytes_is_loaded_or_refused_with_its_file(tmp_path: Path) -> None:
    chance = random.Random(10)
    file = tmp_path / "research.md"
    lines = SKILL.splitlines(keepends=True)
    for number in range(scale(200, 10_000)):
        bad = list(lines)
        at = chance.randrange(len(bad))
        match number % 3:
            case 0:
                bad[at] = chance.choice(TEXTS) + b"\n"
            case 1:
                key = bad[at].partition(b":")[0]
                value = chance.choice(("null", "[]", "{}", "2e9", "../x", "- [", "&a *a", "!!x 1"))
                bad[at] = key + b": " + value.encode() + b"\n"
            case _:
                bad = [b"".join(bad)[: chance.randrange(len(SKILL))]]
        file.write_bytes(b"".join(bad))
        try:
            load_skills(tmp_path)
        except BadSkills as error:
            problems = error.problems
        else:
            continue
        assert all(each.startswith("research.md: ") for each in problems)
