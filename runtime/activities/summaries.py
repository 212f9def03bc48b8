"""Summaries of older messages: the limit beyond which one is due, and the call that makes it.

The call is that of a step, with the messages to be summarised and what is asked for behind them: so
the provider finds in its cache what it has read.  Hooks that filter messages filter these, too.  It
is tried again as a step is, all within the time that the model has for one call; the run writes
what it came to.
"""

import inspect
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from hubbub.agents.compaction import Compaction
from hubbub.agents.model import Model, ModelMessage, ModelReply, ModelRequest, reply_problem
from hubbub.agents.model_choice import ModelChoice
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.resolution.skill_agents import CALLERS_MODEL
from hubbub.agents.retry import retry_delay
from hubbub.agents.state.compactions import NO_COMPACTIONS, tokens_shown
from hubbub.agents.state.context_limit import (
    NO_LIMIT,
    NOTHING_TO_SUMMARISE,
    ContextLimit,
    Summarize,
    tokens_after_summary,
    view_of,
)
from hubbub.agents.state.steps import summary_problem
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.request import build_request, summary_request
from hubbub.agents.turn.signals import Summarized, unsummarised
from hubbub.hub.errors import HubbubError, MissingVariable, UnknownAgent
from hubbub.hub.logs import log
from hubbub.hub.tasks.raised import is_contained
from hubbub.runtime.activities.at_work import AtWork, failure_of
from hubbub.runtime.activities.environment import Environment
from hubbub.runtime.activities.files import with_contents
from hubbub.runtime.activities.hooks import run_hooks
from hubbub.runtime.activities.timeouts import side_summarised, summary_choice
from hubbub.runtime.kernel.services import Services

__all__ = ["limit_of", "summarize"]

MANY: Final = 32_000
"""Tokens of a step from which on it matters that a model's window is not known."""


# ── when ─────────────────────────────────────────────────────────────────────────────────────


def limit_of(
    thread: Thread,
    side: ActiveSide | None,
    services: Services,
    above: Iterable[tuple[str, str]],
) -> ContextLimit:
    """What a side's model can be shown before its older messages become a summary.

    Where nobody knows its window, that is said once, as soon as a conversation is long; and so is
    that summaries do not help, since more than the conversation fills it.
    """
    if side is None:
        return NO_LIMIT
    limits, prompt = services.catalog.limits, side.prompt
    key = prompt.name if prompt.model != CALLERS_MODEL else ""
    limit = limits.get(key) if key else None
    if limit is None:
        chosen = prompt.compaction
        settings = chosen if isinstance(chosen, Compaction) else Compaction()
        window = settings.window or (_smallest_window(side, services, above) if chosen else 0)
        over = max(1, int(window * settings.at)) if chosen and window else 0
        limit = limits[key] = ContextLimit(over, settings.keep)
    if not limit.over:
        if prompt.compaction and f"!{prompt.name}" not in limits:
            _say_unknown(thread, prompt.name, limits)
    elif thread.compactions is not NO_COMPACTIONS and f"?{prompt.name}" not in limits:
        _say_useless(thread, prompt.name, limits, limit)
    return limit


def _say_unknown(thread: Thread, prompt: str, limits: dict[str, ContextLimit]) -> None:
    seen = thread.seen if thread.side == "side_a" else thread.seen_b
    if (tokens := tokens_shown(seen)) > MANY:
        limits[f"!{prompt}"] = NO_LIMIT
        log.warning(
            "compaction.off", prompt=prompt, tokens=tokens,
            reason="the window of its model is not known; give compaction=Compaction(window=…)",
        )  # fmt: skip


def _say_useless(
    thread: Thread, prompt: str, limits: dict[str, ContextLimit], limit: ContextLimit
) -> None:
    if tokens := tokens_after_summary(thread, limit):
        limits[f"?{prompt}"] = limit
        log.warning(
            "compaction.useless", prompt=prompt, tokens=tokens, limit=limit.over,
            reason="the first step after a summary was over the limit again: the system prompt, "
            "the tools and what is kept fill it; give Compaction(…) a greater window= or at=, or a "
            "smaller keep=",
        )  # fmt: skip


def _smallest_window(side: ActiveSide, services: Services, above: Iterable[tuple[str, str]]) -> int:
    """The window of a side's model, as far as the model says it; of several, what fits each that
    is known."""
    choices = services.catalog.choices_of(side, above, services.definitions)
    return min(filter(None, [_window(each.model, services) for each in choices]), default=0)


def _window(model: str | Model, services: Services) -> int:
    try:
        window = getattr(services.catalog.model(model), "window", 0)
    except HubbubError:  # A step will say what is wrong with it.
        return 0
    return window if type(window) is int and window > 0 else 0


# ── how ──────────────────────────────────────────────────────────────────────────────────────


async def summarize(activity: Summarize, at: AtWork) -> Summarized:
    """Have the messages summarised; what goes wrong is in what is returned."""
    if not activity.covers:
        return unsummarised(activity, NOTHING_TO_SUMMARISE)
    services, run_id = at.services, at.run.lane.run_id
    side = side_summarised(activity, at.run, services)
    attempt = 1
    while True:
        try:
            if side is None:
                raise UnknownAgent(at.thread.agent, services.definitions.names)
            choice = summary_choice(activity, side, at.run, services)
            request = await _request(activity, side, at, choice, attempt)
            answer = services.catalog.model(choice.model).call(request, None)
            reply = await answer if inspect.isawaitable(answer) else answer
            return _paid(_read(activity, reply, at), choice, services)
        except BaseException as error:
            if not is_contained(error):
                raise
            failure = failure_of(error, at, ())
        delay = retry_delay(failure, attempt)
        if delay is None:
            return _said(unsummarised(activity, failure.error), run_id)
        attempt += 1
        await services.hub.ports.clock.sleep(delay)


async def _request(
    activity: Summarize, side: ActiveSide, at: AtWork, choice: ModelChoice, attempt: int
) -> ModelRequest:
    services, lane = at.services, at.run.lane
    thread = replace(at.thread, side=activity.side)
    messages: tuple[ModelMessage, ...] = view_of(thread, activity.side)[: activity.covers]
    if "filter_messages" in side.hooks:
        messages = await run_hooks(side, "filter_messages", at.state(), messages, lane.run_id)
    env = Environment.of(services, lane, side)
    required = [each.name for each in side.prompt.variables if each.required]
    if unset := [name for name in required if env.find(name) is None]:
        raise MissingVariable(side.prompt.name, unset)
    specs = services.catalog.specs_with_children(side, env.is_enabled)
    request = build_request(
        thread, side, specs, messages=messages, value_of=env.find, choice=choice,
        is_bound=services.catalog.is_bound(choice, side, specs),
    )  # fmt: skip
    chosen = side.prompt.compaction
    instructions = chosen.instructions if isinstance(chosen, Compaction) else ""
    asked = summary_request(request, messages, instructions, attempt)
    return await with_contents(services.hub, lane, asked) if thread.has_parts else asked


def _read(activity: Summarize, reply: object, at: AtWork) -> Summarized:
    """What the model's answer is worth: a text that is whole and shorter than what it covers."""
    problem, run_id = reply_problem(reply), at.run.lane.run_id
    if problem or not isinstance(reply, ModelReply):
        return _said(unsummarised(activity, f"the model returned no reply: {problem}"), run_id)
    summary = reply.text.strip()
    if reply.stop_reason in ("length", "refusal"):
        problem = f"the model ended its summary early: {reply.stop_reason}"
    else:
        problem = summary_problem(summary, view_of(at.thread, activity.side)[: activity.covers])
    done = Summarized(
        side=activity.side, step=activity.step, covers=activity.covers, usage=reply.usage,
        model=reply.model, error=problem, summary="" if problem else summary,
    )  # fmt: skip
    return _said(done, run_id)


def _paid(done: Summarized, choice: ModelChoice, services: Services) -> Summarized:
    """The summary, and what it has cost."""
    apart = getattr(services.catalog.model(choice.model), "counts_cached_apart", False) is True
    cost = services.prices.nanos(choice.model, done.usage, cached_apart=apart)
    return replace(done, cached_apart=apart, cost_nanos=cost)


def _said(done: Summarized, run_id: str) -> Summarized:
    if done.error:
        log.warning("summary.failed", run_id=run_id, step=done.step, error=done.error)
    else:
        log.info("conversation.summarised", run_id=run_id, messages=done.covers)
    return done
