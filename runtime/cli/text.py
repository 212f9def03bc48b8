"""What the commands over a store print for people: lines of printable text.

Times are UTC.  Whatever comes out of a store is escaped where a terminal would obey it.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hubbub.agents.definitions.skills import SKILL_PREFIX
from hubbub.agents.model import AssistantMessage, ModelMessage
from hubbub.hub.events import FileRef
from hubbub.hub.events.descriptors import encode_descriptor
from hubbub.hub.events.moments import shown_moment
from hubbub.hub.store.reader import MAX_TREES_COUNTED, Backup, Stored
from hubbub.hub.store.store import Removed
from hubbub.hub.values import NULL, Json
from hubbub.runtime.finding.conversations import Conversation, Conversations
from hubbub.runtime.inspection.at_work import DifferingAgent, FreeTrees, ShownProcess, StoreAtWork
from hubbub.runtime.inspection.event_words import Said, headline
from hubbub.runtime.inspection.prompts import ShownPrompt
from hubbub.runtime.inspection.replay import Replayed
from hubbub.runtime.inspection.usage import Used
from hubbub.runtime.inspection.views import RunReport, Runs, ShownRun
from hubbub.runtime.schedules.status import ScheduleStatus
from hubbub.runtime.text import printable

if TYPE_CHECKING:
    from hubbub.runtime.copies.migration import Migrated

__all__ = [
    "backup_line", "conversation_lines", "event_line", "migrated_lines", "process_lines",
    "prompt_lines", "replay_lines", "report_lines", "run_lines", "schedule_lines", "short",
    "waiting_schedule_lines",
]  # fmt: skip

WIDTH: Final = 300
"""Characters of a text in a conversation, unless all are asked for."""
NARROW: Final = 100
SHORTEST: Final = 60

MAX_INDENT: Final = 10
"""Frames that a text is indented by."""

_STATUS: Final = {"active": "at work", "waiting": "waits for a child", "parked": "parked"}
_AWAITED: Final = {"question": "an answer", "approval": "approval", "external": "a result"}
_INBOX: Final = {"closing": ", closing", "terminated": ", being terminated"}


def short(text: str, width: int | None = NARROW) -> str:
    """``text`` on one line, cut to a width."""
    if width is not None and len(text) > width:
        text = f"{text[: width - 1]}…"
    return printable(text)


# ── lists ────────────────────────────────────────────────────────────────────────────────────


def run_lines(runs: Runs, now: int, *, ended: bool) -> Iterator[str]:
    """A table of runs, children under their parents."""
    if not runs.runs:
        yield "no runs" if ended else "no live runs; --all lists those that have ended"
        return
    header = ("run", "agent", "status", "age", "waiting", "tokens", "session key")
    yield from _table(header, [_run_row(run, now, runs.prompts) for run in runs.runs])
    if runs.more:
        more = "at least " if runs.more >= MAX_TREES_COUNTED else ""
        yield f"… and {more}{runs.more:,} more trees; --limit N shows more"
    yield from _asks(runs.prompts)


def _asks(prompts: Sequence[ShownPrompt]) -> Iterator[str]:
    yield from _listed("asked (hubbub reply answers)", [prompt_row(each) for each in prompts])


def _run_row(run: ShownRun, now: int, asked: Sequence[ShownPrompt]) -> tuple[str, ...]:
    under = f"{'   ' * (run.depth - 1)}└─ " if run.depth else ""
    agent = run.agent if run.name in ("", run.agent) else f"{run.agent} ({run.name})"
    return (
        f"{under}{run.run_id}", agent, _status(run, asked), _ago(run.created_at, now),
        str(run.waiting) if run.waiting else "", "" if run.tree is None else _used(run.tree),
        run.session_key,
    )  # fmt: skip


def _used(tree: Used) -> str:
    """What models were shown and have said, and the cost where it is known."""
    if not tree.model_calls:
        return ""
    cost = "" if tree.cost is None else f", cost {tree.cost:,.4g}"
    return f"{tree.input_tokens:,} in, {tree.output_tokens:,} out{cost}"


def _status(run: ShownRun, asked: Sequence[ShownPrompt]) -> str:
    """What a run is at, and what it waits for among what is asked."""
    if run.status == "ended":
        return f"ended ({run.outcome})" if run.outcome else "ended"
    status = _STATUS.get(run.status, run.status)
    of_run = [each for each in asked if each.run_id == run.run_id]
    if kinds := dict.fromkeys(_AWAITED[each.kind] for each in of_run if not each.is_answered):
        status = f"waits for {', '.join(kinds)}"
    elif of_run:
        status = "has its answer"
    return f"{status}{_INBOX.get(run.inbox, '')}"


def prompt_lines(prompts: Sequence[ShownPrompt], now: int) -> Iterator[str]:
    """What people are asked, and how each is answered."""
    if not prompts:
        yield "nobody is asked anything"
    for one in prompts:
        yield f"{one.prompt_id}  {_ago(one.since, now)}  {short(one.agent)}  {one.kind}"
        yield from (f"  {line}" for line in _asked_lines(one))


def _asked_lines(one: ShownPrompt) -> Iterator[str]:
    if one.kind == "question":
        yield f"? {short(one.question, WIDTH)}"
        yield from (f"  {short(option)}" for option in one.options)
    else:
        yield f"{short(one.tool)} {_json_line(one.arguments)}"
    if one.schema != NULL:
        yield f"fits {short(_json_line(one.schema), WIDTH)}"
    if one.expires_at is not None:
        yield f"ends {_moment(one.expires_at)} without an answer"
    if one.is_answered:
        yield "answered; the next runtime takes the answer"
    elif one.waits_in == "process":
        yield "only the program at work can take the answer"


def _json_line(value: Json) -> str:
    """Arguments on one line, whole: who approves them should have seen them."""
    return short(msgspec.json.format(bytes(value), indent=0).decode(errors="replace"), None)


def prompt_row(one: ShownPrompt) -> str:
    """A prompt on one line."""
    what = one.question if one.kind == "question" else f"{one.tool} {_json_line(one.arguments)}"
    answered = "; answered" if one.is_answered else ""
    return f"{one.prompt_id}  {short(one.agent)}  {one.kind}{answered}: {short(what, WIDTH)}"


def conversation_lines(page: Conversations, now: int) -> Iterator[str]:
    """A table of conversations."""
    if page.conversations:
        header = ("key", "agent", "status", "waits for", "last", "run", "title")
        yield from _table(header, [_conversation_row(each, now) for each in page])
    else:
        yield "no conversations" if not page.next else "none among those looked at"
    if page.next:
        yield f"… and more; --before {page.next} goes on"


def _conversation_row(one: Conversation, now: int) -> tuple[str, ...]:
    return (
        one.key, one.agent, one.status, short(_waits(one), SHORTEST), _ago(one.last_activity, now),
        one.run_id, one.title,
    )  # fmt: skip


def _waits(one: Conversation) -> str:
    if one.waits_for:
        first, *others = one.waits_for
        what = first.tool or first.question or first.run_id
        if first.request is not None:
            what = ", ".join(x.name for x in first.request.variables if x.is_missing)
        more = f" (+{len(others)})" if others else ""
        return f"{first.kind}: {what}{more}"
    return "the user" if one.status in ("parked", "waiting") else ""


def schedule_lines(statuses: Sequence[ScheduleStatus], now: int) -> Iterator[str]:
    """A table of schedules."""
    if not statuses:
        yield "no schedules; they are given with Runtime(schedules=…)"
        return
    header = ("schedule", "kind", "agent", "next", "last", "outcome", "run")
    rows = [
        (
            one.uid, one.kind, one.agent, _moment(one.next_at), _moment(one.last_fired_at),
            one.last_outcome, one.run_id,
        )
        for one in statuses
    ]  # fmt: skip
    yield from _table(header, rows)


def waiting_schedule_lines(statuses: Sequence[ScheduleStatus]) -> Iterator[str]:
    """The schedules that have not fired: no run tells of them."""
    waiting = [
        f"{short(one.uid)}  {one.kind}  {short(one.agent)}  next {_moment(one.next_at)}"
        for one in statuses
        if not one.last_fired_at
    ]
    yield from _listed("schedules that have not fired", waiting)


def process_lines(found: StoreAtWork, now: int) -> Iterator[str]:
    """A table of the processes at work on a store, and what nobody drives."""
    if found.processes:
        header = (
            "process", "kind", "since", "lease", "trees", "running", "capacity", "position",
            "behind", "agents",
        )  # fmt: skip
        yield from _table(header, [_process_row(each, now) for each in found.processes])
    else:
        yield "nobody is at work on this store"
    yield from _listed("trees that nobody drives", [_free_line(found, x) for x in found.free])
    yield from _listed(
        "agents with several definitions (those with the same one together)",
        [_differing_line(each) for each in found.differing],
    )
    if found.removed is not None:
        yield removed_line(found.removed, now)


def removed_line(removed: Removed, now: int) -> str:
    """What a retention has had go."""
    when = "no pass yet" if removed.passed is None else f"last pass {_ago(removed.passed, now)} ago"
    parts = [
        f"{removed.trees:,} trees ({removed.runs:,} runs, {removed.events:,} events)",
        f"{removed.contents:,} contents of files ({removed.content_bytes:,} bytes)",
    ]
    if removed.silent:
        parts.append(f"{removed.silent:,} trees ended as silent")
    if removed.cuts:
        parts.append(f"{removed.cuts:,} times old turns of runs that live")
    if removed.problems:
        parts.append(f"{removed.problems:,} problems, see the log (retention.kept)")
    since = _ago(removed.since, now)
    return f"retention: removed in the last {since}: {', '.join(parts)}; {when}"


def _process_row(one: ShownProcess, now: int) -> tuple[str, ...]:
    kind = "worker" if one.is_worker else "channel"
    return (
        one.name, f"{kind}, leaving" if one.drains else kind,
        "" if one.since is None else _ago(one.since, now),
        "" if one.left is None else f"{one.left:.1f} s", *_share_of(one),
        "" if one.told is None else f"{one.told:,}", _lag_of(one),
        ", ".join(one.agents or ()) if one.is_worker else "",
    )  # fmt: skip


def _share_of(one: ShownProcess) -> tuple[str, str, str]:
    """Trees, runs at work, capacity: of a worker."""
    if not one.is_worker:
        return "", "", ""
    return f"{one.trees:,}", f"{one.running:,}", "" if one.capacity is None else f"{one.capacity:,}"


def _lag_of(one: ShownProcess) -> str:
    """How far a process is behind; empty where it is not, or where that is not known."""
    if not one.lag:
        return ""
    seconds = "" if one.lag_seconds is None else f" ({one.lag_seconds:.1f} s)"
    return f"{one.lag:,}{seconds}"


def _free_line(found: StoreAtWork, one: FreeTrees) -> str:
    is_unknown = found.processes and not one.is_known
    why = ": no worker that is here knows this agent" if is_unknown else ""
    return f"{one.trees:,} of {short(one.agent)}{why}"


def _differing_line(one: DifferingAgent) -> str:
    groups = " | ".join(", ".join(names) for names in one.workers)
    return f"{short(one.agent)}: {short(groups, WIDTH)}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    shown = [header, *([short(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(header))]
    for row in shown:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()


# ── one run ──────────────────────────────────────────────────────────────────────────────────


def report_lines(report: RunReport, now: int, *, full: bool) -> Iterator[str]:
    """Everything about a run."""
    run = report.run
    name = f" ({short(run.name)})" if run.name not in ("", run.agent) else ""
    yield f"{run.run_id}  {short(run.agent)}{name}"
    yield from _facts(report, now)
    yield from _listed(
        "children", [_child_line(child, report.prompts) for child in report.children]
    )
    yield from _listed("files", [_file_line(ref) for ref in report.files])
    yield from _listed("keys", _key_lines(report.keys, full))
    waiting = [f"{one.seq}  {one.type}  {short(one.text)}".rstrip() for one in report.waiting]
    yield from _listed("waiting", waiting)
    yield from _asks(report.prompts)
    said = [_said_line(one, full) for one in report.conversation]
    if report.earlier:
        said.insert(0, f"… {report.earlier:,} earlier lines; --full shows all")
    yield from _listed("conversation", said)
    if report.failure:
        yield f"last error: {short(report.failure, None if full else WIDTH)}"


def _facts(report: RunReport, now: int) -> Iterator[str]:
    run, usage = report.run, report.usage
    yield f"status: {_status(run, report.prompts)}"
    yield f"began: {_moment(run.created_at)}, {_ago(run.created_at, now)} ago"
    if run.session_key:
        yield f"session key: {short(run.session_key)}"
    if report.descriptor is not None:
        descriptor = bytes(encode_descriptor(report.descriptor))
        yield f"descriptor: {short(descriptor.decode(), WIDTH)}"
    if report.ancestors:
        yield f"below: {' › '.join(map(short, report.ancestors))}"
    if report.stack:
        names = [short(each.removeprefix(SKILL_PREFIX)) for each in report.stack]
        yield f"stack: {' › '.join(names)}"
    yield f"progress: session {report.session}, step {report.step}, {report.seq:,} records"
    if usage.input_tokens or usage.output_tokens:
        yield f"tokens: {usage.input_tokens:,} in, {usage.output_tokens:,} out"
    tree = report.tree
    if tree is not None and tree.model_calls:
        cost = "not known" if tree.cost is None else f"{tree.cost:,.6g}"
        yield (
            f"with all below it: {tree.model_calls:,} model calls, {tree.input_tokens:,} tokens in "
            f"(cached ones included), {tree.output_tokens:,} out, cost {cost}"
        )


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{title}:"
        for line in lines:
            yield f"  {line}"


def _child_line(child: ShownRun, asked: Sequence[ShownPrompt]) -> str:
    return f"{child.run_id}  {short(child.agent)}  {_status(child, asked)}"


def _file_line(ref: FileRef) -> str:
    return f"{short(ref.path)}  {_size(ref.size)}"


def _key_lines(keys: dict[str, Any], full: bool) -> list[str]:
    width = None if full else NARROW
    return [
        f"{short(key)} = {short(msgspec.json.encode(value).decode(), width)}"
        for key, value in keys.items()
    ]


def _said_line(said: Said, full: bool) -> str:
    files = f" [{', '.join(said.files)}]" if said.files else ""
    indent = "  " * min(said.depth, MAX_INDENT)
    return f"{indent}{short(said.who)}: {short(said.text + files, None if full else WIDTH)}"


def replay_lines(state: Replayed, *, full: bool) -> Iterator[str]:
    """A run as it was."""
    width = None if full else WIDTH
    yield f"{state.run_id}  {short(state.agent)}  after record {state.seq} ({_moment(state.at)})"
    yield f"phase: {state.phase}{', in a session' if state.in_session else ''}"
    side = f", {state.side}" if state.side else ""
    yield f"at: session {state.session}, turn {state.turn}, step {state.step}{side}"
    yield f"status: {short(state.status)}, attempt {state.attempt}"
    yield from _listed("children", [short(run_id) for run_id in state.children])
    yield from _listed("files", [_file_line(ref) for ref in state.files])
    yield from _listed("keys", _key_lines(state.keys, full))
    said = [line for each in state.conversation for line in _message_lines(each, width)]
    yield from _listed("conversation", said)
    said_b = [line for each in state.conversation_b for line in _message_lines(each, width)]
    yield from _listed("conversation of side B", said_b)
    if state.draft:
        yield f"being said: {short(state.draft, width)}"
    calls = [f"{x.name}({short(x.arguments)}): {x.status}" for x in state.calls]
    yield from _listed("open calls", calls)


def _message_lines(message: ModelMessage, width: int | None) -> Iterator[str]:
    if not isinstance(message, AssistantMessage):
        yield f"{short(message.role)}: {short(message.content, width)}"
        yield from (f"  {short(note, width)}" for note in message.notes)
        return
    if message.text:
        yield f"assistant: {short(message.text, width)}"
    for call in message.calls:
        failed = " failed" if call.is_error else ""
        yield f"assistant: → {short(call.name)}({short(call.arguments)})"
        yield f"{short(call.name)}{failed}: {short(call.output, width)}"


# ── one line ─────────────────────────────────────────────────────────────────────────────────


def event_line(stored: Stored) -> str:
    """An event: where, when, which run, who, what."""
    event = stored.event
    head = f"{stored.position}  {_moment(event.at, 'milliseconds')}  {short(event.run_id) or '-'}"
    tail = short(headline(event).strip())
    return f"{head}  {short(event.agent) or '-'}  {short(event.type)}  {tail}".rstrip()


def backup_line(backup: Backup, seconds: float) -> str:
    """What was copied."""
    return (
        f"{printable(backup.folder)}: {backup.runs:,} runs, {backup.events:,} events, "
        f"{backup.contents:,} contents of files, {_size(backup.size)} in {seconds:.1f} s; it "
        "holds the values of secrets, too"
    )


def migrated_lines(made: "Migrated", seconds: float) -> Iterator[str]:
    """What was copied, and which of the two is to be used."""
    source, target = printable(made.source), printable(made.target)
    yield (
        f"{target}: {made.runs:,} runs, {made.events:,} events, {made.keys:,} keys, "
        f"{made.notes:,} notes, {made.secrets:,} values of secrets, {made.contents:,} contents of "
        f"files, copied and checked in {seconds:.1f} s"
    )
    yield (
        f"{source} is as it was. Only one of the two may go on: both are called {made.name}, and "
        f"cursors hold in both. Start programs on {target}, and keep the other as a backup."
    )


def _size(size: int) -> str:
    for unit, length in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= length:
            return f"{size / length:.1f} {unit}"
    return f"{size} B"


def _moment(at: int | None, precision: str = "seconds") -> str:
    return shown_moment(at, precision) if at else "-"


def _ago(at: int, now: int) -> str:
    seconds = max(0, (now - at) // 1_000_000)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
