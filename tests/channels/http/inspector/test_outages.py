"""The page outlives its server: it says that it is cut off, and goes on by itself."""

from urllib.parse import quote

import pytest

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = [pytest.mark.long, pytest.mark.spec("W-07")]

TOKEN = "a token that nobody guesses"


def test_a_page_goes_on_when_its_server_was_killed_and_started_again(start_server, open_tab):
    server = start_server()
    run_id = server.post("api/runs", agent="support", input="Please refund me.")["run_id"]
    tab = open_tab(f"{server.url}#/runs/{run_id}")
    page = tab.page
    expect(page.locator(".talk .ask")).to_contain_text("refund")
    page.evaluate("window.isTheSame = true")
    tab.is_offline = True
    server.kill()
    expect(page.locator(".cut")).to_contain_text("Cut off")
    expect(page.locator(".line-state")).to_have_text("cut off")
    expect(page.locator(".talk")).to_contain_text("Please refund me.")
    server.start()
    expect(page.locator(".line-state")).to_have_text("live")
    expect(page.locator(".cut")).to_have_count(0)
    page.locator(".talk .ask").get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator(".answer .prose").last).to_contain_text("is paid back.")
    expect(page.locator(".runs .line .mark.is-parked")).to_be_visible()
    # What was written before and after: nothing is missing, nothing is there twice.
    records = server.get(f"api/runs/{run_id}/records?after=start&limit=1000")["records"]
    page.keyboard.press("2")
    expect(page.locator(".scrub-at i")).to_have_text(f" / {records[-1]['seq']}")
    numbers = page.locator(".records .rec-seq").all_inner_texts()
    assert len(numbers) == len(records)
    assert page.evaluate("window.isTheSame")


def test_what_was_said_while_the_page_was_cut_off_is_there_when_it_is_back(start_server, open_tab):
    server = start_server()
    run_id = server.post("api/runs", agent="clerk", input="1")["run_id"]
    tab = open_tab(f"{server.url}#/runs/{run_id}")
    page = tab.page
    expect(page.locator(".line-state")).to_have_text("live")
    tab.is_offline = True
    page.context.set_offline(True)
    server.kill()
    server.start()
    other = server.post("api/runs", agent="clerk", input="1", name="meanwhile")["run_id"]
    page.context.set_offline(False)
    expect(page.locator(".runs .line", has_text="meanwhile")).to_be_visible()
    assert other != run_id


def test_a_server_that_comes_back_without_its_store_is_shown_as_it_is_now(start_server, open_tab):
    server = start_server(store="memory")
    run_id = server.post("api/runs", agent="clerk", input="1", name="before")["run_id"]
    tab = open_tab(f"{server.url}#/runs/{run_id}")
    page = tab.page
    expect(page.locator(".runs .line", has_text="before")).to_be_visible()
    expect(page.locator(".line-state")).to_have_text("live")
    tab.is_offline = True
    server.kill()
    expect(page.locator(".cut")).to_be_visible()
    server.start()
    expect(page.locator("main")).to_contain_text("No such run")
    server.post("api/runs", agent="clerk", input="1", name="after")
    expect(page.locator(".runs .line", has_text="after")).to_be_visible()
    expect(page.locator(".runs .line", has_text="before")).to_have_count(0)
    expect(page.get_by_role("link", name="Troubles").locator(".badge")).to_have_text("1")
    assert all("404" in each for each in tab.complaints)
    tab.complaints.clear()


def test_a_hub_with_a_token_asks_for_it_once(start_server, open_tab):
    server = start_server("0", TOKEN)
    tab = open_tab(server.url)
    page = tab.page
    field = page.get_by_label("Token")
    field.fill("a wrong one")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("not the token")
    field.fill(TOKEN)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.locator(".line-state")).to_have_text("live")
    page.get_by_label("curl line: statistics").click()
    expect(page.locator(".line-of-curl")).to_contain_text('"Authorization: Bearer $HUBBUB_TOKEN"')
    assert TOKEN not in page.content()
    page.reload()
    expect(page.locator(".line-state")).to_have_text("live")
    assert all("401" in each for each in tab.complaints)
    tab.complaints.clear()


def test_a_link_with_the_token_signs_in_and_leaves_no_trace(start_server, open_tab):
    server = start_server("0", TOKEN)
    page = open_tab(f"{server.url}#token={quote(TOKEN)}").page
    expect(page.locator(".line-state")).to_have_text("live")
    assert page.url == f"{server.url}#/"
    page.go_back()
    assert "token" not in page.url
