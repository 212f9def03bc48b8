"""The packages load what they offer when it is used, and offer what they say."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("hub", "agents", "runtime", "channels")
LAZY = (
    "hubbub",
    "hubbub.hub",
    "hubbub.hub.conformance",
    "hubbub.agents.definitions",
    "hubbub.channels",
    "hubbub.channels.http",
    "hubbub.runtime",
    "hubbub.runtime.models",
    "hubbub.runtime.schedules",
    "hubbub.runtime.stores",
    "hubbub.runtime.simulation",
    "hubbub.runtime.simulation.invariants",
    "hubbub.runtime.simulation.loop",
    "hubbub.runtime.simulation.playback",
    "hubbub.runtime.simulation.strategies",
)


def path_of(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")[1:], "__init__.py")


def for_type_checkers(module: str) -> dict[str, list[str]]:
    """What a package imports under ``TYPE_CHECKING``, by module."""
    (branch,) = (
        node
        for node in ast.parse(path_of(module).read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {
        node.module or "": sorted(alias.name for alias in node.names)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
    }


def printed(program: str) -> str:
    """What a new process prints."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


@pytest.mark.parametrize("name", LAZY)
def test_what_a_package_loads_type_checkers_see_and_it_promises_is_the_same(name: str) -> None:
    package: Any = import_module(name)
    table = {module: sorted(names) for module, names in package._EXPORTS.items()}
    assert table == for_type_checkers(name)
    names = [each for names in table.values() for each in names]
    assert len(names) == len(set(names))
    assert sorted(names) == sorted(package.__all__)


@pytest.mark.parametrize("name", LAZY)
def test_every_name_is_that_of_its_module(name: str) -> None:
    package: Any = import_module(name)
    for module, names in package._EXPORTS.items():
        for each in names:
            assert getattr(package, each) is getattr(import_module(module), each)
    assert {*package.__all__} <= {*dir(package)}


@pytest.mark.parametrize("name", [*LAZY, "hubbub.agents"])
def test_a_name_that_is_not_there_is_an_attribute_error(name: str) -> None:
    package = import_module(name)
    assert not hasattr(package, "no_such_name")
    assert not hasattr(package, "__wrapped__")
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        _ = package.nothing
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec(f"from {name} import nothing")


@pytest.mark.parametrize("name", [*LAZY[1:], "hubbub.agents"])
def test_importing_a_package_loads_packages_alone(name: str) -> None:
    found = printed(f"import sys, {name}; print(*(x for x in sys.modules if 'hubbub' in x))")
    parents = [name.rsplit(".", count)[0] for count in range(name.count(".") + 1)]
    ours = {each for each in found.split() if not each.startswith("__editable__")}
    assert ours == {*parents, "hubbub.hub", "hubbub.hub.exports"}
    heavy = {"msgspec", "anyio", "asyncio", "structlog", "ssl"}
    assert printed(f"import sys, {name}; print({heavy} & set(sys.modules))") == "set()"


@pytest.mark.parametrize(
    ("whole", "name"),
    [
        ("hubbub.hub.Hub", "Hub"),
        ("hubbub.hub.events.AgentText", "AgentText"),
        ("hubbub.agents.definitions.SideConfig", "SideConfig"),
        ("hubbub.runtime.stores.SqliteStore", "SqliteStore"),
        ("hubbub.runtime.simulation.World", "World"),
        ("hubbub.channels.Console", "Console"),
    ],
)
def test_a_module_within_is_an_attribute_of_what_was_imported(whole: str, name: str) -> None:
    assert printed(f"import hubbub; print({whole}.__name__)") == name


def test_a_module_that_breaks_says_why_and_not_that_it_is_missing(tmp_path: Path) -> None:
    package = tmp_path / "brittle"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from hubbub.hub.exports import exports_of\n"
        "__getattr__, __dir__ = exports_of(__name__, {})\n"
    )
    (package / "broken.py").write_text("import no_such_library\n")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import brittle
try:
    brittle.broken
except ModuleNotFoundError as missing:
    print(missing.name)
"""
    assert printed(program) == "no_such_library"


def test_no_module_needs_at_its_import_one_that_needs_it() -> None:
    """Whatever is imported first, no module is met half loaded."""
    files = {
        "hubbub." + ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
    }
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    files["hubbub"] = ROOT / "__init__.py"
    graph = {name: {*needed(path, files)} - {name} for name, path in files.items()}
    order = [*TopologicalSorter(graph).static_order()]  # Raises where there is a circle.
    assert len(order) == len(files) > 200


def needed(path: Path, files: dict[str, Path]) -> Iterator[str]:
    """The modules that one imports when it is imported itself."""
    for node in at_import(ast.parse(path.read_text()).body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        ours = (name for name in names if name.split(".")[0] == "hubbub")
        for name in ours:
            yield name if name in files else name.rpartition(".")[0]


def at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                continue
            case ast.If() if ast.unparse(node.test) == "TYPE_CHECKING":
                yield from at_import(node.orelse)
            case ast.If() | ast.Try():
                yield from at_import([*node.body, *node.orelse])
                for handler in getattr(node, "handlers", ()):
                    yield from at_import(handler.body)
            case ast.ClassDef():
                yield from at_import(node.body)
            case _:
                yield node
