"""The page in a browser: what a person sees of a hub at work, and does to it."""

import re
import shlex
import shutil
import subprocess
from urllib.error import HTTPError

import pytest

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = [pytest.mark.long, pytest.mark.spec("W-07")]


def open_run(server, agent="support", text="Where are my two orders?", **more):
    return server.post("api/runs", agent=agent, input=text, **more)["run_id"]


def asked(server, run_id):
    """The prompt that a run waits for, once it is open."""
    found = server.wait_for("api/prompts", lambda x: _asked_by(x["prompts"], run_id))
    return _asked_by(found["prompts"], run_id)[0]


def _asked_by(prompts, run_id):
    return [each for each in prompts if each["run_id"] == run_id]


def wait_until(server, run_id, status):
    server.wait_for(f"api/runs/{run_id}", lambda x: x["run"]["status"] == status)


# ── what is seen ─────────────────────────────────────────────────────────────────────────────


def test_a_run_that_begins_elsewhere_appears_and_its_end_is_seen(server, open_tab):
    page = open_tab(server.url).page
    expect(page.locator(".line-state")).to_have_text("live")
    run_id = open_run(server, "researcher", "Chapter 1", once=True, name="appears")
    line = page.locator(".runs .line", has_text="appears")
    expect(line).to_be_visible()
    expect(line.locator(".mark.is-completed")).to_be_visible()
    line.click()
    expect(page).to_have_url(re.compile(f"#/runs/{run_id}$"))
    expect(page.locator(".talk")).to_contain_text("The contract wins")


def test_numbers_and_times_are_worded_alike_in_every_language(server, open_tab):
    page = open_tab(server.url, locale="ar-EG", timezone_id="Asia/Kolkata").page
    said = page.evaluate("""async () => {
      const words = await import(`${document.baseURI}inspector/words.js`);
      return [
        ...[0, 7, 999, 1000, 12345, 1234567, undefined].map(words.count),
        words.time(1795437005250000), words.fraction(1795437005009000),
        words.moment(1795437005250000), words.moment(0),
      ];
    }""")
    assert said == [
        "0", "7", "999", "1,000", "12,345", "1,234,567", "0",
        "18:00:05", ".009", "23 Nov 2026, 18:00:05", "",
    ]  # fmt: skip


def test_a_moment_without_a_date_is_its_number_as_on_the_command_line(server, open_tab):
    page = open_tab(server.url, timezone_id="UTC").page
    said = page.evaluate("""async () => {
      const words = await import(`${document.baseURI}inspector/words.js`);
      return [
        2 ** 59, -(2 ** 59), 253402300800000000, 253402300799999000, -62135596800000000,
        -62135596800001000, -1000,
      ].map((at) => [words.time(at), words.moment(at), words.fraction(at)]);
    }""")
    assert said == [
        *([str(at), str(at), ""] for at in (576460752303423500, -576460752303423500)),
        ["253402300800000000", "253402300800000000", ""],
        ["23:59:59", "31 Dec 9999, 23:59:59", ".999"],
        ["00:00:00", "1 Jan 1, 00:00:00", ".000"],
        ["-62135596800001000", "-62135596800001000", ""],
        ["23:59:59", "31 Dec 1969, 23:59:59", ".999"],
    ]  # fmt: skip


def test_children_stand_below_their_parent_and_lead_to_their_own_page(server, open_tab):
    run_id = open_run(server, "planner", "Compare.", name="family")
    page = open_tab(f"{server.url}#/runs/{run_id}").page
    children = page.locator(".run-side section", has_text="Children")
    expect(children.locator("li")).to_have_count(2)
    expect(page.locator(".runs .line[aria-level='2']").first).to_be_visible()
    children.locator("a").first.click()
    expect(page.locator(".run-head h2")).to_contain_text("researcher")
    page.locator(".crumbs a").first.click()
    expect(page).to_have_url(re.compile(f"#/runs/{run_id}$"))


def test_a_link_to_a_record_shows_it_and_the_state_after_it(server, open_tab):
    run_id = open_run(server)
    wait_until(server, run_id, "parked")
    page = open_tab(f"{server.url}#/runs/{run_id}/4").page
    expect(page.locator(".records .line[aria-selected=true] .rec-seq")).to_have_text("4")
    expect(page.locator(".record")).to_contain_text("record 4")
    then = page.locator(".then")
    expect(then).to_contain_text("The run after record 4")
    expect(then).to_contain_text("Where are my two orders?")
    expect(then).not_to_contain_text("neighbour")
    last = server.get(f"api/runs/{run_id}")["seq"]
    page.get_by_role("slider", name="Record").press("End")
    expect(page).to_have_url(re.compile(f"/{last}$"))
    expect(then).to_contain_text("neighbour")


def test_a_page_that_was_opened_in_the_middle_of_an_answer_shows_all_of_it(server, open_tab):
    tab = open_tab(server.url)
    page = tab.page
    expect(page.locator(".line-state")).to_have_text("live")
    run_id = open_run(server, text="Please refund me.")
    asked(server, run_id)
    server.post(f"api/prompts/{asked(server, run_id)['prompt_id']}/approve")
    page.wait_for_function("performance.now() > 0")
    page.goto(f"{server.url}#/runs/{run_id}")
    draft = page.locator(".draft .prose")
    expect(draft).to_contain_text("The first parcel was")
    expect(page.locator(".answer .prose").last).to_contain_text("before anything is paid back.")
    expect(page.locator(".draft")).to_have_count(0)


def test_text_from_a_run_is_text_whatever_it_looks_like(server, open_tab):
    hostile = "<img src=x onerror='document.title=1'><b>bold</b> {{NAME}} \u202e"
    run_id = open_run(server, "clerk", "1", name="<i>name</i>")
    page = open_tab(f"{server.url}#/runs/{run_id}").page
    page.locator("#message").fill(hostile)
    page.locator("#message").press("Enter")
    expect(page.locator(".answer .prose").last).to_contain_text("onerror='document.title=1'")
    expect(page.locator(".run-head h2")).to_contain_text("<i>name</i>")
    assert page.locator("main img, main .talk b:text('bold')").count() == 0


def test_plots_show_tokens_and_latencies(server, open_tab):
    run_id = open_run(server)
    wait_until(server, run_id, "parked")
    page = open_tab(f"{server.url}#/runs/{run_id}").page
    page.get_by_role("tab", name="Plots").click()
    expect(page.locator(".plot canvas")).to_have_count(2)
    expect(page.locator(".legend").first).to_contain_text(re.compile(r"input \d+"))


# ── what is done ─────────────────────────────────────────────────────────────────────────────


def test_a_message_shows_that_it_was_accepted_and_taken_and_its_answer_streams_in(server, open_tab):
    run_id = open_run(server)
    wait_until(server, run_id, "parked")
    page = open_tab(f"{server.url}#/runs/{run_id}").page
    expect(page.locator(".answer")).not_to_have_count(0)
    # Every state that the receipt goes through is noted, however short it lasts.
    page.evaluate("""() => {
      window.seen = [];
      new MutationObserver(() => {
        for (const each of document.querySelectorAll('.receipt')) seen.push(each.className);
        const draft = document.querySelector('.draft .prose');
        if (draft) seen.push(draft.textContent.length);
      }).observe(document.body, { subtree: true, childList: true, characterData: true,
                                  attributes: true });
    }""")
    page.locator("#message").fill("And the third one?")
    page.get_by_role("button", name="Send", exact=True).click()
    receipt = page.locator(".receipt").last
    expect(receipt).to_contain_text("accepted")
    expect(receipt).to_have_class(re.compile("is-taken"))
    expect(receipt.locator("a")).to_have_attribute("href", re.compile(rf"#/runs/{run_id}/\d+"))
    expect(page.locator(".talk")).to_contain_text("And the third one?")
    expect(page.locator(".draft")).to_be_visible()
    expect(page.locator(".draft")).to_have_count(0)
    expect(page.locator(".answer .prose").last).to_contain_text("before anything is paid back.")
    lengths = [each for each in page.evaluate("window.seen") if isinstance(each, int)]
    assert lengths and len(set(lengths)) > 5, "the answer came in one piece"


def test_an_approval_is_given_and_the_tool_runs(server, open_tab):
    run_id = open_run(server, text="Please refund me.")
    page = open_tab(f"{server.url}#/runs/{run_id}").page
    card = page.locator(".talk .ask")
    expect(card).to_contain_text("refund")
    expect(page.locator(".top nav .badge.is-ask")).to_be_visible()
    card.get_by_role("button", name="Approve", exact=True).click()
    expect(card).to_have_count(0)
    page.locator(".tool summary", has_text="refund").click()
    expect(page.locator(".tool", has_text="refund")).to_contain_text("48.5 for A7 is paid back.")


def test_an_approval_is_given_with_other_arguments_and_denied_with_a_reason(server, open_tab):
    first, second = (open_run(server, text="Please refund me.") for _ in range(2))
    tab = open_tab(f"{server.url}#/runs/{first}")
    page = tab.page
    card = page.locator(".talk .ask")
    card.get_by_role("button", name="Edit arguments", exact=True).click()
    card.locator("textarea").fill('{"order": "A7", "amount": 5}')
    card.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator(".talk")).to_contain_text("5.0 for A7 is paid back.")
    page.goto(f"{server.url}#/runs/{second}")
    card.get_by_role("button", name="Deny", exact=True).click()
    card.get_by_label("Reason").fill("not today")
    card.get_by_role("button", name="Deny", exact=True).click()
    expect(page.locator(".tool.is-fault")).to_contain_text("not today")


def test_a_question_is_answered_on_the_page_of_all_that_is_asked(server, open_tab):
    run_id = open_run(server, "planner", "Compare.")
    prompt_id = asked(server, run_id)["prompt_id"]
    page = open_tab(f"{server.url}#/asked").page
    card = page.locator(f'.ask[data-prompt="{prompt_id}"]')
    expect(card).to_contain_text("Where shall the summary go?")
    card.get_by_role("button", name="wiki", exact=True).click()
    wait_until(server, run_id, "ended")
    page.goto(f"{server.url}#/runs/{run_id}")
    page.locator(".end summary").click()
    expect(page.locator(".end")).to_contain_text("The summary went to wiki.")


def test_variables_are_provided_and_are_nowhere_on_the_page(server, open_tab):
    run_id = open_run(server, "lead", "Send letters.")
    page = open_tab(f"{server.url}#/runs/{run_id}").page
    field = page.locator(".talk").get_by_label("MAIL_KEY")
    field.fill("s3cr3t-value")
    page.locator(".talk").get_by_role("button", name="Provide", exact=True).click()
    expect(page.locator(".talk .ask")).to_have_count(0)
    children = page.locator(".run-side section", has_text="Children")
    expect(children.locator("li")).to_have_count(1)
    assert "s3cr3t-value" not in page.content()
    # Who opens the page later is asked nothing any more.
    later = open_tab(f"{server.url}#/runs/{run_id}").page
    expect(later.locator(".talk")).to_contain_text("mailer needed MAIL_KEY")
    expect(later.locator(".ask")).to_have_count(0)


def test_who_holds_the_conversation_is_seen_and_talked_to(server, open_tab):
    run_id = open_run(server, "front", "Write me a page.", session_key="web_taken")
    page = open_tab(f"{server.url}#/runs/{run_id}").page
    stack = page.locator(".run-side .stack")
    expect(stack.locator("li")).to_have_count(2)
    expect(stack.locator(".is-holder")).to_contain_text("writer")
    page.locator("#message").fill("About 3.13.")
    page.locator("#message").press("Enter")
    expect(page.locator(".talk")).to_contain_text("It is in page.md.")
    expect(stack).to_have_count(0)
    expect(page.locator(".talk")).to_contain_text("writer gives the conversation back")


def test_a_dead_letter_is_shown_with_its_message(server, open_tab):
    run_id = open_run(server, "researcher", "Chapter 1", once=True)
    wait_until(server, run_id, "ended")
    page = open_tab(server.url).page
    expect(page.locator(".line-state")).to_have_text("live")
    with pytest.raises(HTTPError):
        server.post(f"api/runs/{run_id}/messages", content="Are you still there?")
    expect(page.get_by_role("link", name="Troubles").locator(".badge")).to_have_text("1")
    page.get_by_role("link", name="Troubles").click()
    letter = page.locator(".troubles li")
    expect(letter).to_contain_text("Are you still there?")
    letter.locator("summary").click()
    letter.locator("a").click()
    expect(page).to_have_url(re.compile(f"#/runs/{run_id}$"))


def test_a_run_is_started_interrupted_and_terminated(server, open_tab):
    page = open_tab(server.url).page
    expect(page.locator(".agents")).to_contain_text("planner")  # Until then one types a name.
    page.get_by_role("button", name="Start a run", exact=True).click()
    page.get_by_label("Agent").select_option("planner")
    page.get_by_label("Input").fill("Compare.")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".run-head h2")).to_contain_text("planner")
    page.get_by_role("button", name="Interrupt", exact=True).click()
    expect(page.locator(".note").last).to_contain_text("interrupt: accepted")
    page.goto(f"{server.url}#/runs/{open_run(server, 'clerk', '1')}")
    expect(page.locator(".run-head h2")).to_contain_text("clerk")
    page.get_by_label("More actions").click()
    page.get_by_role("button", name="Terminate…", exact=True).click()
    page.get_by_label("Reason").fill("enough")
    page.get_by_role("button", name="Terminate", exact=True).click()
    expect(page.locator(".run-facts")).to_contain_text("terminated")
    expect(page.locator(".composer")).to_contain_text("has ended")


def test_a_file_is_given_to_a_run_and_fetched_again(server, open_tab):
    run_id = open_run(server, "clerk", "1")
    page = open_tab(f"{server.url}#/runs/{run_id}").page
    page.locator(".upload input").set_input_files(
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"What I noted."}
    )
    file = page.locator(".run-side section", has_text="Files").locator("a")
    expect(file).to_have_text("notes.txt")
    with page.expect_download() as download:
        file.click()
    assert download.value.path().read_bytes() == b"What I noted."


def test_a_root_is_exported_as_a_test(server, open_tab):
    run_id = open_run(server, "researcher", "Chapter 1", once=True)
    wait_until(server, run_id, "ended")
    page = open_tab(f"{server.url}#/runs/{run_id}").page
    page.get_by_label("More actions").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export as test").click()
    assert "def test_" in download.value.path().read_text()


def test_the_curl_line_of_an_action_does_the_same(server, open_tab):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    run_id = open_run(server, "clerk", "1")
    page = open_tab(f"{server.url}#/runs/{run_id}").page
    page.locator("#message").fill("It's a 'quoted' line")
    page.get_by_label("curl line: send this message").click()
    line = page.locator(".line-of-curl").inner_text()
    subprocess.run([*shlex.split(line), "-sSf"], check=True, capture_output=True, timeout=20)
    page.keyboard.press("Escape")
    expect(page.locator(".answer .prose").last).to_have_text("You said: It's a 'quoted' line")


# ── keyboard, light and dark ─────────────────────────────────────────────────────────────────


def test_everything_can_be_reached_by_keyboard(server, open_tab):
    run_id = open_run(server, name="keys")
    wait_until(server, run_id, "parked")
    page = open_tab(server.url).page
    expect(page.locator(".runs .line", has_text="keys")).to_be_visible()
    press = page.keyboard.press
    press("/")
    page.keyboard.type("keys")
    expect(page.locator(".runs .line")).to_have_count(1)
    for key in ("Escape", "j", "Enter"):
        press(key)
    expect(page).to_have_url(re.compile(f"#/runs/{run_id}$"))
    press("2")
    expect(page.locator(".records")).to_be_visible()
    last = server.get(f"api/runs/{run_id}")["seq"]
    expect(page.locator(".records .rec-seq", has_text=re.compile(f"^{last}$"))).to_be_visible()
    press("k")
    expect(page).to_have_url(re.compile(f"/{last}$"))
    press("k")
    expect(page).to_have_url(re.compile(f"/{last - 1}$"))
    press("]")
    expect(page).to_have_url(re.compile(f"/{last}$"))
    press("Escape")
    expect(page).to_have_url(re.compile(f"#/runs/{run_id}$"))
    press("m")
    page.keyboard.type("hello there")
    press("Enter")
    expect(page.locator(".receipt")).to_contain_text("hello there")
    press("Escape")
    press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keys")
    press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    press("a")
    expect(page).to_have_url(re.compile("#/asked$"))
    press("Escape")
    expect(page).to_have_url(re.compile("#/$"))
    for _ in range(8):
        press("Tab")
        assert page.evaluate("document.activeElement !== document.body")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", page.evaluate("document.activeElement.outerHTML")


def test_every_control_has_a_name(server, open_tab):
    run_id = open_run(server, text="Please refund me.")
    asked(server, run_id)
    page = open_tab(f"{server.url}#/runs/{run_id}").page
    expect(page.locator(".talk .ask")).to_be_visible()
    for tab in ("Conversation", "Timeline", "Details", "Plots"):
        page.get_by_role("tab", name=tab).click()
        nameless = page.evaluate("""() => [...document.querySelectorAll(
            'button, a[href], input, textarea, select, summary, [role=tab], [role=slider]')]
          .filter((each) => !(each.getAttribute('aria-label') || each.textContent.trim()
            || each.labels?.length))
          .map((each) => each.outerHTML)""")
        assert nameless == []


CONTRASTS = """() => {
  const rgb = (colour) => {
    const canvas = document.createElement('canvas').getContext('2d');
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (colour) => {
    const [r, g, b] = rgb(colour).map((each) => {
      const part = each / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = getComputedStyle(document.documentElement);
  const of = (name) => light(style.getPropertyValue(name).trim());
  const found = {};
  for (const text of ['--ink', '--soft', '--muted', '--bad', '--active', '--waiting', '--good']) {
    for (const ground of ['--paper', '--panel', '--sunk', '--pick', '--hover']) {
      const [low, high] = [of(text), of(ground)].sort((one, other) => one - other);
      found[`${text} on ${ground}`] = (high + 0.05) / (low + 0.05);
    }
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(server, open_tab, scheme):
    page = open_tab(server.url, color_scheme=scheme).page
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", ground)[:3]))
    assert (brightness > 600) == (scheme == "light")
    assert {k: round(v, 2) for k, v in page.evaluate(CONTRASTS).items() if v < 4.5} == {}


@pytest.mark.parametrize("width", [400, 900, 1500])
def test_nothing_is_wider_than_the_window(server, open_tab, width):
    run_id = open_run(server, text="Please refund me. " + "long" * 60)
    asked(server, run_id)
    page = open_tab(f"{server.url}#/runs/{run_id}", viewport={"width": width, "height": 800}).page
    expect(page.locator(".talk .ask")).to_be_visible()
    for tab in ("Conversation", "Timeline", "Details", "Plots"):
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wide = page.evaluate(
            """(width) => [...document.querySelectorAll('main *')]
          .filter((each) => !each.closest('.tabs, .sifter, pre, .line, .crumbs'))
          .filter((each) => each.getBoundingClientRect().right > width + 1)
          .map((each) => each.className)""",
            width,
        )
        assert wide == []
