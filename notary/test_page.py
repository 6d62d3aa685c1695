"""Tests of the session's page, as text and (-m browser) as people see it."""

import html
import json
import re
import shutil
from pathlib import Path

import pytest

from notary.page import page
from notary.transcripts import read_transcripts

HERE = Path(__file__).parent
EXAMPLE = json.loads((HERE / "example.json").read_text(encoding="utf-8"))
EVIL = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>\u202eevil\x00\ud800 {{7*7}}\n% end & 'so'"
SHOWN = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>\ufffdevil\ufffd {{7*7}} % end & 'so'"


def transcript() -> dict:
    return read_transcripts([HERE / "example.vtt"], "Mara (also: Mar), Tobin, Isolde", None).transcript


def long_session(units: int) -> tuple:
    """The example's records again and again over a transcript of so many units."""
    source = {
        **transcript(),
        "units": [
            {"id": k, "speaker": "DM", "text": "Mud, as far as a lantern goes, and a bell under it."}
            for k in range(1, units + 1)
        ],
    }
    copies = [
        {
            **artifact,
            "records": [{**record, "id": f"{record['id']}-{k}"} for k in range(13) for record in artifact["records"]],
        }
        for artifact in EXAMPLE[:9]
    ]
    return copies, source


def hostile() -> tuple:
    records = [
        {
            "id": "x",
            "item": EVIL,
            "kind": "lost",
            "quantity": None,
            "from": EVIL,
            "to": None,
            "earliest_unit_id": 7,
            "evidence": [{"start_unit_id": 7, "end_unit_id": 3}],
        }
    ]
    custody = [
        {
            "item": EVIL,
            "steps": [{"occurrence": "x", "unit_id": 7, "holder": EVIL}],
            "doubts": [{"occurrence": "x", "text": EVIL}],
        }
    ]
    artifacts = [
        {"artifact": "item-occurrences", "source_id": EVIL, "records": records},
        {"artifact": "item-custody", "source_id": EVIL, "records": custody},
    ]
    return (
        artifacts,
        {
            "source_id": EVIL,
            "party": [],
            "units": [{"id": 7, "speaker": EVIL, "text": EVIL}, {"id": 3, "speaker": "DM", "text": "x" * 20000}],
        },
        [EVIL],
    )


def element(text: str, anchor: str) -> str:
    return re.search(rf'<(\w+)[^>]* id="{anchor}">.*?</\1>', text, re.S)[0]


def test_the_example_transcript_is_what_the_example_records_cite():
    units = transcript()["units"]
    assert (len(units), {unit["speaker"] for unit in units}) == (
        EXAMPLE[-1]["units"],
        {"DM", "Mara", "Tobin", "Isolde"},
    )
    assert (units[41]["id"], units[41]["text"]) == (
        42,
        "Twenty-two! I grab Tidecutter off the coffin. Sorry, Mara. I have it now.",
    )


def test_a_record_quotes_what_it_cites_and_both_lead_to_each_other():
    text = page(EXAMPLE, transcript(), [])
    card = next(card for card in re.findall("<article.*?</article>", text, re.S) if "Mara used up brass key" in card)
    anchor = re.search('id="(r[0-9]+)"', card)[1]
    assert re.findall('<a href="#u([0-9]+)">[0-9]+</a> <b>(.*?)</b> (.*?)</blockquote>', card) == [
        ("30", "Mara", "Everyone in one piece? Then the crypt. I use the brass key."),
        (
            "31",
            "DM",
            "It turns, and it snaps. The door is open, and the brass key is in two pieces that will never turn anything again.",
        ),
    ]
    for unit in ("u30", "u31"):
        assert f'<a href="#{anchor}">brass key · consumed</a>' in element(text, unit)
    assert f'<a href="#{anchor}">Mara used up brass key</a> → <b>nobody</b>' in element(text, "custody")
    anchors, links = re.findall(' id="(.+?)"', text), re.findall('href="#(.+?)"', text)
    assert (len(anchors), set(links) - set(anchors)) == (len(set(anchors)), set())


def test_families_stand_in_their_order_then_custody_and_refusals():
    text = page(EXAMPLE, transcript(), ["spells: rejected"])
    assert re.findall("<h2.*?>(.*?)</h2>", text) == [
        "Spells",
        "People",
        "What people did",
        "Items",
        "Where items went",
        "Places",
        "Who was where",
        "Fights",
        "Enemies",
        "Who has what",
        "Refused",
        "Transcript",
    ]
    assert "Can that be? Mara uses it up, but it was used up before." in element(text, "custody")
    assert "<small>spells: rejected</small>" in element(text, "refused")
    assert re.findall("<h2.*?>(.*?)</h2>", page([{**EXAMPLE[0], "records": []}], transcript(), [])) == [
        "Spells",
        "Transcript",
    ]


def test_a_long_range_is_counted_not_copied():
    [spell, _] = EXAMPLE[0]["records"]
    long = {**spell, "evidence": [{"start_unit_id": 10, "end_unit_id": 59}, {"start_unit_id": 12, "end_unit_id": 12}]}
    card = element(page([{**EXAMPLE[0], "records": [long]}], transcript(), []), "r1")
    assert (card.count("<blockquote>"), '<a href="#u16">and 44 more from 16 on</a>' in card) == (7, True)


def test_text_is_never_markup():
    text = page(*hostile())
    assert (text.count("<script"), text.count("<img"), text.count("{{7*7}}") > 5) == (1, 0, True)
    assert not re.search("[\u202a-\u202e\ud800-\udfff\x00]", text)
    assert f"<b>{SHOWN}</b> {SHOWN}\n" in html.unescape(element(text, "u7"))


def test_a_long_session_is_a_small_page_without_anything_from_elsewhere():
    text = page(*long_session(2500), [])
    assert (text.count("<article"), text.count('class="u"'), len(text.encode()) < 2_000_000) == (64 * 13, 2500, True)
    assert re.findall(r'(?:src|href)="(?!#)(.*?)"', text) == ["data:,"]
    assert "default-src &#039;none&#039;" in text or "default-src 'none'" in text


@pytest.fixture
def show(tmp_path):
    """Opens a page in a browser as a phone does, or as said; nothing may be asked of any network."""
    from playwright.sync_api import sync_playwright  # only for -m browser

    asked, said = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-quic"]
        )

        def show(text, width=390, **how):
            (tmp_path / "page.html").write_text(text, encoding="utf-8")
            tab = browser.new_page(viewport={"width": width, "height": 800}, **how)
            tab.set_default_timeout(15_000)
            tab.on("request", lambda request: asked.append(request.url))
            tab.on("console", lambda message: said.append(message.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
            tab.goto((tmp_path / "page.html").as_uri())
            return tab

        yield show
        browser.close()
    assert ([url for url in asked if not url.startswith(("file:", "data:"))], said) == ([], [])


def in_sight(tab, selector) -> bool:
    """Whether it has come to stand under the header."""
    seen = "(s) => { const top = document.querySelector(s).getBoundingClientRect().top; return top >= document.querySelector('header').offsetHeight - 1 && top < innerHeight }"
    return bool(tab.wait_for_function(seen, arg=selector))


@pytest.mark.browser
@pytest.mark.parametrize("width", [320, 390, 1180])
def test_links_lead_both_ways_also_in_a_long_session(width, show):
    tab = show(page(*long_session(3000), []), width)
    tab.click("#r700 blockquote a")
    target = tab.evaluate("location.hash")
    assert in_sight(tab, target)
    tab.click(f"{target} a[href='#r700']")
    assert in_sight(tab, "#r700")
    tab.go_back()
    assert in_sight(tab, target)
    tab.click("nav a[href='#transcript']")
    assert in_sight(tab, "#transcript")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_hostile_text_is_shown_as_text(show):
    tab = show(page(*hostile()))
    tab.fill("#search", "owned")
    assert (tab.title(), tab.query_selector("img"), tab.text_content("#u7 b"), tab.text_content("h1")) == (
        SHOWN,
        None,
        SHOWN,
        SHOWN,
    )
    assert tab.text_content("#found") == "4 found"
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.browser
def test_searching_by_keyboard(show):
    tab = show(page(EXAMPLE, transcript(), ["spells: rejected"]))
    tab.keyboard.press("/")
    tab.keyboard.type("brass KEY")
    assert tab.text_content("#found") == f"{tab.locator('article:visible, .u:visible').count()} found"
    assert tab.locator(".u:visible").evaluate_all("(units) => units.map((unit) => unit.id)") == [
        "u12",
        "u13",
        "u30",
        "u31",
    ]
    assert tab.locator("section:visible").evaluate_all("(parts) => parts.map((part) => part.id)") == [
        "item-registry",
        "item-occurrences",
        "location-registry",
        "location-occurrences",
        "custody",
    ]
    tab.keyboard.press("Enter")
    tab.keyboard.press("Escape")
    assert (tab.text_content("#found"), tab.locator(".u:visible").count(), tab.input_value("#search")) == ("", 64, "")
    tab.fill("#search", "dagger lost")
    tab.click("nav a[href='#spells']")  # which the search hides: all is shown again
    assert (tab.input_value("#search"), in_sight(tab, "#spells")) == ("", True)
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.closest('#spells') !== null")


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_light_and_dark(scheme, dark, show):
    tab = show(page(EXAMPLE, transcript(), []), color_scheme=scheme)
    paper, ink = (
        sum(map(int, re.findall("[0-9]+", tab.evaluate(f"getComputedStyle(document.body).{key}"))[:3]))
        for key in ("backgroundColor", "color")
    )
    assert (paper < ink, abs(paper - ink) > 450) == (dark, True)
