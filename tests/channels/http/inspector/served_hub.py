"""A program: a hub with things to look at, served over HTTP.

    served_hub.py PORT STORE [RUNS [TOKEN]]

It says ``ready`` when connections are accepted.  With ``RUNS`` so many runs are at work, which
together say something a hundred times a second, and one run has ten thousand records.
"""

import sys

import anyio
import anyio.lowlevel
from msgspec import structs

from hubbub import (
    Agent,
    FunctionModel,
    RunContext,
    Runtime,
    Skill,
    VariableDefinition,
    agent,
    tool,
)  # fmt: skip
from hubbub.agents.model import AssistantMessage, ModelReply, ModelRequest
from hubbub.channels.http import HttpApp
from hubbub.channels.http.serving import serve
from hubbub.hub.events import Usage
from hubbub.runtime.models.scripted import call, reply

ANSWER = (
    "The first parcel was delivered on Tuesday, two days early, and a neighbour signed for it.\n\n"
    "The second one is on its way: it left Leipzig on Wednesday and was seen in Hamburg this "
    "morning. I would wait until tomorrow noon before anything is paid back."
)
RECORDS = 10_000
RATE = 100
"""Events a second of the runs at work."""


@tool
async def find_order(order: str) -> str:
    """Find an order."""
    await anyio.sleep(0.15)
    return f'{{"order": "{order}", "state": "delivered", "total": 48.5}}'


@tool(approval=True)
def refund(order: str, amount: float) -> str:
    """Pay an order back."""
    return f"{amount} for {order} is paid back."


@tool
async def read_page(page: int) -> str:
    """Read a page."""
    await anyio.sleep(0.1 * page)
    return f"Page {page}: prices rise by four percent unless the contract says otherwise."


def support(request: ModelRequest) -> ModelReply:
    """Looks an order up, pays back when it is asked to, and tells."""
    called = 0
    said = ""
    for message in reversed(request.messages):
        if not isinstance(message, AssistantMessage):
            said = message.content
            break
        called += len(message.calls)
    if "refund" in said.lower() and called == 0:
        made = reply(
            "I can pay that back, once it is approved.", call("refund", order="A7", amount=48.5)
        )
    elif called < 2 and "refund" not in said.lower():
        made = reply(
            "" if called else "Let me look.", call("find_order", order=("A7", "A9")[called])
        )
    else:
        made = reply(ANSWER)
    return _counted(made, request)


def research(request: ModelRequest) -> ModelReply:
    """Reads three pages."""
    read = sum(len(x.calls) for x in request.messages if isinstance(x, AssistantMessage))
    if read < 3:
        return _counted(
            reply(f"Reading page {read + 1}.", call("read_page", page=read + 1)), request
        )
    return _counted(reply("The contract wins: it says 4.2 %, and the letter says 4 %."), request)


def _counted(made: ModelReply, request: ModelRequest) -> ModelReply:
    size = sum(len(x.content) for x in request.messages)
    usage = Usage(
        input_tokens=180 + size // 3, output_tokens=20 + len(made.text) // 4, cache_read_tokens=120
    )
    return structs.replace(made, usage=usage, model="demo-large")


def front(request: ModelRequest) -> ModelReply:
    """Gives the conversation to the writer."""
    if isinstance(request.messages[-1], AssistantMessage):
        return _counted(reply("It is in page.md."), request)
    return _counted(
        reply("The writer takes over.", call("use_skill", name="writer", message="A page.")),
        request,
    )


def writer(request: ModelRequest) -> ModelReply:
    """Talks with the user until the page is right."""
    if len(request.messages) > 1:
        return _counted(reply("", call("complete", result="page.md")), request)
    return _counted(reply("A page about what?"), request)


def lead(request: ModelRequest) -> ModelReply:
    """Has letters sent."""
    if isinstance(request.messages[-1], AssistantMessage):
        return _counted(reply("The mailer waits for its key."), request)
    if len(request.messages) > 1:
        return _counted(reply("Thank you."), request)
    arguments = {"message": "Send the letters."}
    creating = call("subagent_create", agent="mailer", name="post", arguments=arguments)
    return _counted(reply("", creating), request)


@agent("planner", on_restart="resume")
async def planner(input: str, ctx: RunContext) -> str:
    """Splits the work between two researchers and asks where the summary goes."""
    ctx.say("I split the work between two researchers.")
    children = [ctx.spawn("researcher", f"Chapter {number}") for number in (1, 2)]
    for child in children:
        await child.result()
    places = ["archive", "wiki", "nowhere"]
    where = await ctx.ask("Both agree. Where shall the summary go?", options=places)
    return f"The summary went to {where}."


@agent("worker")
async def worker(input: str, ctx: RunContext) -> None:
    """Says what it does, again and again."""
    number, count = map(int, input.split("/"))
    pause = count / RATE
    await anyio.sleep(pause * number / count)
    page = 0
    while True:
        page += 1
        ctx.status(f"page {page} of site {number}")
        await anyio.sleep(pause)


@agent("clerk")
async def clerk(input: str, ctx: RunContext) -> None:
    """Writes many records, then answers what it is told."""
    for number in range(int(input)):
        ctx.status(f"entry {number}")
        if number % 200 == 0:
            await anyio.lowlevel.checkpoint()
    async for message in ctx.messages():
        ctx.say(f"You said: {message.content}")


def agents(latency: float = 0.8) -> tuple[object, ...]:
    """Everybody who can be started."""
    support_agent = Agent(
        "support", "You help customers.", model=FunctionModel(support, latency=latency, chunk=4),
        tools=[find_order, refund], description="Answers customers about their orders.",
    )  # fmt: skip
    researcher = Agent(
        "researcher", "You read.", model=FunctionModel(research, latency=latency, chunk=4),
        tools=[read_page], description="Reads documents, page by page.",
    )  # fmt: skip
    skill = Skill(
        name="writer", description="Writes a page.", instructions="Write.",
        model=FunctionModel(writer, latency=latency, chunk=4),
    )  # fmt: skip
    front_agent = Agent(
        "front", "You are met first.", model=FunctionModel(front), skills=[skill],
        description="Gives the conversation to a writer.",
    )  # fmt: skip
    mailer = Agent(
        "mailer", "You send letters.", model=FunctionModel(lambda request: reply("Sent.")),
        variables=[VariableDefinition(name="MAIL_KEY", scoped=True, required=True)],
    )  # fmt: skip
    lead_agent = Agent(
        "lead", "You lead.", model=FunctionModel(lead),
        tools=[mailer.as_tool(blocking=False, resumable=True)],
        description="Has letters sent by a mailer, which needs a key.",
    )  # fmt: skip
    return support_agent, researcher, planner, front_agent, lead_agent, worker, clerk


async def main(port: int, store: str, runs: int = 0, token: str | None = None) -> None:
    """Serve until the process is killed."""
    rt = Runtime(agents(), store=store)
    app = HttpApp(rt.hub, token=token)
    async with rt, app, anyio.create_task_group() as group:
        if runs:
            for number in range(runs - 1):
                await rt.start("worker", f"{number}/{runs}")
            await rt.start("clerk", str(RECORDS), name="ledger")
        await group.start(lambda **how: serve(app, port=port, **how))
        print("ready", flush=True)


if __name__ == "__main__":
    _, port_, store_, *rest = sys.argv
    anyio.run(main, int(port_), store_, *map(int, rest[:1]), *rest[1:])
