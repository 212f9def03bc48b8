"""The form by which a person gives a subagent its variables.

No script, nothing from elsewhere, no value in it; the browser is told to keep nothing.
"""

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from typing import Any, Final

from hubbub.channels.http.wire.problem_kinds import KINDS
from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.route import HttpAnswer
from hubbub.hub.events.moments import date_of, shown_moment

__all__ = ["page"]

_STYLE: Final = """
:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}
body{max-width:34rem;margin:10vh auto;padding:0 1rem}
label{display:block;margin:1rem 0 .25rem;font-family:ui-monospace,monospace}
input{width:100%;box-sizing:border-box;padding:.5rem;font:inherit}
button{margin-top:1.5rem;padding:.5rem 1.25rem;font:inherit;cursor:pointer}
.wrong{border-left:.25rem solid #c33;padding-left:.75rem}
small{opacity:.7}
"""
_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HEADERS: Final = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
}


def page(
    found: Mapping[str, Any], *, done: bool = False, refusal: Refusal | None = None
) -> HttpAnswer:
    """The form; with what was wrong; or that it is done."""
    parts = []
    if refusal is not None:
        title = KINDS[refusal.kind].title
        parts.append(f'<p class="wrong"><b>{escape(title)}.</b> {escape(refusal.detail)}</p>')
    if done:
        parts.append("<p>Thank you. It has started; you can close this page.</p>")
    elif found:
        parts.append(_form(found))
    agent = escape(str(found.get("agent", ""))) or "A subagent"
    text = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Variables</title><style>{_STYLE}</style><h1>{agent}</h1>{''.join(parts)}</html>"
    )
    return HttpAnswer(
        status=200 if refusal is None else refusal.status, content=text.encode(),
        media_type="text/html; charset=utf-8", headers=HEADERS,
    )  # fmt: skip


def _form(found: Mapping[str, Any]) -> str:
    fields = "".join(_field(each, each["name"] in found["missing"]) for each in found["variables"])
    until = _moment(found["expires_at"])
    return (
        f"<p>It needs these values to begin.</p>"
        f'<form method="post" autocomplete="off">{fields}<button>Start</button></form>'
        f"<p><small>Until {until}.</small></p>"
    )


def _moment(at: int) -> str:
    date = date_of(at)
    return shown_moment(at) if date is None else f"{date:%Y-%m-%d %H:%M} UTC"


def _field(variable: Mapping[str, Any], is_missing: bool) -> str:
    shown = escape(variable["name"], quote=True)
    hint = "required" if is_missing else 'placeholder="has a value"'
    kind = "text" if variable["type"] == "text" else "password"
    about = escape(variable["description"])
    return (
        f'<label for="{shown}">{shown}</label>'
        f'<input id="{shown}" name="{shown}" type="{kind}" autocomplete="off" {hint}>'
        + (f"<small>{about}</small>" if about else "")
    )
