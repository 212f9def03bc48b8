"""Texts and exceptions without the values of secrets: ``masker``, and the ``readings`` it needs.

``exceptions``: what can be said and shown of one, whatever its class does.  ``safe_repr``: what
is shown of definitions.
"""

from hubbub.hub.masking.exceptions import class_name_of, words_of
from hubbub.hub.masking.masker import LONG, MASK, MAX_CHARS, Masker

__all__ = ["LONG", "MASK", "MAX_CHARS", "Masker", "class_name_of", "words_of"]
