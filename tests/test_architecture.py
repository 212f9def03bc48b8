"""The house: four rooms, one direction (design.md).  What stands here is read from the source."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("hub", "agents", "runtime", "channels")
ALLOWED = {
    "hub": {"hub"},
    "agents": {"agents", "hub"},
    "runtime": {"runtime", "agents", "hub"},
    "channels": {"channels", "hub"},
}
PORTS = {
    "hub/ports.py",
    "hub/tasks/kept_threads.py",
    "hub/tasks/loop_watch.py",
    "hub/tasks/lockstep_offload.py",
    "hub/tasks/offload.py",
    "hub/virtual.py",
}
"""The modules of the ports: they may look at clocks, make ids, draw numbers and start threads."""
THREADS = (
    # Reads keys in a thread where a loop cannot wait for them; its docstring says why.
    ("channels/console/terminal.py", "threading"),
    # A test's loop may still be at work when what it has kept is written.
    ("runtime/simulation/plugin.py", "concurrent.futures.ThreadPoolExecutor"),
    # Takes turns with the threads that Trio has started.
    ("runtime/simulation/loop/lockstep.py", "threading"),
)
"""Where else there are threads, and why."""


def modules(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms or ROOMS for path in (ROOT / room).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), name_of(path))


def imports(node: ast.AST) -> Iterator[str]:
    """Every name that is imported, with its module: ``from a import b`` is ``a.b``."""
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            yield from (alias.name for alias in each.names)
        elif isinstance(each, ast.ImportFrom):
            assert each.level == 0, "imports are absolute"
            yield from (f"{each.module}.{alias.name}" for alias in each.names)


def uses(path: Path) -> Iterator[str]:
    """Every imported module, and every dotted name that is looked up, as ``module.attribute``."""
    yield from imports(tree(path))
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            yield f"{ast.unparse(node.value)}.{node.attr}"


def forbidden(path: Path, *beginnings: str) -> list[str]:
    return sorted(
        {
            f"{name_of(path)}: {name}"
            for name in uses(path)
            for beginning in beginnings
            if name == beginning or name.startswith(f"{beginning}.")
        }
    )


def test_there_is_something_to_look_at() -> None:
    for room in ROOMS[:3]:
        assert len(modules(room)) > 5


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    for path in modules(room):
        for name in imports(tree(path)):
            if name == "hubbub" or name.startswith("hubbub."):
                parts = name.split(".")
                assert len(parts) > 1 and parts[1] in ALLOWED[room], f"{name_of(path)}: {name}"


@pytest.mark.spec("K-02")
def test_channels_import_nothing_but_the_hub() -> None:
    for path in modules("channels"):
        rooms = {name.split(".")[1] for name in imports(tree(path)) if name.startswith("hubbub.")}
        assert rooms <= {"hub", "channels"}, name_of(path)


def test_agents_decide_and_do_nothing() -> None:
    """No task, no clock, no randomness, no environment: the same question, the same answer."""
    problems: list[str] = []
    for path in modules("agents"):
        problems += forbidden(
            path, "anyio", "asyncio", "trio", "time", "random", "secrets", "uuid", "threading",
            "os.environ", "os.getenv", "os.urandom", "datetime.datetime.now", "httpx",
        )  # fmt: skip
        problems += [
            f"{name_of(path)}:{node.lineno}: async"
            for node in ast.walk(tree(path))
            if isinstance(node, ast.AsyncFor | ast.AsyncWith | ast.Await)
            or (
                isinstance(node, ast.AsyncFunctionDef)
                # The one exception: a Protocol says what a model is, it does nothing.
                and not (len(node.body) == 1 and ast.unparse(node.body[0]) == "...")
                and not _is_declaration(node)
            )
        ]
    assert problems == []


def _is_declaration(node: ast.AsyncFunctionDef) -> bool:
    body = [each for each in node.body if not isinstance(each, ast.Expr)]
    return not body


def test_time_ids_randomness_and_threads_come_through_ports_only() -> None:
    """Nothing else looks at them, which is what makes simulation exact."""
    problems: list[str] = []
    for path in modules():
        if name_of(path) in PORTS:
            continue
        problems += forbidden(
            path, "time", "uuid", "random", "secrets", "os.urandom", "anyio.to_thread",
            "datetime.datetime.now", "datetime.now", "datetime.utcnow", "asyncio.to_thread",
            "concurrent.futures", "threading.Thread", "threading.Timer", "threading.Lock",
        )  # fmt: skip
        problems += [
            name
            for name in forbidden(path, "threading")
            # Which thread this is, and what is kept for it, starts none.
            if not name.endswith(("threading.get_ident", "threading.local"))
        ]
    excepted = tuple(f"{path}: {name}" for path, name in THREADS)
    assert [x for x in problems if not x.startswith(excepted)] == []


BY_HAND = (
    # The console reads keys: nobody else's code runs there.
    "channels/console/",
    # The simulation, the demos and the suite for providers are programs on the library.
    "runtime/simulation/", "runtime/demo/", "runtime/models/conformance/",
    "hub/tasks/outermost.py",
)  # fmt: skip
"""Where tasks are started in the loop's own way."""


def test_tasks_are_started_so_that_no_code_that_runs_in_them_closes_them() -> None:
    """``start_in``: on asyncio what a thread raises could otherwise close frames of the library."""
    assert [
        f"{name_of(path)}:{node.lineno}: {node.func.attr}"
        for path in modules()
        if not name_of(path).startswith(BY_HAND)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("start_soon", "create_task", "ensure_future")
        # These run nothing but the wait for its end.
        and not any(wait in ast.unparse(node) for wait in ("self._hold(", "self._ended.wait("))
    ] == []


@pytest.mark.spec("R-15")
def test_nothing_in_the_library_writes_to_a_stream() -> None:
    problems: list[str] = []
    for path in modules("hub", "agents", "runtime"):
        if name_of(path).startswith("runtime/demo/"):
            continue
        problems += forbidden(
            path, "sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__", "rich",
            "traceback.print_exc", "traceback.print_exception", "warnings.warn", "os.write",
            "logging.basicConfig", "logging.StreamHandler", "structlog.configure",
        )  # fmt: skip
        problems += [
            f"{name_of(path)}:{node.lineno}: print"
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("print", "input", "breakpoint")
        ]
    assert problems == []


def test_no_module_level_state_changes() -> None:
    """Composition happens in ``Runtime``: a module holds no registry that imports fill."""
    assert [
        f"{name_of(path)}:{node.lineno}: global {', '.join(node.names)}"
        for path in modules()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Global)
    ] == []


def test_nothing_swallows_what_must_pass() -> None:
    """``except BaseException`` cleans up and raises again; there is no bare ``except``."""
    problems: list[str] = []
    for path in modules():
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            names = "" if node.type is None else ast.unparse(node.type)
            if node.type is None or "BaseException" in names.split("Group")[0]:
                raises = any(isinstance(each, ast.Raise) for each in ast.walk(node))
                if not raises and not _is_driver(path, node):
                    problems.append(f"{name_of(path)}:{node.lineno}")
    assert problems == []


def _is_driver(path: Path, node: ast.ExceptHandler) -> bool:
    """Whoever steps a coroutine by hand throws into it whatever was thrown at him, and a thread
    hands whatever is raised in it to the task that waits for it."""
    code = ast.unparse(node)
    return (name_of(path) == "hub/tasks/stepped.py" and "throw(" in code) or (
        name_of(path) in ("hub/ports.py", "hub/tasks/offload.py", "hub/tasks/lockstep_offload.py")
        and "errors.append(error)" in code
    )


def test_nothing_is_imported_that_is_not_declared() -> None:
    """A library that comes along with a development tool is not there for users."""
    core = {"anyio", "msgspec", "structlog", "httpx"}
    extras = {
            "anycorn", "cronsim", "cryptography", "cyclopts", "httpx2", "markdown_it", "mcp",
            "mcp_types", "psycopg", "rich", "starlette", "trio", "uvicorn", "yaml",
        }  # fmt: skip
    # anyio asks the one, where another package has brought it; of the other type checkers have the
    # stubs, who alone import it here.
    if_there = {"sniffio", "typing_extensions"}
    root = Path(__file__).parent.parent
    for path in [root / "__init__.py", root / "__main__.py"] + [
        file
        for room in ("hub", "agents", "channels", "runtime")
        for file in (root / room).rglob("*.py")
        # These need the extra that brings the test tools.
        if "simulation" not in file.parts and file.parts[-3:-1] != ("models", "conformance")
    ]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                top = name.partition(".")[0]
                allowed = core | extras | if_there | {"hubbub"} | sys.stdlib_module_names
                assert top in allowed, f"{path.name} imports {name}"
