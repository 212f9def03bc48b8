"""The house: which room may import which, in one direction, and how large anything may become.

``ROOMS`` is the plan.  ``DEBTS`` are the arrows that still run against it: the list may only
shrink.  Imports inside functions and for type checkers count like any other.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parent.parent

GROUND: Final = frozenset(
    f"hub/{name}.py"
    for name in (
        "errors/__init__", "errors/copied", "errors/statuses", "exports", "home_loop", "logs",
        "masking/__init__", "masking/exceptions", "masking/masker", "masking/readings",
        "masking/safe_repr", "near_misses", "ports", "receipt", "task_host", "texts",
        "values", "virtual",
    )
)  # fmt: skip
"""Small nouns of the hub that know nothing of events."""

HUB: Final = (
    "hub/tasks", "ground", "hub/bus", "hub/events", "hub/snapshots", "hub/store", "hub/delivery",
    "hub",
)  # fmt: skip
TURN: Final = ("agents", "agents/state", "agents/definitions", "agents/resolution", "agents/turn")
KERNEL: Final = (
    *HUB, *TURN, "agents/code", "agents/frames", "runtime/models",
    "runtime/spending", "runtime/remembered", "runtime/kernel",
)  # fmt: skip
STORES: Final = (
    "runtime/stores", "runtime/stores/sql", "runtime/stores/sqlite", "runtime/stores/postgres",
    "runtime/stores/postgres/server",
    "runtime/stores/exchange", "runtime/stores/folders",
)  # fmt: skip
SIMULATION: Final = "runtime/simulation"

ROOMS: Final[dict[str, tuple[str, ...]]] = {
    "hub/tasks": (),
    "ground": ("hub/tasks",),
    "hub/events": ("ground",),
    "hub/bus": ("hub/tasks", "ground"),
    "hub/snapshots": (),
    "hub/store": ("hub/tasks", "ground", "hub/bus", "hub/events", "hub/snapshots"),
    "hub/store/shared": (
        "hub/tasks", "ground", "hub/bus", "hub/events", "hub/snapshots", "hub/store",
    ),
    "hub/delivery": ("hub/tasks", "ground", "hub/events", "hub/store"),
    "hub/relay": ("ground", "hub/bus", "hub/events", "hub/delivery"),
    "hub": (
        "hub/tasks", "ground", "hub/bus", "hub/events", "hub/store", "hub/delivery", "hub/relay",
    ),
    "hub/conformance": HUB,
    "agents": HUB,
    "agents/state": (*HUB, "agents"),
    "agents/definitions": (*HUB, "agents", "agents/state"),
    "agents/resolution": (*HUB, "agents", "agents/definitions"),
    "agents/snapshots": (*HUB, "agents/state", "agents/code"),
    "agents/turn": (*HUB, "agents", "agents/state", "agents/definitions", "agents/resolution"),
    "agents/code": (*HUB, "agents/state", "agents/turn"),
    "agents/frames": (*HUB, *TURN),
    "agents/standalone": (*HUB, *TURN, "agents/frames"),
    "agents/folders": (*HUB, "agents/state", "agents/turn"),
    "agents/packaging": (*HUB, "agents", "agents/definitions", "agents/resolution"),
    "channels": HUB,
    "channels/console": (*HUB, "channels"),
    "channels/conformance": (*HUB, "channels"),
    "channels/http/wire": (*HUB, "channels"),
    "channels/http/streams": (*HUB, "channels", "channels/http/wire"),
    "channels/http/api": (*HUB, "channels", "channels/http/wire", "channels/http/streams"),
    "channels/http/openai/answers": (*HUB, "channels/http/wire"),
    "channels/http/openai/requests": (*HUB, "channels/http/wire", "channels/http/openai/answers"),
    "channels/http/openai": (
        *HUB, "channels/http/wire", "channels/http/openai/answers", "channels/http/openai/requests",
    ),
    "channels/http/inspector": ("channels/http/wire",),
    "channels/http": (
        *HUB, "channels", "channels/http/wire", "channels/http/api", "channels/http/streams",
        "channels/http/openai", "channels/http/inspector",
    ),
    "channels/http/serving": (*HUB, "channels", "channels/http/wire", "channels/http"),
    "runtime/text": (),
    "runtime/models/http": ("ground", "agents"),
    "runtime/models/anthropic": ("ground", "agents", "runtime/models/http"),
    "runtime/models/openai": ("ground", "agents", "runtime/models/http"),
    "runtime/models/responses": (
        "ground", "agents", "runtime/models/http", "runtime/models/openai",
    ),
    "runtime/models": (
        "ground", "agents", "runtime/models/http", "runtime/models/anthropic",
        "runtime/models/openai", "runtime/models/responses",
    ),
    "runtime/models/conformance": ("ground", "agents", "runtime/models/http"),
    "runtime/loading": ("ground", "agents", "agents/definitions", "runtime/text"),
    "runtime/stores/sql": HUB,
    "runtime/stores/sqlite/contents": (*HUB, "runtime/stores/sql"),
    "runtime/stores/sqlite": (*HUB, "runtime/stores/sql", "runtime/stores/sqlite/contents"),
    "runtime/stores/postgres/server": (*HUB, "runtime/stores/sql"),
    "runtime/stores/postgres/removal": (
        *HUB, "runtime/stores/sql", "runtime/stores/postgres/server",
    ),
    "runtime/stores/postgres": (
        *HUB, "runtime/stores/sql", "runtime/stores/postgres/server",
        "runtime/stores/postgres/removal",
    ),
    "runtime/stores/exchange": (*HUB, "agents/state", "agents/code"),
    "runtime/stores/folders": (
        *HUB, "agents/state", "agents/folders", "runtime/stores/sqlite", "runtime/stores/exchange",
    ),
    "runtime/stores/retention": (
        *HUB, "agents/state", "runtime/stores", "runtime/stores/sqlite", "runtime/stores/exchange",
        "runtime/stores/folders",
    ),
    "runtime/stores": (
        *HUB, "runtime/stores/sqlite", "runtime/stores/postgres", "runtime/stores/folders",
        "runtime/stores/postgres/server",
    ),
    "runtime/spending": (*HUB, *TURN, "agents/code"),
    "runtime/remembered": (*HUB, "agents/state", "agents/code", "agents/snapshots"),
    "runtime/kernel": (
        *HUB, *TURN, "agents/code", "runtime/models", "runtime/spending", "runtime/remembered",
    ),
    "runtime/mcp/schemas": (),
    "runtime/mcp": (*KERNEL, "runtime/models/http", "runtime/mcp/schemas"),
    "runtime/activities": KERNEL,
    "runtime/runs": (*KERNEL, "runtime/activities"),
    "runtime/supervision": (*KERNEL, "runtime/runs"),
    "runtime/schedules": (*HUB, "agents/definitions", "runtime/kernel"),
    "runtime/finding": (*HUB, "agents/state", "runtime/schedules", "runtime/inspection"),
    "runtime/removal": (*KERNEL, "runtime/stores/retention"),
    "runtime": (
        *KERNEL, "runtime/removal", "runtime/stores/retention",
        "runtime/activities", "runtime/runs", "runtime/supervision", "runtime/schedules",
        "runtime/finding", "runtime/inspection", "runtime/timelines", "runtime/stores",
        "runtime/mcp",
    ),
    "runtime/standalone": (
        *KERNEL, "agents/standalone", "runtime/activities", "runtime/runs",
    ),
    "runtime/testing": (*KERNEL, "runtime", "runtime/activities", "runtime/runs"),
    "runtime/inspection": (
        *HUB, *TURN, "agents/code", "agents/folders", "runtime/text", "runtime/loading", *STORES,
    ),
    "runtime/copies": (*HUB, "runtime/inspection", *STORES),
    "runtime/timelines": (*HUB, *TURN, "agents/code", "runtime/inspection", *STORES),
    "runtime/demo": (*KERNEL, "runtime", "runtime/runs", "runtime/stores", "runtime/stores/sqlite",
        "runtime/text"),
    "runtime/demo/assets": (
        *KERNEL, "runtime", "runtime/activities", "runtime/demo", "runtime/text",
    ),
    "runtime/demo/chat": (*KERNEL, "runtime", "runtime/loading", "runtime/demo", "runtime/text"),
    "runtime/demo/workers": (
        *KERNEL, "runtime", "runtime/inspection", "runtime/demo", "runtime/stores",
        "runtime/stores/postgres", "runtime/stores/postgres/server",
    ),
    "runtime/cli": (
        *HUB, "agents", "agents/definitions", "runtime", "runtime/text", "runtime/inspection",
        "runtime/copies", "runtime/timelines", "runtime/schedules", "runtime/finding",
        "runtime/loading", "runtime/demo", "runtime/demo/assets", "runtime/demo/chat", *STORES,
        "runtime/stores/retention",
    ),
    "runtime/cli/processes": (
        *HUB, "runtime", "runtime/text", "runtime/loading", "runtime/demo", "runtime/demo/assets",
        "runtime/demo/chat", "runtime/demo/workers", "runtime/stores",
        "runtime/stores/retention", "runtime/cli",
    ),
    f"{SIMULATION}/story": (*KERNEL, "runtime", "runtime/schedules"),
    f"{SIMULATION}/loop": (*HUB, f"{SIMULATION}/story"),
    f"{SIMULATION}/injection": (
        *KERNEL, "runtime/supervision", *STORES, f"{SIMULATION}/story", f"{SIMULATION}/loop",
    ),
    f"{SIMULATION}/world": (
        *KERNEL, "runtime", "runtime/runs", *STORES, f"{SIMULATION}/story", f"{SIMULATION}/loop",
        f"{SIMULATION}/injection", "hub/store/shared",
    ),
    f"{SIMULATION}/invariants": (*KERNEL, "runtime/models/http", f"{SIMULATION}/story"),
    f"{SIMULATION}/playback": (
        *KERNEL, "runtime", "runtime/runs", "runtime/stores/exchange", "runtime/loading",
        f"{SIMULATION}/story", f"{SIMULATION}/loop", f"{SIMULATION}/world",
    ),
    f"{SIMULATION}/strategies": (*KERNEL, f"{SIMULATION}/story"),
    SIMULATION: (
        *KERNEL, "runtime",
        *(f"{SIMULATION}/{room}" for room in (
            "story", "loop", "injection", "world", "invariants", "playback", "strategies",
        )),
    ),
}  # fmt: skip
"""Each room, and the rooms it may import besides itself."""

DEBTS: Final[frozenset[tuple[str, str]]] = frozenset({})
"""Arrows between files that run against the plan."""

CIRCLES: Final[tuple[frozenset[str], ...]] = ()
"""Files that import each other; each of these may only lose members."""

THIRD_PARTIES: Final = {
    "httpx": {"runtime/models/http"},
    "rich": {"runtime/cli", "runtime/demo", "runtime/demo/assets", "channels/console"},
    "cyclopts": {
        "runtime/cli",
        "runtime/cli/processes",
        "runtime/demo",
        "runtime/demo/assets",
    },
    "markdown_it": {"runtime/demo"},
    "yaml": {"runtime/loading", "runtime/demo/chat"},
    "cronsim": {"runtime/schedules"},
    "mcp": {"runtime/mcp"},
    "mcp_types": {"runtime/mcp"},
    "httpx2": {"runtime/mcp"},
    "sqlite3": {"runtime/stores/sqlite"},
    # The demo has a server cut connections, and makes its schema anew.
    "psycopg": {
        "runtime/stores/postgres",
        "runtime/stores/postgres/server",
        "runtime/demo/workers",
    },
    "cryptography": {"runtime/stores/postgres"},
    "starlette": {
        "channels/http",
        "channels/http/api",
        "channels/http/inspector",
        "channels/http/openai",
        "channels/http/openai/answers",
        "channels/http/streams",
        "channels/http/wire",
    },
    "uvicorn": {"channels/http/serving"},
    "anycorn": {"channels/http/serving"},
    "pytest": {SIMULATION, f"{SIMULATION}/strategies", "hub/conformance"},
    "hypothesis": {
        "runtime/models/conformance",
        SIMULATION,
        f"{SIMULATION}/strategies",
        f"{SIMULATION}/story",
    },
    # hub/tasks: what keeps Ctrl-C out of the middle of the library's work, which anyio has not.
    "trio": {SIMULATION, f"{SIMULATION}/loop", f"{SIMULATION}/world", "hub/tasks"},
    "greenlet": {SIMULATION, f"{SIMULATION}/loop"},
}
"""What is loaded in which rooms only."""

STRAYS: Final[frozenset[tuple[str, str]]] = frozenset()
"""Files that load one of these elsewhere.  May only shrink."""

LARGE: Final[dict[str, int]] = {}
"""Files of more than 450 lines, functions of more than 58, folders of more than 18 files."""

PRIVATE: Final[frozenset[tuple[str, str]]] = frozenset({})
"""Files that reach for a private name of something that is not their own.  May only shrink."""

FOREIGN: Final[dict[tuple[str, str], str]] = {
    ("agents/definitions/arguments.py", "_missing_"): "the documented hook of enum.Enum",
    ("agents/definitions/tools.py", "_getframe"):
        "how typing and collections find a caller's module; inspect.currentframe is the same call",
    ("hub/tasks/loop_watch.py", "_current_frames"):
        "the documented way to see what another thread is doing",
    ("runtime/cli/processes/worker_command.py", "_exit"):
        "the documented way to end a process whatever its threads wait for",
    ("runtime/simulation/loop/lockstep.py", "_getframe"): "the same: inspect adds nothing to it",
    ("runtime/simulation/loop/stopped.py", "_core"):
        "Trio has no way to hold a task back but its run queue",
    ("runtime/simulation/loop/seeded.py", "_core"):
        "Trio seeds its scheduler nowhere else; a Trio without it is refused by a clear error",
}  # fmt: skip
"""Private names of other libraries that are needed, and why."""

MAX_FILES, MAX_LINES, MAX_FUNCTION = 18, 450, 58


@cache
def files() -> tuple[str, ...]:
    rooms = ("hub", "agents", "runtime", "channels")
    paths = (path for room in rooms for path in (ROOT / room).rglob("*.py"))
    return tuple(sorted(path.relative_to(ROOT).as_posix() for path in paths))


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


def room_of(file: str) -> str:
    if file in GROUND:
        return "ground"
    if file == "runtime/text.py":
        return "runtime/text"
    return file.rpartition("/")[0]


@cache
def homes() -> dict[str, str]:
    """The file of each module.  A package that only offers names is none."""
    found = {}
    for file in files():
        module = "hubbub." + file.removesuffix(".py").replace("/", ".")
        found[module.removesuffix(".__init__")] = file
    return found


def names_imported(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            yield from (alias.name for alias in each.names)
        elif isinstance(each, ast.ImportFrom):
            yield from (f"{each.module}.{alias.name}" for alias in each.names)


@cache
def imports_of(file: str) -> frozenset[str]:
    """The files of ours that a file imports."""
    found = set()
    for name in names_imported(tree(file)):
        while name not in homes() and "." in name:
            name = name.rpartition(".")[0]
        if name in homes():
            found.add(homes()[name])
    return frozenset(found - {file})


def is_face(file: str) -> bool:
    """Whether it only offers what other files hold (``hub/events`` is imported as if it held)."""
    return file.endswith("/__init__.py") and file != "hub/events/__init__.py"


def arrows() -> Iterator[tuple[str, str]]:
    for file in files():
        if not is_face(file):
            yield from ((file, each) for each in sorted(imports_of(file)) if not is_face(each))


def circles() -> list[frozenset[str]]:
    """The strongly connected files, by Tarjan."""
    graph: dict[str, list[str]] = {}
    for file, other in arrows():
        graph.setdefault(file, []).append(other)
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    found: list[frozenset[str]] = []

    def visit(file: str) -> None:
        number[file] = low[file] = len(number)
        open_.append(file)
        for other in graph.get(file, ()):
            if other not in number:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in open_:
                low[file] = min(low[file], number[other])
        if low[file] == number[file]:
            at = open_.index(file)
            circle = frozenset(open_[at:])
            del open_[at:]
            if len(circle) > 1:
                found.append(circle)

    for file in graph:
        if file not in number:
            visit(file)
    return found


def test_each_file_is_in_a_room() -> None:
    assert {room_of(file) for file in files()} == set(ROOMS)


def test_rooms_import_in_one_direction() -> None:
    """The plan itself has no circle."""
    left = {room: set(others) - {room} for room, others in ROOMS.items()}
    while free := [room for room, others in left.items() if not others & set(left)]:
        for room in free:
            del left[room]
    assert left == {}


def test_a_file_imports_only_what_its_room_may() -> None:
    against = {
        (file, other)
        for file, other in arrows()
        if room_of(file) != room_of(other) and room_of(other) not in ROOMS[room_of(file)]
    }
    assert against - DEBTS == set(), "new arrows against the plan"
    assert DEBTS - against == set(), "paid: take them off the list"


def test_no_file_imports_itself_by_way_of_others() -> None:
    for circle in circles():
        assert any(circle <= known for known in CIRCLES), sorted(circle)
    known = {file for circle in CIRCLES for file in circle}
    assert known == {file for circle in circles() for file in circle}, "paid: take them off"


def test_libraries_are_loaded_in_their_rooms() -> None:
    strays = {
        (file, top)
        for file in files()
        for top in {name.partition(".")[0] for name in names_imported(tree(file))}
        if top in THIRD_PARTIES and room_of(file) not in THIRD_PARTIES[top]
    }
    assert strays == STRAYS


def test_what_is_private_stays_in_its_file() -> None:
    """``other._name`` is for the file in which ``_name`` is written."""
    found = set()
    for file in files():
        own = set(re.findall(r"\b_[a-z]\w*", (ROOT / file).read_text())) & written_in(file)
        for node in ast.walk(tree(file)):
            if (
                isinstance(node, ast.Attribute)
                and re.fullmatch(r"_[a-z]\w*", node.attr)
                and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
                and node.attr not in own
            ):
                found.add((file, node.attr))
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hubbub"):
                found |= {(file, x.name) for x in node.names if re.match(r"_[a-zA-Z]", x.name)}
    assert found - set(FOREIGN) == PRIVATE
    assert set(FOREIGN) <= found, "not needed any more: take them off"


def written_in(file: str) -> set[str]:
    """The private names that a file defines: attributes it sets, slots, methods, functions."""
    found: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                found.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)  # Slots.
    return found


def test_nothing_grows_beyond_its_size() -> None:
    sizes: dict[str, int] = {}
    for file in ("__init__.py", "__main__.py", *files()):
        lines = (ROOT / file).read_text().count("\n")
        if lines > MAX_LINES:
            sizes[file] = lines
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) and node.body[1:] else node.body
                span = (node.end_lineno or 0) - body[0].lineno + 1
                if span > MAX_FUNCTION:
                    sizes[f"{file}: {node.name}"] = span
    for folder in {file.rpartition("/")[0] for file in files()}:
        count = sum(1 for each in files() if each.rpartition("/")[0] == folder)
        if count - 1 > MAX_FILES:
            sizes[folder] = count - 1
    too_large = {name: size for name, size in sizes.items() if size > LARGE.get(name, 0)}
    assert too_large == {}
    assert set(LARGE) <= set(sizes), "small enough now: take them off"


def test_class_names_are_unique() -> None:
    homes_of: dict[str, list[str]] = {}
    for file in files():
        for node in tree(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes_of.setdefault(node.name, []).append(file)
    assert {name: homes for name, homes in homes_of.items() if len(homes) > 1} == {}


@pytest.mark.parametrize("name", ["packages", "package-dir"])
def test_the_packages_that_are_built_are_those_of_the_tree(name: str) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    folders = {file.rpartition("/")[0] for file in files()}
    wanted = {"hubbub", *("hubbub." + folder.replace("/", ".") for folder in folders)}
    section = re.search(
        r"^packages = \[(.*?)^\]" if name == "packages" else r"package-dir\]\n(.*?)\n\n",
        text,
        re.S | re.M,
    )
    assert section is not None
    found = set(re.findall(r'^\s*"?(hubbub[\w.]*)"?', section[1], re.M))
    assert found == wanted
