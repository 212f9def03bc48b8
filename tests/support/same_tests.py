"""Tests of what holds over restarts and crashes on a store in a folder, run on PostgreSQL too.

They are the same tests, collected again: each folder that they open as a store is a schema, and
``kill -9``, which leaves the folder as it is at that moment, drops what is not written yet.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest

from hubbub.runtime.stores import open as opening
from hubbub.runtime.stores.postgres import store as stores
from hubbub.runtime.stores.postgres.server import address as addresses
from hubbub.runtime.stores.postgres.store import PostgresStore
from support.postgres import Server
from support.restarts import Lives

__all__ = ["ELSEWHERE", "FILES", "SameFile", "have_stores_in", "kept"]

TESTS: Final = Path(__file__).parents[1]

FILES: Final = (
    "runtime/activities/test_content_parts", "runtime/activities/test_files",
    "runtime/activities/test_late_listeners", "runtime/activities/test_partial_answers",
    "runtime/activities/test_parts_in_code", "runtime/activities/test_plain_tools",
    "runtime/finding/test_finding", "runtime/kernel/test_identities",
    "runtime/kernel/test_recent_threads", "runtime/runs/test_asked_turns",
    "runtime/runs/test_compaction", "runtime/runs/test_concurrent_code",
    "runtime/runs/test_durable_summaries", "runtime/runs/test_keyed_starts",
    "runtime/runs/test_named_files", "runtime/runs/test_racing_endings",
    "runtime/runs/test_seeded_runs", "runtime/runs/test_takeover_corners",
    "runtime/runs/test_takeover_machine", "runtime/supervision/test_changed_definitions",
    "runtime/supervision/test_clocks_set_back", "runtime/supervision/test_late_answers",
    "runtime/supervision/test_approval_crash", "runtime/supervision/test_endings_without_room",
    "runtime/supervision/test_headless_crash", "runtime/supervision/test_loop_deaths",
    "runtime/supervision/test_question_crash", "runtime/supervision/test_restarts",
    "runtime/supervision/test_restoring", "runtime/supervision/test_takeover_crash",
    "runtime/supervision/test_takeover_stores", "runtime/supervision/test_recorded_journals",
    "runtime/schedules/test_schedules",
)  # fmt: skip
"""Without the suffix, of ``tests``."""

IN_FILE: Final = "it changes or reads the tables by sqlite3"
BLOBS: Final = "it changes or reads the contents in blobs/"
BESIDE: Final = "it reads the folders of agents in agents/, which follow a store in a folder alone"

COPIED: Final = "a database is copied by its own means, and a backup says so"
COPIES: Final = "it goes on with an older copy of the folder"
SEVERAL: Final = (
    "another process on the store may know the agent: nothing is refused, none forgotten"
)

ELSEWHERE: Final = {
    "test_a_content_that_is_gone_is_not_shown_and_the_run_goes_on": BLOBS,
    "test_a_content_that_is_gone_is_said_to_be": BLOBS,
    "test_a_cursor_that_an_older_copy_of_the_store_never_had_begins_with_a_gap": COPIES,
    "test_a_backup_has_what_waits": COPIED,
    "test_a_damaged_conversation_keeps_no_other_from_being_listed": IN_FILE,
    "test_a_damaged_inbox_inherits_and_lends_nothing_and_keeps_no_frame_from_ending": IN_FILE,
    "test_a_damaged_record_of_what_was_lent_is_one_problem": IN_FILE,
    "test_a_deferred_child_is_booted_once_after_a_restart_and_values_stand_nowhere": IN_FILE,
    "test_a_message_is_on_record_with_its_contents_or_not_at_all": BLOBS,
    "test_a_name_that_is_too_long_in_bytes_is_refused_and_an_older_one_is_no_damage": BESIDE,
    "test_a_page_is_found_by_an_index_also_in_a_store_of_before": IN_FILE,
    "test_a_run_s_own_values_survive_and_go_with_its_end": IN_FILE,
    "test_agents_of_a_new_runtime_take_the_place_of_the_last_ones": SEVERAL,
    "test_an_area_of_an_older_version_that_has_both_is_sound": BESIDE,
    "test_an_hour_is_an_hour_whoever_was_there": IN_FILE,
    "test_contents_stand_beside_the_journal": BLOBS,
    "test_it_is_the_same_over_the_disk": SEVERAL,
    "test_it_outlives_a_restart_and_stands_in_what_people_read": BESIDE,
    "test_no_second_agent_of_a_descriptor_comes_in_from_outside": BESIDE,
    "test_stored_keys_and_descriptors_keep_their_meaning": IN_FILE,
    "test_the_agents_folder_shows_the_history_and_brings_it_back": BESIDE,
    "test_what_is_wrong_with_lent_and_moved_items_is_found": IN_FILE,
    "test_what_is_kept_of_a_conversation_does_not_grow_with_it": BESIDE,
}
"""Tests that are not run on a database, and why."""

WORDS: Final = ("sqlite", "lives", "Lives", "World", "fill_stack")
"""What is said where a test opens a store in a folder."""


class SameFile(pytest.File):
    """The tests of ``FILES``, once more."""

    def collect(self) -> Iterator[pytest.Module]:
        for name in FILES:
            path = TESTS / f"{name}.py"
            nodeid = f"{self.nodeid}::{path.stem}"
            module = pytest.Module.from_parent(self, path=path, nodeid=nodeid)
            module.add_marker(pytest.mark.long)
            yield module


def is_same(item: pytest.Item) -> bool:
    """Whether a test is of ``FILES``, and collected once more."""
    return any(isinstance(node, SameFile) for node in item.listchain())


def kept(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Of these tests those that open a store in a folder: one row of each, on one of the loops,
    left in order and killed."""
    rows: dict[tuple[Any, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        assert isinstance(item, pytest.Function)
        values = getattr(item, "callspec", None)
        parameters = values.params if values is not None else {}
        if item.originalname in ELSEWHERE or not _is_on_disk(item, parameters):
            continue
        ends = tuple(x for x in ("left", "killed") if x in item.name)
        rows[item.path, item.originalname, ends].append(item)
    # Rows differ in what agents do; those of asyncio come first.
    return [some[-(crc32(some[0].name.encode()) % 2)] for some in rows.values()]


def _is_on_disk(item: pytest.Function, parameters: dict[str, Any]) -> bool:
    texts = {x for x in parameters.values() if isinstance(x, str)}
    if texts & {"memory", "late", "later", "journal"}:
        return False
    if texts & {"sqlite", "left", "killed"}:
        return True
    code = item.function.__code__
    names = {*code.co_names, *code.co_varnames, *map(str, _constants(code))}
    return any(word in name for name in names for word in WORDS)


def _constants(code: Any) -> Iterator[Any]:
    for each in code.co_consts:
        if hasattr(each, "co_consts"):
            yield from (*each.co_names, *_constants(each))
        else:
            yield each


def have_stores_in(server: Server, module: Any, patch: pytest.MonkeyPatch) -> None:
    """Have ``module``, and what it uses, find a schema where it names a folder."""
    made, text_of = addresses.PostgresAddress, _address_in(server)

    def address(text: str) -> Any:
        return made(text_of(text) if text.startswith("sqlite:") else text)

    def store(folder: Any, *, ports: Any = None, **_: Any) -> PostgresStore:
        return PostgresStore(text_of(f"sqlite:{folder}"), ports=ports)

    patch.setattr(opening, "POSTGRES", ("postgresql:", "postgres:", "sqlite:"))
    patch.setattr(addresses, "PostgresAddress", address)
    patch.setattr(stores, "PostgresAddress", address)
    support = [x for name, x in sys.modules.items() if name.startswith("support.")]
    for each in (module, opening, *support):
        for name in ("sqlite_store", "SqliteStore"):
            if hasattr(each, name):
                patch.setattr(each, name, store)
        if hasattr(each, "portion"):  # Which place is tried, SQLite's tests vary.
            patch.setattr(each, "portion", _some)
    patch.setattr(Lives, "folder", property(lambda lives: lives._place / "store"))
    patch.setattr(Lives, "copy", lambda lives: lives.store.forget_submitted())


def _address_in(server: Server) -> Any:
    def address(text: str) -> str:
        folder = Path(text.removeprefix("sqlite:")).absolute()
        return server.dsn(f"of_{sha256(str(folder).encode()).hexdigest()[:20]}")

    return address


def _some(places: Sequence[Any]) -> Sequence[Any]:
    return [*places][::8]
