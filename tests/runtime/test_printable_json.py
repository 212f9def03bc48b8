"""JSON on a terminal means the same, and holds nothing that the terminal would obey."""

import json

import pytest

from hubbub.runtime.cli.printing import document
from hubbub.runtime.text import printable_json

OBEYED = "".join(map(chr, (0x7F, *range(0x80, 0xA0), 0x2028, 0x2029, 0x202E, 0x2066, 0x200E)))


@pytest.mark.parametrize("text", [OBEYED, f"a{OBEYED}\U0001f600é", "plain", "é"])
def test_what_a_terminal_would_obey_is_escaped(text: str) -> None:
    shown = printable_json(json.dumps({"a": text, text: 1}, ensure_ascii=False))
    assert not set(shown) & set(OBEYED)
    assert json.loads(shown) == {"a": text, text: 1}
    assert not set(document({"a": text})) & set(OBEYED)
    assert json.loads(document({"a": text})) == {"a": text}
