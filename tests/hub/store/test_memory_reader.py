"""A memory store is read without going through what is not asked for."""

import pytest

from hubbub import Hub
from hubbub.hub.store.memory import MemoryJournal

pytestmark = pytest.mark.anyio


class Counted(MemoryJournal):
    """Counts the events that are looked at."""

    looked_at = 0

    def _at(self, position):
        self.looked_at += 1
        return super()._at(position)


async def test_events_of_a_run_are_read_without_a_look_at_those_of_others(ports):
    journal = Counted()
    async with Hub(journal=journal, ports=ports) as hub:
        runs = [(await hub.open("agent", n)).run_id for n in range(300)]
        receipts = [hub.send_to_run(runs[7], f"message {n}") for n in range(5)]
        for receipt in receipts:
            await receipt
        reader = journal.reader()
        for backwards in (False, True):
            journal.looked_at = 0
            found = [*reader.event_rows((runs[7],), backwards=backwards)]
            assert (len(found), journal.looked_at) == (6, 6)
        journal.looked_at = 0
        last = next(reader.event_rows((runs[7],), backwards=True))
        assert (last.seq, journal.looked_at) == (6, 1)
