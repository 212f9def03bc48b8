"""Texts and exceptions without the values of secrets: ``masker``, and the ``readings`` it needs."""

from hubbub.hub.masking.masker import LONG, MASK, MAX_CHARS, Masker, words_of

__all__ = ["LONG", "MASK", "MAX_CHARS", "Masker", "words_of"]
