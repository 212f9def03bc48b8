"""A run as a regression test: a pytest file beside the recording that it plays again.

    test_chat_9f3b21aa.py        one test: what was said is said again, the same texts come
    test_chat_9f3b21aa.jsonl     the run and everything below it, as ``hubbub export`` writes it

The test is source that a person may read and change.  It holds no words of the run and, as the
recording, no values of secrets.  ``hubbub.runtime.simulation.playback`` plays it.
"""

import re
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from hubbub.hub.errors import OperatorError
from hubbub.runtime.load_agent import load_agents
from hubbub.runtime.run_export import export_run
from hubbub.runtime.store_file import BY_ID, StoreFile

__all__ = ["RecordedTest", "recorded_test"]

_TEXT: Final = '''\
"""Run {run_id} of {agent}, as it went.

Written by ``hubbub export --as-test``.  What was said to it is said again, at the same times; its
models and tools answer as they did.  {with_whom}
"""

from pathlib import Path

from hubbub.runtime.simulation.playback import replay_recording

RECORDING = Path(__file__).with_name({recording!r})


def test_{name}_says_what_it_said() -> None:
    playback = replay_recording({arguments})
    assert playback.replayed == playback.recorded
'''
_OWN: Final = "The agents are those of {agents}."
_STAND_INS: Final = (
    "The agents are stand-ins\nmade from the recording; to test your own, name them: "
    'replay_recording(RECORDING, "MODULE:AGENT").'
)


class RecordedTest(Struct, frozen=True):
    """Both files: where they go, and their lines.  Nothing has been written yet."""

    path: Path
    recording: Path
    text: str
    lines: Generator[bytes, None, None]


def recorded_test(
    store: StoreFile,
    run_id: str,
    *,
    agents: str | None = None,
    out: Path | None = None,
    contents: bool = True,
) -> RecordedTest:
    """A regression test of a run and everything below it.

    ``agents`` is ``MODULE:AGENT``, whose agents are tested; it is loaded, so that what is wrong
    shows now.  Raises ``OperatorError`` for a run that another one began, for agents that are not
    there, and for a file that is no ``.py``.
    """
    agent, root, parent = store.db.execute(
        f"SELECT agent, root_run_id, parent_run_id FROM run WHERE {BY_ID}", (run_id,)
    ).fetchone()
    if parent is not None:
        raise OperatorError(f"run {run_id}: another run began it; make a test of its root, {root}")
    if agents is not None:
        _check_agents(agents, _agents_of(store, run_id))
    name = f"{_identifier(agent)}_{_identifier(run_id[-8:])}"
    path = Path(f"test_{name}.py") if out is None else out
    if path.suffix != ".py":
        raise OperatorError(f"--out {path}: a test is a Python file; name one that ends in .py")
    recording = path.with_suffix(".jsonl")
    arguments = "RECORDING" if agents is None else f"RECORDING, {agents!r}"
    text = _TEXT.format(
        run_id=run_id, agent=agent, name=name, recording=recording.name, arguments=arguments,
        with_whom=_STAND_INS if agents is None else _OWN.format(agents=agents),
    )  # fmt: skip
    return RecordedTest(path, recording, text, export_run(store, run_id, contents=contents))


def _agents_of(store: StoreFile, root: str) -> Iterator[str]:
    rows = store.db.execute("SELECT DISTINCT agent FROM run WHERE root_run_id = ?", (root,))
    return (agent for (agent,) in rows)


def _check_agents(agents: str, wanted: Iterable[str]) -> None:
    loaded = load_agents(agents)
    known = {each.name for each in loaded.agents} | {x.agent_name for x in loaded.skills}
    missing = sorted(name for name in set(wanted) - known if not name.startswith("skill:"))
    if missing:
        raise OperatorError(
            f"--agents {agents}: the run also used {', '.join(missing)}; name a module that has "
            "all of them, or leave --agents out for stand-ins"
        )


def _identifier(text: str) -> str:
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "run"
