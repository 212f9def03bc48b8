"""``RunDependencies``: what the runs of one runtime share."""

from dataclasses import dataclass

from hubbub.runtime.activities.other_runs import OtherRuns
from hubbub.runtime.kernel.families import Families
from hubbub.runtime.kernel.live import ConversationKeeper, RunKeeper
from hubbub.runtime.kernel.outcomes import Outcomes
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.runs.lasting_prompts import LastingPrompts

__all__ = ["RunDependencies"]


@dataclass(frozen=True, slots=True)
class RunDependencies:
    """Made once, by the supervisor, and given to each run."""

    services: Services
    keeper: RunKeeper
    conversations: ConversationKeeper
    families: Families
    outcomes: Outcomes
    others: OtherRuns
    prompts: LastingPrompts
