"""Every public name says what it is: all that the packages offer, and their classes' members.

It is read from the source, since a name that is a value has no docstring at run time: there the
string below the assignment counts.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_every_public_name_has_a_docstring() -> None:
    assert sorted(set(undocumented())) == []


def test_the_names_are_found() -> None:
    found = {f"{file}: {name}" for file, name, _ in offered()}
    assert {
        "hub/hub.py: Hub", "hub/events/catalogue.py: CATALOGUE", "agents/model.py: Model",
        "runtime/runtime.py: Runtime", "runtime/stores/sqlite/store.py: SqliteStore",
        "channels/channel.py: Channel",
    } <= found  # fmt: skip
    assert len(found) > 280


def undocumented() -> Iterator[str]:
    for file, name, node in offered():
        if isinstance(node, ast.ClassDef):
            for owner, each in [("", node), *members_of(file, node)]:
                if ast.get_docstring(each) is None:
                    yield f"{file}: {owner}{each.name}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node) is None:
                yield f"{file}: {name}"
        elif not has_text_below(file, node):
            yield f"{file}: {name}"


def offered() -> Iterator[tuple[str, str, ast.stmt]]:
    """What stands in any ``__all__`` of a package: its file, its name there, its definition."""
    faces = [ROOT / "__init__.py"]
    for room in ("hub", "agents", "runtime", "channels"):
        faces += sorted((ROOT / room).rglob("__init__.py"))
    for face in faces:
        file = face.relative_to(ROOT).as_posix()
        for name in exported(file):
            yield from definition(file, name)


def exported(file: str) -> Iterator[str]:
    for node in tree(file).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from ast.literal_eval(node.value)


def definition(file: str, name: str) -> Iterator[tuple[str, str, ast.stmt]]:
    """Where a name is defined, through as many imports as it takes; a module is none."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hubbub"):
            for alias in node.names:
                if (alias.asname or alias.name) == name and (home := file_of(node.module or "")):
                    yield from definition(home, alias.name)
                    return
    last = [node for node in tree(file).body if name in names_set(node)][-1:]  # After overloads.
    yield from ((file, name, node) for node in last)


def names_set(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.Assign(targets=targets):
            return [each.id for each in targets if isinstance(each, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def members_of(file: str, cls: ast.ClassDef) -> Iterator[tuple[str, Definition]]:
    """Its public methods and properties, and those it inherits from classes of ours."""
    for node in cls.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_second = any(ast.unparse(x).endswith(".setter") for x in node.decorator_list)
            is_overload = any(ast.unparse(x) == "overload" for x in node.decorator_list)
            if not node.name.startswith("_") and not is_second and not is_overload:
                yield f"{cls.name}.", node
    for base in cls.bases:
        name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
        for home, _, node in definition(file, name):
            if isinstance(node, ast.ClassDef) and node is not cls:
                yield from members_of(home, node)


def has_text_below(file: str, node: ast.stmt) -> bool:
    body = tree(file).body
    below = body[body.index(node) + 1 :][:1]
    return any(
        isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Constant)
        and isinstance(each.value.value, str)
        for each in below
    )


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


@cache
def file_of(module: str) -> str:
    path = module.removeprefix("hubbub").removeprefix(".").replace(".", "/")
    for file in (f"{path}.py", f"{path}/__init__.py".removeprefix("/")):
        if (ROOT / file).is_file():
            return file
    return ""
