"""``hubbub diff``: where two runs of a store part, and what differs from there on."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

from hubbub.runtime.cli.printing import Write, document, write_all
from hubbub.runtime.inspection.find import find_run
from hubbub.runtime.stores.open import DEFAULT_STORE, open_reader

if TYPE_CHECKING:
    from hubbub.runtime.timelines.run_diff import Difference, Parted, RunDiff, RunTotals

__all__ = ["diff_command"]


def diff_command(write: Write) -> Callable[..., int]:
    from cyclopts import Parameter

    def diff(
        left: Annotated[str, Parameter(name="RUN")],
        right: Annotated[str, Parameter(name="RUN")],
        /,
        *,
        full: bool = False,
        json: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """Show where two runs part, and what differs from there on. Runs nothing.

        Compared is what each has on record itself: what it was told and said, its calls with
        arguments and results, its children and what they came to, questions, models, how it
        ended. Ids, times, tokens and restarts count for nothing.

        Parameters
        ----------
        left
            A run's id, or its beginning or end (4 characters or more).
        right
            The other one's.
        full
            Texts uncut.
        json
            Print one JSON object instead: left, right, same, alike, left_parted, right_parted,
            differences, more.
        store
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
        """
        from hubbub.runtime.timelines.run_diff import diff_runs

        with open_reader(store) as opened, opened.one_moment():
            found = diff_runs(opened, find_run(opened, left), find_run(opened, right))
        if json:
            write(document(found))
        else:
            write_all(write, _lines(found, full=full))
        return 0

    return diff


def _lines(found: "RunDiff", *, full: bool) -> Iterator[str]:
    from hubbub.runtime.cli.text import WIDTH

    width = None if full else WIDTH
    for sign, totals in (("-", found.left), ("+", found.right)):
        yield f"{sign} {_totals(totals)}"
    if found.same:
        yield f"the same: {found.alike:,} records"
        return
    yield f"they part after {found.alike:,} records:"
    for sign, parted in (("-", found.left_parted), ("+", found.right_parted)):
        yield f"{sign} {_parted(parted, width)}"
    if found.differences:
        yield "from there on:"
    for each in found.differences:
        yield from _difference(each, width)
    if found.more:
        yield f"{found.more:,} later pieces were not compared"


def _totals(totals: "RunTotals") -> str:
    from hubbub.runtime.cli.text import short

    usage = totals.usage
    end = totals.outcome or "no session has ended"
    output = bytes(totals.output).decode()
    told = f", {short(output)}" if output != "null" else ""
    models = ", ".join(map(short, totals.models)) or "no model"
    return (
        f"{short(totals.run_id)}  {short(totals.agent)}: {totals.records:,} records, "
        f"{totals.steps:,} steps by {models}, {usage.input_tokens:,} tokens in, "
        f"{usage.output_tokens:,} out; {end}{told}"
    )


def _parted(parted: "Parted | None", width: int | None) -> str:
    from hubbub.runtime.cli.text import short

    if parted is None:
        return "nothing more"
    return f"record {parted.seq}  {short(parted.type)}  {short(parted.text, width)}".rstrip()


def _difference(each: "Difference", width: int | None) -> Iterator[str]:
    from hubbub.runtime.cli.text import short

    for sign, seq, text in (("-", each.left_seq, each.left), ("+", each.right_seq, each.right)):
        if text is not None:
            yield f"{sign} {seq}  {each.kind}  {short(text, width)}"
