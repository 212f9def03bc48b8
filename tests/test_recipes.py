"""The recipes of docs/embedding.md against the real thing: uvicorn, a notebook's kernel."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.long

PAGE: Final = (Path(__file__).parent.parent / "docs" / "embedding.md").read_text()
APPS: Final = re.findall(r"```python\n# app\.py\n(.*?)```", PAGE, re.DOTALL)
CELLS: Final = re.search(r"## Jupyter.*?```py\n(.*?)```", PAGE, re.DOTALL)
SERVE: Final = ["uvicorn", "app:app", "--port", "0", "--timeout-graceful-shutdown", "1"]


@contextmanager
def served(app: str, folder: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The address of the app under uvicorn, in a process of its own, and the process."""
    (folder / "app.py").write_text(app)
    process = subprocess.Popen(
        [sys.executable, "-m", *SERVE], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"http://[\d.]+:\d+", line):
                yield found[0], process
                break
        else:
            pytest.fail(f"it never served: {process.wait()}")
    finally:
        process.kill()
        process.communicate()


def events_of(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each event's id, empty for what is not kept, and its data."""
    place = ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            place = value
        elif name == "data":
            yield place, json.loads(value)
            place = ""


def next_text(lines: Iterator[str]) -> tuple[str, str]:
    """The id and the text of the next answer."""
    texts = ((at, each["text"]) for at, each in events_of(lines) if each["type"] == "agent:text")
    return next(texts)


def test_a_browser_continues_where_it_was_when_the_service_was_restarted(tmp_path: Path) -> None:
    with served(APPS[0], tmp_path) as (url, process), httpx.Client(base_url=url) as client:
        begun = client.post("/customers/ada/messages", json={"text": "my order"})
        run_id = begun.json()["run_id"]
        with client.stream("GET", f"/runs/{run_id}/events", timeout=20) as response:
            place, text = next_text(response.iter_lines())
            process.send_signal(signal.SIGTERM)  # The client stays.
            assert process.wait(timeout=20) in (0, -signal.SIGTERM)
    with served(APPS[0], tmp_path) as (url, _), httpx.Client(base_url=url) as client:
        again = client.post("/customers/ada/answers", json={"text": "and the invoice"})
        assert again.json() == {"text": "About 'and the invoice': we are on it."}
        path, headers = f"/runs/{run_id}/events", {"Last-Event-ID": place}
        with client.stream("GET", path, headers=headers, timeout=20) as response:
            _, next_one = next_text(response.iter_lines())
    assert text == "About 'my order': we are on it."
    assert next_one == "About 'and the invoice': we are on it."


def test_a_fastapi_service_remembers_its_customers(tmp_path: Path) -> None:
    for text in ("my order", "and the invoice"):
        with served(APPS[1], tmp_path) as (url, process), httpx.Client(base_url=url) as client:
            answered = client.post("/customers/ada/answers", json={"text": text}, timeout=20)
            assert answered.json() == {"text": f"About {text!r}: we are on it."}
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) in (0, -signal.SIGTERM)


def test_a_notebook_opens_a_runtime_in_one_cell_and_leaves_it_in_another(tmp_path: Path) -> None:
    assert CELLS is not None
    begin = (
        "from hubbub import Agent, Runtime, ScriptedModel\n"
        "assistant = Agent('assistant', 'You help.', model=ScriptedModel(['Sunny.']))"
    )
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(each) for each in [begin, *CELLS[1].splitlines()]]
    )
    done = NotebookClient(
        notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert [each["data"]["text/plain"] for each in done.cells[2].outputs] == ["'Sunny.'"]
