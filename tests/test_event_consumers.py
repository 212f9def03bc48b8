"""Who reads events by their type, and what each does with every type of the catalogue.

A consumer handles a type or names it as ignored.  So a new type of event fails here once for each
consumer that has not decided.  What treats all types alike is no consumer in this sense: the
codec, the stores, export and import, the masker, backups, subscriptions by pattern.
"""

import ast
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from hubbub.hub.events import CATALOGUE

ROOT: Final = Path(__file__).parent.parent
NAMES: Final = {event.__name__ for event in CATALOGUE}
OF_TYPE: Final = {event.type: event.__name__ for event in CATALOGUE}


class Consumer(NamedTuple):
    """A file that decides by the types of events; ``homes``: those of which it sees any."""

    what: str
    homes: str
    ignored: str


CONSUMERS: Final = {
    "hub/addressing.py": Consumer(
        "whose inbox an item goes to",
        "in",
        """
        SessionTimer SessionCancel SessionReset
        SessionCompact SessionLimits
        """,
    ),
    "hub/pipeline.py": Consumer(
        "what is asked of an item before it is submitted",
        "in",
        """
        SessionCancel SessionClose SessionReset
        SessionCompact SessionLimits
        """,
    ),
    "hub/store/inbox_rules.py": Consumer(
        "whom an item wakes, and what it needs",
        "in",
        """
        SessionTimer SessionAbort SessionCancel SessionClose SessionCompact SessionLimits
        """,
    ),
    "agents/code/durable_steps.py": Consumer(
        "what a code agent's calls are answered with when it runs again",
        "own",
        """
        AgentStart AgentThinking AgentText AgentRetry AgentStatus AgentMessage AgentChild AgentRead
        AgentImmediate AgentFile AgentKey AgentHandoff AgentPark AgentRestore AgentClaim
        AgentInterrupted AgentFailed AgentComplete SessionStart SessionTurn SessionEnd SessionPrompt
        SessionPromptEnd SessionPush SessionPop SessionDropped
        SessionCompaction
        AgentBase
        """,
    ),
    "agents/code/lifecycle.py": Consumer(
        "a code agent's thread",
        "own in",
        """
        AgentStatus AgentMessage AgentRead AgentImmediate
        AgentHandoff AgentClaim AgentInterrupted AgentFailed SessionStart SessionTurn SessionEnd
        SessionResult SessionVariables SessionAbort SessionCancel SessionTerminate
        SessionPush SessionPop SessionDropped
        SessionCompact SessionCompaction
        AgentBase
        """,
    ),
    "agents/folders/conversation.py": Consumer(
        "``context.jsonl``",
        "own",
        """
        AgentStart AgentThinking AgentText AgentRetry AgentToolStart AgentStatus AgentMessage
        AgentChild AgentRead AgentImmediate AgentFile AgentKey AgentRecord AgentHandoff AgentPark
        AgentRestore AgentClaim AgentInterrupted AgentFailed SessionStart SessionTurn SessionEnd
        SessionPrompt SessionPromptEnd SessionDropped
        SessionCompaction
        """,
    ),
    "agents/folders/history.py": Consumer(
        "``history.jsonl``",
        "own in",
        """
        AgentThinking AgentToolStart AgentStatus AgentRead AgentImmediate AgentFile AgentKey
        AgentHandoff AgentPark AgentClaim AgentInterrupted AgentFailed SessionStart SessionReply
        SessionTimer SessionVariables SessionAbort SessionCancel SessionClose SessionTerminate
        SessionPrompt SessionPromptEnd SessionPop
        SessionCompact SessionLimits
        """,
    ),
    "agents/state/fold.py": Consumer(
        "a model agent's thread",
        "own in",
        """
        AgentRecord AgentClaim AgentFailed SessionTimer SessionAbort SessionCancel SessionPush
        SessionPop SessionDropped
        """,
    ),
    "agents/turn/decide.py": Consumer(
        "the kind of an item",
        "in",
        """
        """,
    ),
    "agents/turn/hook_events.py": Consumer(
        "what hooks are called for",
        "own",
        """
        AgentThinking AgentText AgentStep AgentRetry AgentToolStart AgentToolComplete AgentStatus
        AgentMessage AgentRead AgentImmediate AgentFile AgentKey AgentRecord AgentHandoff AgentPark
        AgentRestore AgentClaim AgentInterrupted AgentFailed AgentComplete SessionStart SessionTurn
        SessionPrompt SessionPromptEnd SessionPush SessionPop SessionDropped
        SessionCompaction
        AgentBase
        """,
    ),
    "agents/turn/intake.py": Consumer(
        "what taking an item means",
        "in",
        """
        SessionCompact SessionLimits
        """,
    ),
    "channels/console/stack.py": Consumer(
        "the stack of open sessions",
        "own",
        """
        AgentThinking AgentStep AgentRetry AgentToolStart AgentToolComplete AgentStatus AgentMessage
        AgentChild AgentRead AgentImmediate AgentFile AgentKey AgentRecord AgentPark AgentRestore
        AgentClaim AgentInterrupted AgentFailed SessionTurn SessionTaken SessionDropped
        SessionCompaction
        AgentBase
        """,
    ),
    "channels/console/transcript.py": Consumer(
        "what is printed",
        "own none",
        """
        AgentStart AgentThinking AgentStep AgentMessage AgentRead AgentImmediate AgentFile AgentKey
        AgentRecord AgentPark AgentClaim AgentInterrupted AgentFailed SessionTurn SessionPromptEnd
        SessionTaken SessionDropped ChannelStart ChannelComplete ChannelError HubErrorEvent HubGap
        AgentBase
        """,
    ),
    "channels/http/openai/answers/turn.py": Consumer(
        "when the answer to a client of OpenAI's API is over",
        "own",
        """
        AgentStart AgentThinking AgentStep AgentRetry AgentToolStart AgentToolComplete AgentStatus
        AgentMessage AgentChild AgentRead AgentImmediate AgentFile AgentKey AgentRecord AgentHandoff
        AgentPark AgentRestore AgentClaim AgentInterrupted AgentFailed SessionTurn SessionPrompt
        SessionPromptEnd
        SessionCompaction
        AgentBase
        """,
    ),
    "channels/http/openai/answers/answer.py": Consumer(
        "what a client of OpenAI's API is told",
        "own none",
        """
        AgentStart AgentToolStart AgentToolComplete AgentStatus AgentMessage AgentChild AgentRead
        AgentImmediate AgentFile AgentKey AgentRecord AgentHandoff AgentPark AgentClaim
        AgentInterrupted AgentFailed AgentComplete SessionStart SessionTurn SessionEnd
        SessionPromptEnd SessionPush SessionPop SessionTaken SessionDropped ChannelStart
        ChannelComplete ChannelError HubErrorEvent HubDeadLetter HubGap
        SessionCompaction
        AgentBase
        """,
    ),
    "runtime/inspection/event_words.py": Consumer(
        "the line of an event in ``hubbub show``",
        "own in",
        """
        AgentStart AgentStatus AgentMessage AgentRead AgentImmediate AgentFile AgentKey
        AgentRecord AgentPark AgentRestore AgentClaim AgentComplete SessionStart SessionTurn
        SessionEnd SessionTimer SessionVariables SessionPromptEnd
        """,
    ),
    "runtime/runs/code_run.py": Consumer(
        "what the inbox of a code agent gives it",
        "in",
        "SessionVariables SessionCancel SessionReset SessionCompact SessionLimits",
    ),
    "agents/code/reserved.py": Consumer(
        "what a code agent may emit",
        "own",
        """
        AgentStart AgentThinking AgentText AgentStep AgentRetry AgentToolStart AgentToolComplete
        AgentStatus AgentMessage AgentHandoff AgentInterrupted AgentFailed AgentComplete
        SessionStart SessionTurn SessionEnd SessionPush SessionPop SessionTaken SessionDropped
        SessionCompaction
        """,
    ),
    "runtime/runs/session.py": Consumer(
        "what ``session.receive`` yields",
        "own",
        """
        AgentStart AgentStatus AgentMessage AgentChild AgentRead AgentImmediate AgentFile AgentKey
        AgentRecord AgentHandoff AgentPark AgentRestore AgentClaim AgentFailed AgentComplete
        SessionStart SessionTurn SessionEnd SessionPrompt SessionPromptEnd SessionPush SessionPop
        SessionTaken SessionDropped
        SessionCompaction
        AgentBase
        """,
    ),
    "runtime/simulation/invariants/calls.py": Consumer(
        "invariants of calls and stacks",
        "own",
        """
        AgentStart AgentThinking AgentText AgentRetry AgentToolStart AgentStatus AgentMessage
        AgentRead AgentImmediate AgentFile AgentKey AgentRecord AgentHandoff AgentPark AgentRestore
        AgentClaim AgentInterrupted AgentFailed SessionTurn SessionPrompt SessionPromptEnd
        SessionTaken SessionDropped
        SessionCompaction
        AgentBase
        """,
    ),
    "runtime/simulation/invariants/failures.py": Consumer(
        "invariants of failures",
        "own",
        """
        AgentStart AgentThinking AgentText AgentStep AgentRetry AgentToolStart AgentStatus
        AgentMessage AgentRead AgentImmediate AgentFile AgentKey AgentRecord AgentHandoff AgentPark
        AgentRestore AgentClaim AgentInterrupted AgentComplete SessionTurn SessionEnd SessionPrompt
        SessionPush SessionTaken SessionDropped
        SessionCompaction
        AgentBase
        """,
    ),
    "runtime/simulation/invariants/messages.py": Consumer(
        "invariants of messages",
        "own in",
        """
        AgentStart AgentThinking AgentText AgentStep AgentRetry AgentToolStart AgentToolComplete
        AgentStatus AgentChild AgentRead AgentImmediate AgentFile AgentKey AgentRecord AgentHandoff
        AgentPark AgentClaim AgentInterrupted AgentFailed SessionStart SessionTurn SessionEnd
        SessionOpen SessionResult SessionReply SessionTimer SessionVariables SessionAbort
        SessionCancel SessionClose SessionTerminate SessionReset
        SessionPush SessionPop
        SessionCompact SessionCompaction
        SessionLimits
        AgentBase
        """,
    ),
    "runtime/simulation/playback/actions.py": Consumer(
        "what is compared between a recording and its playing",
        "own",
        """
        AgentThinking AgentRetry AgentToolStart AgentRead AgentImmediate AgentFile AgentKey
        AgentRecord AgentRestore AgentClaim AgentInterrupted AgentFailed SessionPromptEnd
        SessionTaken SessionDropped
        SessionCompaction
        AgentBase
        """,
    ),
    "runtime/simulation/playback/play.py": Consumer(
        "what a playing sends again",
        "own in",
        """
        AgentThinking AgentText AgentStep AgentRetry AgentStatus AgentRead
        AgentImmediate AgentFile AgentKey AgentRecord AgentHandoff AgentPark AgentRestore AgentClaim
        AgentInterrupted AgentFailed AgentComplete SessionStart SessionTurn SessionEnd SessionResult
        SessionTimer SessionCancel SessionPromptEnd SessionPush SessionPop SessionTaken
        SessionDropped SessionCompaction
        AgentBase
        """,
    ),
    "runtime/simulation/playback/recording.py": Consumer(
        "what is taken over from a recording",
        "own in",
        """
        AgentThinking AgentStep AgentRetry AgentToolStart AgentToolComplete AgentStatus AgentMessage
        AgentRead AgentImmediate AgentFile AgentKey AgentRecord AgentHandoff AgentPark AgentRestore
        AgentClaim AgentInterrupted AgentFailed AgentComplete SessionTurn SessionEnd SessionMessage
        SessionResult SessionReply SessionTimer SessionVariables SessionAbort SessionCancel
        SessionClose SessionTerminate SessionReset SessionPrompt SessionPromptEnd SessionPush
        SessionPop
        SessionCompact SessionCompaction
        SessionLimits
        AgentBase
        """,
    ),
    "runtime/simulation/playback/replies.py": Consumer(
        "what recorded models and tools answer",
        "own",
        """
        AgentStart AgentStatus AgentMessage AgentImmediate AgentRecord AgentHandoff AgentRestore
        AgentClaim AgentFailed SessionStart SessionTurn SessionPromptEnd SessionPop SessionTaken
        SessionDropped
        AgentBase
        """,
    ),
    "runtime/simulation/playback/stand_ins.py": Consumer(
        "which calls had which effects",
        "own",
        """
        AgentThinking AgentRead AgentImmediate AgentRecord AgentPark AgentRestore
        AgentClaim AgentInterrupted AgentFailed SessionStart SessionPop SessionTaken SessionDropped
        SessionCompaction
        AgentBase
        """,
    ),
    "runtime/simulation/story/budgets.py": Consumer(
        "what is counted against a setup's limits",
        "own",
        """
        AgentStart AgentThinking AgentText AgentToolStart AgentStatus AgentMessage AgentChild
        AgentRead AgentImmediate AgentFile AgentKey AgentRecord AgentPark AgentRestore AgentClaim
        AgentInterrupted AgentFailed SessionEnd SessionPrompt SessionPromptEnd SessionPop
        SessionCompaction
        AgentBase
        """,
    ),
}
"""By file.  "own" is a run's own lane, "in" what its inbox holds, "none" what is not kept."""

NARROW: Final = {
    "runtime/finding/conversations.py": "looks for the first words, and for open prompts",
    "agents/asked_turn.py": "follows the sessions of a tree, and who has the conversation",
    "agents/turn/crash_limit.py": "counts restores, and asks of what was taken whether it waited",
    "agents/turn/prompt_endings.py": "asks whether a commit ends a prompt",
    "channels/console/console.py": "looks for the end of its own turn and for dead letters",
    "channels/console/pace.py": "shows whether somebody is at work: text, tools, the end",
    "channels/console/questions.py": "keeps the prompts that are open",
    "channels/http/openai/answers/pending_calls.py": "keeps the calls and prompts that are open",
    "channels/http/openai/answers/following.py": "names what two consumers ask for",
    "channels/http/openai/answers/question.py": "looks for one item, and for prompts that are open",
    "channels/http/openai/requests/exchanges.py": "collects the requests and what answered each",
    "channels/http/openai/requests/transcript.py": "collects what the two sides said",
    "runtime/demo/assets/report.py": "the story of one demo, which knows its events",
    "runtime/demo/story.py": "the story of one demo, which knows its events",
    "runtime/simulation/playback/recorded_outputs.py": "keeps what became of answers",
    "runtime/simulation/story/spending.py": "counts calls and time at work, and looks for limits",
    "runtime/stores/exchange/lanes.py": "checks every type of the catalogue; some more closely",
    "runtime/stores/folders/repaired.py": "asks what a run took and which relatives it lacks",
    "runtime/timelines/cut.py": "asks what was sent, what closes a run, and what belongs together",
    "runtime/timelines/run_diff.py": "leaves out what a process did with a run, and adds up steps",
    "runtime/timelines/fork.py": "changes what names its root, and ends what is over with the cut",
    "runtime/schedules/schedule_run.py": "sends what a schedule says, and asks how sessions ended",
    "runtime/spending/recorded.py": "counts calls and time at work, and looks for limits",
    "runtime/runs/model_run.py": "lets a tool emit what is not the runtime's own to write",
    "runtime/supervision/ready.py": "asks of an item whether it ends what its run is at",
    "runtime/simulation/story/history.py": "collects what users were told and what went wrong",
    "runtime/testing/bench.py": "collects what code under test says, sends, asks and starts",
    "runtime/standalone/turn.py": "a turn by hand: it writes events and reads its own",
}
"""Files that name several types and yet read no lane: a new type is none of their business."""

MANY: Final = 5
"""A file that decides by so many types is a consumer, or listed as narrow."""


def test_each_consumer_decides_about_each_type() -> None:
    undecided: dict[str, set[str]] = {}
    both: dict[str, set[str]] = {}
    for file, consumer in CONSUMERS.items():
        seen = {event.__name__ for event in CATALOGUE if event.home in consumer.homes.split()}
        handled, ignored = handled_in(file), set(consumer.ignored.split())
        if missing := (seen - handled) ^ ignored - handled:
            undecided[file] = missing
        if handled & ignored:
            both[file] = handled & ignored
    assert undecided == {}, "handle these types there, or name them as ignored here"
    assert both == {}, "handled after all: take them off the ignored"


def test_no_consumer_is_forgotten() -> None:
    many = {file for file in files() if len(handled_in(file)) >= MANY}
    assert many - set(CONSUMERS) - set(NARROW) == set(), "list each as a consumer, or as narrow"
    assert set(CONSUMERS).isdisjoint(NARROW)
    assert set(NARROW) <= set(files())


@pytest.mark.parametrize(
    ("code", "handled"),
    [
        ("match x:\n    case e.AgentStart() | AgentText(step=0): ...", {"AgentStart", "AgentText"}),
        ("isinstance(x, e.AgentStart | e.AgentText)", {"AgentStart", "AgentText"}),
        ("T = {e.AgentStart: f}", {"AgentStart"}),
        ("if x.type == e.AgentStart.type or x.type == 'agent:text': ...",
         {"AgentStart", "AgentText"}),
        ("if x.__class__ is AgentStart: ...", {"AgentStart"}),
        ("K = frozenset((AgentStart, AgentText))", {"AgentStart", "AgentText"}),
        ("def f(x: AgentStart | AgentText) -> tuple[AgentText, ...]: return AgentStart()", set()),
    ],
)  # fmt: skip
def test_how_a_decision_is_recognised(code: str, handled: set[str]) -> None:
    assert decided_in(ast.parse(code)) == handled


def files() -> list[str]:
    rooms = ("hub", "agents", "channels", "runtime")
    paths = (path.relative_to(ROOT).as_posix() for r in rooms for path in (ROOT / r).rglob("*.py"))
    return sorted(path for path in paths if not path.startswith(("hub/events/", "hub/conformance")))


def handled_in(file: str) -> set[str]:
    return decided_in(ast.parse((ROOT / file).read_text()))


def decided_in(tree: ast.AST) -> set[str]:
    """The event classes by which code decides; what it only makes or annotates does not count."""
    found: set[str] = set()
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        found |= {_name(each) for each in _asked(node)}
        if isinstance(node, ast.Constant) and node.value in OF_TYPE:
            found.add(OF_TYPE[node.value])
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns"):
                children = value if isinstance(value, list) else [value]
                todo += [each for each in children if isinstance(each, ast.AST)]
    return found & NAMES


def _asked(node: ast.AST) -> list[ast.AST | None]:
    match node:
        case ast.MatchClass():
            return [node.cls]
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, classes]):
            return list(ast.walk(classes))
        case ast.Dict():
            return list(node.keys)
        case ast.Tuple() | ast.Set() | ast.List():
            return list(node.elts)
        case ast.Compare():
            return list(node.comparators)
        case ast.BinOp(op=ast.BitOr()):
            return [node.left, node.right]
        case ast.Attribute(attr="type"):
            return [node.value]
    return []


def _name(node: ast.AST | None) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
