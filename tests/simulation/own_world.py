"""The project's own world: agents of every mode that do what they are told, drawn by a seed.

    m7 [["note"], ["child", "ask", [["look"]]], ["say"]]

What is said to an agent is a program, one step a model call (as in ``little_programs``).  So the
models keep nothing: the same request gets the same answer, in every life of the world.

    main, lead      people talk to them; they delegate, give the conversation away, hand over
    ask send keep crew     two-sided children: blocking or not, staying or not
    ann bob, writer        they take the conversation over: agents, and a skill
    clerk           takes over by a handoff
    shop watcher    code agents: one that survives, one that listens and is slow at it
    timed keeper    have schedules
    hasty           terminates itself, or its child, as that ends (``hasty``)
    thrower         raises what is no error (``raisers``)
    hooked vault reader    have hooks, and variables (``hooked``)
    dozer           reads behind what is removed (``aging``)
    mate            stays with a conversation whose old turns go (``lasting``)
    several twice   has tasks that run at once, and what they start (``several``)

In some worlds main, its children and those that take over have tools that a person must approve
(``approved``) or that ask one (``asking``), several people answer at once (``at_once``), frames lie
beside each other (``beside``), trees go while others are at work and between two lives (``aging``),
and runs are forked (``forking``).

Its stores keep what they took: no damage on disk is drawn.  That is covered by
``attacks/test_bit_flips`` (while open, and at the opening), ``runtime/stores/test_damage``,
``attacks/test_hostile_folders`` and ``test_hostile_exports``, ``test_power_loss`` here (what was
not synced is gone), and ``torture`` (killed processes and lost power, on real files).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import anyio
from msgspec import Struct, field
from simulation.aging import Aging, send_off
from simulation.approved import Approved
from simulation.asking import ASKING_TOOLS, said_after
from simulation.at_once import words_have_effect
from simulation.beside import give
from simulation.crowded import dwell, ended_in_time
from simulation.forking import Forking, forks_invariants
from simulation.hasty import hasty
from simulation.hooked import Watched
from simulation.hooked_invariants import hooked_invariants
from simulation.kept import lanes_sound
from simulation.lasting import MATE, mate
from simulation.limited import limits_of_turns
from simulation.own_invariants import (
    CRON,
    SECRET,
    accepted_once,
    ended_below,
    fired_once,
    guilty_alone,
    heard_program,
    idle_children_shown_idle,
    one_agent_each,
    prompts_end_once,
    raised_alone,
    replies_have_outcomes,
    secrets_kept,
    spawned_results_told,
    ticks_accounted_for,
    untold_gaps,
)
from simulation.raisers import RAISED, RAISERS, thrower
from simulation.several import Several
from support.families import FINISH, config, finish, give_up, report, write_file

from hubbub import (
    AgentDefinition,
    Cron,
    Heartbeat,
    Hook,
    PromptDefinition,
    RunContext,
    RunState,
    SideConfig,
    Skill,
    VariableDefinition,
    agent,
    tool,
)
from hubbub.agents.model import AssistantMessage, ModelReply, ModelRequest, ToolCall
from hubbub.hub.events import Event
from hubbub.runtime.models.scripted import Fault, FunctionModel, call, reply
from hubbub.runtime.schedules import Misfire
from hubbub.runtime.simulation import INVARIANTS, Invariant, Setup
from hubbub.runtime.simulation.injection.plan import Plan
from hubbub.runtime.simulation.story.history import History

__all__ = ["CHILDREN", "LASTING", "NO_TEXT", "TALKERS", "OwnWorld", "spoken"]

CHILDREN: Final = ("ask", "send")
LASTING: Final = ("keep", "crew")
TALKERS: Final = ("ann", "bob")
NO_TEXT: Final = "half \ud800 of a pair"
_WATCHED: Final = 300.0
_IDLE: Final = 60.0


def spoken(label: str, program: Sequence[Any]) -> str:
    """The message that has its hearer do ``program``."""
    return f"{label} {json.dumps(program)}"


class OwnWorld(Struct, kw_only=True):
    """The agents, anew for each world, and what the watchers among them were told."""

    has_schedules: bool = False
    misfire: Misfire = "latest"
    """What becomes of the ticks of its cron that are missed."""
    has_more: bool = False
    """Whether its agents can start children by code, and kill their process."""
    has_raisers: bool = False
    """Whether its agents have tools that raise what is no error, and there is one that does."""
    has_hooks: bool = False
    """Whether there are agents with hooks and variables."""
    has_approvals: bool = False
    """Whether its agents have tools that a person must approve."""
    has_asking: bool = False
    """Whether its agents have tools that ask a person."""
    has_crowd: bool = False
    """Whether its agents have a tool that keeps their place for long."""
    has_several: bool = False
    """Whether there is an agent whose tasks run at once."""
    is_aging: bool = False
    """Whether trees go from its store."""
    has_turns: bool = False
    """Whether main has a child that stays as long as its conversation."""
    has_beside: bool = False
    """Whether main, and who takes over from it, can give the conversation to several at once."""
    has_forks: bool = False
    options: Mapping[str, Any] = {}
    limits_of_turns: int | None = None
    """What draws the limits of its agents' turns and runs, if they have any."""
    plan: Plan | None = None
    latency: float = 0.3
    watched: list[list[Event]] = field(default_factory=list)
    hooked: Watched = field(default_factory=Watched)
    approved: Approved = field(default_factory=Approved)
    several: Several = field(default_factory=Several)
    aging: Aging = field(default_factory=Aging)
    forking: Forking = field(default_factory=Forking)

    def setup(self) -> Setup:
        """The agents and everything that belongs to them."""
        schedules: tuple[Cron | Heartbeat, ...] = ()
        if self.has_schedules:
            beat = Heartbeat("keeper", [spoken("beat", [["note"], ["say"]])], interval=90)
            tick = spoken("tick", [["look"], ["say"]])
            cron = Cron(CRON, "* * * * *", "timed", tick, misfire=self.misfire)
            schedules = (cron, beat)
        model = FunctionModel(_answer, name="obeys", latency=self.latency)
        more = (hire, fetch, self._die()) if self.has_more else ()
        more += RAISERS if self.has_raisers else ()
        more += (dwell,) if self.has_crowd else ()
        more += (send_off,) if self.is_aging else ()
        more += (MATE,) if self.has_turns else ()
        asking: tuple[Any, ...] = self.approved.tools() if self.has_approvals else ()
        asking += ASKING_TOOLS if self.has_asking else ()
        beside = (give,) if self.has_beside else ()
        talkers = _agents(model, (*more, *asking), asking, beside)
        agents = [*talkers, shop, hasty, self._watcher()]
        if self.has_raisers:
            agents.append(thrower)
        if self.has_several:
            agents += self.several.agents()
        if self.is_aging:
            agents += self.aging.agents()
        if self.has_turns:
            agents.append(mate(model, *TOOLS, config("ask")))
        hooks: tuple[Hook, ...] = ()
        if self.has_hooks:
            agents += self.hooked.agents(model, note)
            hooks = self.hooked.hooks()
        agents = limits_of_turns(agents, self.limits_of_turns)
        models = {"other": FunctionModel(_answer, name="other", latency=self.latency)}
        return Setup.of(
            *agents, schedules=schedules, hooks=hooks, models=models if self.has_forks else {},
            **self.options,
        )  # fmt: skip

    def _die(self) -> Any:
        @tool(idempotent=True, timeout=None)
        async def die(text: str) -> str:
            """Die of it, until nothing goes wrong any more."""
            if self.plan is not None and not self.plan.is_over:
                await self.plan.kill_after(0.2)
            return f"survived {text}"

        return die

    def _watcher(self) -> AgentDefinition:
        @agent("watcher")
        async def watcher(input: str, ctx: RunContext) -> str:
            """Listens to everything, with little room, and takes its time."""
            told: list[Event] = []
            self.watched.append(told)
            with anyio.move_on_after(_WATCHED):
                async with ctx.hub.subscribe("*", buffer=3) as stream:
                    async for event in stream:
                        told.append(event)
                        await anyio.sleep(0.05)
            return f"heard {len(told)}"

        return watcher

    def invariants(self) -> dict[str, Invariant]:
        """What must hold of any history, and of this world besides."""

        def gaps_told(history: History) -> Iterator[str]:
            """A listener that is too slow is told of what it has missed, where it is missing."""
            for told in self.watched:
                yield from untold_gaps(history, told)

        own = (
            gaps_told, accepted_once, fired_once, ticks_accounted_for, one_agent_each, secrets_kept,
            ended_below, prompts_end_once, replies_have_outcomes, idle_children_shown_idle,
            lanes_sound, ended_in_time, words_have_effect,
            *((guilty_alone, spawned_results_told) if self.has_more else ()),
            *((raised_alone, spawned_results_told) if self.has_raisers else ()),
            *(hooked_invariants(self.hooked) if self.has_hooks else ()),
            *(self.approved.invariants() if self.has_approvals else ()),
            *((said_after,) if self.has_asking else ()),
            *(self.several.invariants() if self.has_several else ()),
            *(self.aging.invariants() if self.is_aging else ()),
            *(forks_invariants if self.has_forks else ()),
        )  # fmt: skip
        # First: they name more exactly what others find as well.
        return {**{each.__name__: each for each in own}, **INVARIANTS}


# ── what they do ─────────────────────────────────────────────────────────────────────────────


def _answer(request: ModelRequest) -> ModelReply | Fault:
    if request.purpose == "summary":
        return reply("So far.")
    at, text = heard_program(request)
    label, _, program = text.partition(" ")
    done = sum(isinstance(m, AssistantMessage) for m in request.messages[at:])
    try:
        steps = json.loads(program)
    except ValueError:  # Words of somebody who quotes a program.
        steps = ()
    step = steps[done] if done < len(steps) else ("end",)
    return _reply(f"{label}.{done}", step, request)


def _reply(name: str, step: Sequence[Any], request: ModelRequest) -> ModelReply | Fault:
    match step:
        case ["fail"]:
            return Fault("request")
        case ["break", kind]:
            raise RAISED[kind]()
        case ["mumble"]:
            return reply(f"{name} {NO_TEXT}")
        case ["flaky"] if request.attempt < 3:
            return Fault("server")
        case ["tell", *calls]:
            return reply(name, *_calls(name, calls, request))
        case ["both", *calls]:
            return reply("", *_calls(name, calls, request))
        case ["say"]:
            return reply(name)
        case ["end"]:
            is_worker = any(spec.name == "finish" for spec in request.tools)
            return reply("", call("finish", result=name)) if is_worker else reply(name)
        case _:
            calls = _calls(name, [step], request)
            return reply("" if calls else name, *calls)


def _calls(name: str, steps: Sequence[Sequence[Any]], request: ModelRequest) -> list[ToolCall]:
    found = [_call(f"{name}-{at}", step, request) for at, step in enumerate(steps)]
    return [each for each in found if each is not None]


def _call(name: str, step: Sequence[Any], request: ModelRequest) -> ToolCall | None:
    match step:
        case [
            "note"
            | "look"
            | "slow"
            | "spend"
            | "babble"
            | "die"
            | "read"
            | "refuse"
            | "refund"
            | "post"
            | "perhaps"
            | "wonder"
            | "ponder"
            | "dwell"
            | "send_off" as tool_name
        ]:
            return call(tool_name, text=name)
        case ["assign", variable]:
            return call("assign", name=variable, text=name)
        case ["file"]:
            return call("write_file", path=f"{name}.txt", text=name)
        case ["hire" | "fetch" | "give" as tool_name, who, program]:
            return call(tool_name, who=who, message=spoken(name, program))
        case ["throw" | "throw_plain" as tool_name, kind]:
            return call(tool_name, kind=kind)
        case ["leave", who, program, kind]:
            return call("leave", who=who, message=spoken(name, program), kind=kind)
        case ["child", who, program]:
            return call(who, message=spoken(name, program))
        case ["stay", who, program]:
            arguments = {"message": spoken(name, program)}
            return call("subagent_create", agent=who, name=name, arguments=arguments)
        case ["to", number, program]:
            reference = _reference(request, number)
            return call("subagent_message", reference=reference, message=spoken(name, program))
        case ["use", who, program]:
            return call("use_agent", name=who, message=spoken(name, program))
        case ["skill", program]:
            return call("use_skill", name="writer", message=spoken(name, program))
        case ["hand", who]:
            return call(who)
        case ["complete"]:
            return call("complete", result=name)
        case ["pause"]:
            return call("interrupt", prompt=name)
        case ["give_up"]:
            return call("give_up", reason=name)
        case ["report"]:
            return call("report", status=name)
        case _:
            return None


def _reference(request: ModelRequest, number: int) -> str:
    """The child at a place in the registry that the model is shown."""
    lines = [x for note in request.system_notes for x in note.splitlines() if x.startswith("- ")]
    return lines[number % len(lines)][2:].partition(":")[0] if lines else "nobody"


# ── tools ────────────────────────────────────────────────────────────────────────────────────


@tool(idempotent=True)
async def note(text: str) -> str:
    """Note something."""
    return f"noted {text}"


@tool
async def look(text: str) -> str:
    """Look something up."""
    await anyio.sleep(0.25)
    if text.endswith("3-0"):
        raise ValueError("there is nothing")
    return f"seen {text}"


@tool(timeout=2.0)
async def slow(text: str, state: RunState) -> str:
    """Do what takes longer than it may: ask somebody who does not answer in time."""
    await state.hub.ask("user", text, timeout=5)
    return f"done {text}"


@tool(variables=[VariableDefinition(name="TOKEN", required=True)])
async def spend(text: str, state: RunState) -> str:
    """Pay."""
    return f"paid {text} with {len(state.env['TOKEN'])}"


@tool
async def babble(text: str) -> str:
    """Say what no UTF-8 holds."""
    return f"{text} {NO_TEXT}"


@tool
async def hire(who: str, message: str, state: RunState) -> str:
    """Have a child work, and leave it at that."""
    state.spawn(who, message)
    await anyio.sleep(0.4)
    return "hired"


@tool(idempotent=True, timeout=60.0)
async def fetch(who: str, message: str, state: RunState) -> str:
    """Have a child work, and wait for it."""
    return str((await state.spawn(who, message).result()).output)


TOOLS: Final = (note, look, slow, babble)


# ── agents ───────────────────────────────────────────────────────────────────────────────────


def _agents(
    model: FunctionModel,
    more: Sequence[Any] = (),
    asking: Sequence[Any] = (),
    beside: Sequence[Any] = (),
) -> list[AgentDefinition]:
    children = (
        config("ask"), config("send", blocking=False), config("keep", stays=True),
        config("crew", blocking=False, stays=True, max_instances=2),
    )  # fmt: skip
    writer = Skill(
        name="writer", description="Writes.", instructions="Write.",
        tools=(note, look, "use_agent"), agents=("ann",),
    )  # fmt: skip
    of_main: dict[str, Any] = {
        "agents": TALKERS, "skills": (writer,), "parallel_tool_calls": True,
    }  # fmt: skip
    of_ann: dict[str, Any] = {"agents": ("bob",), "parallel_tool_calls": bool(beside)}
    of_bob: dict[str, Any] = {
        "agents": ("ann",), "skills": (writer,), "parallel_tool_calls": bool(beside),
    }  # fmt: skip
    return [
        _talker(
            "main", model, *TOOLS, *more, *beside, spend, write_file, *children, "clerk",
            supports_checkpointing=True, **of_main,
        ),
        _talker("lead", model, note, config("crew", blocking=False, stays=True, immediate=True)),
        _talker("clerk", model, note, look, config("send", blocking=False), "main"),
        _talker(
            "ann", model, *TOOLS, *asking, *beside, config("send", blocking=False), **of_ann
        ),
        _talker("bob", model, *TOOLS, *beside, config("ask"), **of_bob),
        _talker("timed", model, *TOOLS, config("ask")),
        _talker("keeper", model, *TOOLS, config("send", blocking=False)),
        *(_worker(name, model, more) for name in (*CHILDREN, *LASTING)),
    ]  # fmt: skip


def _talker(
    name: str, model: FunctionModel, *tools: Any, supports_checkpointing: bool = False, **more: Any
) -> AgentDefinition:
    prompt = PromptDefinition(name=f"p-{name}", prompt=name, model=model, tools=tools, **more)
    return AgentDefinition(
        name=name, expose_as_tool=name in ("main", "clerk", *TALKERS), tool_description=name,
        supports_checkpointing=supports_checkpointing,
        side_a=SideConfig(prompt=prompt, max_steps=12),
    )  # fmt: skip


def _worker(name: str, model: FunctionModel, more: Sequence[Any]) -> AgentDefinition:
    below = (config("ask"), config("send", blocking=False))
    work = PromptDefinition(
        name=f"{name}-a", prompt=name, model=model, parallel_tool_calls=name == "crew",
        tools=(finish, give_up, report, write_file, *TOOLS, *more, *below),
    )  # fmt: skip
    review = PromptDefinition(
        name=f"{name}-b", prompt="You review.", tools=(finish, give_up, report),
        model=FunctionModel(_review, name="reviews", latency=0.2),
    )  # fmt: skip
    return AgentDefinition(
        name=name, type="dual_ai", expose_as_tool=True, tool_description=name,
        max_session_turns=6, side_a=SideConfig(prompt=work, **FINISH),
        side_b=SideConfig(prompt=review, **FINISH),
    )  # fmt: skip


def _review(request: ModelRequest) -> ModelReply:
    if len(request.messages) > 4:
        return reply("", call("finish", result="good enough"))
    return reply("Go on.")


async def _pay(amount: int) -> str:
    await anyio.sleep(0.2)
    return f"receipt {amount}"


@agent("shop", on_restart="resume")
async def shop(input: str, ctx: RunContext) -> str:
    """Pays, has children work, opens a conversation with a secret, and reads its mail."""
    label, _, program = str(input).partition(" ")
    receipt = await ctx.step("pay", _pay, 12, type=str)
    child = ctx.spawn("ask", spoken(f"{label}.c", json.loads(program or "[]")))
    opened = ctx.hub.open(
        "main", spoken(f"{label}.o", [["spend"], ["say"]]), run_id=f"{ctx.run_id}-opened",
        env={"TOKEN": SECRET},
    )  # fmt: skip
    await opened
    await child.result()
    async for message in ctx.messages(idle_timeout=_IDLE):
        ctx.say(f"heard {message.content[:20]}")
        if message.content.startswith("bye"):
            break
    return receipt
