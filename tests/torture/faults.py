"""What is done to the processes of a story, and to their servers; each is a function."""

import signal
from collections.abc import Callable
from time import sleep, time
from typing import Final, TypeAlias

from torture.cast import Cast

__all__ = ["FAULTS", "HARMLESS", "Fault"]

Fault: TypeAlias = Callable[[Cast], None]
"""Has something happen; work goes on by itself after it has returned."""


# ── processes ────────────────────────────────────────────────────────────────────────────────────


def kill(cast: Cast) -> None:
    """By ``kill -9``, the worker that owns most; another one begins soon."""
    cast.kill(cast.busiest())
    sleep(cast.draw.uniform(0, cast.ttl))
    cast.start_worker()


def hang_up(cast: Cast) -> None:
    """By ``kill -9``, the channel; its users come back by another one."""
    cast.channel.kill()
    cast.start_channel()


def pause(cast: Cast) -> None:
    """Stop a process for longer than its lease; the channel, too."""
    victim = cast.channel if cast.draw.random() < 0.25 else cast.busiest()
    if victim is not cast.channel:
        cast.ends.append((victim.name, time()))
    victim.send(signal.SIGSTOP)
    sleep(cast.ttl + cast.draw.uniform(0.5, 2.0))
    victim.send(signal.SIGCONT)


def leave(cast: Cast) -> None:
    """Have a worker leave in order while it works, as when a new version is rolled out."""
    cast.start_worker()
    cast.leave(cast.busiest())


# ── the network ──────────────────────────────────────────────────────────────────────────────────


def end(cast: Cast) -> None:
    """Have the server end most connections, some times over."""
    server = cast.servers.primary
    for _ in range(6):
        for (pid,) in server.query(
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'hubbub:%'"
        ):
            if cast.draw.random() < 0.7:
                server.query(f"SELECT pg_terminate_backend({pid})")
        sleep(cast.draw.uniform(0.1, 0.4))


def cut(cast: Cast) -> None:
    """Reset or forget connections, some times over."""
    for _ in range(4):
        for each in cast.everybody:
            how = cast.draw.choice([each.proxy.cut, each.proxy.half_open, lambda: None])
            how()
        sleep(cast.draw.uniform(0.1, 0.5))


def unanswered(cast: Cast) -> None:
    """Swallow the answer to a commit, and all that comes after it."""
    for each in cast.everybody:
        each.proxy.swallow_after_commit(cast.draw.randint(1, 5))
    sleep(1.0)
    for each in cast.everybody:
        each.proxy.heal()


def refuse(cast: Cast) -> None:
    """Cut a process off from the server, past its lease or not."""
    victim = cast.draw.choice(cast.everybody)
    victim.proxy.refuse()
    sleep(cast.draw.uniform(0.3, cast.ttl + 1.5))
    victim.proxy.heal()


def slow(cast: Cast) -> None:
    """200 ms there and back, for two."""
    victims = cast.draw.sample(cast.everybody, 2)
    for each in victims:
        each.proxy.delay(0.1)
    sleep(2.0)
    for each in victims:
        each.proxy.heal()


# ── the servers ──────────────────────────────────────────────────────────────────────────────────


def restart(cast: Cast) -> None:
    """End the server at once, and start it again."""
    cast.servers.primary.restart()


def freeze(cast: Cast) -> None:
    """Stop the server where it stands, past all leases or not."""
    server = cast.servers.primary
    server.freeze()
    try:
        sleep(cast.draw.uniform(0.3, cast.ttl + 1.5))
    finally:
        server.freeze(is_frozen=False)


def failover(cast: Cast) -> None:
    """End the server at once; its standby takes its place."""

    def moved(port: int) -> None:
        for each in cast.everybody:
            each.proxy.target = port
            each.proxy.cut()

    cast.servers.fail_over(moved)


def disk_full(cast: Cast) -> None:
    """Leave the tables no room to grow for a while."""
    disk = cast.servers.disk
    assert disk is not None
    disk.fill()
    try:
        sleep(cast.draw.uniform(0.5, cast.ttl + 1.5))
    finally:
        disk.free()


def upgrade(cast: Cast) -> None:
    """A worker of the next version takes the place of one; others go on as they are."""
    cast.upgrade()
    cast.leave(cast.busiest())


FAULTS: Final[dict[str, Fault]] = {
    "kill": kill, "hang_up": hang_up, "pause": pause, "leave": leave, "end": end, "cut": cut,
    "unanswered": unanswered, "refuse": refuse, "slow": slow, "restart": restart,
    "freeze": freeze, "failover": failover, "upgrade": upgrade, "disk_full": disk_full,
}  # fmt: skip

HARMLESS: Final = ("kill", "hang_up", "pause", "leave")
"""What lets others take over meanwhile: the network and the server are as ever."""
