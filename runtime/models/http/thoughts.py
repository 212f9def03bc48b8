"""Whose a thought is: what one provider has signed, another refuses.

A thought's ``signature`` is the provider's own text.  Anthropic's stands bare, as it always has;
others are written as ``OWNER:TEXT``, which no signature of Anthropic's can be: it is Base64.
"""

from hubbub.agents.model import Thinking

__all__ = ["is_bare", "owned", "signed"]


def signed(owner: str, text: str) -> str:
    """The signature of a thought of ``owner``."""
    return f"{owner}:{text}"


def owned(thought: Thinking, owner: str) -> str:
    """What ``owner`` has signed it with; empty where it is another's."""
    whose, colon, text = thought.signature.partition(":")
    return text if colon and whose == owner else ""


def is_bare(thought: Thinking) -> bool:
    """Whether its signature is Anthropic's."""
    return bool(thought.signature) and ":" not in thought.signature
