"""The pytest plugin, as a project meets it that only knows pytest."""

import subprocess
import sys
from pathlib import Path

import pytest

from hubbub.runtime.simulation.playback import replay_recording
from hubbub.runtime.simulation.recording import read_recording

pytest_plugins = ["pytester"]

PLUGIN = "hubbub.runtime.simulation.plugin"

AGENTS = """
from hubbub import AgentDefinition, PromptDefinition, SideConfig
from hubbub.runtime.simulation import Setup

def agent(model):
    prompt = PromptDefinition(name="p", prompt="You help.", model=model)
    return AgentDefinition(name="helper", side_a=SideConfig(prompt=prompt))
"""
FAILS = """
import agents

def test_it_fails(simulate, scripted_model):
    async def scenario(world):
        await world.result(await world.open("helper", "hello", user="ann"))
    history = simulate(scenario, agents.Setup.of(agents.agent(scripted_model("One."))))
    (run_id,) = history.runs
    assert history.said(run_id) == ["Two."], f"seed {history.seed}"
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(agents=AGENTS)
    pytester.syspathinsert()
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    # Its own process: in this one the plugin is at work already.
    return project.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error", *arguments)


def test_the_plugin_is_there_and_says_its_seed(project: pytest.Pytester) -> None:
    project.makepyfile("def test_nothing(hubbub_seed): assert hubbub_seed == 7")
    result = run(project, "--hubbub-seed", "7")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["hubbub: --hubbub-seed 7"])


def test_fixtures_make_hubs_runtimes_and_models_on_both_loops(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import agents, pytest

        @pytest.mark.anyio
        async def test_a_runtime(hubbub_runtime, scripted_model):
            async with hubbub_runtime([agents.agent(scripted_model("Hello."))]) as rt:
                outcome = await rt.run("helper", "hi")
                assert outcome.output == "Hello."

        @pytest.mark.anyio
        async def test_a_runtime_on_a_hub(hubbub_hub, hubbub_runtime, scripted_model):
            heard = []
            model = scripted_model("Hello.", name="mine")
            async with hubbub_hub as hub:
                hub.subscribe("agent:text", heard.append)
                async with hubbub_runtime(
                    [agents.agent("mine")], hub=hub, models={"mine": model}
                ) as rt:
                    await rt.run("helper", "hi")
            assert [event.text for event in heard] == ["Hello."]

        @pytest.mark.anyio
        async def test_two_runtimes_are_two(hubbub_runtime):
            async with hubbub_runtime() as one, hubbub_runtime() as two:
                assert one.hub is not two.hub
        """
    )
    run(project).assert_outcomes(passed=6)


def test_in_virtual_time_a_week_takes_no_time(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import agents, anyio, pytest

        pytestmark = pytest.mark.anyio

        @pytest.fixture
        def anyio_backend(hubbub_virtual_time):
            return hubbub_virtual_time

        async def test_a_world(simulated_world, scripted_model):
            setup = agents.Setup.of(agents.agent(scripted_model("One.", "Two.")))
            async with simulated_world(setup) as world:
                run_id = await world.open("helper", "hello", user="ann")
                await world.wait(7 * 86_400)
                await world.say(run_id, "again", user="ann")
                await world.settle()
            assert world.history.said(run_id) == ["One.", "Two."]
        """
    )
    result = run(project)
    result.assert_outcomes(passed=1)
    assert result.duration < 30


def test_a_failing_test_says_how_it_is_run_again_and_does_so(project: pytest.Pytester) -> None:
    project.makepyfile(test_it=FAILS)
    result = run(project, "--hubbub-seed", "5")
    result.assert_outcomes(failed=1)
    command = "pytest test_it.py::test_it_fails --hubbub-seed 5"
    result.stdout.fnmatch_lines(["*hubbub: to see it again*", command, "*seed 5*"])
    again = run(project, *command.split()[1:])
    again.stdout.fnmatch_lines(["*AssertionError: seed 5*"])


def test_a_seed_that_a_test_gives_itself_is_its_own(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import agents

        async def scenario(world):
            pass

        def test_it(simulate):
            assert simulate(scenario, agents.Setup()).seed == 5
            assert simulate(scenario, agents.Setup(), seed=3).seed == 3
        """
    )
    run(project, "--hubbub-seed", "5").assert_outcomes(passed=1)


def test_what_runs_of_a_failing_test_did_is_recorded_and_plays_again(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(
        test_it=FAILS
        + """
import pytest

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_runtime(hubbub_runtime, scripted_model):
    async with hubbub_runtime([agents.agent(scripted_model("Hello.", "Bye."))]) as rt:
        await rt.run("helper", "hi")
        await rt.run("helper", "ho")
        raise ValueError("no")

def test_that_passes(simulate):
    async def scenario(world):
        pass
    simulate(scenario, agents.Setup())
"""
    )
    run(project, "--hubbub-record", "records").assert_outcomes(failed=2, passed=1)
    files = sorted(Path(project.path, "records").iterdir())
    assert [file.name for file in files] == [
        "test_it.py_test_a_runtime_asyncio-2.jsonl", "test_it.py_test_a_runtime_asyncio.jsonl",
        "test_it.py_test_it_fails.jsonl",
    ]  # fmt: skip
    texts = [["helper: Hello."], ["helper: Hello."], ["helper: One."]]
    assert [read_recording(file).transcript() for file in files] == texts
    for file in files:
        playback = replay_recording(file)
        assert playback.replayed == playback.recorded


def test_a_recording_of_a_test_can_be_imported(project: pytest.Pytester) -> None:
    from hubbub.__main__ import main

    project.makepyfile(test_it=FAILS)
    run(project, "--hubbub-record", "records")
    (file,) = Path(project.path, "records").iterdir()
    store = f"sqlite:{project.path / 'store'}"
    assert main(["import", str(file), "--store", store]) == 0
    assert main(["fsck", "--store", store]) == 0


def test_tests_without_its_fixtures_are_left_alone(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import sys

        def test_it():
            assert "hypothesis" not in sys.modules
            raise ValueError("no")
        """
    )
    result = run(project, "-p", "no:hypothesispytest", "--hubbub-record", "records")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*to see it again*")
    result.stdout.fnmatch_lines(["*ValueError: no*"])
    assert not Path(project.path, "records").exists()


def loaded(*, besides: str) -> set[str]:
    """What importing the plugin loads, besides pytest and a package."""
    code = (
        f"import sys, pytest, {besides}; before = set(sys.modules); import {PLUGIN}; "
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_plugin_itself_loads_nothing() -> None:
    assert loaded(besides="hubbub.runtime.simulation") == {PLUGIN}


def test_the_plugin_starts_where_the_extra_is_not_installed() -> None:
    """A project that has pytest and hubbub, and no Trio, still has its pytest."""
    assert not {"trio", "hypothesis"} & loaded(besides="sys")


def test_the_plugin_costs_those_who_do_not_use_it_next_to_nothing() -> None:
    found = loaded(besides="sys")
    assert not {"msgspec", "anyio", "structlog", "httpx"} & found
    assert {x for x in found if x.startswith("hubbub")} == {
        "hubbub", "hubbub.hub", "hubbub.hub.exports", "hubbub.runtime",
        "hubbub.runtime.simulation", PLUGIN,
    }  # fmt: skip
