"""``resolve_model``: what ``model=`` may say, and where a key may go."""

import subprocess
import sys
import traceback

import pytest
from msgspec import structs

from hubbub import Agent, ModelSettings, Runtime
from hubbub.hub.errors import DefinitionError, MissingExtra, MissingKey, UnknownModel
from hubbub.runtime.models.anthropic.model import AnthropicModel
from hubbub.runtime.models.http.provider import Provider
from hubbub.runtime.models.openai.model import OpenAIModel
from hubbub.runtime.models.openai.provider import OPENAI
from hubbub.runtime.models.providers import KEY_VARIABLES, PROVIDERS
from hubbub.runtime.models.resolve import resolve_model
from hubbub.runtime.models.responses.model import ResponsesModel
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
        "mystral:large",
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
    assert any(remedy in text for remedy in ("anthropic:NAME, openai:NAME, ", "http://"))
    if spec == "gpt-5":
        assert "'scripted'" in text, "registered names are listed"


def test_a_registered_name_loads_no_client() -> None:
    code = (
        "import sys; from hubbub.runtime.models.resolve import resolve_model;"
        "from hubbub.runtime.models.scripted import ScriptedModel;"
        "resolve_model('scripted', {'scripted': ScriptedModel([])}, {});"
        "clients = ('models.anthropic.model', 'models.openai.model', 'models.http.endpoint');"
        "assert not [m for m in sys.modules if m.endswith(clients) or m == 'httpx']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ── the table ────────────────────────────────────────────────────────────────────────────────


def test_each_provider_is_listed_under_its_own_name_with_variables_of_its_own() -> None:
    assert [each.name for each in PROVIDERS.values()] == list(PROVIDERS)
    variables = [v for each in PROVIDERS.values() for v in (each.key_variable, each.url_variable)]
    shared = {OPENAI.key_variable, OPENAI.url_variable}  # By both of OpenAI's interfaces.
    assert len({*variables}) == len(variables) - len(shared)
    assert set(KEY_VARIABLES) == {each.key_variable for each in PROVIDERS.values()}
    assert len(KEY_VARIABLES) == len(PROVIDERS) - 1


def test_a_provider_is_one_record() -> None:
    """Nothing but its record is needed for its names, its address and its key."""
    house = Provider(
        name="house", title="House", url="https://api.house.example/v1",
        url_variable="HOUSE_BASE_URL", key_variable="HOUSE_API_KEY", client=OPENAI.client,
    )  # fmt: skip
    table = {**PROVIDERS, "house": house}

    def made(spec: str, **environ: str) -> OpenAIModel:
        model = resolve_model(spec, {}, environ, table)
        assert isinstance(model, OpenAIModel)
        return model

    origin = made("house:large", HOUSE_API_KEY="k")._endpoint.origin
    assert (origin.url, origin.keyed) == (f"{house.url}/chat/completions", True)
    elsewhere = made("house:m@https://else.example/v1", HOUSE_API_KEY="k")._endpoint.origin
    assert (elsewhere.url, elsewhere.keyed) == ("https://else.example/v1/chat/completions", False)
    with pytest.raises(MissingKey, match="no key for House; set HOUSE_API_KEY"):
        made("house:large")
    with pytest.raises(UnknownModel, match="or house:NAME, with @URL"):
        made("hause:large")


@pytest.mark.parametrize(
    ("spec", "environ", "url"),
    [
        ("groq:llama", {"GROQ_API_KEY": "k"}, "https://api.groq.com/openai/v1"),
        ("gemini:g-3", {"GEMINI_API_KEY": "k"},
         "https://generativelanguage.googleapis.com/v1beta/openai"),
        ("azure:mine", {"AZURE_OPENAI_API_KEY": "k",
                        "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/"},
         "https://mine.openai.azure.com/openai/v1"),
        ("bedrock:openai.gpt-oss", {"AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_REGION": "eu-west-1"},
         "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1"),
        ("openrouter:a/b", {"OPENROUTER_API_KEY": "k", "OPENROUTER_BASE_URL": "https://r.example"},
         "https://r.example"),
    ],
)  # fmt: skip
@pytest.mark.spec("L-08")
def test_a_service_is_reached_by_its_own_name_with_its_own_key(
    spec: str, environ: dict[str, str], url: str
) -> None:
    assert resolved(spec, **environ) == (f"{url}/chat/completions", spec.partition(":")[2], True)
    openai_key = {name: value for name, value in environ.items() if value != "k"} | KEYS
    if "_BASE_URL" not in str(environ):
        with pytest.raises(MissingKey):
            resolved(spec, **openai_key)


@pytest.mark.spec("L-08")
@pytest.mark.parametrize("name", ["ollama", "lmstudio", "vllm", "llamacpp"])
def test_a_server_on_this_machine_needs_no_key(name: str) -> None:
    url, model, keyed = resolved(f"{name}:m")
    assert url.startswith("http://localhost:") and url.endswith("/v1/chat/completions")
    assert (model, keyed) == ("m", False)


@pytest.mark.spec("L-08")
def test_responses_have_a_name_beside_chat_completions() -> None:
    model = resolve_model("openai-responses:gpt-5", {}, KEYS)
    assert isinstance(model, ResponsesModel)
    assert model._endpoint.origin.url == "https://api.openai.com/v1/responses"
    with pytest.raises(MissingKey, match="set OPENAI_API_KEY"):
        resolve_model("openai-responses:gpt-5", {}, {})


@pytest.mark.spec("L-08")
@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("grok:x", "xai:x"), ("gork:x", "xai:x"), ("qroq:x", "groq:x"), ("google:x", "gemini:x"),
        ("claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"), ("gpt-5", "openai:gpt-5"),
        ("o3", "openai:o3"), ("grok-4", "xai:grok-4"), ("Gemini-3-pro", "gemini:Gemini-3-pro"),
        ("deepseek-chat", "deepseek:deepseek-chat"), ("x-ai/grok-4", "xai:grok-4"),
        ("Olama:x", "ollama:x"), ("mistal/x", "mistral:x"),
        ("openai_responses:x", "openai-responses:x"), ("open-router:a/b", "openrouter:a/b"),
        ("antropic:x", "anthropic:x"), ("deepsek:x", "deepseek:x"),
    ],
)  # fmt: skip
def test_a_misspelt_provider_is_refused_with_what_was_meant(spec: str, meant: str) -> None:
    # Ahead of the list of all providers, behind which nobody would read it.
    with pytest.raises(UnknownModel, match=f"no such model; did you mean {meant!r}\\?"):
        resolved(spec)
    with pytest.raises(DefinitionError, match=f"did you mean {meant!r}"):
        Runtime([Agent("a", "x", model=spec)], store="memory")


@pytest.mark.spec("L-08")
def test_a_service_whose_place_is_not_known_says_which_variable_to_set() -> None:
    with pytest.raises(UnknownModel, match="set AZURE_OPENAI_ENDPOINT in the environment"):
        resolved("azure:mine", AZURE_OPENAI_API_KEY="k")
    with pytest.raises(UnknownModel, match="set AWS_REGION in the environment"):
        resolved("bedrock:m", AWS_BEARER_TOKEN_BEDROCK="k")
    told = Agent("a", "x", model="azure:mine", settings=ModelSettings(seed=1))
    Runtime([told], store="memory", environ={})


def test_a_client_that_cannot_be_imported_names_its_extra() -> None:
    absent = structs.replace(OPENAI, client="hubbub_absent.client:Model", extra="absent")
    with pytest.raises(MissingExtra, match="models of OpenAI needs the extra 'absent'"):
        absent.make("m", "", KEYS)
    with pytest.raises(ImportError):
        structs.replace(absent, extra="").make("m", "", KEYS)
