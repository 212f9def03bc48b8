"""A worker and a reviewer as one subagent, and the director who delegates to it.

    director ── asset_subagent ──┬── Worker     write_asset, fail_asset
        │                        └── Reviewer   inspect_asset, reject_asset, approve_asset
        └── measure_asset                       update_asset_status

The seed's example, completed: with prompts, a parent, and a way for the reviewer to send a draft
back (``reject_asset`` is its ``stop_tool``).  The asset is a small SVG picture, which tools can
look into.  Offline the three models are functions of what they are shown; any real one will do.
"""

import re
from typing import Any, Final
from xml.etree import ElementTree

from hubbub.agents.definitions.agent import AgentDefinition, SessionToolBinding, SideConfig
from hubbub.agents.definitions.prompt import PromptDefinition, SubagentToolConfig
from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.definitions.tools import ToolError, tool
from hubbub.agents.model import AnsweredCall, AssistantMessage, Model, ModelRequest, UserMessage
from hubbub.runtime.models.scripted import FunctionModel, call, reply

__all__ = ["WISH", "agents", "offline_models", "prompts"]

WISH: Final = "A tree for a top-down forest level."
SIZE: Final = 32
"""Pixels on each side that an asset must have."""

MAX_SVG_CHARS: Final = 100_000


# ── tools ────────────────────────────────────────────────────────────────────────────────────


@tool
async def write_asset(path: str, svg: str, state: RunState) -> str:
    """Write an SVG picture into your files.

    Args:
        path: its name, such as tree.svg
        svg: the whole picture
    """
    if len(svg) > MAX_SVG_CHARS:
        raise ToolError(f"the picture has {len(svg):,} characters; at most {MAX_SVG_CHARS:,}")
    await state.files.write(path, svg)
    return f"wrote {path}"


@tool
async def inspect_asset(path: str, state: RunState) -> dict[str, Any]:
    """Look into an SVG picture: its size, how many shapes it has, what is wrong."""
    return _inspected(await state.files.read_text(path))


@tool
async def measure_asset(path: str, state: RunState) -> dict[str, Any]:
    """Size of one of your own files in bytes."""
    stat = state.files.stat(path)
    return {"path": path, "bytes": stat.size}


@tool
def fail_asset(reason: str, attachments: list[str] | None = None) -> str:
    """Give up: say why the asset cannot be made, with any files worth keeping."""
    return "The order was returned."


@tool
def approve_asset(summary: str, attachments: list[str]) -> str:
    """Approve the asset and hand it in, with a summary and its files."""
    return "Handed in."


@tool
def reject_asset(feedback: str) -> dict[str, str]:
    """Send the draft back with what must change."""
    return {"feedback": feedback}


@tool
def update_asset_status(status: str) -> str:
    """Say how far the asset is."""
    return "Noted."


def _inspected(svg: str) -> dict[str, Any]:
    problems = []
    try:
        if "<!DOCTYPE" in svg or "<!ENTITY" in svg:  # Entities could grow without end.
            raise ElementTree.ParseError("it declares a document type")
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        return {"problems": [f"not well-formed: {error}"]}
    if not root.tag.endswith("svg"):
        problems.append(f"the root is {root.tag}, not svg")
    width, height = root.get("width", ""), root.get("height", "")
    if (width, height) != (str(SIZE), str(SIZE)):
        problems.append(f"{width or '?'} × {height or '?'} pixels, not {SIZE} × {SIZE}")
    shapes = sum(1 for _ in root.iter()) - 1
    if not shapes:
        problems.append("there is nothing in it")
    return {"width": width, "height": height, "shapes": shapes, "problems": problems}


# ── agents ───────────────────────────────────────────────────────────────────────────────────


def agents() -> tuple[AgentDefinition, ...]:
    """The director, and the worker and reviewer as one subagent."""
    return (
        AgentDefinition(
            name="asset_subagent",
            type="dual_ai",
            max_session_turns=40,
            expose_as_tool=True,
            tool_description="Generate and QA top-down game assets.",
            side_a=SideConfig(
                label="Worker",
                prompt="asset_worker",
                stop_on_response=True,
                session_fail=SessionToolBinding("fail_asset", "reason", "attachments"),
            ),
            side_b=SideConfig(
                label="Reviewer",
                prompt="asset_reviewer",
                stop_on_response=False,
                stop_tool="reject_asset",
                stop_tool_response_property="feedback",
                session_stop=SessionToolBinding("approve_asset", "summary", "attachments"),
                session_status=SessionToolBinding("update_asset_status", "status"),
            ),
        ),
        AgentDefinition(name="director", side_a=SideConfig(prompt="director")),
    )


def prompts(model: str | Model | None = None) -> tuple[PromptDefinition, ...]:
    """The three prompts, on ``model``, or on the offline ones (``offline_models``)."""
    return (
        PromptDefinition(
            name="director",
            prompt=(
                "You direct the art of a top-down game. Have assets made by asset_subagent: tell "
                "it what is wanted. When you get the asset, measure your copy of each file, then "
                "tell the user in two sentences what was made and where it is."
            ),
            model=model or "offline director",
            tools=(
                SubagentToolConfig(name="asset_subagent", init_user_message_property="message"),
                measure_asset,
            ),
        ),
        PromptDefinition(
            name="asset_worker",
            prompt=(
                "You draw game assets as small SVG pictures, seen from above. Write the file with "
                "write_asset, then say in one sentence what you made and the file's name. When "
                "you are told what to change, write it again. Use fail_asset only if it cannot "
                "be done."
            ),
            model=model or "offline worker",
            tools=(write_asset, fail_asset),
        ),
        PromptDefinition(
            name="asset_reviewer",
            prompt=(
                f"You review game assets. Look at each draft with inspect_asset. It must be "
                f"{SIZE} × {SIZE} pixels, have at least three shapes and no problems. Say how far "
                "it is with update_asset_status. Then either reject_asset with what must change, "
                "or approve_asset with a summary and the file as attachment."
            ),
            model=model or "offline reviewer",
            tools=(inspect_asset, reject_asset, approve_asset, update_asset_status),
        ),
    )


# ── offline models ───────────────────────────────────────────────────────────────────────────

_DRAFT: Final = '<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24">{}</svg>'
_FINAL: Final = '<svg xmlns="http://www.w3.org/2000/svg" width="32" height="32">{}</svg>'
_TREE: Final = (
    '<circle cx="16" cy="16" r="14" fill="#2f6b2f"/><circle cx="12" cy="13" r="7" '
    'fill="#3f8a3f"/><circle cx="16" cy="16" r="2" fill="#5b3a1e"/>'
)


def offline_models(latency: float = 0.0) -> dict[str, Model]:
    """Models that follow what they are shown, by the names that ``prompts`` uses."""
    return {
        "offline director": FunctionModel(_director, latency=latency),
        "offline worker": FunctionModel(_worker, latency=latency),
        "offline reviewer": FunctionModel(_reviewer, latency=latency),
    }


def _director(request: ModelRequest) -> Any:
    done = _calls(request)
    if not done:
        wish = _heard(request)[-1]
        return reply("I have it drawn and reviewed.", call("asset_subagent", message=wish))
    if done[-1].name == "asset_subagent":
        paths = re.findall(r"^- (.+)$", "\n".join(done[-1].notes), re.M)
        if done[-1].is_error or not paths:
            return f"There is no asset: {done[-1].output}"
        return reply("", *(call("measure_asset", path=path) for path in paths))
    sizes = ", ".join(each.output for each in done if each.name == "measure_asset")
    return f"{done[0].output} Your copy: {sizes}"


def _worker(request: ModelRequest) -> Any:
    steps = [m for m in request.messages if isinstance(m, AssistantMessage) and not m.is_given]
    if steps and steps[-1].calls:
        last = steps[-1].calls[-1]
        return f"The draft is in tree.svg ({last.output})."
    is_first = not steps
    svg = (_DRAFT if is_first else _FINAL).format(_TREE)
    text = "A first draft." if is_first else f"Done: {_heard(request)[-1]}"
    return reply(text, call("write_asset", path="tree.svg", svg=svg))


def _reviewer(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if not isinstance(last, AssistantMessage) or not last.calls:
        return reply("", call("inspect_asset", path="tree.svg"))
    seen = last.calls[-1]
    problems = re.findall(r'"([^"]*pixels, not [^"]*)"', seen.output)
    if problems:
        return reply(
            "",
            call("update_asset_status", status="sent back once"),
            call("reject_asset", feedback=f"It is {problems[0]}."),
        )
    summary = f"A {SIZE} × {SIZE} tree, seen from above, passed review."
    return reply("", call("approve_asset", summary=summary, attachments=["tree.svg"]))


def _calls(request: ModelRequest) -> list[AnsweredCall]:
    return [c for m in request.messages if isinstance(m, AssistantMessage) for c in m.calls]


def _heard(request: ModelRequest) -> list[str]:
    return [m.content for m in request.messages if isinstance(m, UserMessage)]
