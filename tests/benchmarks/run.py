"""The benchmarks, one command:

    uv run python tests/benchmarks/run.py [NAME ...] [--loop asyncio|trio] [--quick] [--json]

Prints each figure beside its floor, measured in the same process, and its aim.  ``--quick`` goes
through everything with small numbers, to see that it works; the figures then mean nothing.
Exits 0 however slow it is, and 1 when a benchmark breaks.  (This is a program of the
repository, not a test: the guards that hold without a clock are in ``test_guards.py``.)
"""

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from time import perf_counter

import cache_figures
import child_figures
import code_figures
import compaction_figures
import durable_figures
import http_figures
import hub_figures
import million_figures
import msgspec
import run_figures
import shared_figures
import simulation_figures
import snapshot_figures
import web_figures
from figures import Figure, Loop

Benchmark = Callable[[Loop, int, float], Figure]

BENCHMARKS: dict[str, Benchmark] = {
    "stream": hub_figures.stream,
    "streams": hub_figures.streams,
    "wakeups": hub_figures.wakeups,
    "callbacks": hub_figures.callbacks,
    "ask": hub_figures.ask_in_turn,
    "callers": hub_figures.ask_together,
    "code-agents": code_figures.code_agents,
    "code-idle": code_figures.code_idle,
    "code-wake": code_figures.code_wake,
    "code-wake-new": code_figures.code_wake_new,
    "parked": run_figures.parked,
    "turned": run_figures.turned,
    "memory": run_figures.parked_memory,
    "run": run_figures.run_time,
    "calls": run_figures.run_calls,
    "live-memory": run_figures.live_memory,
    "together": run_figures.together,
    "delegation": child_figures.delegation,
    "waiting": child_figures.waiting_parents,
    "durable": durable_figures.durable,
    "durable-together": durable_figures.durable_together,
    "durable-parked": durable_figures.durable_parked,
    "wake": durable_figures.wake,
    "boot": durable_figures.boot,
    "long-wake": snapshot_figures.long_wake,
    "snapshots": snapshot_figures.snapshot_bytes,
    "million-boot": million_figures.million_boot,
    "million-memory": million_figures.million_memory,
    "million-wake": million_figures.million_wake,
    "million-page": million_figures.million_page,
    "post": http_figures.post,
    "post-together": http_figures.post_together,
    "long": compaction_figures.long_in_memory,
    "long-durable": compaction_figures.long_durable,
    "cached": cache_figures.cached,
    "worlds": simulation_figures.worlds,
    "week": simulation_figures.week_of_schedules,
    "sse": web_figures.sse_clients,
    "sse-latency": web_figures.sse_latency,
    "sse-slow": web_figures.sse_slow,
    "import": run_figures.import_time,
    "import-used": run_figures.used_import_time,
    "shared-steps": shared_figures.steps,
    "shared-ack": shared_figures.ack,
    "shared-busy": shared_figures.busy_ack,
    "shared-heard": shared_figures.heard,
    "shared-store": shared_figures.store,
    "shared-take-over": shared_figures.take_over,
}
ONE_LOOP = (
    "cached",
    "import",
    "import-used",
    "memory",
    "million-page",
    "snapshots",
    "worlds",
    "week",
    "shared-busy",
    "shared-steps",
    "shared-take-over",
)
"""What is the same whichever loop runs, or takes long."""

LOOPS: tuple[Loop, ...] = ("asyncio", "trio")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    names = options.names or list(BENCHMARKS)
    if not shared_figures.is_possible():
        print("PostgreSQL is not installed: without the figures of shared stores", file=sys.stderr)
        names = [name for name in names if not name.startswith("shared-")]
    loops = [options.loop] if options.loop else LOOPS
    rounds, scale = (1, 0.02) if options.quick else (options.rounds, 1.0)
    figures: list[Figure] = []
    broken = False
    for name in names:
        for loop in loops[:1] if name in ONE_LOOP else loops:
            start = perf_counter()
            print(f"{name} on {loop} …", end=" ", file=sys.stderr, flush=True)
            try:
                figures.append(BENCHMARKS[name](loop, rounds, scale))
            except Exception:
                broken = True
                traceback.print_exc()
            else:
                print(f"{perf_counter() - start:.1f} s", file=sys.stderr)
    if options.json:
        print(msgspec.json.encode(figures).decode())
    else:
        print(_table(figures))
    return int(broken)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="hubbub's benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--loop", choices=LOOPS, help="only on this event loop")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it work?")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=5, help="measure so often, take the median")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    return options


def _table(figures: Sequence[Figure]) -> str:
    rows = [("what", "loop", "figure", "floor", "ratio", "aim", "met")]
    rows += [
        (
            figure.what,
            figure.loop,
            f"{_number(figure.value)} {figure.unit}",
            "" if figure.floor is None else _number(figure.floor),
            "" if figure.ratio is None else f"{figure.ratio:.2f} ×",
            str(figure.aim or ""),
            "" if figure.is_met is None else "yes" if figure.is_met else "NO",
        )
        for figure in figures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("─" * width for width in widths))
    notes = {figure.what: figure.note for figure in figures if figure.note}
    lines += ["", *(f"{what}: {note}" for what, note in notes.items())]
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
