"""Skills that are written while others are."""

from pathlib import Path

import pytest

from hubbub.runtime.loading import write_skill
from hubbub.runtime.loading.skills import load_skills
from hubbub.runtime.loading.write_skill import SkillFolder


def test_two_calls_that_write_one_skill_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = SkillFolder(folder=tmp_path / "skills")
    second = iter([True])

    def put(*arguments: object) -> None:
        if next(second, False):  # While one is being written, there comes another.
            assert write_skill._write(shelf, draft("second")).startswith("wrote ")
        original(*arguments)  # type: ignore[arg-type]

    original = write_skill._put
    monkeypatch.setattr(write_skill, "_put", put)
    assert write_skill._write(shelf, draft("first")).startswith("wrote ")
    assert [skill.description for skill in load_skills(tmp_path / "skills")] == ["first"]
    assert [x.name for x in (tmp_path / "skills").iterdir()] == ["say.md"], "nothing is left over"


def draft(description: str) -> write_skill._Draft:
    return write_skill._Draft(
        name="say", description=description, instructions="Say it.", tools=(), replace=True
    )
