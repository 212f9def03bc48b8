"""The page with a thousand runs at work, a hundred events a second, and a long run.

No task of the page may take more than 50 ms of the processor, and the first paint comes within a
second.  Here its longest tasks take 10 ms; what is left in the longest ones is the browser's own
(the first layout with a font, the compiling of scripts), and takes as long as the machine is slow.
So the bounds are measured beside a floor: fixed work in the same browser, before and after, which
takes 10 ms on the machine that the bounds are meant for.  Where it takes twice as long, by the
processor's time for tasks and by the clock for the first paint, the bounds are twice as high.  They
are never lower.
"""

import pytest
from support.page_tasks import DrivenPage, machine

pytestmark = [pytest.mark.long, pytest.mark.spec("W-07")]

MOST = 50
"""Milliseconds for which a task may block the page."""
FIRST_PAINT = 1_000
RECORDS = 10_000

SCROLL = """(async () => {
  const list = document.querySelector(".list.%s");
  for (let step = 0; step < 60; step += 1) {
    list.scrollTop += 400;
    await new Promise((done) => requestAnimationFrame(done));
  }
})()"""

RATE = "parseInt(document.querySelector('.pulse i').textContent) > 50"
"""Whether the page hears more than so many events a second."""
PAINTS = "Math.max(...performance.getEntriesByType('paint').map((each) => each.startTime))"


@pytest.fixture(scope="module")
def busy(start_server):
    return start_server("1000")


def ledger(busy):
    """The run of ten thousand records, once it has them."""
    runs = busy.get("api/runs?limit=1000")["runs"]
    (run_id,) = (each["run_id"] for each in runs if each["agent"] == "clerk")
    busy.wait_for(f"api/runs/{run_id}", lambda found: found["seq"] >= RECORDS)
    return run_id, len(runs)


def count_of(selector):
    return f"document.querySelectorAll({selector!r}).length"


def text_of(selector):
    return f"document.querySelector({selector!r})?.textContent ?? ''"


class Look:
    """A look at a page: how fast the machine is, what the page does, whether that is in bounds."""

    def __init__(self, open_tab):
        self._open_tab = open_tab
        self._machine = self._measured()
        self.page = DrivenPage(open_tab("about:blank").page)

    def _measured(self):
        return machine(self._open_tab("about:blank").page)

    def check(self, first_paint):
        tasks = self.page.tasks()
        now = self._machine.slower(self._measured())
        print(f"{now}, first paint {first_paint:.0f} ms; the longest:", *tasks[:5], sep="\n  ")
        assert first_paint <= FIRST_PAINT * now.wall
        assert [str(each) for each in tasks if each.cpu > MOST * now.cpu] == [], now


def test_the_list_of_a_thousand_runs_is_there_at_once_and_stays_fluid(busy, open_tab):
    ledger(busy)
    look = Look(open_tab)
    page = look.page
    page.open(busy.url)
    page.wait_for(f"{count_of('.runs .line')} > 10")
    first_paint = page.evaluate(PAINTS)
    page.wait_for(RATE)
    page.evaluate(SCROLL % "runs")
    page.wait_for(f"{count_of('.runs .line:not([role=treeitem])')} === 0")
    page.press("/")
    page.write("worker")
    page.press("Escape", *["j"] * 30, "Enter")
    page.wait_for(f"{text_of('.run-head h2')}.includes('worker')")
    page.rest(1_000)
    look.check(first_paint)


def test_a_run_of_ten_thousand_records_is_there_at_once_and_stays_fluid(busy, open_tab):
    run_id, count = ledger(busy)
    assert count == 1_000
    look = Look(open_tab)
    page = look.page
    page.open(f"{busy.url}#/runs/{run_id}/9000")
    page.wait_for(count_of(".records .line[aria-selected=true]"))
    first_paint = page.evaluate(PAINTS)
    page.wait_for(f"{text_of('.scrub-at i')}.includes('10,0')")
    lines = page.evaluate(count_of(".records .line"))
    assert lines < 200
    page.evaluate("document.querySelector('.records').scrollTop = 0")
    page.evaluate(SCROLL % "records")
    page.wait_for(f"{count_of('.records .line:not([role=option])')} === 0")
    page.press("/")
    page.write("entry 77")
    page.wait_for(f"{count_of('.records .line[role=option]')} === {lines_of('entry 77', lines)}")
    page.press("Control+A", "Backspace")
    page.press("Escape", "1", "3", "4", "2", "k", "k", "[", pause=100)
    look.check(first_paint)


def lines_of(words, most):
    """How many of the entries a search finds, of which so many are in the document."""
    return min(most, sum(f"entry {number}".startswith(words) for number in range(RECORDS)))


def test_lines_that_all_change_in_every_frame_all_get_their_turn(busy, open_tab):
    page = open_tab(busy.url).page
    frames, ages = page.evaluate("""async () => {
      const { Lines } = await import(`${document.baseURI}inspector/virtual_list.js`);
      const lines = new Lines();
      const view = { first: 80, size: 40, count: 1000 };
      let frames = 0;
      do {
        lines.draw(view, 90, (index) => ({ key: index, element: 0 }));
        frames += 1;
      } while (lines.isShort);
      let ages;
      for (let frame = 1; frame <= 20; frame += 1) {
        const make = (index) => ({ key: `${index} in ${frame}`, element: frame });
        ages = lines.draw(view, 90, make).map((drawn) => 20 - drawn);
      }
      return [frames, ages];
    }""")
    assert frames == 5
    assert len(ages) == 40
    assert sorted(set(ages)) == [0, 1, 2, 3, 4]


def test_a_task_that_blocks_the_page_is_found(open_tab):
    page = DrivenPage(open_tab("about:blank").page)
    page.evaluate("(() => { const until = performance.now() + 500;"
                  " while (performance.now() < until); })()")  # fmt: skip
    (longest, *_) = page.tasks()
    assert longest.cpu > MOST
    assert longest.wall >= 500
