"""``compose.yaml`` and ``Dockerfile``: what they run exists, and nothing of it is open to others.

Nothing is started here: the files are read, and their commands are given to the command line.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from hubbub.__main__ import _app

ROOT = Path(__file__).parent.parent

VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return found


def resolved(text: str, **values: str) -> str:
    """``text`` with its variables in the place of their names."""
    return VARIABLE.sub(lambda found: values.get(found[1]) or found[3] or "", text)


def test_it_is_postgresql_two_workers_and_a_web_server(services: dict[str, Any]) -> None:
    assert set(services) == {"database", "worker", "web"}
    assert services["worker"]["deploy"]["replicas"] == 2
    for each in ("worker", "web"):
        assert services[each]["depends_on"] == {"database": {"condition": "service_healthy"}}
        assert services[each]["build"] == "."
        assert services[each]["restart"] == "unless-stopped"


@pytest.mark.parametrize("agents", ["", "my_agents:both"])
def test_its_commands_are_commands_and_their_options_exist(
    services: dict[str, Any], agents: str
) -> None:
    app = _app()
    stores = set()
    for service, command in (("worker", "worker"), ("web", "serve")):
        tokens = resolved(services[service]["command"], HUBBUB_AGENTS=agents).split()
        assert tokens[0] == command
        _, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
        stores.add(bound.arguments["store"])
        assert bound.arguments.get("module") == (agents or None if service == "worker" else None)
    assert stores == {"postgresql://hubbub@database/hubbub"}


def test_a_worker_has_longer_to_leave_than_it_takes(services: dict[str, Any]) -> None:
    tokens = services["worker"]["command"].split()
    grace = float(tokens[tokens.index("--grace") + 1])
    assert float(services["worker"]["stop_grace_period"].removesuffix("s")) >= grace + 5


def test_ports_are_this_machines_only(services: dict[str, Any]) -> None:
    assert "ports" not in services["worker"]
    for each in ("database", "web"):
        assert all(port.startswith("127.0.0.1:") for port in services[each]["ports"])
    web = services["web"]
    assert resolved(web["ports"][0]).endswith(":8700:8700") and ":8700/health" in str(web)


def test_secrets_come_from_the_environment_and_must_be_there(services: dict[str, Any]) -> None:
    for name, service in services.items():
        for key, value in service["environment"].items():
            if key not in ("POSTGRES_USER", "POSTGRES_DB"):
                found = VARIABLE.fullmatch(value)
                assert found and found[2] == "?" and found[3], f"{name}: {key}"
    assert "HUBBUB_TOKEN" in services["web"]["environment"]


def test_what_is_kept_outlives_the_containers(services: dict[str, Any]) -> None:
    declared = yaml.safe_load((ROOT / "compose.yaml").read_text())["volumes"]
    assert services["database"]["volumes"] == ["database:/var/lib/postgresql/data"]
    assert set(declared) == {"database"}
    assert services["database"]["healthcheck"]["test"][1] == "pg_isready"
    (mount,) = services["worker"]["volumes"]
    source, _, rest = resolved(mount).partition(":")
    assert (ROOT / source).is_dir() and rest == "/agents:ro"


def test_the_image_has_the_command_its_extras_and_all_its_sources() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    dockerfile = (ROOT / "Dockerfile").read_text()
    found = re.search(r'"/source\[([\w,-]+)\]"', dockerfile)
    assert found is not None
    extras = set(found[1].split(","))
    assert {"cli", "http", "postgres"} <= extras <= set(project["project"]["optional-dependencies"])
    assert 'ENTRYPOINT ["hubbub"]' in dockerfile and "hubbub" in project["project"]["scripts"]
    assert "USER hubbub" in dockerfile
    kept = {
        line[1:].rstrip("/")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    folders = project["tool"]["setuptools"]["package-dir"].values()
    needed = {folder.split("/")[0] for folder in folders if folder not in ("", ".")}
    assert needed | {"README.md", "LICENSE", "pyproject.toml", "__init__.py"} <= kept
