"""``/v1/chat/completions``."""

import msgspec
from msgspec.structs import replace
from starlette.types import ASGIApp

from hubbub.channels.http.openai.answers.chat_chunks import ChatChunks
from hubbub.channels.http.openai.answers.question import find_question
from hubbub.channels.http.openai.answers.refusals import JsonAnswer, Refused
from hubbub.channels.http.openai.delivering import Attendance, StreamedAnswer, wait_for_answer
from hubbub.channels.http.openai.endpoint import OpenAiRequest, named
from hubbub.channels.http.openai.requests.chat_body import read_chat
from hubbub.channels.http.openai.requests.placing import place

__all__ = ["create_completion"]


async def create_completion(request: OpenAiRequest) -> ASGIApp:
    """Tell a run what the request says, and answer by what comes of it."""
    body = await request.body()
    wanted = read_chat(body, session_key=request.session_key, key=request.key)
    wanted = replace(wanted, digest=body.digest, is_retry=request.is_retry)
    placed = await place(request.hub, wanted, "messages", request.recent)
    question = await find_question(request.hub, placed.run_id, placed.seq)
    if question is None:
        raise Refused(503, "the request is on record, but cannot be read")
    headers = {"x-hubbub-run": placed.run_id, **named(placed.ignored)}
    chunks = ChatChunks(question, has_usage=wanted.has_usage)
    attendance = Attendance(
        request.host, request.leaving, question, chunks, is_keyed=bool(request.key)
    )
    if wanted.stream:
        return StreamedAnswer(attendance, chunks.begin(), chunks.trouble, headers)
    await wait_for_answer(attendance, request.receive)
    return JsonAnswer(msgspec.json.encode(chunks.completion()), 200, headers)
