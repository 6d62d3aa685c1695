"""What the play page promises, in a real browser: `python -m pytest -m browser` (Debian's chromium, Playwright)."""

import json
import os
import re
import shutil
import threading
from pathlib import Path

import pytest

import narrator_app as n
from conftest import wait_until

pytestmark = pytest.mark.browser

SCENE = [
    "Fog stands on the quay, ",
    "and the quay stands on nothing much. The eastern bridge is a row of teeth in the water. Out on the "
    "flats a ferryman, one Corrow [FACT: the ferryman is called Corrow], ",
    "is poling the wrong way and knows it. Brannoc Thane "
    "looks at the harbourmaster's door as if it had asked him something. You can hear the tide thinking it over.",
]
EVIL = "<img src=x onerror=\"document.title='owned'\"> You smell rain. [FACT: <b>bold</b> is a word]"


@pytest.fixture
def page(service, real_ollama, call_log, monkeypatch):
    """The play page in a browser, on its first visit; `.scenes` are what the model will say."""
    from playwright.sync_api import sync_playwright  # only for -m browser

    monkeypatch.setenv("OLLAMA_BASE_URL", real_ollama.url)
    scenes, asked, base = [SCENE], [], f"http://127.0.0.1:{service}"
    real_ollama.says = lambda body: scenes.pop(0) if len(scenes) > 1 else scenes[0]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-quic"]
        )
        page = browser.new_page(viewport={"width": 1180, "height": 820})
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: dialog.accept())
        page.set_default_timeout(15_000)
        page.goto(base)
        page.scenes = scenes
        yield page
        browser.close()
    assert [url for url in asked if not url.startswith((base, "data:"))] == []


def settled(page, count=1):
    """Wait until so many turns are told."""
    page.wait_for_function(
        "(count) => document.querySelectorAll('.turn .facts, .turn .problem').length >= count", arg=count
    )


def test_a_first_visit_from_sample_to_second_narration(page, real_ollama):
    assert "qwen3.5:latest is speaking" in page.text_content("#voice")
    assert json.loads(page.input_value("#log"))["location"] == "the Greywater docks"
    step = threading.Semaphore(0)
    real_ollama.between = lambda: step.acquire(timeout=15)
    page.click("#narrate")
    lengths = []
    for _ in SCENE:
        step.release()
        page.wait_for_function(
            "(had) => document.querySelector('.prose')?.textContent.length > had", arg=lengths[-1] if lengths else 0
        )
        lengths.append(len(page.text_content(".prose")))
    assert lengths == sorted(set(lengths))  # it grew, word after word
    step.release(9)
    settled(page)
    assert "one Corrow, is poling" in page.text_content(".prose")
    assert re.match(r"qwen3\.5:latest · seed \d+ · \d+\.\d s, first word after", page.text_content(".facts"))
    assert "No law broken." in page.text_content(".laws")
    page.click(".chip")
    assert "the ferryman is called Corrow" in json.loads(page.input_value("#log"))["established_facts"]
    assert page.is_disabled(".chip")
    page.scenes[:] = [["You hear him before you see him."]]
    page.fill("#next", "Corrow turned his boat")
    page.click("#narrate")
    settled(page, 2)
    digest = real_ollama.bodies[-1][1]["messages"][1]["content"]
    assert "- the ferryman is called Corrow\n" in digest
    assert "- Corrow turned his boat\n" in digest
    assert page.text_content(".turn:nth-of-type(2) pre") == digest
    before = page.inner_text("main"), page.input_value("#log")
    page.reload()
    settled(page, 2)
    assert (page.inner_text("main"), page.input_value("#log")) == before


def test_the_page_shows_model_text_as_text(page):
    page.scenes[:] = [[EVIL]]
    page.click("#narrate")
    settled(page)
    assert page.text_content(".prose").startswith("<img src=x")
    assert page.text_content(".chip") == "+ <b>bold</b> is a word"
    assert (page.title(), page.query_selector(".turn img, .turn b b")) == ("Narrator", None)


def test_the_page_says_in_words_what_went_wrong_and_what_to_do(page, real_ollama, service):
    page.scenes[:] = [[" "]]
    page.click("#narrate")
    settled(page)
    assert "ask again, or choose another model" in page.text_content(".problem.wrong")
    assert "seed" in page.text_content(".facts")
    page.fill("#log", '{"location": 3}')
    page.click("#narrate")
    settled(page, 2)
    assert "$.location" in page.text_content(".turn:nth-of-type(2) .problem")
    page.fill("#log", "{")
    assert "not JSON" in page.text_content("#log-problem")
    page.click("#sample")
    assert page.is_hidden("#log-problem")
    real_ollama.shutdown()
    real_ollama.server_close()
    page.click("#narrate")
    settled(page, 3)
    assert "ollama serve" in page.text_content(".turn:nth-of-type(3) .problem")


def test_what_is_typed_while_a_scene_is_told_stays_where_it_is(page, real_ollama):
    step = threading.Semaphore(0)
    real_ollama.between = lambda: step.acquire(timeout=15)
    page.scenes[:] = [["You hear rain [FACT: it never closes"]]
    page.fill("#next", "I wait")
    page.click("#narrate")
    page.fill("#next", "typed while streaming")
    page.focus("#log")
    step.release(9)
    settled(page)
    assert page.evaluate("document.activeElement.id") == "log"
    assert page.input_value("#next") == "typed while streaming"
    assert page.text_content(".prose") == "You hear rain [FACT: it never closes"
    page.fill("#next", "I wait")
    page.click("#narrate")
    step.release(9)
    settled(page, 2)
    assert json.loads(page.input_value("#log"))["recent_events"].count("I wait") == 2


def test_a_reload_in_mid_scene_keeps_the_turn(page, real_ollama):
    step = threading.Semaphore(1)
    real_ollama.between = lambda: step.acquire(timeout=15)
    page.fill("#next", "The bell rang")
    page.click("#narrate")
    page.wait_for_function("() => document.querySelector('.prose')?.textContent.length > 3")
    page.reload()
    step.release(9)
    settled(page)
    assert page.text_content(".event") == "The bell rang"
    assert "left before the end" in page.text_content(".problem")


@pytest.mark.parametrize(
    "kept", ["{}", "3", '"x"', "[null]", '[{"prose": 5}]', "nonsense", '[{"prose": "x", "call": {}}]']
)
def test_what_was_kept_badly_is_forgotten(kept, page):
    page.evaluate("(kept) => localStorage.setItem('narrator.turns', kept)", kept)
    page.reload()
    page.wait_for_function("() => document.getElementById('voice').textContent.includes('is speaking')")
    page.click("#narrate")
    page.wait_for_function("() => document.querySelectorAll('.turn .chip').length > 0")


@pytest.mark.parametrize("width", [1180, 390])
def test_an_evening_of_verdicts_by_click_and_by_key(width, page, call_log):
    page.set_viewport_size({"width": width, "height": 820})
    page.click("#narrate")
    settled(page)
    page.click(".verdict button:text-is('alive')")
    page.wait_for_function(
        "() => document.getElementById('evening').textContent.startsWith('alive 100 of 100 (21–100), 1 verdict')"
    )
    page.click(".again")
    settled(page, 2)
    first, second = call_log()[0], call_log()[-1]
    assert first["canon_log"] == second["canon_log"]
    assert first["options"]["seed"] != second["options"]["seed"]
    assert page.locator(".turn").count() == 2  # the turn before stays readable
    page.keyboard.press("Alt+ArrowDown")
    page.wait_for_function(
        "() => document.getElementById('evening').textContent === 'alive 50 of 100 (9–91), 2 verdicts'"
    )
    assert page.get_attribute(".turn:nth-of-type(2) .verdict button:nth-of-type(2)", "aria-pressed") == "true"
    said = [line["verdict"] for line in call_log() if "verdict" in line]
    assert said == [{"call": first["id"], "alive": True}, {"call": second["id"], "alive": False}]
    page.reload()
    assert page.text_content("#evening") == "alive 50 of 100 (9–91), 2 verdicts"
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("how", ["button", "key"])
def test_a_narration_that_is_stopped_is_logged_as_left(how, page, real_ollama, call_log):
    step = threading.Semaphore(1)
    real_ollama.between = lambda: step.acquire(timeout=15)
    page.click("#narrate")
    page.wait_for_function("() => document.querySelector('.prose')?.textContent.length > 3")
    assert page.text_content("#narrate") == "Stop"
    page.click("#narrate") if how == "button" else page.keyboard.press("Escape")
    page.wait_for_function("() => document.querySelector('.problem')?.textContent.startsWith('Stopped')")
    wait_until(call_log)
    step.release(9)
    assert (call_log()[0]["ok"], call_log()[0]["error"], page.text_content("#narrate")) == (
        False,
        "the client left",
        "Narrate",
    )


def test_the_keyboard_is_enough(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "next"
    page.keyboard.type("The bell rang")
    page.keyboard.press("Enter")
    settled(page)
    page.keyboard.press("Shift+Tab")  # from the line back over the digest to the chip
    while page.evaluate("document.activeElement.className") != "chip":
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    log = json.loads(page.input_value("#log"))
    assert (log["recent_events"][-1], log["established_facts"][-1]) == (
        "The bell rang",
        "the ferryman is called Corrow",
    )
    assert page.evaluate("document.activeElement.id") == "next"
    page.keyboard.press("Control+Enter")
    settled(page, 2)


def test_the_page_says_that_the_understudy_only_stands_in(page, monkeypatch, real_ollama):
    model = "understudy/smollm2-135m"
    monkeypatch.setenv("OLLAMA_NARRATOR_MODEL", model)
    monkeypatch.setattr(n, "available_models", lambda: {n.full_name(model)})
    page.reload()
    page.wait_for_function("() => document.getElementById('voice').textContent.includes('stands in')")
    assert page.text_content("#voice").startswith("understudy/smollm2-135m is speaking")


@pytest.mark.parametrize(
    ("name", "width", "scheme"), [("wide", 1180, "light"), ("phone", 390, "light"), ("dark", 1180, "dark")]
)
def test_the_page_as_a_picture(name, width, scheme, page, tmp_path):
    """The picture is looked at by people: SCREENSHOTS=FOLDER keeps it there. Here: nothing runs out of the window."""
    page.set_viewport_size({"width": width, "height": 820})
    page.emulate_media(color_scheme=scheme)
    page.click("#narrate")
    settled(page)
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    page.screenshot(path=str(folder / f"play-{name}.png"), full_page=name == "phone")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper, ink = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    brightness = [sum(map(int, re.findall(r"\d+", color))) for color in (paper, ink)]
    assert (brightness[0] < brightness[1]) == (scheme == "dark")
