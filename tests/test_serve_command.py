"""``hubbub serve``, as its users meet it: mostly in processes of its own."""

import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pty_terminal import Terminal
from support.serve_process import ServeProcess

from hubbub import Runtime
from hubbub.__main__ import main
from hubbub.runtime.loading.agents import CannotLoad, LoadedAgents, load_named

MODULE = """
from hubbub import Agent, FunctionModel, Runtime

model = FunctionModel(lambda request: "echo: " + request.messages[-1].content)
ann = Agent("ann", "You help.", model=model)
bob = Agent("bob", "You help.", model=model)
both = [bob, ann]
nothing = []
number = 7
"""

RUNTIMES = (
    MODULE
    + """
desk = Runtime([ann], store="memory")
"""
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder with two modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUBBUB_TOKEN", raising=False)
    monkeypatch.delenv("HUBBUB_DEBUG", raising=False)
    (tmp_path / "my_agents.py").write_text(MODULE)
    (tmp_path / "my_desk.py").write_text(RUNTIMES)
    before = dict(sys.modules), list(sys.path)
    yield tmp_path
    for name in set(sys.modules) - set(before[0]):
        if name.startswith("my_"):
            del sys.modules[name]
    sys.path[:] = before[1]


def _names(found: object) -> list[str]:
    assert isinstance(found, LoadedAgents)
    return [found.agent.name, *sorted(each.name for each in found.agents)]


def test_a_name_is_a_runtime_an_agent_or_a_list_and_without_one_all_of_the_module(
    here: Path,
) -> None:
    assert _names(load_named("my_agents", Runtime)) == ["ann", "ann", "bob"]
    assert _names(load_named("my_agents:bob", Runtime)) == ["bob", "ann", "bob"]
    assert _names(load_named("my_agents:both", Runtime)) == ["bob", "ann", "bob"]
    assert isinstance(load_named("my_desk:desk", Runtime), Runtime)
    assert isinstance(load_named("my_desk", Runtime), Runtime)
    assert _names(load_named("my_desk:ann", Runtime)) == ["ann", "ann", "bob"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("my_agents:number", "a int is not an agent; write my_agents:ann or my_agents:bob"),
        ("my_agents:nothing", "my_agents has no agents and no Runtime; define one"),
        ("my_agents:nobody", "my_agents has no 'nobody'; write my_agents:ann or my_agents:bob"),
        ("my_agents.py", "expected a module, not a file; write my_agents"),
        ("./my_agents.py:ann", "expected a module, not a file; write my_agents:ann"),
        ("my_nowhere", "there is no module 'my_nowhere'"),
    ],
)
def test_what_names_nothing_to_serve_is_told_with_the_remedy(
    here: Path, spec: str, problem: str
) -> None:
    with pytest.raises(CannotLoad) as raised:
        load_named(spec, Runtime)
    assert problem in str(raised.value)


def test_of_two_runtimes_one_must_be_named(here: Path) -> None:
    (here / "my_two.py").write_text(RUNTIMES + "other = Runtime([bob], store='memory')\n")
    with pytest.raises(CannotLoad, match="write my_two:desk or my_two:other"):
        load_named("my_two", Runtime)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--host", "0.0.0.0"], "nothing asks them for a token; give one (--token, HUBBUB_TOKEN"),
        (["--token", " "], "--token is empty"),
        (["--port", "70000", "--store", "memory"], "expected a number from 0 to 65535"),
        (["my_desk", "--store", "memory"], "has a store of its own; leave --store out"),
        (["my_nowhere"], "there is no module"),
        (
            ["--store", "postgresql://h/d", "--role", "worker"],
            "give MODULE:NAME, or leave",
        ),
        (
            ["--store", "postgresql://h/d", "--retention-ended", "30d"],
            "nothing goes by this process; tell the workers",
        ),
    ],
)
def test_what_cannot_be_served_is_one_line_and_nothing_is_opened(
    here: Path, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and problem in shown.err and shown.err.count("\n") == 1
    assert not (here / ".hubbub").exists()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_port_in_use_is_one_line(
    here: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "my_desk", "--port", port, "--backend", backend]) == 2
    shown = capsys.readouterr()
    assert f"127.0.0.1:{port} is in use" in shown.err and shown.err.count("\n") == 1


@pytest.mark.parametrize(("missing", "extra"), [("starlette", "http"), ("uvicorn", "http")])
def test_a_missing_extra_is_one_line(
    here: Path,
    missing: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in [*sys.modules]:
        if name.startswith("hubbub.channels.http"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["serve", "my_desk", "--port", "0"]) == 2
    shown = capsys.readouterr()
    assert f"needs the extra '{extra}'" in shown.err and shown.err.count("\n") == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_demo_is_served_without_a_module_and_ctrl_c_leaves(here: Path, backend: str) -> None:
    with ServeProcess(here, "--backend", backend) as served, served.client() as client:
        assert served.said.startswith("serving main, research, ")
        assert client.get("/health").json() == {"status": "ok"}
        names = {each["name"] for each in client.get("/api/agents").json()["agents"]}
        assert {"main", "director", "surveyor"} <= names
        began = time.monotonic()
        served.signal(signal.SIGINT)
        assert served.wait() == 0
        assert time.monotonic() - began < 10
        assert served.stderr == ""


def test_a_terminal_is_shown_a_link_with_the_token(here: Path) -> None:
    script = here / "serves.py"
    script.write_text("import sys\nfrom hubbub.__main__ import main\nsys.exit(main(sys.argv[2:]))")
    terminal = Terminal(script, "asyncio", "serve", "my_desk", "--port", "0", HUBBUB_TOKEN="a b&c")
    try:
        terminal.wait("/#token=a%20b%26c")
        terminal.wait("Ctrl-C ends it")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.wait_end() == 0
    finally:
        terminal.close()


def test_a_token_is_asked_for_and_shown_to_no_log(here: Path) -> None:
    secret = "sesame-5e6c2e74d1"
    with (
        ServeProcess(here, "my_agents:bob", "--store", "memory", HUBBUB_TOKEN=secret) as served,
        served.client() as client,
    ):
        assert client.get("/api/agents").status_code == 401
        head = {"Authorization": f"Bearer {secret}"}
        assert client.get("/api/agents", headers=head).status_code == 200
        served.signal(signal.SIGTERM)
        assert served.wait() == 0
        assert served.process.stdout is not None
        assert secret not in served.said + served.process.stdout.read() + served.stderr


def test_two_signals_at_once_end_it_without_a_word(here: Path) -> None:
    with ServeProcess(here, "my_agents:bob", "--store", "memory") as served:
        served.signal(signal.SIGTERM)
        served.signal(signal.SIGINT)  # Two of the same may come as one.
        assert served.wait() == 0
        assert "graceful" not in served.stderr
