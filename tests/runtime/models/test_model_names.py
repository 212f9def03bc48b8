"""``resolve_model``: what ``model=`` may say, and where a key may go."""

import subprocess
import sys
import traceback

import pytest

from hubbub.hub.errors import MissingKey, UnknownModel
from hubbub.runtime.models.anthropic.model import AnthropicModel
from hubbub.runtime.models.openai.model import OpenAIModel
from hubbub.runtime.models.resolve import resolve_model
from hubbub.runtime.models.scripted import ScriptedModel

pytestmark = pytest.mark.spec("M-02")

SCRIPTED = ScriptedModel(["hi"])
KEYS = {"ANTHROPIC_API_KEY": "sk-ant-1", "OPENAI_API_KEY": "sk-oai-1"}


def resolved(spec: object, **environ: str) -> tuple[str, str, bool]:
    """The URL, name, and whether a key goes there."""
    model = resolve_model(spec, {"scripted": SCRIPTED}, environ)  # type: ignore[arg-type]
    assert isinstance(model, AnthropicModel | OpenAIModel)
    origin = model._endpoint.origin
    return origin.url, model.name, origin.keyed


def test_an_object_is_itself_and_a_registered_name_comes_first() -> None:
    assert resolve_model(SCRIPTED, {}, {}) is SCRIPTED
    assert resolve_model("scripted", {"scripted": SCRIPTED}, {}) is SCRIPTED
    assert resolve_model("openai:gpt-5", {"openai:gpt-5": SCRIPTED}, {}) is SCRIPTED


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("anthropic:c-4", ("https://api.anthropic.com/v1/messages", "c-4", True)),
        ("openai:g-5", ("https://api.openai.com/v1/chat/completions", "g-5", True)),
        (
            "openai:llama3:8b@http://localhost:11434/v1",
            ("http://localhost:11434/v1/chat/completions", "llama3:8b", True),
        ),
        (
            "openai:org/name@https://api.openai.com/v1/",
            ("https://api.openai.com/v1/chat/completions", "org/name", True),
        ),
        ("anthropic:c@http://[::1]:80", ("http://[::1]:80/v1/messages", "c", True)),
    ],
)
def test_names_of_providers(spec: str, found: tuple[str, str, bool]) -> None:
    assert resolved(spec, **KEYS) == found


def test_a_base_url_from_the_environment_holds_unless_the_name_has_one() -> None:
    environ = {**KEYS, "OPENAI_BASE_URL": "https://openrouter.ai/api/v1"}
    url = "https://openrouter.ai/api/v1/chat/completions"
    assert resolved("openai:x", **environ) == (url, "x", True)
    assert resolved("openai:x@http://127.0.0.1:1", **environ)[0].startswith("http://127.0.0.1:1/")
    blank = {**KEYS, "ANTHROPIC_BASE_URL": " "}
    assert resolved("anthropic:x", **blank)[0].startswith("https://api.anthropic.com/")


@pytest.mark.spec("M-04")
def test_a_key_goes_only_where_its_owner_meant_it_to_go() -> None:
    elsewhere = "https://models.example/v1"
    assert not resolved(f"openai:x@{elsewhere}", **KEYS)[2]
    assert not resolved("anthropic:x@http://api.anthropic.com.evil.example", **KEYS)[2]
    assert not resolved("anthropic:x@http://api.anthropic.com", **KEYS)[2], "not in the clear"
    assert resolved(f"openai:x@{elsewhere}", **KEYS, OPENAI_BASE_URL=elsewhere)[2]
    assert not resolved("openai:x", OPENAI_BASE_URL=elsewhere)[2], "and none is needed there"


@pytest.mark.spec("M-04")
def test_a_missing_key_names_its_variable() -> None:
    with pytest.raises(MissingKey, match=r"^no key for OpenAI; set OPENAI_API_KEY in the"):
        resolve_model("openai:gpt-5", {}, {"OPENAI_API_KEY": " "})
    with pytest.raises(MissingKey, match=r"^no key for Anthropic; set ANTHROPIC_API_KEY"):
        resolve_model("anthropic:claude", {}, {})
    assert not resolved("openai:llama3@http://localhost:11434/v1")[2]


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "gpt-5",
        "mistral:large",
        "openai:",
        "openai: ",
        "openai",
        "Openai:x",
        "openai:x@",
        "openai:x@localhost:11434",
        "openai:x@u:sesame@host",
        "openai:x@http://u:sesame@host:port",
        "openai:x@http://u:sesame@host?key=sesame",
        "anthropic:x@file:///etc/passwd",
        5,
    ],
)
def test_everything_else_is_unknown_and_says_what_to_write(spec: object) -> None:
    with pytest.raises(UnknownModel) as caught:
        resolved(spec, **KEYS)
    text = "".join(traceback.format_exception(caught.value))
    assert "sesame" not in str(caught.value) + repr(caught.value.model)
    assert "During handling" not in text
    assert any(remedy in text for remedy in ("anthropic:NAME or openai:NAME", "http://"))
    if spec == "gpt-5":
        assert "'scripted'" in text, "registered names are listed"


def test_a_registered_name_loads_no_provider() -> None:
    code = (
        "import sys; from hubbub.runtime.models.resolve import resolve_model;"
        "from hubbub.runtime.models.scripted import ScriptedModel;"
        "resolve_model('scripted', {'scripted': ScriptedModel([])}, {});"
        "assert not [m for m in sys.modules if 'anthropic' in m or 'openai' in m or m == 'httpx']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
