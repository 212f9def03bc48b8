"""The commands over a store: ``hubbub conversations | runs | show | tail | export | replay | …``.

Plain functions for cyclopts.  They print, and report progress, through ``CommandScreen``;
errors are raised, and the command line prints each as one line.
"""

from collections.abc import Callable, Mapping

from hubbub.runtime.cli.care_commands import backup_command, fsck_command
from hubbub.runtime.cli.compact_command import compact_command
from hubbub.runtime.cli.conversations_command import conversations_command
from hubbub.runtime.cli.diff_command import diff_command
from hubbub.runtime.cli.export_commands import export_command, import_command
from hubbub.runtime.cli.fork_command import fork_command
from hubbub.runtime.cli.look_commands import (
    replay_command,
    runs_command,
    schedules_command,
    show_command,
    tail_command,
)
from hubbub.runtime.cli.migrate_command import migrate_command
from hubbub.runtime.cli.printing import CommandScreen
from hubbub.runtime.cli.prune_command import prune_command
from hubbub.runtime.cli.reply_command import reply_command
from hubbub.runtime.cli.vacuum_command import vacuum_command
from hubbub.runtime.cli.workers_command import workers_command

__all__ = ["store_commands"]


def store_commands(screen: CommandScreen) -> Mapping[str, Callable[..., int]]:
    """The commands by name, in the order in which help lists them."""
    write, notice = screen.write, screen.notice
    return {
        "conversations": conversations_command(write),
        "runs": runs_command(write, notice),
        "show": show_command(write),
        "tail": tail_command(write, screen.loop),
        "replay": replay_command(write),
        "diff": diff_command(write),
        "fork": fork_command(screen),
        "schedules": schedules_command(write),
        "workers": workers_command(write),
        "reply": reply_command(screen),
        "compact": compact_command(screen),
        "export": export_command(write, notice),
        "import": import_command(write),
        "migrate": migrate_command(write, notice),
        "prune": prune_command(write, notice),
        "vacuum": vacuum_command(write, notice),
        "backup": backup_command(write, notice),
        "fsck": fsck_command(write, notice),
    }
