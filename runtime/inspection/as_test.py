"""A run as a regression test: a pytest file beside the recording that it plays again.

    test_chat_9f3b21aa.py        one test: what was said is said again, each run does the same
    test_chat_9f3b21aa.jsonl     the run and everything below it, as ``hubbub export`` writes it

The test is source that a person may read and change.  It holds no words of the run and, as the
recording, no values of secrets.  ``hubbub.runtime.simulation.playback`` plays it.
"""

import os
import re
import sys
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from hubbub.agents.resolution.reached import with_reached
from hubbub.agents.state.bases import base_behind_gap
from hubbub.hub.errors import OperatorError, UnknownRun
from hubbub.hub.store.reader import StoreReader, own_lane
from hubbub.runtime.loading.agents import load_agents
from hubbub.runtime.stores.exchange.export import export_run

__all__ = ["RecordedTest", "recorded_test"]

_TEXT: Final = '''\
"""Run {run_id} of {agent}, as it went.

Written by ``hubbub export --as-test``.  What was said to it is said again, at the same times, to
{whose}.

Compared is what each run does: texts and questions, calls of tools with their arguments and
answers, children with their modes, takeovers, what sessions and runs come to.  Ids, times, usage
and the words of prompts may change.
"""

from pathlib import Path

from hubbub.runtime.simulation.playback.play import replay_recording

RECORDING = Path(__file__).with_name({recording!r})
{folder}

def test_{name}_does_what_it_did() -> None:
    replay_recording({arguments}).check()
'''
_OWN: Final = """the agents of {agents}.  No model is asked and NO TOOL IS CALLED: they answer as
they did.  Tools without effects outside may be called for real; name them:
``real_tools=["look_up"]``.  Functions of code agents do run, and their steps (``ctx.step``)"""
_STAND_INS: Final = """stand-ins made from the recording.  No model is asked and no tool is called:
they answer as they did.  To test your own agents, name them, and where their module lies:
``replay_recording(RECORDING, "MODULE:AGENT", folder=Path(__file__).parent)``"""


class RecordedTest(Struct, frozen=True):
    """Both files: where they go, and their lines.  Nothing has been written yet."""

    path: Path
    recording: Path
    text: str
    lines: Generator[bytes, None, None]


def recorded_test(
    store: StoreReader,
    run_id: str,
    *,
    agents: str | None = None,
    out: Path | None = None,
    contents: bool = True,
) -> RecordedTest:
    """A regression test of a run and everything below it.

    The test asks no model and calls no tool.  ``agents`` is ``MODULE:AGENT``, whose agents are
    tested; it is loaded, so that what is wrong shows now.  Raises ``OperatorError`` for a run that
    another one began, for one whose old turns have gone, for agents that are not there, and for a
    file that is no ``.py`` or has no folder.
    """
    row = store.row(run_id)
    if row is None:
        raise UnknownRun(run_id)
    agent = row.agent
    if row.parent_run_id is not None:
        began = "another run began it; make a test of its root"
        raise OperatorError(f"run {run_id}: {began}, {row.root_run_id}")
    _check_whole(store, {run_id: None} | {each.run_id: None for each in store.tree(run_id)})
    if agents is not None:
        if not agents.strip():
            raise OperatorError("--agents: write MODULE:AGENT, for example my_agents:assistant")
        _check_agents(agents, (each.agent for each in store.tree(run_id)))
    name = f"{_identifier(agent)}_{_identifier(run_id[-8:])}"
    path = Path(f"test_{name}.py") if out is None else out
    if path.suffix != ".py":
        raise OperatorError(f"--out {path}: a test is a Python file; name one that ends in .py")
    if not path.parent.is_dir():
        raise OperatorError(f"--out {path}: there is no folder {path.parent}; make it first")
    recording = path.with_suffix(".jsonl")
    folder = "" if agents is None else _folder_line(agents, path)
    arguments = "RECORDING" if agents is None else f"RECORDING, {agents!r}"
    text = _TEXT.format(
        run_id=run_id, agent=agent, name=name, recording=recording.name, folder=folder,
        arguments=f"{arguments}, folder=FOLDER" if folder else arguments,
        whose=_STAND_INS if agents is None else _OWN.format(agents=agents),
    )  # fmt: skip
    return RecordedTest(path, recording, text, export_run(store, run_id, contents=contents))


def _check_whole(store: StoreReader, run_ids: Iterable[str]) -> None:
    for run_id in run_ids:
        if base_behind_gap(own_lane(store, run_id)):
            gone = "its old turns have gone, and nothing plays the others without them"
            raise OperatorError(f"run {run_id}: {gone}; import an export that has them, elsewhere")


def _folder_line(agents: str, test: Path) -> str:
    """Where the module of ``MODULE:AGENT`` lies, as the test finds it from wherever it is run."""
    name = agents.partition(":")[0]
    found = sys.modules[name].__file__
    if found is None or {"site-packages", "dist-packages"} & {*Path(found).parts}:
        return ""
    above = name.count(".") + (Path(found).stem == "__init__")
    way = os.path.relpath(Path(found).resolve().parents[above], test.resolve().parent)
    below = "" if way == "." else f" / {Path(way).as_posix()!r}"
    return f"FOLDER = Path(__file__).parent{below}\n"


def _check_agents(agents: str, wanted: Iterable[str]) -> None:
    loaded = load_agents(agents)
    prompts = {each.name: each for each in loaded.prompts}
    reached = with_reached({each.name: each for each in loaded.agents}, prompts, [])
    known = {*reached} | {x.agent_name for x in loaded.skills}
    missing = sorted(name for name in set(wanted) - known if not name.startswith("skill:"))
    if missing:
        raise OperatorError(
            f"--agents {agents}: the run also used {', '.join(missing)}; name a module that has "
            "all of them, or leave --agents out for stand-ins"
        )


def _identifier(text: str) -> str:
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "run"
