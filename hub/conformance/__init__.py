"""Suites that prove a journal of your own: each check takes one and raises where it is wrong."""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "ADDRESS_CHECKS",
    "A_RUN",
    "B_RUN",
    "CHECKS",
    "C_RUN",
    "DECLARATION_CHECKS",
    "EVERYTHING",
    "INBOX_CHECKS",
    "LEFT_NOTE_CHECKS",
    "PLACEMENT_CHECKS",
    "READER_CHECKS",
    "REMOVAL_CHECKS",
    "SHARED_REMOVAL_CHECKS",
    "SHARING_CHECKS",
    "TAKEOVER_CHECKS",
    "Check",
    "MakeJournal",
    "MakeSharedStore",
    "SharedStore",
    "SharingCheck",
    "commit_of",
    "deliver",
    "identity",
    "info_of",
    "open_journal",
    "open_run",
    "read_all",
    "send",
    "stamp",
    "write",
]

_EXPORTS: Final = {
    "hubbub.hub.conformance.addresses": ("ADDRESS_CHECKS",),
    "hubbub.hub.conformance.declarations": ("DECLARATION_CHECKS",),
    "hubbub.hub.conformance.inbox": ("INBOX_CHECKS",),
    "hubbub.hub.conformance.journal": (
        "CHECKS",
        "Check",
        "MakeJournal",
    ),
    "hubbub.hub.conformance.left_notes": ("LEFT_NOTE_CHECKS",),
    "hubbub.hub.conformance.takeover": ("TAKEOVER_CHECKS",),
    "hubbub.hub.conformance.placement": ("PLACEMENT_CHECKS",),
    "hubbub.hub.conformance.reader": ("READER_CHECKS",),
    "hubbub.hub.conformance.removal": ("REMOVAL_CHECKS", "SHARED_REMOVAL_CHECKS"),
    "hubbub.hub.conformance.sharing": (
        "MakeSharedStore",
        "SHARING_CHECKS",
        "SharedStore",
        "SharingCheck",
    ),
    "hubbub.hub.conformance.steps": (
        "A_RUN",
        "B_RUN",
        "C_RUN",
        "EVERYTHING",
        "commit_of",
        "deliver",
        "identity",
        "info_of",
        "open_journal",
        "open_run",
        "read_all",
        "send",
        "stamp",
        "write",
    ),
}

if TYPE_CHECKING:
    from hubbub.hub.conformance.addresses import (
        ADDRESS_CHECKS,
    )
    from hubbub.hub.conformance.declarations import (
        DECLARATION_CHECKS,
    )
    from hubbub.hub.conformance.inbox import (
        INBOX_CHECKS,
    )
    from hubbub.hub.conformance.journal import (
        CHECKS,
        Check,
        MakeJournal,
    )
    from hubbub.hub.conformance.left_notes import (
        LEFT_NOTE_CHECKS,
    )
    from hubbub.hub.conformance.placement import (
        PLACEMENT_CHECKS,
    )
    from hubbub.hub.conformance.reader import (
        READER_CHECKS,
    )
    from hubbub.hub.conformance.removal import (
        REMOVAL_CHECKS,
        SHARED_REMOVAL_CHECKS,
    )
    from hubbub.hub.conformance.sharing import (
        SHARING_CHECKS,
        MakeSharedStore,
        SharedStore,
        SharingCheck,
    )
    from hubbub.hub.conformance.steps import (
        A_RUN,
        B_RUN,
        C_RUN,
        EVERYTHING,
        commit_of,
        deliver,
        identity,
        info_of,
        open_journal,
        open_run,
        read_all,
        send,
        stamp,
        write,
    )
    from hubbub.hub.conformance.takeover import (
        TAKEOVER_CHECKS,
    )
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
