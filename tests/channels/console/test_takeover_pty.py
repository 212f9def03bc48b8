"""A conversation that changes hands, in a real terminal, in a process of its own (IA, I-17)."""

import subprocess
import sys
import termios

import pytest
from support.pty_terminal import Terminal

SCRIPT = """
import fcntl, sys, termios
import anyio
from hubbub import AgentDefinition, PromptDefinition, Runtime, SideConfig, tool
from hubbub.agents.definitions.skills import Skill
from hubbub.channels import run_console
from hubbub.runtime.models.scripted import ScriptedModel, call

if sys.stdin.isatty():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C goes to whom the terminal belongs to.

@tool
async def web_search(query: str) -> str:
    "Searches the web."
    return f"three pages about {query}"

@tool
async def nap() -> str:
    "Takes a minute."
    await anyio.sleep(60)
    return "too late"

def use(name, message):
    return call("use_agent", name=name, message=message)

def agent(name, *script, **options):
    model = ScriptedModel(script, latency=0.05)
    prompt = PromptDefinition(
        name=name, prompt=name, model=model, tools=(web_search, nap), **options
    )
    side = SideConfig(prompt=prompt)
    return AgentDefinition(name=name, expose_as_tool=True, tool_description=name, side_a=side)

def skill(name, *script, **options):
    model = ScriptedModel(script, latency=0.05)
    return Skill(name=name, description=name, instructions=name, model=model, **options)

diagram = [
    agent(
        "main",
        call("use_skill", name="research", message="Python async APIs"),
        "There are three of them.",
        "You are welcome.",
        skills=[skill(
            "research",
            "I'll search for Python async APIs...",
            call("web_search", query="3.13 async"),
            call("complete", result="Found 3 APIs"),
            tools=(web_search,),
        )],
    ),
]
nested = [
    agent(
        "main",
        call("use_skill", name="skill-writer", message="a skill about APIs"),
        "Your skill is ready.",
        "And now?",
        skills=[skill(
            "skill-writer",
            use("research", "find APIs"),
            "Shall I save it?",
            call("complete", result="It is saved."),
            agents=("research",),
        )],
    ),
    agent("research", "Which Python?", call("nap"), call("complete", result="three")),
]

async def main():
    agents = {"diagram": diagram, "nested": nested}[sys.argv[2]]
    async with Runtime(agents=agents) as rt:
        return await run_console(rt.hub, "main", session_key=(sys.argv[3:] or [None])[0])

sys.exit(anyio.run(main, backend=sys.argv[1]))
"""


@pytest.fixture
def open_terminal(script, backend):
    opened = []

    def open_terminal(*args, prompt="> "):
        opened.append(Terminal(script, backend, *args))
        opened[-1].wait(prompt)
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        terminal.close()


def leave(terminal, key="\x04"):
    terminal.type(key)
    assert terminal.wait_end() == 0
    assert "Traceback" not in terminal.shown
    assert termios.tcgetattr(terminal.slave) == terminal.before


@pytest.mark.spec("I-01", "I-17", "K-03")
def test_the_stack_diagram_of_interactive_agents(open_terminal):
    terminal = open_terminal("diagram")
    terminal.type("research Python async APIs\n")
    terminal.wait("▸ research takes over: Python async APIs")
    terminal.wait("I'll search for Python async APIs...")
    terminal.wait("main › research › ")
    terminal.type("focus on 3.13 specifically\n")
    terminal.wait("• web_search(query='3.13 async')")
    terminal.wait("→ three pages about 3.13 async")
    terminal.wait("↩ research → Found 3 APIs")
    terminal.wait("▸ main")
    terminal.wait("There are three of them.")
    terminal.wait("> ")
    assert "›" not in terminal.seen  # Normal routing has resumed.
    terminal.type("thanks\n")
    terminal.wait("You are welcome.")
    terminal.wait("> ")
    assert "▸" not in terminal.seen
    leave(terminal)


@pytest.mark.spec("I-01", "I-08", "I-17")
def test_nested_takeovers_are_interrupted_sent_back_and_completed(open_terminal):
    terminal = open_terminal("nested")
    terminal.type("go\n")
    terminal.wait("▸ skill-writer takes over: a skill about APIs")
    terminal.wait("▸ research takes over: find APIs")
    terminal.wait("Which Python?")
    terminal.wait("main › skill-writer › research › ")
    terminal.type("3.13\n")
    terminal.wait("nap()")
    terminal.type("\x03")
    terminal.wait("interrupted: Ctrl-C")
    terminal.wait("main › skill-writer › research › ")  # It was at work: it stays.
    terminal.type("/back\n")
    terminal.wait("✗ research gave the conversation back: sent back by the user")
    terminal.wait("▸ skill-writer")
    terminal.wait("Shall I save it?")
    terminal.wait("main › skill-writer › ")
    terminal.type("yes\n")
    terminal.wait("↩ skill-writer → It is saved.")
    terminal.wait("Your skill is ready.")
    terminal.wait("> ")
    leave(terminal)


@pytest.mark.spec("I-08", "I-17")
@pytest.mark.parametrize("how", ["/stop\n", "\x03"])
def test_a_word_or_ctrl_c_at_a_waiting_child_brings_back_main(open_terminal, how):
    terminal = open_terminal("nested")
    terminal.type("go\n")
    terminal.wait("main › skill-writer › research › ")
    terminal.type(how)
    terminal.wait("back to main")
    terminal.wait("> ")
    assert "›" not in terminal.seen
    assert terminal.process.poll() is None
    terminal.type("and you?\n")
    terminal.wait("Your skill is ready.")  # Main's next step.
    terminal.wait("> ")
    if how == "\x03":
        terminal.type("half a line\x03")
        terminal.wait("press Ctrl-C again to leave")
        terminal.wait("> ")
        assert "half" not in terminal.seen
    leave(terminal, how if how == "\x03" else "\x04")


@pytest.mark.spec("I-09", "I-17")
def test_a_process_that_was_killed_is_followed_by_one_with_the_same_stack(open_terminal):
    terminal = open_terminal("nested", "chat")
    terminal.type("go\n")
    terminal.wait("main › skill-writer › research › ")
    terminal.process.kill()
    terminal.process.wait()
    again = open_terminal("nested", "chat", prompt="main › skill-writer › research › ")
    again.type("/back\n")
    again.wait("Shall I save it?")
    again.wait("main › skill-writer › ")
    leave(again)


def test_a_pipe_gets_what_is_said_and_nothing_else(script, backend):
    done = subprocess.run(
        [sys.executable, str(script), backend, "diagram"], input=b"research\n3.13\nthanks\n",
        capture_output=True, timeout=20, check=False, cwd=script.parent,
    )  # fmt: skip
    said = "I'll search for Python async APIs...\nThere are three of them.\nYou are welcome.\n"
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, said, b"")
