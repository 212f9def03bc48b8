"""``RuntimeAnswers``: what a runtime at work answers at the address ``runtime``.

What its store says it answers as any process would that shares the store (``Finder``); the rest
takes a runtime:

    variables RUN_ID REQUEST_ID     which variables a creation waits for: names only
    provide RUN_ID REQUEST_ID       and its variables: the child is started; ``given`` are the
                                    values by name, each a ``Secret``
    content RUN_ID PATH             the bytes of a file; null
    put RUN_ID PATH                 sends a run a file; ``given`` is its content
    limit RUN_ID {JSON}             what a root and all below it may use: the fields of ``Limits``;
                                    null: what the runtime says

A file that is sent comes as a message that triggers no turn: the run has it as soon as it takes
what waits, under this name, or under the next free one where it has made such a file meanwhile.
Whether the name is free the store decides: of several that come at once, the first one has it.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from hubbub.agents.state.area import (
    MAX_FILES,
    new_file_problem,
    place_problem,
    without_root,
)
from hubbub.hub.errors import (
    BadPath,
    BadValue,
    CallerError,
    DefinitionError,
    LimitExceeded,
    NoSuchFile,
)
from hubbub.hub.events import FileRef, Limits, SessionMessage
from hubbub.hub.events.files import MAX_FILE_BYTES, path_problem
from hubbub.hub.near_misses import shown
from hubbub.hub.receipt import Receipt
from hubbub.hub.texts import check_label
from hubbub.hub.values import Secret
from hubbub.runtime.activities.other_runs import LookAt
from hubbub.runtime.activities.variable_requests import PendingVariables, pending, provide
from hubbub.runtime.finding.finder import Finder
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.supervision.named_files import NamedFiles

__all__ = ["RuntimeAnswers"]

SetLimits: TypeAlias = Callable[[str, Limits | None], Awaitable[Receipt]]
"""``RunAccess.limit``."""

SOURCE = "files"
"""The source of files that are sent."""


class RuntimeAnswers:
    """Answers questions, some of which have something done."""

    def __init__(
        self, finder: Finder, services: Services, look_at: LookAt, limit: SetLimits
    ) -> None:
        self._finder = finder
        self._services = services
        self._hub = services.hub
        self._look_at = look_at
        self._limit = limit
        self._named_files = NamedFiles(services.definitions)

    async def answer(self, question: str, given: object = None) -> Any:
        """The answer, as JSON has it, but for contents and receipts.

        Raises ``BadValue``, and what is refused: ``VariablesRefused``, ``BadPath``,
        ``LimitExceeded``, ``CallerError``.
        """
        verb, _, argument = question.partition(" ")
        one, _, other = argument.partition(" ")
        match verb:
            case "variables":
                check_label("request_id", other)
                found = await pending(self._services, self._look_at, one, other)
                return {**msgspec.to_builtins(found), **await self._published_variables(found)}
            case "provide":
                check_label("request_id", other)
                values = _values(given)
                started, _ = await provide(self._services, self._look_at, one, other, values)
                return {"reference": started}
            case "content":
                return await self._content(one, other)
            case "put":
                return await self._put(one, other, given)
            case "limit":
                return await self._limit(one, _limits(other))
            case _:
                return await self._finder.answer(question)

    async def _published_variables(self, found: PendingVariables) -> Mapping[str, Any]:
        """What variables are that an agent reads whom only other processes know."""
        if self._services.definitions.find_agent(found.agent) is not None:
            return {}
        agent = await self._finder.answer(f"agent {found.agent}")
        kinds = {each["name"]: each for each in agent["variables"]} if agent is not None else {}
        shown = [
            {**each, **kinds.get(each["name"], {})} for each in msgspec.to_builtins(found.variables)
        ]
        return {"variables": shown}

    # ── files ────────────────────────────────────────────────────────────────────────────────

    async def _content(self, run_id: str, path: str) -> bytes | None:
        found = await self._finder.answer(f"file {run_id} {path}")
        if found is None:
            return None
        root = (await self._finder.run(run_id)).root_run_id
        content = await self._hub.ports.blobs.get(root, found["digest"])
        if content is None:
            raise NoSuchFile(path, "its content is no longer kept")
        return content

    async def _put(self, run_id: str, path: str, content: object) -> Receipt:
        if not isinstance(content, bytes):
            raise BadValue("given", f"expected bytes, not {type(content).__name__}")
        name = without_root(path)
        if problem := path_problem(name):
            raise BadPath(path, problem)
        if len(content) > MAX_FILE_BYTES:
            raise LimitExceeded("bytes of a file", MAX_FILE_BYTES, "send several files")
        info = await self._finder.run(run_id)
        digest = await self._hub.ports.own_offload.run(lambda: hashlib.sha256(content).hexdigest())
        files = await self._digests(run_id)
        if files.get(name) == digest:
            return Receipt("duplicate", run_id=run_id)
        if problem := place_problem(files, name):
            raise BadPath(path, f"{problem}; choose another name")
        if name not in files and len(files) >= MAX_FILES:
            raise LimitExceeded("files of a run", MAX_FILES, "have its agent delete some")
        if problem := new_file_problem(files, name):
            raise CallerError(problem)
        await self._hub.ports.blobs.put(info.root_run_id, digest, content)
        ref = FileRef(path=name, digest=digest, size=len(content))
        message = SessionMessage(files=(ref,), silent=True, triggers=False, source=SOURCE)
        refuse = self._named_files.refusal_of_new(name)
        receipt = await self._hub.pipeline.deliver(message, to=run_id, refuse=refuse)
        if receipt.rejected and (await self._digests(run_id)).get(name) == digest:
            return Receipt("duplicate", run_id=run_id)  # It was sent twice at once.
        return receipt

    async def _digests(self, run_id: str) -> dict[str, str]:
        """By name: the files that the run has, or will have when it takes what waits."""
        found = await self._finder.answer(f"files {run_id}") or ()
        return {each["path"]: each["digest"] for each in found}


def _values(given: object) -> dict[str, str]:
    """What was given as secrets, revealed for those who keep it."""
    if not isinstance(given, Mapping) or not all(isinstance(x, Secret) for x in given.values()):
        raise BadValue("given", "expected a mapping from names to secrets")
    return {str(name): value.reveal() or "" for name, value in given.items()}


def _limits(text: str) -> Limits | None:
    """The limits that a JSON text says."""
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadValue("limits", f"expected JSON: {error}") from None
    if given is None:
        return None
    if not isinstance(given, dict):
        raise BadValue("limits", f"expected an object or null, not {shown(given)}")
    try:
        return Limits(**given)
    except (TypeError, DefinitionError) as error:
        raise BadValue("limits", str(error)) from None
