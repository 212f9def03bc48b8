"""What a tree of runs may use, said by an operator."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct, structs

from hubbub.channels.http.wire.receipts import RECEIPTS, REJECTIONS, answer_of
from hubbub.channels.http.wire.route import HttpAnswer, HttpCall, Route
from hubbub.channels.http.wire.runtime_answers import ask_runtime, one_word
from hubbub.hub.events import Limits
from hubbub.hub.events.limits import MOST

__all__ = ["ROUTES", "LimitsBody", "limits_of"]

_Count = Annotated[int, Meta(ge=1, lt=MOST)]
_Amount = Annotated[float, Meta(gt=0, lt=MOST)]


class LimitsBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a root and all runs below it may use, together; what is left out is not limited.

    ``seconds`` are at work: asking models and running tools.  ``cost`` is in the currency of the
    runtime's prices, and refused where a model has none.
    """

    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    model_calls: _Count | None = None
    seconds: _Amount | None = None
    cost: _Amount | None = None


class RaiseBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tree may use from now on, what it has used included; ``null``: what its runtime
    says."""

    limits: LimitsBody | None


def limits_of(body: LimitsBody | None) -> Limits | None:
    """The limits that a body says."""
    return None if body is None else Limits(**structs.asdict(body))


async def limit(call: HttpCall) -> HttpAnswer:
    """Say what a tree may use from now on."""
    text = msgspec.json.encode(limits_of(call.body.limits)).decode()
    run_id = one_word(call.path["run_id"], "unknown-run")
    return await answer_of(await ask_runtime(call.hub, "limit", run_id, text))


ROUTES: Final = (
    Route(
        method="POST", path="/api/runs/{run_id}/limits",
        summary="Say what a root and all below it may use", handler=limit, body=RaiseBody,
        answers=RECEIPTS, problems=("no-runtime", *REJECTIONS),
    ),
)  # fmt: skip
