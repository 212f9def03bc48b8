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

__all__ = ["ELSEWHERE", "FILES", "SameFile", "have_stores_in", "kept"]

TESTS: Final = Path(__file__).parents[1]

FILES: Final = (
    "attacks/test_clocks", "attacks/test_prompts", "attacks/test_sent_items",
    "channels/http/openai/test_placing", "channels/http/openai/test_resuming",
    "channels/http/test_repeating", "channels/test_kept_places",
    "runtime/activities/test_content_parts", "runtime/activities/test_files",
    "runtime/activities/test_late_listeners", "runtime/activities/test_partial_answers",
    "runtime/activities/test_parts_in_code", "runtime/activities/test_plain_tools",
    "runtime/activities/test_questions", "runtime/finding/test_finding",
    "runtime/kernel/test_identities", "runtime/remembered/test_recent_threads",
    "runtime/removal/test_cut_steps", "runtime/removal/test_old_turns",
    "runtime/removal/test_old_turns_of_kinds", "runtime/removal/test_old_turns_of_parents",
    "runtime/removal/test_old_turns_of_takeovers", "runtime/removal/test_waiting_at_bases",
    "runtime/removal/test_passes", "runtime/removal/test_races", "runtime/removal/test_whole_trees",
    "runtime/mcp/test_mcp_restarts", "runtime/runs/test_asked_turns",
    "runtime/runs/test_compaction", "runtime/runs/test_concurrent_code",
    "runtime/runs/test_durable_summaries", "runtime/runs/test_keyed_starts",
    "runtime/runs/test_long_code", "runtime/runs/test_named_files",
    "runtime/runs/test_open_prompts",
    "runtime/runs/test_racing_endings", "runtime/runs/test_seeded_runs",
    "runtime/runs/test_takeover_corners", "runtime/runs/test_takeover_machine",
    "runtime/runs/test_wait_cycles", "runtime/schedules/test_schedules",
    "runtime/stores/test_imports_in_any_order", "runtime/supervision/test_agent_types",
    "runtime/supervision/test_approval_crash", "runtime/supervision/test_changed_definitions",
    "runtime/supervision/test_clocks_set_back", "runtime/supervision/test_endings_without_room",
    "runtime/supervision/test_headless_crash", "runtime/supervision/test_late_answers",
    "runtime/supervision/test_loop_deaths", "runtime/supervision/test_question_crash",
    "runtime/supervision/test_recorded_journals", "runtime/supervision/test_restarts",
    "runtime/supervision/test_restoring", "runtime/supervision/test_takeover_crash",
    "runtime/supervision/test_takeover_stores",
)  # fmt: skip
"""Without the suffix, of ``tests``."""

IN_FILE: Final = "it changes or reads the tables by sqlite3"
BLOBS: Final = "it changes or reads the contents in blobs/"
BESIDE: Final = "it reads the folders of agents in agents/, which follow a store in a folder alone"

COPIED: Final = "a database is copied by its own means, and a backup says so"
COPIES: Final = "it goes on with an older copy of the folder"
CLAIMED: Final = "what is only to end is claimed in the server's time: test_unknown_agents"
SEVERAL: Final = "another process on the store may know the agent: nothing is refused"

CONTENTS: Final = "contents of files go from a database at rest alone"
POSITIONS: Final = "a database counts positions in a row of its own; a day of passes takes minutes"

SENT: Final = (
    "the run may be another process's by now: its inbox takes the reply, which counts there"
)
LONG: Final = "what is attacked is no store; on a server it takes a minute"
IN_FOLDER: Final = "it copies the folder of a store; test_old_turns has the same on a server"
REFUSED: Final = "it is refused before any store is opened"
IN_MEMORY: Final = "its store is in memory"

ELSEWHERE: Final = {
    "test_a_backup_has_what_waits": COPIED,
    "test_a_child_alone_comes_back_below_a_parent_that_was_cut": BESIDE,
    "test_a_child_that_comes_back_without_its_parent_is_a_root_that_reports_to_nobody": BESIDE,
    "test_a_child_that_its_parent_does_not_know_is_damage": IN_FILE,
    "test_a_child_waits_for_its_broken_parent_and_tells_it_when_that_is_back": BESIDE,
    "test_a_child_whose_parent_is_nowhere_goes_on_alone": BESIDE,
    "test_a_content_that_is_gone_is_not_shown_and_the_run_goes_on": BLOBS,
    "test_a_content_that_is_gone_is_said_to_be": BLOBS,
    "test_a_conversation_rests_though_an_agents_word_waits_for_the_main_agent": IN_MEMORY,
    "test_a_cron_agent_speaks_to_whom_the_user_spoke_to_last_or_hears_that_nobody_is_there": BESIDE,
    "test_a_cursor_that_an_older_copy_of_the_store_never_had_begins_with_a_gap": COPIES,
    "test_a_damaged_conversation_keeps_no_other_from_being_listed": IN_FILE,
    "test_a_damaged_inbox_inherits_and_lends_nothing_and_keeps_no_frame_from_ending": IN_FILE,
    "test_a_damaged_record_of_what_was_lent_is_one_problem": IN_FILE,
    "test_a_deferred_child_is_booted_once_after_a_restart_and_values_stand_nowhere": IN_FILE,
    "test_a_descriptor_is_written_once": BESIDE,
    "test_a_folder_from_elsewhere_is_adopted_and_its_user_goes_on": BESIDE,
    "test_a_folder_that_a_kill_left_behind_the_database_is_made_up_for": BESIDE,
    "test_a_folder_that_is_written_again_has_what_is_left": BESIDE,
    "test_a_folder_that_is_written_again_tells_what_is_left": BESIDE,
    "test_a_folder_whose_key_is_taken_waits_until_that_run_is_over": BESIDE,
    "test_a_frame_that_only_waits_leaves_memory_with_its_mail": IN_MEMORY,
    "test_a_headless_frames_text_is_its_result_whatever_came_meanwhile": IN_MEMORY,
    "test_a_key_is_a_text_and_given_once_unless_its_call_came_to_nothing": IN_MEMORY,
    "test_a_message_is_on_record_with_its_contents_or_not_at_all": BLOBS,
    "test_a_name_that_is_too_long_in_bytes_is_refused_and_an_older_one_is_no_damage": BESIDE,
    "test_a_page_is_found_by_an_index_also_in_a_store_of_before": IN_FILE,
    "test_a_question_that_was_given_up_is_asked_again": IN_MEMORY,
    "test_a_reply_to_a_prompt_of_a_process_that_died_is_answered_with_what_became_of_it": SENT,
    "test_a_run_s_own_values_survive_and_go_with_its_end": IN_FILE,
    "test_a_subagent_speaks_to_its_parent": BESIDE,
    "test_a_word_is_obeyed_by_a_root_that_had_left_memory": IN_MEMORY,
    "test_adopting_an_older_conversation_makes_it_not_the_most_recent": BESIDE,
    "test_an_area_of_an_older_version_that_has_both_is_sound": BESIDE,
    "test_an_hour_is_an_hour_whoever_was_there": IN_FILE,
    "test_an_item_is_refused_or_its_store_stays_in_order": LONG,
    "test_an_opening_that_names_no_agent_is_the_default_agent_s": BESIDE,
    "test_contents_of_turns_that_have_gone_stay_with_their_run_also_when_a_store_is_pruned": BESIDE,
    "test_contents_stand_beside_the_journal": BLOBS,
    "test_context_is_rebuilt_after_the_latest_reset": BESIDE,
    "test_damage_to_what_is_still_told_is_found_and_mended_and_what_has_gone_stays": BESIDE,
    "test_first_messages_that_come_at_once_make_one_agent": BESIDE,
    "test_folders_bring_the_children_back_below_their_parent": BESIDE,
    "test_folders_keep_what_goes_step_by_step": BESIDE,
    "test_folders_keep_what_has_gone_and_bring_it_back": BESIDE,
    "test_it_comes_to_the_same_with_and_without_its_old_turns": BESIDE,
    "test_it_is_the_same_over_the_disk": SEVERAL,
    "test_it_outlives_a_restart_and_stands_in_what_people_read": BESIDE,
    "test_its_folder_is_sound_after_each_commit_by_which_turns_go": BESIDE,
    "test_its_folder_keeps_all_that_was_told": BESIDE,
    "test_killed_before_any_step_of_a_cut_the_next_life_goes_on": IN_FOLDER,
    "test_no_second_agent_of_a_descriptor_comes_in_from_outside": BESIDE,
    "test_of_two_folders_with_one_key_the_one_heard_from_last_is_adopted": BESIDE,
    "test_one_damaged_folder_is_reported_the_others_load_and_a_repair_brings_it_back": BESIDE,
    "test_one_whose_agent_is_gone_is_ended_all_the_same": CLAIMED,
    "test_schedules_find_their_agents_again_without_the_database": BESIDE,
    "test_steps_of_one_name_belong_to_one_task_at_a_time": IN_MEMORY,
    "test_stored_keys_and_descriptors_keep_their_meaning": IN_FILE,
    "test_the_agents_folder_shows_the_history_and_brings_it_back": BESIDE,
    "test_the_conversation_is_three_frames_deep": IN_MEMORY,
    "test_the_folders_show_what_was_imported_before_a_runtime_opens": BESIDE,
    "test_the_four_types_stand_on_disk_in_the_seed_s_shapes": BESIDE,
    "test_the_last_event_of_the_store_stays_so_that_no_position_is_used_twice": POSITIONS,
    "test_two_steps_of_one_name_at_once_are_refused_where_a_crash_could_swap_them": IN_MEMORY,
    "test_what_cannot_be_read_leaves_the_run_as_it_is": IN_FILE,
    "test_what_has_gone_and_when_is_told_in_the_process_and_to_who_reads_the_store": CONTENTS,
    "test_what_is_done_at_rest_refuses_it": REFUSED,
    "test_what_is_kept_of_a_conversation_does_not_grow_with_it": BESIDE,
    "test_what_is_missing_at_the_end_is_added": BESIDE,
    "test_what_is_wrong_with_lent_and_moved_items_is_found": IN_FILE,
    "test_what_stands_for_nobody_has_no_descriptor_and_no_folder": BESIDE,
    "test_whatever_becomes_of_its_frames_its_folder_is_sound": BESIDE,
    "test_without_the_database_a_child_at_work_goes_on_and_tells_its_parent": BESIDE,
    "test_without_the_database_a_run_s_time_goes_on": BESIDE,
    "test_without_the_database_every_agent_is_there_as_it_was": BESIDE,
}
"""Tests that are not run on a database, and why."""

WORDS: Final = ("sqlite", "lives", "Lives", "World", "fill_stack")
"""What is said where a test opens a store in a folder."""


class SameFile(pytest.File):
    """The tests of ``FILES``, once more."""

    def collect(self) -> Iterator[pytest.Module]:
        for name in FILES:
            path = TESTS / f"{name}.py"
            if name.startswith("channels/http/test_"):  # The conftest.py there does so, too.
                sys.path.append(str(path.parent))
            nodeid = f"{self.nodeid}::{path.stem}"
            module = pytest.Module.from_parent(self, path=path, nodeid=nodeid)
            module.add_marker(pytest.mark.long)
            module.add_marker(pytest.mark.spec("X-01"))
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


def have_stores_in(server: Server, module: Any, patch: pytest.MonkeyPatch) -> Sequence[str]:
    """Have ``module``, and what it uses, find a schema where it names a folder.

    Returns what will have been found.
    """
    made, text_of = addresses.PostgresAddress, _address_in(server)
    found: list[str] = []

    def address(text: str) -> Any:
        found.append(text)
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
        if hasattr(each, "left_by_kill"):
            patch.setattr(each, "left_by_kill", _left_by_kill)
        if hasattr(each, "portion"):  # Which place is tried, SQLite's tests vary.
            patch.setattr(each, "portion", _some)
    return found


def _address_in(server: Server) -> Any:
    def address(text: str) -> str:
        folder = Path(text.removeprefix("sqlite:")).absolute()
        return server.dsn(f"of_{sha256(str(folder).encode()).hexdigest()[:20]}")

    return address


def _left_by_kill(store: Any, folder: Path, after: Path) -> Path:
    """A schema that is gone on with as it is at this moment."""
    store.forget_submitted()
    return folder


def _some(places: Sequence[Any]) -> Sequence[Any]:
    return [*places][::8]
