"""``hubbub conversations``: who talks with whom, and what each conversation waits for."""

from collections.abc import Callable

from hubbub.hub.ports import Ports
from hubbub.runtime.cli.printing import Write, at_least, document, write_all
from hubbub.runtime.stores.open import DEFAULT_STORE, open_reader

__all__ = ["conversations_command"]


def conversations_command(write: Write) -> Callable[..., int]:
    def conversations(
        *,
        agent: str = "",
        status: str = "",
        before: str = "",
        limit: int = 50,
        json: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """List conversations: the one that was spoken to last first.

        Roots that people and programs speak to, ended ones too; no children, no schedules' runs.
        Works beside a runtime at work and without one.

        Parameters
        ----------
        agent
            Only this agent's.
        status
            Only those that are active, waiting, parked or ended.
        before
            Go on from there: the cursor at the end of the last page.
        limit
            How many.
        json
            Print one JSON object instead: conversations (times in µs since 1970), next.
        store
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
        """
        from hubbub.runtime.cli.text import conversation_lines
        from hubbub.runtime.finding.conversations import list_conversations

        with open_reader(store) as opened:
            found = list_conversations(
                opened, agent=agent, status=status, before=before,
                limit=at_least(1, "--limit", limit),
            )  # fmt: skip
        if json:
            write(document(found))
        else:
            write_all(write, conversation_lines(found, Ports().clock.now()))
        return 0

    return conversations
