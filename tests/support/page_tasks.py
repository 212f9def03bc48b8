"""What a page's thread does, task by task, as the browser's own trace tells it.

The page is driven over the debugger's protocol alone: the scripts that a driver puts into a page to
wait for something or to report why it waits take longer than any task of the page, in its thread.
"""

import statistics
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = ["DrivenPage", "Machine", "Task", "machine"]

TIMES: Final = 9
"""How often the fixed work is done; its median counts."""

QUIET: Final = 10.0
"""Milliseconds of the fixed work on the machine for which the bounds hold as they stand."""

STAMP: Final = "hubbub: these are the tasks"

FIXED_WORK: Final = """(() => {
  const box = document.createElement("div");
  for (let row = 0; row < 300; row += 1) {
    const line = box.appendChild(document.createElement("p"));
    for (let word = 0; word < 5; word += 1) {
      line.appendChild(document.createElement("span")).textContent = `row ${row} word ${word} `;
    }
  }
  document.body.append(box);
  const tall = box.offsetHeight;
  box.remove();
  return tall;
})()"""
"""Script, elements, style and layout, as a page's tasks have them."""


class Task(NamedTuple):
    """One task: ms of the processor, ms by the clock, and what took most of it."""

    cpu: float
    wall: float
    what: str

    def __str__(self) -> str:
        return f"{self.cpu:.0f} ms: {self.what or 'nothing that the browser names'}"


class Machine(NamedTuple):
    """How much slower the machine is than the one for which bounds are meant: 1 is as fast.

    By the processor's time, and by the clock, which counts what others took meanwhile.
    """

    cpu: float
    wall: float

    def slower(self, other: "Machine") -> "Machine":
        """The slower of two moments."""
        return Machine(max(self.cpu, other.cpu), max(self.wall, other.wall))


class DrivenPage:
    """A page whose tasks are recorded from now on."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._events: list[Mapping[str, Any]] = []
        self._is_complete = False
        self._session = page.context.new_cdp_session(page)
        self._session.on("Tracing.dataCollected", lambda each: self._events.extend(each["value"]))
        self._session.on("Tracing.tracingComplete", self._complete)
        how = {"categories": "toplevel,devtools.timeline", "transferMode": "ReportEvents"}
        self._session.send("Tracing.start", how)

    def _complete(self, _: object) -> None:
        self._is_complete = True

    def open(self, url: str) -> None:
        """Load a page, and wait until it has loaded."""
        self._page.goto(url)

    def evaluate(self, script: str) -> Any:
        """What an expression yields, a promise's outcome included."""
        how = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self._session.send("Runtime.evaluate", how)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, script: str, seconds: int = 60) -> None:
        """Wait until an expression is true of the page."""
        for _ in range(20 * seconds):
            if self.evaluate(script):
                return
            self._page.wait_for_timeout(50)
        raise AssertionError(f"not after {seconds} s: {script}")

    def press(self, *keys: str, pause: int = 0) -> None:
        """Press keys, with so many ms after each."""
        for key in keys:
            self._page.keyboard.press(key)
            if pause:
                self._page.wait_for_timeout(pause)

    def write(self, text: str) -> None:
        """Type a text where the focus is."""
        self._page.keyboard.type(text)

    def rest(self, ms: int) -> None:
        """Let the page go on for so long."""
        self._page.wait_for_timeout(ms)

    def tasks(self) -> list[Task]:
        """All tasks so far, the longest first; the recording ends."""
        self.evaluate(f"console.timeStamp('{STAMP}')")
        self._session.send("Tracing.end")
        while not self._is_complete:
            self._page.wait_for_timeout(20)
        # The browser has pages of its own in other processes; and a page may have changed process.
        stamps = [each for each in self._events if _is_stamp(each)]
        assert stamps, "the browser's trace says nothing of this page"
        thread = stamps[-1]["pid"], stamps[-1]["tid"]
        timed = [
            each for each in self._events if "tdur" in each and (each["pid"], each["tid"]) == thread
        ]
        found = [
            Task(each["tdur"] / 1_000, each["dur"] / 1_000, _inside(each, timed))
            for each in timed
            if each["name"].endswith("RunTask")
        ]
        assert found, "the browser's trace names its tasks otherwise"
        return sorted(found, reverse=True)


def _is_stamp(event: Mapping[str, Any]) -> bool:
    return event["name"] == "TimeStamp" and event["args"]["data"]["message"] == STAMP


def _inside(task: Mapping[str, Any], timed: list[Mapping[str, Any]]) -> str:
    """The longest parts of a task worth naming."""
    if task["tdur"] < 5_000:
        return ""
    start, end = task["ts"], task["ts"] + task["dur"]
    parts = sorted(
        (
            (each["tdur"], _name(each))
            for each in timed
            if start <= each["ts"] < end
            and each["tdur"] >= 1_000 and not each["name"].endswith("RunTask")
        ),
        reverse=True,
    )  # fmt: skip
    return ", ".join(f"{name} {spent / 1_000:.0f}" for spent, name in parts[:6])


def _name(event: Mapping[str, Any]) -> str:
    data = event["args"].get("data") or {}
    file = str(data.get("url", "")).rsplit("/", 1)[-1]
    return " ".join(filter(None, (event["name"], data.get("functionName", ""), file)))


def machine(page: Any) -> Machine:
    """Measure the machine by fixed work, in an empty page of the same browser."""
    driven = DrivenPage(page)
    for _ in range(TIMES):
        driven.evaluate(FIXED_WORK)
    found = driven.tasks()[:TIMES]
    return Machine(
        cpu=max(1.0, statistics.median(each.cpu for each in found) / QUIET),
        wall=max(1.0, statistics.median(each.wall for each in found) / QUIET),
    )
