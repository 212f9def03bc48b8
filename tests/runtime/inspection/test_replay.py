"""The state of a run at any point of its life is that of the live run (P-11)."""

from pathlib import Path

import pytest
from support.lane_states import state_after
from support.stores import fill

from hubbub.agents.code.lifecycle import CodeThread, fold_code
from hubbub.agents.state.thread import Thread
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.reader import events_in
from hubbub.hub.values import decode_value
from hubbub.runtime.inspection.replay import NoSuchRecord, replay
from hubbub.runtime.runs.model_run import ModelRun
from hubbub.runtime.stores.open import open_reader

pytestmark = pytest.mark.anyio


@pytest.mark.spec("P-11")
async def test_state_after_any_commit_is_what_the_live_run_had(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    live: dict[tuple[str, int], Thread] = {}
    keep = ModelRun._fold

    def fold(self: ModelRun, commit: Commit) -> None:
        keep(self, commit)
        live[self.lane.run_id, self.lane.seq] = self.thread

    monkeypatch.setattr(ModelRun, "_fold", fold)
    runs = await fill(tmp_path / "store", ports)
    assert len([key for key in live if key[0] == runs.chat]) > 5
    with open_reader(f"sqlite:{tmp_path / 'store'}") as store:
        for (run_id, seq), thread in live.items():
            own = [x.event for x in events_in(store, run_id) if x.event.lane == "own"]
            assert state_after(own[:seq]) == thread
            shown = replay(store, run_id, seq)
            assert (shown.kind or "model", shown.seq) == ("model", seq)
            assert shown.conversation == thread.transcript
            assert {ref.path: ref for ref in shown.files} == thread.area.files
            assert shown.keys == {key: decode_value(x) for key, x in thread.area.keys.items()}
            assert (shown.phase, shown.session, shown.turn, shown.step) == (
                thread.phase, thread.session, thread.turn, thread.step,
            )  # fmt: skip


@pytest.mark.spec("P-11")
async def test_state_of_a_code_agent_is_what_the_live_run_had(tmp_path: Path, ports: Ports) -> None:
    runs = await fill(tmp_path / "store", ports)
    with open_reader(f"sqlite:{tmp_path / 'store'}") as store:
        own = [x.event for x in events_in(store, runs.parent) if x.event.lane == "own"]
        thread = CodeThread()
        for count, event in enumerate(own, 1):
            thread = fold_code(thread, event)
            if count > 1:
                assert state_after(own[:count]) == thread
        shown = replay(store, runs.parent)
        assert (shown.kind, shown.phase, shown.seq) == ("code", "live", len(own))
        assert shown.children == (runs.child,)
        assert [ref.path for ref in shown.files] == ["plan.md"]


async def test_the_end_is_the_default_and_nothing_is_before_the_first_record(
    tmp_path: Path, ports: Ports
) -> None:
    runs = await fill(tmp_path / "store", ports)
    with open_reader(f"sqlite:{tmp_path / 'store'}") as store:
        last = replay(store, runs.done)
        assert last.phase == "ended"
        assert replay(store, runs.done, last.seq) == last
        first = replay(store, runs.done, 0)
        assert (first.phase, first.seq, first.conversation) == ("new", 0, ())
        for until in (-1, last.seq + 1):
            with pytest.raises(NoSuchRecord, match=f"they go from 1 to {last.seq}"):
                replay(store, runs.done, until)
