"""The console in a real terminal, in a process of its own (K-03).  Real time, so: quick."""

import subprocess
import sys
import termios
import time
from contextlib import suppress

import pytest
from support.pty_terminal import Terminal

pytestmark = pytest.mark.spec("K-03")

SCRIPT = """
import fcntl, sys, termios
import anyio
from hubbub import AgentDefinition, PromptDefinition, Runtime, SideConfig, agent, tool
from hubbub.channels import run_console
from hubbub.runtime.models.scripted import ScriptedModel, call

if sys.stdin.isatty():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C goes to whom the terminal belongs to.

@tool
async def nap() -> str:
    "Takes a minute."
    await anyio.sleep(60)
    return "too late"

script = ["one two three four", call("nap"), "after all"]
model = ScriptedModel(script, latency=0.2)
prompt = PromptDefinition(name="p", prompt="", model=model, tools=(nap,))
bot = AgentDefinition(name="bot", side_a=SideConfig(prompt=prompt))

@agent("coded")
async def coded(input, ctx):
    ctx.say("I begin")
    await anyio.sleep(60)
    ctx.say("too late")

async def main():
    async with Runtime(agents=[bot, coded]) as rt:
        return await run_console(rt.hub, sys.argv[2] if sys.argv[2:] else "bot")

sys.exit(anyio.run(main, backend=sys.argv[1]))
"""


@pytest.fixture
def terminal(script, backend):
    terminal = Terminal(script, backend)
    yield terminal
    terminal.close()


def leave_twice(terminal):
    """Two presses leave; two more, if the machine was too slow for them to belong together.

    Nothing is pressed while it may be leaving: that would reach Python itself, on its way out.
    """
    deadline = time.monotonic() + 40
    while terminal.process.poll() is None and time.monotonic() < deadline:
        terminal.type("\x03")
        time.sleep(0.3)
        terminal.type("\x03")
        with suppress(subprocess.TimeoutExpired):
            terminal.process.wait(10)
    assert terminal.wait_end() == 0


def test_typing_a_line_streams_the_answer_and_ctrl_d_leaves(terminal):
    terminal.wait("> ")
    terminal.type("hi\n")
    terminal.wait("one ")
    assert "four" not in terminal.shown  # It is being written.
    terminal.wait("four")
    terminal.wait("> ")
    assert terminal.seen == "\r\n"  # The prompt has a line of its own.
    terminal.type("\x04")
    assert terminal.wait_end() == 0
    assert terminal.shown.endswith("\r\n")
    assert "Traceback" not in terminal.shown
    assert termios.tcgetattr(terminal.slave) == terminal.before


def test_ctrl_c_interrupts_the_turn_and_at_the_prompt_twice_leaves(terminal):
    terminal.wait("> ")
    terminal.type("hi\n")
    terminal.wait("four")
    terminal.wait("> ")
    terminal.type("wait\n")
    terminal.wait("nap()")
    terminal.type("\x03")
    terminal.wait("interrupted: Ctrl-C")
    terminal.wait("> ")
    assert terminal.process.poll() is None
    leave_twice(terminal)
    assert "too late" not in terminal.shown
    assert "Traceback" not in terminal.shown
    assert termios.tcgetattr(terminal.slave) == terminal.before


def test_ctrl_c_twice_leaves_in_the_middle_of_a_turn(terminal):
    terminal.wait("> ")
    terminal.type("hi\n")
    terminal.wait("one ")
    terminal.type("\x03")
    terminal.wait("interrupting")
    terminal.type("\x03")
    assert terminal.wait_end() == 0
    assert "Traceback" not in terminal.shown
    assert termios.tcgetattr(terminal.slave) == terminal.before


def test_ctrl_c_interrupts_a_code_agent_that_is_busy_and_the_next_one_leaves(script, backend):
    terminal = Terminal(script, backend, "coded")
    try:
        terminal.wait("> ")
        terminal.type("go\n")
        terminal.wait("I begin")
        terminal.wait("> ")  # It has spoken and is quiet, and works all the same.
        terminal.type("\x03")
        terminal.wait("interrupting; press Ctrl-C again to leave")
        terminal.wait("interrupted: Ctrl-C")
        terminal.wait("> ")
        assert terminal.process.poll() is None
        leave_twice(terminal)
        assert "too late" not in terminal.shown
        assert "Traceback" not in terminal.shown
    finally:
        terminal.close()


def test_a_pipe_in_a_process_of_its_own_gets_the_answer_only(script, backend):
    command = [sys.executable, str(script), backend]
    done = subprocess.run(
        command, input=b"hi\n", capture_output=True, timeout=20, check=False, cwd=script.parent
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"one two three four\n", b"")


def test_a_reader_that_has_left_causes_no_traceback(script, backend):
    process = subprocess.Popen(
        [sys.executable, str(script), backend],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=script.parent,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.write(b"hi\n")
    process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(20) == 1
