"""The page of workers in a browser: who is at work on a store, how far each is, who is missing."""

import os
import re
import signal

import pytest
from support.postgres import SECRETS_KEY, running_server
from support.serve_process import ServeProcess
from support.worker_process import WorkerProcess

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = [pytest.mark.long, pytest.mark.spec("W-07")]

MODULE = """
from hubbub import Agent, FunctionModel

{name} = Agent("{name}", "You help.", model=FunctionModel(lambda request: "Hello."))
"""
HEADINGS = [
    "Process", "Kind", "Since", "Lease left", "Trees", "Running", "Capacity", "Position", "Behind",
    "Agents",
]  # fmt: skip


@pytest.fixture
def database(monkeypatch):
    monkeypatch.setenv("HUBBUB_SECRETS_KEY", SECRETS_KEY)
    with running_server() as found:
        yield found


@pytest.fixture
def here(tmp_path):
    for name in ("ann", "bob"):
        (tmp_path / f"{name}_agents.py").write_text(MODULE.format(name=name))
    return tmp_path


def worker(here, address, name, agent="ann", *more):
    return WorkerProcess(here, f"{agent}_agents", "--store", address, "--name", name, *more)


def cells(page, name):
    """The line of a process, by heading."""
    texts = page.locator(f"tr[data-process={name}] > *").all_inner_texts()
    return dict(zip(HEADINGS, texts, strict=True))


def test_workers_channels_and_who_is_missing_are_seen_as_they_come_and_go(database, here, open_tab):
    address = database.dsn()
    with (
        ServeProcess(here, "--store", address, "--name", "web") as web,
        web.client() as client,
        worker(here, address, "one", "ann", "--capacity", "40"),
    ):
        tab = open_tab(f"{web.url}#/workers")
        page, tab.is_offline = tab.page, True  # At the end the server goes first.
        expect(page.locator("thead th")).to_have_text(HEADINGS)
        expect(page.locator("tr[data-process=one]")).to_be_visible()
        expect(page.locator("tr[data-process=web] td").nth(0)).to_have_text("channel")
        page.evaluate("window.isTheSame = true")
        for agent in ("ann", "bob", "bob"):
            client.post("/api/runs", json={"agent": agent, "input": "x"}).raise_for_status()
        missing = page.locator(".free li")
        expect(missing).to_have_count(1)
        expect(missing).to_contain_text("2 trees")
        expect(missing).to_contain_text("nobody is there who knows this agent")
        expect(page.locator("tr[data-process=one] td").nth(3)).to_have_text("1")
        expect(page.locator("tr[data-process=one] td.is-behind")).to_have_count(0)
        one = cells(page, "one")
        assert (one["Kind"], one["Capacity"], one["Agents"]) == ("worker", "40", "ann")
        assert 3 < float(one["Lease left"].removesuffix(" s")) <= 6
        assert int(one["Position"]) == client.get("/api/workers").json()["position"] > 0
        with worker(here, address, "two", "bob") as two:
            expect(page.locator("tr[data-process=two]")).to_be_visible()
            expect(page.locator(".free li")).to_have_count(0)
            expect(page.locator("tr[data-process=two] td").nth(3)).to_have_text("2")
            os.kill(two.process.pid, signal.SIGKILL)
            expect(page.locator("tr[data-process=two]")).to_have_count(0)
        expect(missing).to_contain_text("2 trees")
        assert page.evaluate("window.isTheSame")


def test_how_far_a_process_is_behind_is_seen_and_that_one_does_not_say_it(database, here, open_tab):
    address = database.dsn()
    schema = address.partition("schema=")[2]
    with ServeProcess(here, "--store", address, "--name", "web") as web, web.client() as client:
        client.post("/api/runs", json={"agent": "ann", "input": "x"}).raise_for_status()
        database.query(
            f"INSERT INTO {schema}.worker (name, kind, live, expires, told) VALUES "
            "('slow', 'worker', true, clock_timestamp() + interval '1 hour', 0), "
            "('older', 'worker', true, clock_timestamp() + interval '1 hour', NULL)"
        )
        tip = client.get("/api/workers").json()["position"]
        tab = open_tab(f"{web.url}#/workers")
        page, tab.is_offline = tab.page, True  # At the end the server goes first.
        behind = page.locator("tr[data-process=slow] td.is-behind")
        expect(behind).to_have_text(re.compile(rf"^{tip}, \d+\.\d s$"))
        expect(page.locator("tr[data-process=older] td").nth(7)).to_have_text("unknown")
        database.query(f"UPDATE {schema}.worker SET told = {tip} WHERE name = 'slow'")
        expect(behind).to_have_count(0)


def test_of_a_store_that_one_process_has_it_says_so_in_a_line(server, open_tab):
    page = open_tab(server.url).page
    page.keyboard.press("w")
    expect(page).to_have_url(f"{server.url}#/workers")
    line = page.locator("section.workers > p")
    expect(line).to_have_text(
        "One process has this store to itself: nobody else can be at work on it."
    )
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr td").nth(0)).to_have_text("worker")
    expect(page.locator(".free, .workers h3")).to_have_count(0)


@pytest.mark.parametrize("width", [400, 900])
def test_the_table_scrolls_in_itself_where_there_is_little_room(server, open_tab, width):
    page = open_tab(f"{server.url}#/workers", viewport={"width": width, "height": 800}).page
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.locator(".workers .table").bounding_box()
    assert box["x"] + box["width"] <= width


def test_what_the_server_refuses_is_said_and_the_last_state_stays(server, open_tab):
    tab = open_tab(f"{server.url}#/workers")
    page = tab.page
    expect(page.locator("tbody tr")).to_have_count(1)
    tab.is_offline = True
    page.context.set_offline(True)
    expect(page.locator("section.workers .fault-text")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.context.set_offline(False)
    expect(page.locator("section.workers .fault-text")).to_have_count(0)
