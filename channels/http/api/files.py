"""The files of runs, up and down.

What is sent goes to the run's inbox and is the run's when it takes what waits.  What is fetched is
never shown as a page of this site: a file may hold anything.
"""

import mimetypes
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from hubbub.channels.http.api.views import FileView
from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.receipts import RECEIPTS, REJECTIONS, answer_of
from hubbub.channels.http.wire.route import Content, HttpAnswer, HttpCall, Route
from hubbub.channels.http.wire.runtime_answers import ask_runtime, found_by_runtime, one_word

__all__ = ["ROUTES"]

SHOWN: Final = frozenset(
    ("image/png", "image/jpeg", "image/gif", "image/webp", "audio/mpeg", "audio/wav", "text/plain")
)
"""What a browser may show as it is; everything else is only to be saved."""


class FileList(Struct, frozen=True):
    """The files of a run, by name."""

    files: tuple[FileView, ...]


async def list_files(call: HttpCall) -> HttpAnswer:
    """The files of a run."""
    found = await found_by_runtime(call.hub, "unknown-run", "files", call.path["run_id"])
    return HttpAnswer(content={"files": found})


async def fetch_file(call: HttpCall) -> HttpAnswer:
    """The content of a file."""
    hub, run_id, path = call.hub, call.path["run_id"], call.path["path"]
    await found_by_runtime(hub, "unknown-run", "run", run_id)
    file = await found_by_runtime(hub, "unknown-file", "file", run_id, path)
    tag = f'"{file["digest"]}"'
    if tag in call.header(b"if-none-match"):
        return HttpAnswer(status=304, content=b"", headers={"etag": tag})
    call.outgoing.reserve(file["size"])
    name = file["path"].rpartition("/")[2]
    guessed = mimetypes.guess_type(name)[0] or ""
    media_type = guessed if guessed in SHOWN else "application/octet-stream"
    how = "inline" if guessed in SHOWN else "attachment"
    return HttpAnswer(
        content=await found_by_runtime(hub, "unknown-file", "content", run_id, path),
        media_type=f"{media_type}; charset=utf-8" if media_type == "text/plain" else media_type,
        headers={
            "etag": tag,
            "content-disposition": f"{how}; filename*=UTF-8''{quote(name, safe='')}",
            "content-security-policy": "default-src 'none'; sandbox",
        },
    )


async def send_file(call: HttpCall) -> HttpAnswer:
    """Send a run a file."""
    hub, run_id, path = call.hub, one_word(call.path["run_id"], "unknown-run"), call.path["path"]
    if await hub.journal.info(run_id) is None:
        raise Refusal("unknown-run", "there is no such run")
    return await answer_of(await ask_runtime(hub, "put", run_id, path, given=call.body))


_BYTES: Final = Content("application/octet-stream", "the content, as it is")

ROUTES: Final = (
    Route(
        method="GET", path="/api/runs/{run_id}/files", summary="The files of a run",
        handler=list_files, answers={200: FileList}, problems=("unknown-run", "no-runtime"),
    ),
    Route(
        method="GET", path="/api/runs/{run_id}/files/{path:path}", summary="A file's content",
        handler=fetch_file, answers={200: _BYTES, 304: None},
        problems=("unknown-run", "unknown-file", "no-runtime"),
    ),
    Route(
        method="PUT", path="/api/runs/{run_id}/files/{path:path}", summary="Send a run a file",
        handler=send_file, body=_BYTES, answers=RECEIPTS,
        problems=("limit-reached", "no-runtime", *REJECTIONS),
    ),
)  # fmt: skip
