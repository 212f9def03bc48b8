"""A served hub in a process of its own, and a browser to look at it with."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = "/usr/bin/chromium"
PATIENCE = 30_000
"""Milliseconds that a machine with much else to do may take for anything."""
PROGRAM = Path(__file__).with_name("served_hub.py")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


class Server:
    """The program, which can be killed and started again on the same port and store."""

    def __init__(self, store: str, *options: str) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self._arguments = [str(self.port), store, *options]
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        command = [sys.executable, str(PROGRAM), *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self.kill()

    def post(self, path: str, **body: Any) -> Any:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer)

    def wait_for(self, path: str, is_so: Callable[[Any], object]) -> Any:
        """What the server answers, once that is so."""
        until = time.monotonic() + 60
        while not is_so(found := self.get(path)):
            assert time.monotonic() < until, found
            time.sleep(0.1)  # Another process works meanwhile.
        return found


@pytest.fixture(scope="module")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Starts servers, each on a store of its own unless one is named; ``options`` are the
    program's."""
    started: list[Server] = []

    def start(*options: str, store: str = "") -> Server:
        store = store or f"sqlite:{tmp_path_factory.mktemp('served') / 'store'}"
        found = Server(store, *options)
        started.append(found)
        found.start()
        return found

    yield start
    for each in started:
        each.stop()


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    """One for all tests of a module: each opens runs of its own."""
    return start_server()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser; its tests are skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if not os.path.exists(CHROMIUM):
        pytest.skip(f"there is no {CHROMIUM}: apt-get install chromium")
    sync_api.expect.set_options(timeout=PATIENCE)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Tab:
    """A page, and what it complained about."""

    def __init__(self, browser: Any, **options: Any) -> None:
        how = {"viewport": {"width": 1500, "height": 900}, **options}
        self._context = browser.new_context(**how)
        self.page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.add_init_script(WATCH)
        self.complaints: list[str] = []
        self.is_offline = False
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(error.stack))

    def _console(self, message: Any) -> None:
        # The browser itself logs each request that finds no server.
        if message.type in ("error", "warning") and not (
            self.is_offline and "net::ERR_" in message.text
        ):
            self.complaints.append(message.text)

    def check(self) -> None:
        """Nothing was blocked, nothing was raised, nothing was logged as wrong."""
        assert self.page.evaluate("window.violations") == []
        assert self.complaints == []

    def close(self) -> None:
        self._context.close()


@pytest.fixture
def open_tab(chromium: Any) -> Iterator[Any]:
    """Opens pages, and checks at the end that none of them has complained."""
    tabs: list[Tab] = []

    def opened(url: str, **options: Any) -> Tab:
        tab = Tab(chromium, **options)
        tabs.append(tab)
        tab.page.goto(url)
        return tab

    yield opened
    try:
        for tab in tabs:
            tab.check()
    finally:
        for tab in tabs:
            tab.close()
