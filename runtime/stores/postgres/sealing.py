"""``Seal``: values of secrets as a shared database holds them, encrypted (AES-256 in GCM).

The key is in the environment of those who run agents, never in the database; the key of a value is
authenticated with it, so that no value can be put in the place of another.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hubbub.hub.errors import OperatorError

__all__ = ["KEY_VARIABLE", "Seal"]

KEY_VARIABLE: Final = "HUBBUB_SECRETS_KEY"

NONCE: Final = 12

CHECK: Final = "hubbub"
"""What is encrypted to tell one key from another."""

REMEDY: Final = "32 random bytes as base64 (openssl rand -base64 32), the same for every process"


class Seal:
    """Encrypts and decrypts.  Raises ``OperatorError`` where the environment has no valid key."""

    __slots__ = ("_cipher", "_place")

    def __init__(self, place: str, environ: Mapping[str, str]) -> None:
        self._place = place
        text = environ.get(KEY_VARIABLE, "")
        if not text:
            raise OperatorError(
                f"{place}: values of secrets are kept encrypted there; set {KEY_VARIABLE} to "
                f"{REMEDY}"
            )
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != 32:
            raise OperatorError(f"{KEY_VARIABLE}: is no key; set it to {REMEDY}")
        self._cipher = AESGCM(key)

    def close(self, key: str, value: str) -> bytes:
        """A value encrypted, under its key."""
        # Not of the ports: what one of them repeats would make two values readable.
        nonce = AESGCM.generate_key(128)[:NONCE]
        return nonce + self._cipher.encrypt(nonce, value.encode(), key.encode())

    def open(self, key: str, sealed: bytes) -> str:
        """What was encrypted.  Raises ``OperatorError`` where this was not its key."""
        try:
            return self._cipher.decrypt(sealed[:NONCE], sealed[NONCE:], key.encode()).decode()
        except (InvalidTag, ValueError):
            raise OperatorError(
                f"{self._place}: its secrets were encrypted with another key, or changed; set "
                f"{KEY_VARIABLE} to the key that they were written with"
            ) from None

    def proof(self) -> str:
        """What ``check`` takes, to be kept beside what is encrypted."""
        return base64.b64encode(self.close(CHECK, CHECK)).decode()

    def check(self, proof: str) -> None:
        """Raise ``OperatorError`` unless ``proof`` was made with this key."""
        self.open(CHECK, base64.b64decode(proof))
