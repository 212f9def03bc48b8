"""Schedules: what is to run, and when.

    Runtime(schedules=[
        Cron("digest", "0 7 * * *", "reader", "Sum up the news.", timezone="Europe/Berlin"),
        Heartbeat("keeper", [HeartbeatTask("Mail", "Answer what is urgent."), "Tidy the notes."]),
    ])

Rules
-----
* A schedule has one run at a time, an agent of its own that is found again after a restart; after
  that run has ended the next tick makes a new one.
* A tick while its run is at work is passed over, and that is on record.  With ``misfire="all"``
  the run must be driven meanwhile: not so between the death of its process and the moment in which
  another one takes over (see ``backlog``).
* A fire is recorded before it has any effect, and never happens twice.
* The clock may be set.  A heartbeat continues at most ``interval`` after that was noticed, which
  takes a minute at the most.  A cron goes by the new time at once, except for local times that have
  fired: when they come again after a set-back, they do not (see ``ticks``).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.hub.errors import CallerError, DefinitionError
from hubbub.hub.near_misses import kind_of, shown, told_fields, unmade
from hubbub.hub.texts import key_problem, label_problem, text_problem
from hubbub.runtime.schedules.ticks import BeatTicks, CronTicks, Ticks

__all__ = ["Cron", "Heartbeat", "HeartbeatTask", "KnownTicks", "Misfire", "Schedule", "checked"]

Misfire: TypeAlias = Literal["skip", "latest", "all"]
"""What becomes of ticks that were missed: none is made up, the latest, or each."""

HEARTBEAT: Final = "heartbeat"
MIN_INTERVAL: Final = 1.0
"""A cron fires at most once a second, too: what comes more often than that is a loop, whose events
would fill the store."""
MAX_INTERVAL: Final = 10.0 * 365 * 86_400
_ALWAYS: Final = "* * * * *"


class Cron(Struct, metaclass=told_fields, frozen=True):
    """Send ``prompt`` to an agent of its own whenever ``expression`` is due.

    * ``uid`` names the schedule permanently: it finds its run and its last tick after a restart.
    * ``expression`` has five fields, or six with seconds first, read in ``timezone`` (an IANA
      name).  A local time that the clocks skip or repeat fires once; with ``*`` for the hour every
      hour there is counts.
    * ``misfire`` is for ticks that passed while nothing ran: ``"skip"`` them, fire the
      ``"latest"`` (the default), or ``"all"`` of them, each when the one before is over (the last
      1,000).  The last tick is missed only when it is more than 60 s ago: until then it is late,
      and fires with ``"skip"``, too.

    Needs the extra ``schedules``.  ``Runtime`` checks it and raises ``DefinitionError``.
    """

    uid: str
    expression: str
    agent: str | AgentDefinition
    prompt: str
    timezone: str = "UTC"
    misfire: Misfire = "latest"

    @property
    def ticks(self) -> Ticks:
        """When it is due; raises what ``CronTicks`` raises."""
        return CronTicks(self.expression, self.timezone)


class HeartbeatTask(Struct, metaclass=told_fields, frozen=True):
    """One thing that the heartbeat's agent looks after."""

    title: str
    prompt: str


class Heartbeat(Struct, metaclass=told_fields, frozen=True):
    """Send all ``tasks`` as one prompt to one agent every ``interval`` seconds, 1 at least.

    Each beat begins with a fresh context.  A task is a ``HeartbeatTask``, a pair of title and
    prompt, or a text that is both.  The first beat comes ``interval`` after the runtime is first
    opened with it; one that is overdue when the runtime is opened comes at once, and only once.
    A runtime has one heartbeat at the most.  ``Runtime`` checks it and raises ``DefinitionError``.
    """

    agent: str | AgentDefinition
    tasks: Sequence[HeartbeatTask | tuple[str, str] | str]
    interval: float = 1800

    def __post_init__(self) -> None:
        if isinstance(self.tasks, Iterable) and not isinstance(self.tasks, str | Mapping):
            force_setattr(self, "tasks", tuple(map(_task, self.tasks)))

    @property
    def uid(self) -> str:
        """The one name that a heartbeat has."""
        return HEARTBEAT

    @property
    def misfire(self) -> Misfire:
        """Missed beats are not caught up."""
        return "latest"

    @property
    def ticks(self) -> Ticks:
        """When it beats."""
        return BeatTicks(self.interval)

    @property
    def prompt(self) -> str:
        """The batch: every task by its title, with its prompt."""
        parts = ["These are your regular tasks. Go through all of them, in this order."]
        for number, task in enumerate(self.tasks, 1):
            assert isinstance(task, HeartbeatTask)
            parts.append(f"## {number}. {task.title}")
            if task.prompt != task.title:
                parts.append(task.prompt)
        return "\n\n".join(parts)


Schedule: TypeAlias = Cron | Heartbeat
"""Any schedule."""


class KnownTicks:
    """The ticks of many schedules, of which many are due at the same times."""

    def __init__(self) -> None:
        self._of_cron: dict[tuple[str, str], Ticks] = {}

    def of(self, schedule: Schedule) -> Ticks:
        """When it is due; raises what ``Cron.ticks`` raises."""
        if isinstance(schedule, Heartbeat):
            return schedule.ticks
        time = schedule.expression, schedule.timezone
        if (ticks := self._of_cron.get(time)) is None:
            ticks = self._of_cron[time] = schedule.ticks
        return ticks


def agent_of(schedule: Schedule) -> str:
    """The name of the schedule's agent."""
    return schedule.agent if isinstance(schedule.agent, str) else schedule.agent.name


def checked(
    schedules: Iterable[Schedule], check_prompt: Callable[[str, str], object]
) -> tuple[Schedule, ...]:
    """``schedules``, if nothing is wrong with them.

    ``check_prompt(agent, prompt)`` raises when there is no such agent, or none that takes a text.
    Raises ``DefinitionError`` with every problem, ``MissingExtra``, and ``OperatorError`` on a
    machine that knows no timezones.
    """
    if isinstance(schedules, str) or not isinstance(schedules, Iterable):
        raise DefinitionError("runtime", ["schedules: expected a list of Cron and Heartbeat"])
    found = tuple(schedules)
    problems: list[str] = []
    uids: set[str] = set()
    sound = KnownTicks()
    for index, each in enumerate(found):
        if not isinstance(each, Cron | Heartbeat):
            problems.append(f"schedules[{index}]: expected Cron or Heartbeat, not {kind_of(each)}")
            continue
        path = f"schedules[{index}]"
        wrong = [*_uid_problems(each, uids), *_time_problems(each, sound)]
        wrong += _prompt_problems(each, check_prompt)
        problems += [f"{path}.{each}" for each in wrong]
    if problems:
        raise DefinitionError("runtime", problems)
    return found


def _uid_problems(schedule: Schedule, uids: set[str]) -> Iterable[str]:
    uid = schedule.uid
    if isinstance(schedule, Heartbeat):
        if uid in uids:
            yield "uid: a runtime has one Heartbeat; give this one's tasks to it"
    elif uid.__class__ is not str or label_problem(uid) or not uid.strip():
        yield f"uid: expected a name, not {shown(uid)}"
        return
    elif problem := key_problem(uid):
        yield f"uid: {problem}"
        return
    elif uid == HEARTBEAT:
        yield f"uid: {HEARTBEAT!r} is the heartbeat's own; choose another"
        return
    elif uid in uids:
        yield f"uid: {shown(uid)} is taken"
    uids.add(uid)


def _time_problems(schedule: Schedule, sound: KnownTicks) -> Iterable[str]:
    if isinstance(schedule, Heartbeat):
        interval = schedule.interval
        is_number = isinstance(interval, int | float) and not isinstance(interval, bool)
        if not is_number or not MIN_INTERVAL <= interval <= MAX_INTERVAL:
            yield f"interval: expected 1 to {MAX_INTERVAL:,.0f} seconds"
        return
    if schedule.misfire not in get_args(Misfire):
        yield f"misfire: expected 'skip', 'latest' or 'all', not {shown(schedule.misfire)}"
    wrong = [name for name in ("expression", "timezone") if not _is_text(getattr(schedule, name))]
    if wrong:
        yield from (f"{name}: expected a text" for name in wrong)
        return
    with suppress(CallerError):
        sound.of(schedule)
        return  # There is nothing to name.
    # One after the other, so that both are named if both are wrong.
    for expression, timezone in ((schedule.expression, "UTC"), (_ALWAYS, schedule.timezone)):
        try:
            CronTicks(expression, timezone)
        except CallerError as error:
            yield str(error)


def _prompt_problems(
    schedule: Schedule, check_prompt: Callable[[str, str], object]
) -> Iterable[str]:
    if isinstance(schedule, Heartbeat):
        problems = list(_task_problems(schedule.tasks))
    else:
        problems = [] if _is_text(schedule.prompt) else ["prompt: expected a text"]
    yield from problems
    if not isinstance(schedule.agent, str | AgentDefinition):
        yield f"agent: expected an agent's name or AgentDefinition{unmade(schedule.agent)}"
        return
    try:
        check_prompt(agent_of(schedule), "" if problems else schedule.prompt)
    except CallerError as error:
        yield f"agent: {error}"


def _task_problems(tasks: object) -> Iterable[str]:
    if not isinstance(tasks, tuple) or not tasks:
        yield "tasks: expected at least one HeartbeatTask, pair or text"
        return
    for index, task in enumerate(tasks):
        if not isinstance(task, HeartbeatTask):
            yield f"tasks[{index}]: expected HeartbeatTask, pair or text, not {shown(task)}"
        elif not _is_text(task.title) or not _is_text(task.prompt):
            yield f"tasks[{index}]: title and prompt are texts with something in them"


def _task(task: HeartbeatTask | tuple[str, str] | str) -> HeartbeatTask:
    if isinstance(task, str):
        return HeartbeatTask(task, task)
    if isinstance(task, tuple | list) and len(task) == 2:
        return HeartbeatTask(*task)
    return task  # ``checked`` says what is wrong with it.


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and not text_problem(value)
