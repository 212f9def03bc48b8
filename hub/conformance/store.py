"""What a store does beside its journal: secrets, contents of files, and being released.

Part of ``hub/conformance/journal.py``.  A store without a place for secrets or contents says so
with ``None``, and the ports of the program keep them.
"""

from hashlib import sha256
from typing import Final

from hubbub.hub.conformance.steps import (
    A_RUN,
    B_RUN,
    Check,
    MakeJournal,
    commit_of,
    open_journal,
    open_run,
)
from hubbub.hub.events import CustomEvent
from hubbub.hub.store.journal import Commit

__all__ = ["STORE_CHECKS"]


async def check_secrets_are_kept_by_key(make_journal: MakeJournal) -> None:
    """The first value of ``put_if_absent`` stays, ``put`` replaces, ``drop`` goes by prefix."""
    async with open_journal(make_journal) as store:
        kept = store.secrets
        if kept is None:
            return
        assert kept.put_if_absent(f"{A_RUN}/KEY", "one")
        assert not kept.put_if_absent(f"{A_RUN}/KEY", "two")
        assert kept.get(f"{A_RUN}/KEY") == "one"
        kept.put(f"{A_RUN}/KEY", "three")
        kept.put(f"{B_RUN}/KEY", "another's")
        assert kept.get(f"{A_RUN}/KEY") == "three"
        assert set(kept.keys(f"{A_RUN}/")) == {f"{A_RUN}/KEY"}
        kept.drop(f"{A_RUN}/")
        await commit_of(store, Commit(events=(CustomEvent.of("test:kept"),)))
        assert kept.get(f"{A_RUN}/KEY") is None
        assert kept.keys("") == (f"{B_RUN}/KEY",)


async def check_contents_are_kept_by_digest(make_journal: MakeJournal) -> None:
    """A content comes back as it was put, and what was never put is ``None``."""
    async with open_journal(make_journal) as store:
        blobs = store.blobs
        if blobs is None:
            return
        content = b"\x00content\xff"
        digest = sha256(content).hexdigest()
        for _ in range(2):
            await blobs.put(A_RUN, digest, content)
            assert await blobs.get(A_RUN, digest) == content
        assert await blobs.get(A_RUN, sha256(b"never put").hexdigest()) is None


async def check_what_is_forgotten_is_not_told(make_journal: MakeJournal) -> None:
    """After ``forget_submitted`` each commit was written and told, or neither; closing ends."""
    store = make_journal()
    await store.open()
    told: list[Commit] = []
    try:
        await open_run(store, A_RUN)
        for number in range(3):
            commit = Commit(events=(CustomEvent.of("test:late", n=number),))
            commit.done = told.append
            store.submit(commit)
        store.forget_submitted()
        at_once = len(told)
        await store.flush()
        assert all(commit.written and not commit.error for commit in told[:at_once])
    finally:
        await store.aclose()
    assert len(told) == at_once


async def check_expected_notes(make_journal: MakeJournal) -> None:
    """A commit that expects another note than there is is a conflict, whole; of one batch, too."""
    async with open_journal(make_journal) as store:
        first = Commit(notes={"a": "1"}, notes_expect={"a": ""})
        assert not (await commit_of(store, first)).error
        told: list[tuple[str, str]] = []
        for text, expected in (("2", "1"), ("3", "1"), ("4", "2"), ("5", "")):
            event = CustomEvent.of("test:noted", text=text)
            commit = Commit(events=(event,), notes={"a": text}, notes_expect={"a": expected})
            commit.done = lambda commit, text=text: told.append((text, commit.error))
            store.submit(commit)
        await store.flush()
        assert told == [("2", ""), ("3", "conflict"), ("4", ""), ("5", "conflict")]
        assert (await store.notes())["a"] == "4"
        assert store.tip == 2
        several = Commit(notes={"a": "6"}, notes_expect={"a": "4", "b": "somebody's"})
        assert (await commit_of(store, several)).error == "conflict"


STORE_CHECKS: Final[tuple[Check, ...]] = (
    check_secrets_are_kept_by_key,
    check_contents_are_kept_by_digest,
    check_what_is_forgotten_is_not_told,
    check_expected_notes,
)
