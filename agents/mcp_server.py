"""``mcp``: a server of tools, spoken to by the Model Context Protocol.

    mcp("uvx some-server") ──► McpServer ──► runtime/mcp/ ──► its tools, as the server lists them

Which tools there are, the server says while it is connected.  What is decided here is which of
them a prompt gets, under which names, and who is asked before they run.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import force_setattr

from hubbub.hub.errors import DefinitionError
from hubbub.hub.masking.safe_repr import SafeRepr
from hubbub.hub.near_misses import shown, unmade
from hubbub.hub.texts import text_problem
from hubbub.hub.values import COUNTED, LIMIT_OF_TIME, Secret, is_count, is_time_limit

__all__ = ["ApprovesTools", "ListedTools", "McpServer", "mcp"]

ApprovesTools: TypeAlias = bool | Sequence[str] | Callable[[str, Mapping[str, Any]], object]
"""Whose calls a person is asked about: all, those of these names, or where a function of the
tool's name and its arguments says so."""

MAX_NAME: Final = 32
MAX_PREFIX: Final = 40
"""Of the 64 characters that providers allow a tool's name."""

_NAME: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}")
_PREFIX: Final = re.compile(rf"[a-zA-Z0-9_-]{{0,{MAX_PREFIX}}}")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LAUNCHERS: Final = frozenset(
    ("uvx", "npx", "bunx", "pipx", "uv", "run", "tool", "exec", "node", "python", "python3", "env")
)
"""Words of a command that start a server and do not name it."""

_OBJECT: Final = "server"


class ListedTools(Struct, frozen=True, eq=False):
    """Stands in for a server, as its ``target``: these are its tools; nothing is connected to."""

    tools: tuple[Any, ...] = ()


class McpServer(SafeRepr, frozen=True, kw_only=True):
    """A server whose tools a prompt may use; made by ``mcp``, which says what each field means.

    It may stand in ``tools`` of a prompt, an agent or a runtime, where prompts name it.  All
    prompts of a runtime that have it share one connection.  Raises ``DefinitionError``.
    """

    name: str
    target: object
    prefix: str
    allow: Sequence[str] | None = None
    deny: Sequence[str] = ()
    env: Mapping[str, str | Secret] = {}
    headers: Mapping[str, str | Secret] = {}
    cwd: str | None = None
    timeout: float | None = 300.0
    start_timeout: float = 30.0
    approval: ApprovesTools = False
    approval_timeout: float | None = None
    max_tools: int = 128
    protocol: Literal["auto", "2025", "2026"] = "auto"

    def __post_init__(self) -> None:
        for field in ("target", "allow", "deny", "approval"):
            if isinstance(value := getattr(self, field), list):
                force_setattr(self, field, tuple(value))
        if problems := list(_problems_of(self)):
            raise DefinitionError(f"mcp {shown(self.name)}", problems)
        force_setattr(self, "headers", {name: _as_secret(x) for name, x in self.headers.items()})
        force_setattr(self, "env", dict(self.env))

    @property
    def url(self) -> str:
        """The address of a server that is reached by HTTP, else empty."""
        target = self.target
        return target if isinstance(target, str) and _is_url(target) else ""

    @property
    def command(self) -> tuple[str, ...]:
        """The words of the command that starts the server, if one does."""
        if isinstance(self.target, tuple):
            return self.target
        if isinstance(self.target, str) and not self.url:
            return tuple(shlex.split(self.target))
        return ()

    @property
    def secrets(self) -> frozenset[str]:
        """The values that nothing said of the server may quote."""
        given = (*self.env.values(), *self.headers.values())
        return frozenset(x.reveal() or "" for x in given if isinstance(x, Secret)) - {""}

    def claims(self, name: str) -> bool:
        """Whether a tool of that name may be one of the server's."""
        return name.startswith(self.prefix)

    def admits(self, tool: str) -> bool:
        """Whether prompts get the tool that the server itself calls so."""
        if any(fnmatchcase(tool, each) for each in self.deny):
            return False
        return self.allow is None or any(fnmatchcase(tool, each) for each in self.allow)

    def asks_about(self, tool: str) -> bool | Callable[[Mapping[str, Any]], object]:
        """Whether a person is asked before a call of the tool runs, or what says so of its
        arguments."""
        asks = self.approval
        if isinstance(asks, bool):
            return asks
        if not callable(asks):
            return any(fnmatchcase(tool, each) for each in asks)
        function = asks
        return lambda arguments: function(tool, arguments)


def mcp(
    server: object,
    *,
    name: str | None = None,
    prefix: str | None = None,
    allow: Sequence[str] | None = None,
    deny: Sequence[str] = (),
    env: Mapping[str, str | Secret] | None = None,
    headers: Mapping[str, str | Secret] | None = None,
    cwd: str | None = None,
    timeout: float | None = 300.0,
    start_timeout: float = 30.0,
    approval: ApprovesTools = False,
    approval_timeout: float | None = None,
    max_tools: int = 128,
    protocol: Literal["auto", "2025", "2026"] = "auto",
) -> McpServer:
    """Let a prompt use the tools of an MCP server (the extra ``mcp``).

        Agent("helper", "You help.", model=…, tools=[mcp("uvx mcp-server-time")])

    ``server`` is a command, which is started and spoken to over its standard input and output; the
    words of one; an address (``https://…/mcp``); or a server object of the SDK, in this process.
    The connection belongs to the runtime: it is opened with it, shared by its runs, and opened
    again, after growing pauses, whenever it ends.  A server that is not there stops nobody: the
    first step of a run waits up to ``start_timeout`` seconds for its list of tools, later steps
    do not, and a call of one of its tools has an error result.

    * ``name`` is what prompts name it by; without one it is made of ``server``.  Models see each
      tool as ``prefix`` and the server's own name for it, changed where providers allow a
      character not; ``prefix`` is the name and ``_``, if not given.
    * ``allow`` and ``deny`` choose tools by the server's names; ``*`` stands for any characters.
      At most ``max_tools`` are taken, in the order of their names.
    * ``env`` is what a command finds in its environment, beside the few variables that are no
      secrets; ``cwd`` where it runs; ``headers`` go with every request to an address.  A
      ``Secret`` among them shows nowhere.
    * ``timeout``: seconds for one call, None for no limit; what a person is asked meanwhile does
      not count.  A call that is cancelled is cancelled at the server.
    * ``approval``: True, or the names of tools, or a function of a tool's name and its arguments
      (``@tool`` says what asking means; so does ``approval_timeout``).
    * ``protocol``: by default that of 2025, by which servers may ask a user in the middle of a
      call, and a newer one where the server refuses that; ``"2026"`` the other way round, for one
      that asks by its results; ``"2025"`` never a newer one.

    What the server asks of a user is a question to the one of the conversation.  A call is made
    again after a crash only where the server calls its tool read-only or idempotent.

    Raises ``DefinitionError`` with everything that is wrong.
    """
    made = _name_of(server) if name is None else name
    if prefix is None:
        prefix = f"{made}_" if isinstance(made, str) else ""
    return McpServer(
        name=made, target=server, prefix=prefix, allow=allow,
        deny=deny, env={} if env is None else env, headers={} if headers is None else headers,
        cwd=cwd, timeout=timeout, start_timeout=start_timeout, approval=approval,
        approval_timeout=approval_timeout, max_tools=max_tools, protocol=protocol,
    )  # fmt: skip


# ── what is wrong ────────────────────────────────────────────────────────────────────────────


def _problems_of(server: McpServer) -> Iterator[str]:
    name: object = server.name
    prefix: object = server.prefix
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield f"name {shown(name)}: use 1 to {MAX_NAME} letters, digits, '_' and '-'"
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        yield f"prefix {shown(prefix)}: use at most {MAX_PREFIX} letters, digits, '_' and '-'"
    yield from _target_problems(server.target)
    if server.allow is not None:
        yield from _pattern_problems("allow", server.allow)
    yield from _pattern_problems("deny", server.deny)
    yield from _value_problems("env", server.env)
    yield from _value_problems("headers", server.headers)
    if isinstance(server.headers, Mapping):
        for each in server.headers:
            if isinstance(each, str) and not _HEADER.fullmatch(each):
                yield f"headers: {shown(each)} is no name of a header"
    if server.cwd is not None and (not isinstance(server.cwd, str) or not server.cwd):
        yield "cwd: expected the path of a folder"
    elif server.cwd is not None:
        yield from _text_problems("cwd", (server.cwd,))
    yield from _seconds_problems("timeout", server.timeout, may_be_none=True)
    yield from _seconds_problems("start_timeout", server.start_timeout)
    yield from _approval_problems(server.approval, server.approval_timeout)
    limit: object = server.max_tools
    if not is_count(limit):
        yield f"max_tools {shown(limit)}: {COUNTED}"
    protocol: object = server.protocol
    if protocol not in ("auto", "2025", "2026"):
        yield f"protocol {shown(protocol)}: 'auto', '2025' or '2026'"


def _target_problems(target: object) -> Iterator[str]:
    if isinstance(target, str):
        yield from _text_problems("server", (target,))
        if _is_url(target):
            yield from _url_problems(target)
        elif "://" in target.split(" ")[0]:
            yield f"server: {shown(target)} is neither http nor https"
        else:
            yield from _command_problems(target)
    elif isinstance(target, tuple):
        yield from _text_problems("server", target)
        words = [each for each in target if isinstance(each, str)]
        if len(words) < len(target) or not words or not words[0] or "\0" in "".join(words):
            yield "server: expected the words of a command, each a text"
    elif target is None or isinstance(target, bool | int | float | bytes | dict | type):
        what = (
            "a class; give an object of it" if isinstance(target, type) else type(target).__name__
        )
        yield f"server: expected a command, an address, or a server object, not {what}"


def _text_problems(path: str, texts: Iterable[object]) -> Iterator[str]:
    for each in texts:
        if isinstance(each, str) and (problem := text_problem(each)):
            yield f"{path}: {problem}"


def _command_problems(command: str) -> Iterator[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        yield f"server: {shown(command)} is no command: {error}"
        return
    if not words or "\0" in command:
        yield "server: expected a command, an address, or a server object, not an empty text"


def _url_problems(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        yield f"server: the address cannot be read: {error}"
        return
    if parts.username is not None:
        yield "server: the address holds a name or password; give headers={…} with a Secret"
    elif not host or any(each.isspace() or ord(each) < 32 for each in url):
        yield f"server: {shown(url)} is no address of a server"


def _pattern_problems(path: str, names: object) -> Iterator[str]:
    if not isinstance(names, tuple) or not all(isinstance(x, str) and x for x in names):
        yield f"{path}: expected a list of names of tools"
        return
    yield from _text_problems(path, names)


def _value_problems(path: str, values: object) -> Iterator[str]:
    if not isinstance(values, Mapping):
        yield f"{path}: expected a mapping of names to texts"
        return
    for name, value in values.items():
        if not isinstance(name, str) or not name or "=" in name:
            yield f"{path}: expected names, not {shown(name)}"
        elif not isinstance(value, str | Secret):
            yield f"{path}.{ascii(name)[1:-1]}: expected a text or a Secret{unmade(value)}"
        else:
            text = value.reveal() if isinstance(value, Secret) else value
            # Which one it is may be a secret itself.
            if text is None or text_problem(text) or any(ord(x) < 32 and x != "\t" for x in text):
                yield f"{path}.{ascii(name)[1:-1]}: expected a text of one line"


def _seconds_problems(path: str, seconds: object, *, may_be_none: bool = False) -> Iterator[str]:
    if seconds is None and may_be_none:
        return
    if not is_time_limit(seconds):
        none = ", or None for no limit" if may_be_none else ""
        yield f"{path} {shown(seconds)}: use {LIMIT_OF_TIME}{none}"


def _approval_problems(approval: object, timeout: object) -> Iterator[str]:
    if isinstance(approval, tuple):
        yield from _pattern_problems("approval", approval)
    elif not isinstance(approval, bool) and (isinstance(approval, str) or not callable(approval)):
        yield "approval: expected True, names of tools, or a function of a name and arguments"
    if timeout is not None and approval is False:
        yield "approval_timeout: nobody is asked; give approval=…, too"
    yield from _seconds_problems("approval_timeout", timeout, may_be_none=True)


# ── names ────────────────────────────────────────────────────────────────────────────────────


def _is_url(target: str) -> bool:
    return target.lower().startswith(("http://", "https://"))


def _name_of(server: object) -> str:
    """A name made of what the server is reached by."""
    text = ""
    if isinstance(server, str) and _is_url(server):
        try:
            text = urlsplit(server).hostname or ""
        except ValueError:
            text = ""  # It is refused for that.
    elif isinstance(server, str):
        text = _named_in(server.split())
    elif isinstance(server, list | tuple):
        text = _named_in([each for each in server if isinstance(each, str)])
    else:
        found = getattr(server, "name", None)
        text = found if isinstance(found, str) else ""
    made = re.sub(r"[^a-zA-Z0-9_-]+", "_", text).strip("_-")
    return made[:MAX_NAME] or _OBJECT


def _named_in(words: Sequence[str]) -> str:
    """The word of a command that names the server."""
    for word in words:
        base = re.split(r"[/\\]", word)[-1]
        if not word.startswith("-") and base not in _LAUNCHERS and "=" not in word:
            return re.sub(r"\.(py|js|mjs|ts|exe)$", "", base.split("@")[0] or base)
    return ""


def _as_secret(value: str | Secret) -> Secret:
    return value if isinstance(value, Secret) else Secret(value)
