"""``AgentStack``: the frames of a conversation that a program drives by hand (IA)."""

from dataclasses import dataclass, field

from hubbub.agents.frames.frame import StackFrame

__all__ = ["AgentResponse", "AgentStack", "AgentStackManager"]


@dataclass
class AgentStack:
    """The frames of one conversation, the main agent's first, the speaker's last."""

    frames: list[StackFrame] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether no frame is there: the next message is the main agent's."""
        return not self.frames

    @property
    def depth(self) -> int:
        """How many frames there are, the main agent's included."""
        return len(self.frames)

    @property
    def top(self) -> StackFrame | None:
        """The frame that has the conversation; ``None`` when the stack is empty."""
        return self.frames[-1] if self.frames else None

    def push(self, frame: StackFrame) -> None:
        """Give the conversation to ``frame``."""
        self.frames.append(frame)

    def pop(self) -> StackFrame:
        """Take the frame on top away and return it; raises ``IndexError`` when there is none."""
        return self.frames.pop()


class AgentStackManager:
    """Stacks by the key of their conversation, such as ``telegram_123_456``; in memory only."""

    def __init__(self) -> None:
        self._stacks: dict[str, AgentStack] = {}

    def get_or_create(self, session_key: str) -> AgentStack:
        """The conversation's stack, the same one until it is cleared."""
        return self._stacks.setdefault(session_key, AgentStack())

    def has_active(self, session_key: str) -> bool:
        """Whether the conversation has any frame; makes no stack."""
        stack = self._stacks.get(session_key)
        return stack is not None and not stack.is_empty

    def clear(self, session_key: str) -> None:
        """Forget the conversation's stack; nothing happens if there is none."""
        self._stacks.pop(session_key, None)


@dataclass
class AgentResponse:
    """What the main agent's turn has come to: its text, or the frames that continue the stack.

    ``main_frame`` is there while the main agent is paused: ``child_frame`` has the conversation,
    or the user is asked (``text``).
    """

    text: str = ""
    child_activated: bool = False
    main_frame: StackFrame | None = None
    child_frame: StackFrame | None = None
