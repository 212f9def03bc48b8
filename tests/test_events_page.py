"""``docs/events.md`` lists the catalogue as it is.

``uv run python tests/test_events_page.py`` writes the page anew.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from hubbub.hub.events import Event
from hubbub.hub.events.catalogue import CATALOGUE

PAGE: Final = Path(__file__).parent.parent / "docs" / "events.md"
HEAD: Final = """# Events

Every event of hubbub, generated from the catalogue (`hubbub.hub.events`). Subscribe by type, by
pattern (`agent:*`, `*`) or by class. A type and the meaning of its fields never change; new fields
have defaults.

Where an event is kept:

* **journal**: written before any subscriber sees it, numbered in the journal of its run.
* **inbox**: sent to a run, and kept in its inbox until the run takes it.
* **hub**: written to the hub's own journal; it is not about one run.
* **scope**: in the run's journal when it is emitted through the run's hub (`ctx.hub`, `state.hub`),
  else in the hub's.
* **not kept**: dispatched only.

Every event also has these fields, stamped by the hub: """
WORDS: Final = {
    "own": "journal",
    "in": "inbox",
    "hub": "hub",
    "scope": "scope",
    "none": "not kept",
}
GROUPS: Final = {
    "agent": "what runs do",
    "session": "what is said to a run, and how its sessions go",
    "schedule": "what schedules do",
    "hub": "what the hub reports",
    "channel": "what channels report",
}


def page() -> str:
    """The page, as the catalogue has it."""
    common = ", ".join(f"`{field.name}`" for field in structs.fields(Event))
    parts = [f"{HEAD}{common}.", ""]
    for group, words in GROUPS.items():
        parts += [f"## `{group}:*`: {words}", ""]
        for cls in CATALOGUE:
            if cls.type.partition(":")[0] == group:
                parts += [*entry(cls), ""]
    return "\n".join(parts)


def entry(cls: type[Event]) -> Iterator[str]:
    yield f"### `{cls.type}`"
    yield ""
    yield f"`{cls.__name__}` · {WORDS[cls.home]}. {summary(cls)}"
    fields = [shown(field, cls) for field in structs.fields(cls) if is_own(field)]
    if fields:
        yield ""
        yield "; ".join(fields)


def summary(cls: type[Event]) -> str:
    """The docstring as one paragraph, with names quoted as Markdown quotes them."""
    text = inspect.cleandoc(cls.__doc__ or "").replace("``", "`")
    return " ".join(text.split())


def is_own(field: structs.FieldInfo) -> bool:
    return field.name not in {each.name for each in structs.fields(Event)}


def shown(field: structs.FieldInfo, cls: type[Event]) -> str:
    """A field as it is read: values kept as JSON are decoded by a property of the plain name."""
    name, kind = field.encode_name, kind_of(field.type)
    if field.name.endswith("_json") and isinstance(getattr(cls, name, None), property):
        kind = "any JSON value"
    has_default = isinstance(field.default, str | int | float) and field.default
    default = f" = {field.default!r}" if has_default else ""
    return f"`{name}`: {kind}{default}"


def kind_of(type_: Any) -> str:
    text = inspect.formatannotation(type_) if not isinstance(type_, str) else type_
    for noise in ("typing.", "hubbub.hub.events.event.", "hubbub.hub.events.sessions.",
                  "hubbub.hub.values.", "hubbub.hub.message."):  # fmt: skip
        text = text.replace(noise, "")
    return text.replace("|", "or").replace("  ", " ")


def test_the_page_lists_the_catalogue_as_it_is() -> None:
    assert PAGE.read_text() == page(), "run python tests/test_events_page.py"


def test_every_event_of_the_catalogue_is_on_the_page() -> None:
    text = PAGE.read_text()
    assert {cls.type for cls in CATALOGUE} <= {
        line.removeprefix("### `").removesuffix("`") for line in text.splitlines()
    }


if __name__ == "__main__":
    sys.stdout.write(f"{PAGE.write_text(page())} characters\n")
