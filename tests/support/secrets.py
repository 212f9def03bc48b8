"""A value in the forms in which clients, drivers and frameworks quote what they were given."""

import base64
import html
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import msgspec

__all__ = ["FORMS", "NASTY", "leaks", "texts_in"]

NASTY = "p4ss \"wo/rd' é😀\n+x&%41\\n-second line=\t"
"""Something of everything that is written differently in one form or another."""


def _html_safe(value: str) -> str:
    text = json.dumps(value)
    for each in "<>&'":
        text = text.replace(each, f"\\u{ord(each):04X}")
    return text


def _lower(text: str) -> str:
    """The same with the hexadecimal digits of percent-encoding in lower case."""
    parts = text.split("%")
    return "%".join([parts[0], *(part[:2].lower() + part[2:] for part in parts[1:])])


FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda v: v,
    "repr": lambda v: repr(v)[1:-1],
    "repr in single quotes": lambda v: repr(v + "'\"")[1:-4],
    "repr in double quotes": lambda v: "".join(repr(c)[1:-1] for c in v),
    "ascii": lambda v: ascii(v)[1:-1],
    "repr of bytes": lambda v: repr(v.encode())[2:-1],
    "JSON": lambda v: json.dumps(v)[1:-1],
    "JSON in Unicode": lambda v: json.dumps(v, ensure_ascii=False)[1:-1],
    "JSON of msgspec": lambda v: msgspec.json.encode(v).decode()[1:-1],
    "JSON with escaped slashes": lambda v: json.dumps(v)[1:-1].replace("/", "\\/"),
    "JSON for HTML": lambda v: _html_safe(v)[1:-1],
    "JSON in JSON": lambda v: json.dumps(json.dumps(v)[1:-1])[1:-1],
    "JSON in a repr": lambda v: repr(json.dumps(v)[1:-1])[1:-1],
    "percent": quote,
    "percent, lower case": lambda v: _lower(quote(v)),
    "percent, all of it": lambda v: quote(v, safe=""),
    "percent, most of it left": lambda v: quote(v, safe="/:=&?#+!$,;'@()*[]"),
    "form": quote_plus,
    "query": lambda v: urlencode({"k": v})[2:],
    "percent in percent": lambda v: quote(quote(v, safe=""), safe=""),
    "percent in JSON": lambda v: json.dumps(quote(v))[1:-1],
    "HTML": html.escape,
    "HTML without quotes": lambda v: html.escape(v, quote=False),
    "HTML, numbers": lambda v: "".join(f"&#{ord(c)};" for c in v),
    "HTML, hexadecimal numbers": lambda v: "".join(f"&#x{ord(c):X};" for c in v),
    "HTML in JSON": lambda v: json.dumps(html.escape(v))[1:-1],
    "HTML in a repr": lambda v: repr(html.escape(v))[1:-1],
    "JSON in HTML": lambda v: html.escape(json.dumps(v)[1:-1]),
    "HTML in HTML": lambda v: html.escape(html.escape(v)),
    "a repr in HTML": lambda v: html.escape(repr(v)[1:-1]),
    "shell": lambda v: v.replace("'", "'\"'\"'"),
    "shell, escaped": lambda v: v.replace("'", "'\\''"),
    "shell in a repr": lambda v: repr(v.replace("'", "'\"'\"'"))[1:-1],
    "CSV": lambda v: v.replace('"', '""'),
    "CSV in JSON": lambda v: json.dumps(v.replace('"', '""'))[1:-1],
    "SQL": lambda v: v.replace("'", "''"),
    "hex": lambda v: v.encode().hex(),
    "hex, upper case": lambda v: v.encode().hex().upper(),
    "hex, as fingerprints": lambda v: v.encode().hex(":"),
    "hex, as fingerprints, upper case": lambda v: v.encode().hex(":").upper(),
    "hex, as fingerprints, in a URL": lambda v: quote(v.encode().hex(":"), safe=""),
    "hex, as a dump": lambda v: v.encode().hex(" ", 2),
    "hex, in groups from the left": lambda v: v.encode().hex("-", -3),
    "hex, between letters": lambda v: v.encode().hex("x"),
    "hex, in lines": lambda v: v.encode().hex("\n", 8),
    "hex, in lines, in a repr": lambda v: repr(v.encode().hex("\n", 8))[1:-1],
    "hex, as an array": lambda v: "0x" + v.encode().hex(":").replace(":", ", 0x"),
    "hex, as an array, upper case": lambda v: "0X" + v.encode().hex(":").replace(":", ",0X"),
    "base32": lambda v: base64.b32encode(v.encode()).decode(),
    "base32, lower case": lambda v: base64.b32encode(v.encode()).decode().lower(),
}
"""Each is replaced as a whole."""


def _base64_of(value: str) -> Iterator[tuple[str, str]]:
    """The base64 of something that holds ``value``, and what of it depends on it alone."""
    data = value.encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            for after in range(3):
                whole = encode(b"u:x"[:before] + data + b";.,"[:after]).decode()
                yield whole, whole[(before * 4 + 2) // 3 : (before + len(data)) * 4 // 3]


def leaks(text: str, value: str) -> list[str]:
    """Which forms of ``value``, or of a line of it, are still in ``text``."""
    return [name for name, form in _looked_for(value) if form in text]


@lru_cache(maxsize=4)
def _looked_for(value: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for part in (value, *(line.strip() for line in value.splitlines())):
        if len(part) >= 6:
            found |= {form(part): name for name, form in FORMS.items()}
            found |= {own: f"base64 {whole}" for whole, own in _base64_of(part)}
    return tuple((name, form) for form, name in found.items())


def in_every_form(value: str) -> list[str]:
    """Sentences that quote ``value``."""
    forms = [f"in a {name}: <{form(value)}>" for name, form in FORMS.items()]
    wholes = {"dict": {"token": value}, "list": [value], "bytes": [value.encode()]}
    forms += [f"{name} {whole!r}" for name, whole in wholes.items()]
    forms += [f"Authorization: Basic {whole}" for whole, _ in _base64_of(value)]
    forms += [base64.encodebytes(b"padding " * 9 + value.encode() * 3).decode()]
    forms += [line.strip() for line in value.splitlines() if len(line.strip()) >= 6]
    return forms


def texts_in(thing: Any) -> Iterator[str]:
    """Every text inside of plain data or a Struct."""
    data = msgspec.to_builtins(thing) if isinstance(thing, msgspec.Struct) else thing
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from texts_in(key)
            yield from texts_in(value)
    elif isinstance(data, list | tuple | set):
        for each in data:
            yield from texts_in(each)
