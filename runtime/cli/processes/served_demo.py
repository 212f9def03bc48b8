"""``served_demo``: what ``hubbub serve`` serves where nothing is named: all demos, offline.

``main`` converses and gives the conversation to others, ``director`` has a picture drawn and
reviewed, ``surveyor`` reads the text files of a folder.  The last two begin by themselves, once
per store, so that there is something to see; killed at any moment, they go on where they were.
"""

from pathlib import Path
from typing import Final

from hubbub.hub.ports import Ports
from hubbub.hub.store.store import Store
from hubbub.runtime.demo.assets import agents as assets
from hubbub.runtime.demo.chat.agents import chat_agents
from hubbub.runtime.demo.chat.model import offline_models
from hubbub.runtime.demo.survey import Demo, Survey, own_documents, task_of
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.stores.retention.retention import Retention

__all__ = ["begin_served_demo", "served_demo"]

LATENCY: Final = 0.6
"""Seconds that a model takes: one can follow what happens."""


def served_demo(
    store: Store,
    ports: Ports,
    *,
    capacity: int | None = None,
    replace_agents: bool = False,
    retention: Retention | None = None,
) -> Runtime:
    """A runtime with the agents of the demos, not entered yet."""
    folder, wanted = own_documents()
    survey = Survey(Demo(folder=folder, wanted=wanted, latency=LATENCY), ports)
    chat = chat_agents(offline_models(ports, latency=LATENCY), ports, folder=Path.cwd())
    runtime = Runtime(
        (*chat.agents, *assets.agents(), *survey.agents),
        assets.prompts(),
        chat.tools,
        models=assets.offline_models(LATENCY),
        store=store,
        ports=ports,
        default_agent=chat.agent.name,
        grace=0,  # Nothing is lost: what is not done is done again.
        capacity=capacity,
        replace_agents=replace_agents,
        retention=retention,
    )
    survey.runtime = runtime
    return runtime


async def begin_served_demo(runtime: Runtime) -> None:
    """Start the demos that begin by themselves; those of an earlier start are the same runs."""
    folder, _ = own_documents()
    await runtime.start("surveyor", task_of(folder), run_id="demo-survey", once=True)
    await runtime.start("director", assets.WISH, run_id="demo-assets")
