"""The response as an object: its run's events so far, in the form of OpenAI's API.

Every key of the form is there, also where there is nothing to say.
"""

from typing import Any

from hubbub.channels.http.openai.answers.answer import AgentAnswer
from hubbub.channels.http.openai.answers.identifiers import item_id, response_id
from hubbub.channels.http.openai.answers.parts import AnswerPart
from hubbub.channels.http.openai.answers.question import ClientQuestion
from hubbub.channels.http.openai.answers.turn import AgentTurn
from hubbub.hub.events import GivenTool, SessionOpen, Usage
from hubbub.hub.values import NULL, decode_value

__all__ = ["input_tokens_of", "item_of", "response_object"]


def response_object(
    question: ClientQuestion, turn: AgentTurn, answer: AgentAnswer, status: str
) -> dict[str, Any]:
    """A response; ``status`` is its turn's, or that of its beginning."""
    notes = question.notes
    is_cut = status == "completed" and _is_cut(turn, answer)
    key = question.opening.session_key
    return {
        "id": response_id(question.run_id, question.seq),
        "object": "response",
        "created_at": question.item.at // 1_000_000,
        "completed_at": turn.ended_at // 1_000_000 if status == "completed" else None,
        "status": "incomplete" if is_cut else status,
        "background": bool(notes.get("background")),
        "conversation": {"id": key} if key and not notes.get("no_conversation") else None,
        "error": _error(turn) if status == "failed" else None,
        "frequency_penalty": notes.get("frequency_penalty", 0),
        "incomplete_details": {"reason": _reason(answer)} if is_cut else None,
        "instructions": notes.get("instructions"),
        "max_output_tokens": notes.get("max_output_tokens"),
        "max_tool_calls": notes.get("max_tool_calls"),
        "metadata": notes.get("metadata", {}),
        "model": model_of(question),
        "output": []
        if status in ("queued", "in_progress") and not answer.parts
        else _output(question, answer),
        "parallel_tool_calls": notes.get("parallel_tool_calls", True),
        "presence_penalty": notes.get("presence_penalty", 0),
        "previous_response_id": notes.get("previous_response_id"),
        "prompt_cache_key": notes.get("prompt_cache_key"),
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": notes.get("safety_identifier"),
        "service_tier": "default",
        "store": notes.get("store", True),
        "temperature": notes.get("temperature", 1),
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [_tool(tool) for tool in question.tools],
        "top_logprobs": 0,
        "top_p": notes.get("top_p", 1),
        "truncation": "disabled",
        "usage": _usage(answer.usage) if turn.is_over and status == turn.status else None,
        "user": notes.get("user"),
    }


def model_of(question: ClientQuestion) -> str:
    """The name by which the agent was asked for."""
    name = question.notes.get("model")
    if isinstance(name, str):
        return name
    item = question.item
    return item.open_agent if isinstance(item, SessionOpen) else item.agent


def item_of(part: AnswerPart, id_: str, status: str) -> dict[str, Any]:
    """A part as an item of a response's output; one ``in_progress`` has no content yet."""
    has_content = status != "in_progress"
    if part.kind == "text":
        text = {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
        return {
            "id": id_, "type": "message", "status": status, "role": "assistant",
            "content": [text] if has_content else [],
        }  # fmt: skip
    if part.kind == "reasoning":
        summary = {"type": "summary_text", "text": part.text}
        return {"id": id_, "type": "reasoning", "summary": [summary] if has_content else []}
    return {
        "id": id_, "type": "function_call", "status": status, "call_id": part.call_id,
        "name": part.name, "arguments": part.text,
    }  # fmt: skip


def input_tokens_of(usage: Usage) -> int:
    """All tokens of the input: some providers leave out those of the cache."""
    if usage.input_tokens >= usage.cache_read_tokens:
        return usage.input_tokens
    return usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens


def _output(question: ClientQuestion, answer: AgentAnswer) -> list[dict[str, Any]]:
    prefixes = {"reasoning": "rs", "text": "msg", "call": "fc"}
    return [
        item_of(
            part, item_id(prefixes[part.kind], question.run_id, question.seq, place), "completed"
        )
        for place, part in enumerate(answer.parts)
    ]


def _usage(usage: Usage) -> dict[str, Any]:
    given = input_tokens_of(usage)
    return {
        "input_tokens": given,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": given + usage.output_tokens,
    }


def _is_cut(turn: AgentTurn, answer: AgentAnswer) -> bool:
    """Whether the answer was cut off."""
    end = turn.ending
    is_limited = end is not None and end.outcome == "limit"
    return is_limited or answer.is_cut or answer.stop_reason in _CUT


_CUT = ("length", "refusal")


def _reason(answer: AgentAnswer) -> str:
    return "content_filter" if answer.stop_reason == "refusal" else "max_output_tokens"


def _error(turn: AgentTurn) -> dict[str, Any]:
    return {"code": "server_error", "message": turn.why or "the agent failed"}


def _tool(tool: GivenTool) -> dict[str, Any]:
    return {
        "type": "function", "name": tool.name, "description": tool.description or None,
        "parameters": None if tool.schema_json is NULL else decode_value(tool.schema_json),
        "strict": False,
    }  # fmt: skip
