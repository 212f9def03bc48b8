"""The pytest plugin, as a project meets it that only knows pytest."""

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from textwrap import dedent

import pytest

from hubbub.runtime.simulation import plugin
from hubbub.runtime.simulation.playback.play import replay_recording
from hubbub.runtime.simulation.playback.recording import read_recording

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


# The plugin of schemathesis, where that is installed, loads Hypothesis and changes what it prints.
# Within ``python -m pytest`` a file of the current folder is called like that program.
ALWAYS = (
    "-p", "no:cacheprovider", "-p", "no:schemathesis", "-W", "error", "-W",
    "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _everything_is_loaded() -> None:
    """What a test here is the first to import is gone with it, and the next one would import it
    again, with classes of its own."""
    for folder in ("hub", "agents", "runtime", "channels"):
        package = import_module(f"hubbub.{folder}")
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(found.name)


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_inprocess(*ALWAYS, *arguments)


def run_in_a_process(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """For what is about processes: the entry point, the exit code, workers, what is loaded."""
    return project.runpytest_subprocess(*ALWAYS, *arguments)


def test_the_plugin_is_there_and_says_its_seed(project: pytest.Pytester) -> None:
    project.makepyfile("def test_nothing(hubbub_seed): assert hubbub_seed == 7")
    result = run_in_a_process(project, "--hubbub-seed", "7")
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
    assert [re.sub("-[0-9a-f]{8}", "-…", file.name) for file in files] == [
        "test_it.py_test_a_runtime_asyncio-…-2.jsonl", "test_it.py_test_a_runtime_asyncio-….jsonl",
        "test_it.py_test_it_fails-….jsonl",
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


PARAMETERS = """
import agents, pytest

@pytest.mark.parametrize("x", ["a b", "a_b", "a/b", "A b", "ä", "ö", "long" * 100])
def test_it(simulate, scripted_model, x):
    async def scenario(world):
        await world.result(await world.open("helper", x, user="ann"))
    simulate(scenario, agents.Setup.of(agents.agent(scripted_model(x))))
    raise ValueError("no")
"""


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")])
def test_each_test_has_a_recording_of_its_own(
    project: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    project.makepyfile(test_it=PARAMETERS)
    at_work = run_in_a_process if workers else run
    at_work(project, "--hubbub-record", "records", *workers).assert_outcomes(failed=7)
    files = sorted(Path(project.path, "records").iterdir())
    assert all(len(file.name.encode()) < 160 for file in files)
    assert "test_it.py_test_it_a_b-" in files[0].name + files[1].name
    said = sorted(read_recording(file).transcript()[0] for file in files)
    texts = ["a b", "a_b", "a/b", "A b", "ä", "ö", "long" * 100]
    assert said == sorted(f"helper: {text}" for text in texts)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_test_whose_loop_goes_on_after_it_is_recorded_too(
    project: pytest.Pytester, backend: str
) -> None:
    project.makepyfile(
        f"""
        import agents, pytest

        @pytest.fixture(scope="module")
        def anyio_backend():
            return {backend!r}

        @pytest.fixture(scope="module", autouse=True)
        async def whole_module(anyio_backend):
            yield

        @pytest.mark.anyio
        async def test_it(hubbub_runtime, scripted_model):
            async with hubbub_runtime([agents.agent(scripted_model("Hello."))]) as rt:
                await rt.run("helper", "hi")
            raise ValueError("no")

        @pytest.mark.anyio
        async def test_another(hubbub_runtime, scripted_model):
            async with hubbub_runtime([agents.agent(scripted_model("Hello."))]) as rt:
                await rt.run("helper", "hi")
        """
    )
    run(project, "--hubbub-record", "records").assert_outcomes(failed=1, passed=1)
    (file,) = Path(project.path, "records").iterdir()
    assert read_recording(file).transcript() == ["helper: Hello."]


DRAWN = """
import agents
from hypothesis import given, settings
from hypothesis import strategies as st

@settings(max_examples=100, database=None, derandomize=True)
@given(text=st.text("abc", max_size=3))
def test_it(simulate, scripted_model, hubbub_seed, text):
    async def scenario(world):
        await world.result(await world.open("helper", text, user="ann"))
    history = simulate(scenario, agents.Setup.of(agents.agent(scripted_model("One."))))
    assert history.seed == hubbub_seed
    assert "b" not in text
"""


def test_what_hypothesis_draws_is_simulated_and_the_example_that_it_shows_recorded(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(test_it=DRAWN)
    result = run(project, "--hubbub-record", "records", "--hubbub-seed", "5")
    result.assert_outcomes(failed=1)
    command = "pytest test_it.py::test_it --hubbub-seed 5"
    result.stdout.fnmatch_lines(["*text='b',*", "*to see it again*", command, "Hypothesis keeps *"])
    (file,) = Path(project.path, "records").iterdir()
    (run_of,) = read_recording(file).runs.values()
    assert run_of.opening.input == "b"


def test_what_is_typed_to_see_it_again_works_where_pytest_was_called(
    project: pytest.Pytester,
) -> None:
    project.makeini("[pytest]")
    project.mkdir("deep")
    Path(project.path, "deep", "test_it.py").write_text(FAILS)

    def said(folder: str, *arguments: str) -> list[str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(Path(project.path, folder))
            return run(project, "--rootdir", str(project.path), *arguments).outlines

    for folder, file in (("deep", "test_it.py"), (".", "deep/test_it.py")):
        (line,) = (x for x in said(folder) if x.startswith("pytest "))
        assert line == f"pytest {file}::test_it_fails --hubbub-seed 0"
        assert "1 failed" in said(folder, *shlex.split(line)[1:])[-1]


@pytest.mark.parametrize("seed", ["-1", "x", "1.5", str(2**64)])
def test_a_seed_that_is_none_is_refused_in_one_line(project: pytest.Pytester, seed: str) -> None:
    result = run(project, "--hubbub-seed", seed)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = (x for x in result.errlines if "hubbub-seed" in x)
    assert line.endswith(f"expected a whole number from 0 to 2**64 - 1, not {seed!r}")


@pytest.mark.parametrize("folder", ["test_it.py", "test_it.py/below"])
def test_a_file_in_place_of_the_folder_of_records_is_refused_at_the_start(
    project: pytest.Pytester, folder: str
) -> None:
    project.makepyfile(test_it="def test_it(): assert False")
    result = run(project, "--hubbub-record", folder)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = (x for x in result.errlines if "hubbub-record" in x)
    assert line.startswith("ERROR: --hubbub-record: expected a folder, and ")
    assert line.endswith("test_it.py is a file")


def test_a_failure_shows_the_test_and_not_the_plugin(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it=FAILS.replace("await world.result", "1 / 0\n        await world.result"),
        test_waits=WAITS,
    )
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.no_fnmatch_line("*plugin.py*")
    result.stdout.no_fnmatch_line("*loop.py*")


WAITS = """
import anyio
from hubbub.runtime.simulation import run_seeded

def test_it_waits():
    run_seeded(anyio.sleep_forever)
"""


def test_what_faults_raise_does_not_bury_a_failing_property(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import agents
        from hypothesis import given, settings
        from hypothesis import strategies as st
        from hubbub.runtime.simulation import ListenerFault, Open

        def none_may_open(history):
            return ["opened"] if history.runs else []

        @settings(database=None)
        @given(seed=st.integers(0, 1))
        def test_it(simulate, scripted_model, seed):
            simulate(
                [Open(agent="helper", input="hi")],
                agents.Setup.of(agents.agent(scripted_model("One."))),
                seed=seed, faults=[ListenerFault(kind="raise")],
                invariants={"none_may_open": none_may_open},
            )
        """
    )
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*Captured log*")
    # Without its library's log.
    assert len(result.outlines) < 250


def test_the_examples_of_its_documentation_run(project: pytest.Pytester) -> None:
    assert plugin.__doc__ is not None
    blocks = re.findall(r"(?<=:\n\n)(?:(?: {4}.*)?\n)+", plugin.__doc__)
    code = [dedent(block) for block in blocks if "def test" in block]
    project.makepyfile(test_docs="\n".join(code))
    run(project).assert_outcomes(passed=5)


def test_tests_without_its_fixtures_are_left_alone(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import sys

        def test_it():
            assert "hypothesis" not in sys.modules
            raise ValueError("no")
        """
    )
    result = run_in_a_process(project, "-p", "no:hypothesispytest", "--hubbub-record", "records")
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
