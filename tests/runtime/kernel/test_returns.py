"""What callers of ``rt.run`` get besides the record: kept while they wait, and no longer."""

from hubbub.hub.values import encode_value
from hubbub.runtime.kernel.returns import Return, Returns

OUTPUT = encode_value("output", 42)


class Lingering:
    async def wait_function(self) -> None:
        """Its function has ended."""


def test_what_nobody_waits_for_is_not_kept() -> None:
    returns = Returns()
    returns.keep_error("run", ValueError())
    returns.keep_output("run", OUTPUT)
    returns.linger("run", Lingering())
    assert returns.expected == {}


def test_a_caller_gets_what_its_own_run_raised_and_returned() -> None:
    returns, error, run = Returns(), ValueError(), Lingering()
    mine = returns.expected["mine"] = Return()
    other = returns.expected["other"] = Return()
    returns.keep_error("mine", error)
    returns.keep_output("mine", OUTPUT)
    returns.linger("mine", run)
    assert (mine.error, mine.output, mine.lingering) == (error, OUTPUT, run)
    assert other == Return()


def test_a_function_that_has_ended_is_waited_for_no_longer() -> None:
    returns, run = Returns(), Lingering()
    kept = returns.expected["run"] = Return()
    returns.linger("run", run)
    returns.linger("run", None)
    assert kept.lingering is None
