"""The page with a thousand runs at work, a hundred events a second, and a long run."""

import pytest

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = [pytest.mark.long, pytest.mark.spec("W-07")]

SLOW = 60_000
MOST = 50
"""Milliseconds for which a task may block the page."""
RECORDS = 10_000

SCROLL = """async (name) => {
  const list = document.querySelector(`.list.${name}`);
  for (let step = 0; step < 60; step += 1) {
    list.scrollTop += 400;
    await new Promise((done) => requestAnimationFrame(done));
  }
}"""


RATE = "() => parseInt(document.querySelector('.pulse i').textContent) > 50"
"""Whether the page hears more than so many events a second."""


class Tasks:
    """What the page's thread did: the time that each task took of the processor, in ms.

    The browser's own report of long tasks goes by the clock, and on a machine with much else to do
    counts what others took meanwhile.  So of the tasks that it reports those are counted that have
    worked so long.
    """

    def __init__(self, page):
        self._page = page
        self._events = []
        self._is_complete = False
        self._session = page.context.new_cdp_session(page)
        self._session.on("Tracing.dataCollected", lambda each: self._events.extend(each["value"]))
        self._session.on("Tracing.tracingComplete", self._complete)
        how = {"categories": "toplevel,devtools.timeline", "transferMode": "ReportEvents"}
        self._session.send("Tracing.start", how)

    def _complete(self, _):
        self._is_complete = True

    def longest(self):
        """The longest ones, if the browser calls any long."""
        if not self._page.evaluate("window.longTasks.length"):
            return []
        self._session.send("Tracing.end")
        while not self._is_complete:
            self._page.wait_for_timeout(20)
        mains = {
            (each["pid"], each["tid"])
            for each in self._events
            if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
        }
        spent = [
            each["tdur"] / 1_000
            for each in self._events
            if "tdur" in each and (each["pid"], each["tid"]) in mains
            and each["name"].endswith("RunTask")
        ]  # fmt: skip
        assert spent
        return sorted(round(each) for each in spent if each > MOST)


@pytest.fixture(scope="module")
def busy(start_server):
    return start_server("1000")


def ledger(busy):
    """The run of ten thousand records, once it has them."""
    runs = busy.get("api/runs?limit=1000")["runs"]
    (run_id,) = (each["run_id"] for each in runs if each["agent"] == "clerk")
    busy.wait_for(f"api/runs/{run_id}", lambda found: found["seq"] >= RECORDS)
    return run_id, len(runs)


def first_paint(page):
    found = page.evaluate("performance.getEntriesByType('paint').map((each) => each.startTime)")
    return max(found)


def test_the_list_of_a_thousand_runs_is_there_at_once_and_stays_fluid(busy, open_tab):
    ledger(busy)
    page = open_tab("about:blank").page
    tasks = Tasks(page)
    page.goto(busy.url)
    expect(page.locator(".runs .line").first).to_be_visible(timeout=SLOW)
    assert first_paint(page) <= 1_000
    page.wait_for_function(RATE, timeout=SLOW)
    page.evaluate(SCROLL, "runs")
    page.fill("#filter", "worker")
    page.keyboard.press("Escape")
    for _ in range(30):
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator(".run-head h2")).to_contain_text("worker")
    page.wait_for_timeout(1_000)
    assert tasks.longest() == []


def test_a_run_of_ten_thousand_records_is_there_at_once_and_stays_fluid(busy, open_tab):
    run_id, count = ledger(busy)
    assert count == 1_000
    page = open_tab("about:blank").page
    tasks = Tasks(page)
    page.goto(f"{busy.url}#/runs/{run_id}/9000")
    expect(page.locator(".records .line[aria-selected=true]")).to_be_visible(timeout=SLOW)
    assert first_paint(page) <= 1_000
    expect(page.locator(".scrub-at i")).to_contain_text("10,0", timeout=SLOW)
    lines = page.evaluate("document.querySelectorAll('.records .line').length")
    assert lines < 200
    page.evaluate("document.querySelector('.records').scrollTop = 0")
    page.evaluate(SCROLL, "records")
    page.fill("#seek", "entry 77")
    expect(page.locator(".records .line")).to_have_count(lines_of("entry 77", lines), timeout=SLOW)
    page.fill("#seek", "")
    for key in ("Escape", "1", "3", "4", "2", "k", "k", "["):
        page.keyboard.press(key)
        page.wait_for_timeout(100)
    assert tasks.longest() == []


def lines_of(words, most):
    """How many of the entries a search finds, of which so many are in the document."""
    return min(most, sum(f"entry {number}".startswith(words) for number in range(RECORDS)))
