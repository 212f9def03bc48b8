"""The files of the inspector: served as they are, to nobody else's page, and again only if new."""

import re

import httpx
import pytest

from hubbub import Agent, Runtime, ScriptedModel
from hubbub.channels.http import HttpApp
from hubbub.channels.http.inspector.page import CONTENT_SECURITY_POLICY

pytestmark = pytest.mark.anyio


def client_of(app, prefix=""):
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url=f"http://localhost{prefix}")


def app_of(ports, **options):
    rt = Runtime([Agent("a", "A.", model=ScriptedModel(["x"]))], store="memory", ports=ports)
    return HttpApp(rt.hub, **options)


async def get_all(client):
    """The page, and every file that it names or that one of its scripts imports."""
    found = {"": await client.get("/")}
    todo = re.findall(r'(?:src|href)="(inspector/[^"]+)"', found[""].text)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found[name] = await client.get(f"/{name}")
        folder = name.rpartition("/")[0]
        for path in re.findall(r'(?:from|import\()\s*"(\.[^"]+)"', found[name].text):
            todo.append(re.sub(r"[^/]+/\.\./", "", f"{folder}/{path}".replace("/./", "/")))
    return found


async def test_every_file_that_the_page_names_is_served(ports):
    async with client_of(app_of(ports)) as client:
        files = await get_all(client)
    assert {name: answer.status_code for name, answer in files.items()} == dict.fromkeys(files, 200)
    assert {"inspector/app.js", "inspector/vendor/preact.js", "inspector/page.css"} < files.keys()
    kinds = {
        name: answer.headers["content-type"].partition(";")[0] for name, answer in files.items()
    }
    assert kinds[""] == "text/html"
    assert kinds["inspector/app.js"] == kinds["inspector/vendor/uplot.js"] == "text/javascript"


async def test_no_script_of_the_page_is_inline_or_of_another_origin(ports):
    async with client_of(app_of(ports)) as client:
        files = await get_all(client)
    for answer in files.values():
        assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    page = files[""].text
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page)
    assert not re.search(r'(?:src|href)="(?!inspector/)', page)


async def test_no_script_makes_html_or_code_of_text(ports):
    async with client_of(app_of(ports)) as client:
        files = await get_all(client)
    forbidden = re.compile(
        r"\binnerHTML\b|\bouterHTML\b|insertAdjacentHTML|document\.write|\beval\("
    )
    ours = {n: a for n, a in files.items() if n.endswith(".js") and "/vendor/" not in n}
    assert len(ours) > 10
    assert [name for name, answer in ours.items() if forbidden.search(answer.text)] == []
    code = re.compile(r"new Function|\beval\(")
    assert [name for name, answer in files.items() if code.search(answer.text)] == []


async def test_a_file_that_has_not_changed_is_not_sent_again(ports):
    async with client_of(app_of(ports)) as client:
        first = await client.get("/inspector/app.js")
        known = {"if-none-match": first.headers["etag"]}
        again = await client.get("/inspector/app.js", headers=known)
        weak = await client.get("/inspector/app.js", headers={
            "if-none-match": f'"other", W/{first.headers["etag"]}'})  # fmt: skip
        other = await client.get("/inspector/app.js", headers={"if-none-match": '"other"'})
        head = await client.head("/inspector/app.js")
    assert first.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (weak.status_code, weak.content) == (304, b"")
    assert (other.status_code, other.content) == (200, first.content)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(first.content))


@pytest.mark.parametrize(
    "name",
    ["nothing.js", "../page.py", "%2e%2e/page.py", "..%2fpage.py", "vendor/LICENSE.preact", "",
     "vendor", "/etc/passwd", "app.js/"],
)  # fmt: skip
async def test_nothing_else_is_served(ports, name):
    async with client_of(app_of(ports)) as client:
        answer = await client.get(f"http://localhost/inspector/{name}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


async def test_the_page_is_there_without_a_token_and_nothing_that_it_would_show(ports):
    async with client_of(app_of(ports, token="t" * 20)) as client:
        page = await client.get("/")
        agents = await client.get("/api/agents")
    assert (page.status_code, agents.status_code) == (200, 401)


async def test_the_page_can_be_left_out(ports):
    async with client_of(app_of(ports, inspector=False)) as client:
        assert (await client.get("/")).status_code == 404


async def test_a_file_can_be_had_before_the_hub_is_open(ports):
    async with client_of(app_of(ports)) as client:
        assert (await client.get("/")).status_code == 200
