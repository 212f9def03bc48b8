"""The options that every command has which joins a store with a runtime."""

from dataclasses import dataclass

from hubbub.runtime.arguments import Role
from hubbub.runtime.cli.processes.named_runtime import ProcessSettings
from hubbub.runtime.stores.retention.typed import typed_retention

__all__ = ["JoinOptions"]


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """What was typed.

    Parameters
    ----------
    name
        What hubbub workers calls it. Default: HOST:PROCESS. No two at work have the same.
    replace
        Join beside workers with other definitions of its agents: for a rolling deploy.
    retention_ended
        Remove trees of runs that ended this long ago, for good: 30d, 12h, 90min, 8w. Where none of
        these options is given everything is kept.
    retention_silent
        End trees of which nothing was heard for this long, and in which nothing waits.
    retention_keep_last
        Keep that many of those that ended last, however old and large they are.
    retention_max_bytes
        What all events may take (500MB, 10GB): beyond it the oldest go that have ended.
    retention_keep_turns
        Keep that many turns of runs that live, at least: older ones go.
    """

    name: str = ""
    replace: bool = False
    retention_ended: str | None = None
    retention_silent: str | None = None
    retention_keep_last: int | None = None
    retention_max_bytes: str | None = None
    retention_keep_turns: int | None = None

    def settings(
        self,
        store: str | None,
        role: Role | None = None,
        *,
        capacity: int | None = None,
        grace: float | None = None,
    ) -> ProcessSettings:
        """What these come to, with the options that a command has of its own.

        Raises ``BadValue`` and ``OperatorError`` for what is no limit.
        """
        retention = typed_retention(
            ended=self.retention_ended, silent=self.retention_silent,
            keep_last=self.retention_keep_last, max_bytes=self.retention_max_bytes,
            keep_turns=self.retention_keep_turns, prefix="--retention-",
        )  # fmt: skip
        return ProcessSettings(
            store=store, role=role, name=self.name, capacity=capacity, grace=grace,
            replace=self.replace or None, retention=retention,
        )  # fmt: skip
