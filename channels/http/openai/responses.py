"""``/v1/responses``: create, read again, take up a stream again, cancel."""

from typing import Final

import anyio
import anyio.lowlevel
import msgspec
from msgspec.structs import replace
from starlette.types import ASGIApp

from hubbub.channels.http.openai.answers.following import Following, recorded
from hubbub.channels.http.openai.answers.identifiers import read_response_id
from hubbub.channels.http.openai.answers.question import ClientQuestion, find_question
from hubbub.channels.http.openai.answers.refusals import JsonAnswer, Refused
from hubbub.channels.http.openai.answers.response_frames import ResponseFrames
from hubbub.channels.http.openai.delivering import Attendance, StreamedAnswer, wait_for_answer
from hubbub.channels.http.openai.endpoint import OpenAiRequest, named
from hubbub.channels.http.openai.requests.placing import place
from hubbub.channels.http.openai.requests.responses_body import read_responses

__all__ = ["cancel_response", "create_response", "show_response"]

CANCEL_SECONDS: Final = 10.0
"""How long the end of a cancelled response is waited for."""


async def create_response(request: OpenAiRequest) -> ASGIApp:
    """Tell a run what the request says, and answer by what comes of it."""
    body = await request.body()
    wanted = read_responses(body, session_key=request.session_key, key=request.key)
    wanted = replace(wanted, digest=body.digest, is_retry=request.is_retry)
    placed = await place(request.hub, wanted, "input", request.recent)
    question = await find_question(request.hub, placed.run_id, placed.seq)
    if question is None:
        raise Refused(503, "the request is on record, but cannot be read")
    headers = {"x-hubbub-run": placed.run_id, **named(placed.ignored)}
    frames = ResponseFrames(question)
    if wanted.stream:
        return _stream(request, question, frames, headers)
    if wanted.is_background:
        return _answer(frames, headers)
    attendance = Attendance(
        request.host, request.leaving, question, frames, is_keyed=bool(request.key)
    )
    await wait_for_answer(attendance, request.receive)
    return _answer(frames, headers)


async def show_response(request: OpenAiRequest) -> ASGIApp:
    """A response as far as it has come, or its stream behind ``starting_after``."""
    question = await _find(request)
    query = request.query()
    after = _number(query.get("starting_after", request.last_event_id))
    if query.get("stream", "false").lower() in ("true", "1"):
        frames = ResponseFrames(question, after)
        if after >= 0:
            await _check_number(request, question, after)
        return _stream(request, question, frames, {})
    if "starting_after" in query:
        raise Refused(400, "'starting_after' is for stream=true.", param="starting_after")
    frames = ResponseFrames(question)
    await recorded(request.hub, question, frames)
    return _answer(frames, {})


async def cancel_response(request: OpenAiRequest) -> ASGIApp:
    """Interrupt a response that is under way, and answer by what it came to."""
    question = await _find(request)
    frames = ResponseFrames(question)
    await recorded(request.hub, question, frames)
    if not frames.is_over:
        frames = ResponseFrames(question)
        await request.hub.interrupt(question.run_id, "cancelled by its client")
        with anyio.move_on_after(CANCEL_SECONDS):
            async with Following(request.hub, question, frames) as following:
                while not frames.is_over and await following.next() is not None:
                    await anyio.lowlevel.checkpoint()
    return _answer(frames, {})


def _stream(
    request: OpenAiRequest,
    question: ClientQuestion,
    frames: ResponseFrames,
    headers: dict[str, str],
) -> ASGIApp:
    request.hub.check_store()
    attendance = Attendance(request.host, request.leaving, question, frames)
    return StreamedAnswer(attendance, frames.begin(), frames.trouble, headers)


def _answer(frames: ResponseFrames, headers: dict[str, str]) -> ASGIApp:
    return JsonAnswer(msgspec.json.encode(frames.response()), 200, headers)


async def _find(request: OpenAiRequest) -> ClientQuestion:
    id_ = request.path("id")
    found = read_response_id(id_)
    question = None if found is None else await find_question(request.hub, *found)
    if question is None:
        raise Refused(404, f"Response with id '{id_[:200]}' not found.", param="response_id")
    return question


def _number(text: str | None) -> int:
    if text is None:
        return -1
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise Refused(
            400, "'starting_after' is the sequence_number of an event.", param="starting_after"
        )
    return int(text)


async def _check_number(request: OpenAiRequest, question: ClientQuestion, after: int) -> None:
    """Refuse a place behind the end of what is over."""
    frames = ResponseFrames(question)
    frames.begin()
    await recorded(request.hub, question, frames)
    if frames.is_over and after > frames.last_number:
        raise Refused(
            400, f"'starting_after': the last event has number {frames.last_number}.",
            param="starting_after",
        )  # fmt: skip
