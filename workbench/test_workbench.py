"""What the workbench promises, as lists of examples: audit, verdicts, replay and its page."""

import json
import os
import random
import re
import shutil
import signal
import threading
from pathlib import Path

import pytest
import responses

import narrator_app as n
from conftest import CANON_LOG, CHAT, SMALL_LOG, answers, narrate, posix, process, reply, sent, wait_until
from workbench import __main__ as command
from workbench import audit, measures, repeats, replay, report

# 1. Audit --------------------------------------------------------------------


@pytest.fixture(autouse=True)
def own_log(monkeypatch):
    """A replay's log is standard output; the setting ends with the test."""
    monkeypatch.setenv("CALL_LOG_PATH", "")


def logged(**change) -> dict:
    """A narrator's line of a call log."""
    record = {
        "ts": "2026-11-30T12:00:00.000Z",
        "id": "1",
        "role": "narrator",
        "canon_log": SMALL_LOG,
        "model": "m",
        "options": {"seed": 7, "temperature": 0.8},
        "think": False,
        "prompt_sha256": "ab" * 32,
        "attempts": [],
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
        "latency_ms": 2000.0,
        "ok": True,
        "response": "You hear rain.",
        "done_reason": "stop",
        "prompt_eval_count": 9,
        "eval_count": 100,
        "laws": [],
        **change,
    }
    return {key: value for key, value in record.items() if value is not ...}


def failed(**change) -> dict:
    return logged(ok=False, error="why", response=..., done_reason=..., eval_count=..., laws=..., **change)


def write_log(tmp_path, *lines):
    path = tmp_path / "old.jsonl"
    path.write_bytes(
        b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    )
    return str(path)


def run(capfd, *arguments):
    """One command: (exit status, standard output, standard error)."""
    status = command.main(list(arguments))
    return status, *capfd.readouterr()


def test_an_audit_side_by_side(tmp_path, capfd):
    broken = [{"law": "number", "text": "3"}, {"law": "number", "text": "4"}, {"law": "cut_off", "text": "x"}]
    path = write_log(
        tmp_path,
        *[logged(latency_ms=1000.0 * second) for second in range(1, 19)],
        logged(laws=broken, done_reason="length", latency_ms=19000.0),
        failed(latency_ms=60000.0),
        logged(model="llama3.2", latency_ms=500.0),
        logged(role="notary"),
        logged(prompt_sha256="cd" * 32),
    )
    status, out, err = run(capfd, "audit", path)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "                      m abababab  llama3.2 abababab  m cdcdcdcd",
        "narrations                    20                  1           1",
        "failures                       1                  0           0",
        "cut off                        1                  0           0",
        "latency, median s           10.0                0.5         2.0",
        "latency, 95th s             19.0                0.5         2.0",
        "tokens/s                    10.0                200        50.0",
        "prompt tokens                180                  9           9",
        "laws broken, per 100         5.3                0.0         0.0",
        "  number                     5.3                0.0         0.0",
        "  cut_off                    5.3                0.0         0.0",
        "repeats, per 100             0.0                0.0         0.0",
        "verdicts                       0                  0           0",
        "alive, per 100                 -                  -           -",
    ]


def test_an_audit_shows_what_broke_a_law_and_judges_older_lines_now(tmp_path, capfd):
    old = logged(laws=..., response="You draw your \x1bblade at dawn.")
    status, out, _ = run(capfd, "audit", write_log(tmp_path, logged(), old), "--show")
    assert status == 0
    assert out.splitlines()[0] == "line 2: plays_player: You draw your blade at dawn"
    assert re.search(r"^  plays_player +50\.0$", out, re.M)


BAD_LINES = [  # a line of a log, whether it is a record that audit counts all the same
    (b"nonsense", False),
    (b"", None),
    (b"[]", False),
    (b"\xff", False),
    (b"[" * 5000, False),
    (b'{"cut": tr', False),
    (b'{"role": "narrator"}', False),
    ({"role": "narrator", "ok": True, "model": 7}, False),
    (logged(latency_ms="x"), False),
    (logged(laws="x"), False),
    (logged(laws=[7]), False),
    (logged(model=...), False),
    (logged(eval_count="x"), False),
    (logged(laws=..., canon_log=7), False),
    (logged(laws=..., response=None), False),
    (logged(prompt_sha256=7), False),
    (logged(prompt_sha256=...), True),
    (logged(eval_count=None, done_reason=None), True),
    ({"role": "bard"}, None),
]


@pytest.mark.parametrize(("line", "counted"), BAD_LINES, ids=lambda value: str(value)[:30])
def test_a_line_that_cannot_be_read_is_named_and_passed_over(line, counted, tmp_path, capfd):
    status, out, err = run(capfd, "audit", write_log(tmp_path, logged(), line, logged()))
    assert status == 0
    assert sum(int(count) for count in re.findall(r"\d+", out.splitlines()[1])) == (3 if counted else 2)
    assert ("line 2" in err) == (counted is False)


@pytest.mark.parametrize("name", ["audit", "replay"])
def test_a_log_that_is_not_there(name, capfd, call_log):
    status, _, err = run(capfd, name, "no-such.jsonl")
    assert (status, "can't read no-such.jsonl" in err) == (2, True)


def test_a_replay_sends_what_was_sent(ollama, tmp_path, capfd):
    fields = {"type": "object"}
    old = [
        logged(id="a"),
        logged(id="b", think=None, response="You see fog."),
        logged(
            id="c", role="notary", family="spells", format=fields, canon_log=..., laws=..., response='{"records": []}'
        ),
    ]
    answers(ollama, reply("You hear rain."), reply("You draw your blade."), reply('{"records": []}'))
    status, out, err = run(capfd, "replay", write_log(tmp_path, *old))
    assert status == 0
    bodies = [sent(ollama, number) for number in range(3)]
    assert [(body["model"], body["options"], body["messages"]) for body in bodies] == [
        ("m", old[0]["options"], old[0]["messages"])
    ] * 3
    assert [body.get("think", "no") for body in bodies] == [False, "no", False]
    assert [body.get("format") for body in bodies] == [None, None, fields]
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["replay_of"] for line in lines] == ["a", "b", "c"]
    assert [[finding["law"] for finding in line.get("laws", ())] for line in lines] == [[], ["plays_player"], []]
    assert lines[0]["canon_log"] == SMALL_LOG
    rows = [re.split(r"\s{2,}", line) for line in err.splitlines()]
    assert [row for row in rows if row[1:2] == ["before"] or row[0] in ("calls", "same as before")] == [
        ["", "before", "before (notary)", "m", "m (notary)"],
        ["calls", "2", "1", "2", "1"],
        ["same as before", "-", "-", "1", "1"],
    ]


def test_a_replay_to_other_models_one_after_the_other(ollama, tmp_path, capfd):
    answers(ollama, *[reply()] * 2, 500, 500, reply())
    status, out, err = run(
        capfd, "replay", write_log(tmp_path, logged(), logged(), logged()), "--model", "x", "y", "--limit", "2"
    )
    assert [sent(ollama, number)["model"] for number in range(5)] == ["x", "x", "y", "y", "y"]
    assert [json.loads(line)["ok"] for line in out.splitlines()] == [True, True, False, True]
    assert (status, "the first failure: Ollama answered 500" in err) == (1, True)
    assert [line.split() for line in err.splitlines() if line.startswith(("calls", "failures"))] == [
        ["calls", "2", "2", "2"],
        ["failures", "0", "0", "1"],
    ]


@pytest.mark.parametrize("arguments", [["--render"], ["--prompt"]])
def test_a_replay_rendered_anew(arguments, ollama, tmp_path, capfd):
    if arguments == ["--prompt"]:
        (tmp_path / "mine.md").write_text("Be terse.\n", encoding="utf-8")
        arguments = ["--prompt", str(tmp_path / "mine.md")]
    answers(ollama, reply())
    path = write_log(tmp_path, logged(role="notary", canon_log=..., laws=...), logged())
    assert run(capfd, "replay", path, *arguments)[0] == 0
    system, user = (message["content"] for message in sent(ollama)["messages"])
    assert (system, user) == ("Be terse." if len(arguments) == 2 else n.system_prompt("narrator"), n.digest(SMALL_LOG))
    assert sent(ollama)["options"] == {"seed": 7, "temperature": 0.8}


def test_a_replay_of_one_role(ollama, tmp_path, capfd):
    answers(ollama, reply('{"records": []}'))
    notary_line = logged(role="notary", family="spells", canon_log=..., laws=..., response='{"records": []}')
    status, out, _ = run(capfd, "replay", write_log(tmp_path, logged(), notary_line), "--role", "notary")
    assert (status, len(out.splitlines())) == (0, 1)


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        {"role": "narrator", "messages": 7},
        logged(options=7),
        logged(options=...),
        logged(canon_log=7),
        logged(messages=[{}]),
        logged(messages=[7]),
        logged(ok=...),
        logged(model=...),
    ],
)
def test_a_replay_passes_over_what_is_no_record(line, tmp_path, capfd):
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        mock.post(CHAT, json=reply())
        status, _, err = run(capfd, "replay", write_log(tmp_path, line, logged()), "-o", str(tmp_path / "page.html"))
    assert (status, "line 1" in err) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "/no/such/folder/page.html"], "can't write"),
        (["-o", "LOG"], "over the log"),
        (["--prompt", "EMPTY"], "it is empty"),
        (["--role", "notary"], "no calls to replay"),
        (["--prompt", "no-such.md"], "can't be used"),
    ],
)
def test_a_replay_that_cannot_be_is_refused_before_any_call(arguments, words, tmp_path, capfd, ollama):
    (tmp_path / "empty.md").write_text(" \n", encoding="utf-8")
    path = write_log(tmp_path, logged())
    named = {"LOG": path, "EMPTY": str(tmp_path / "empty.md")}
    status, out, err = run(capfd, "replay", path, *(named.get(argument, argument) for argument in arguments))
    assert (status, out, words in err) == (2, "", True)


def test_a_replay_into_its_own_log_ends(ollama, tmp_path, capfd, monkeypatch):
    path = write_log(tmp_path, logged(), logged())
    append = n._append
    monkeypatch.setattr(n, "_append", lambda _, line: append(path, line))
    answers(ollama, reply(), reply())
    assert run(capfd, "replay", path)[0] == 0
    assert len(Path(path).read_text(encoding="utf-8").splitlines()) == 4


def test_models_that_differ_at_the_end_of_their_names_stay_apart(tmp_path, capfd):
    name = "hf.co/somebody/a-very-long-name-of-a-model-that-never-ends-GGUF:Q"
    _, out, _ = run(
        capfd,
        "audit",
        write_log(tmp_path, logged(model=f"{name}4"), logged(model=f"{name}8"), logged(model=f"{name}8")),
    )
    assert out.splitlines()[1].split() == ["narrations", "1", "2"]


def test_a_turn_is_worse_only_when_it_broke_more_laws_or_none_came():
    def turn(old, new):
        return replay.Turn(old, new, old.get("laws", []), new.get("laws", []), None)

    one, other = {"law": "number", "text": "3"}, {"law": "number", "text": "4"}
    assert turn(logged(), logged(laws=[one])).worse
    assert turn(logged(), failed()).worse
    assert not turn(failed(), logged(laws=[one])).worse
    assert not turn(logged(laws=[one]), logged(laws=[one, other])).worse


def test_records_are_compared_by_name():
    def compared(old, new):
        return replay.compare(*(replay.records_of(json.dumps({"records": found})) for found in (old, new)))

    rope, axe = {"item": "rope", "to": "Mara"}, {"item": "axe", "to": "Mara"}
    assert compared([rope, axe], [axe, rope]) == {"added": [], "lost": [], "changed": []}
    assert compared([rope, rope], [{**rope, "item": "ROPE"}, {**rope, "to": "Tobin"}, axe]) == {
        "added": ["axe"],
        "lost": [],
        "changed": ["rope", "rope"],
    }
    assert compared([rope], []) == {"added": [], "lost": ["rope"], "changed": []}
    assert replay.records_of("chatter") is None
    assert replay.records_of('<think>x</think>```json\n{"records": []}\n```') == []


def test_the_page_of_a_replay(ollama, tmp_path, capfd):
    evil = "<img src=x onerror=alert(1)> </div> {{evil}} % end \\\\. You draw your blade."
    answers(ollama, reply(evil), reply("You hear rain."), 500, 500)
    page = tmp_path / "page.html"
    canon_log = {**SMALL_LOG, "location": "<b>an inn</b>"}
    turns = [
        logged(
            canon_log=canon_log, messages=[{"role": "system", "content": "S"}, {"role": "user", "content": "<script>"}]
        ),
        logged(),
        logged(),
    ]
    assert run(capfd, "replay", write_log(tmp_path, *turns), "-o", str(page))[0] == 1
    text = page.read_text(encoding="utf-8")
    assert "<img" not in text
    assert text.count("<script>") == 1
    assert "&lt;img src=x onerror=alert(1)&gt; &lt;/div&gt; {{evil}} % end" in re.sub("</?ins>", "", text)
    assert re.findall(r'aria-pressed="\w+">(.*?)</button>', text) == [
        "all (3)",
        "different (2)",
        "worse (2)",
        "failed (1)",
    ]
    assert text.count("<article") == 3
    assert not re.search(r"https?://|src=[\"']|url\(", text)
    assert text.index("laws broken, per 100") < text.index("<article")
    assert '<span class="law">plays_player</span>' in text


def test_what_changed_is_marked_word_by_word():
    assert report.marked("You hear the rain.", "You hear a rain.") == (
        [(False, "You hear "), (True, "the"), (False, " rain.")],
        [(False, "You hear "), (True, "a"), (False, " rain.")],
    )
    assert report.marked("x " * 9000, "y " * 9000) == ([(True, "x " * 9000)], [(True, "y " * 9000)])


@posix
def test_ctrl_c_keeps_what_a_replay_has_done(real_ollama, tmp_path):
    asked = threading.Event()
    real_ollama.before = lambda: asked.wait(30) if len(real_ollama.bodies) == 3 else None
    path = write_log(tmp_path, *[logged()] * 9)
    with process(
        "replay", path, "-o", str(tmp_path / "page.html"), program=("-m", "workbench"), OLLAMA_BASE_URL=real_ollama.url
    ) as program:
        wait_until(lambda: len(real_ollama.bodies) == 3)
        program.send_signal(signal.SIGINT)
        assert program.wait(30) == 130
        asked.set()
        lines = program.stdout.read().splitlines()
    assert [json.loads(line)["ok"] for line in lines] == [True, True, False]
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<article") == 2


@pytest.mark.live
def test_a_replay_to_the_model_that_wrote_the_log_is_the_same(real_model, call_log, capfd, monkeypatch):
    if not real_model.startswith("understudy/"):
        pytest.skip("an Ollama on a graphics card may answer the same seed differently")
    monkeypatch.setenv("OLLAMA_NARRATOR_OPTIONS", '{"num_predict": 30}')
    narrate(CANON_LOG), narrate(SMALL_LOG)
    assert command.main(["replay", os.environ["CALL_LOG_PATH"], "--understudy"]) == 0
    assert re.search(r"same as before\s+-\s+2\n", capfd.readouterr().err)


# 4. Verdicts -----------------------------------------------------------------


def said(call, alive, ts="2026-12-01T12:00:00.000Z"):
    return {"ts": ts, "id": "v", "verdict": {"call": call, "alive": alive}}


def better(one, other):
    return {"ts": "2026-12-01T12:00:00.000Z", "id": "v", "verdict": {"better": one, "worse": other}}


@pytest.mark.parametrize(
    ("alive", "count", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_wilson_interval_as_published(alive, count, low, high):
    assert measures.wilson(alive, count) == pytest.approx((low, high), abs=0.00006)
    assert measures.wilson(count - alive, count) == pytest.approx((1 - high, 1 - low), abs=0.00006)


def test_95_of_100_intervals_hold_the_true_rate():
    dice, held = random.Random(7), 0
    for _ in range(4000):
        rate, count = dice.uniform(0.1, 0.9), dice.randrange(10, 200)
        low, high = measures.wilson(sum(dice.random() < rate for _ in range(count)), count)
        held += low <= rate <= high
    assert 0.94 < held / 4000 < 0.96


def test_an_audit_says_how_alive_it_felt_and_whether_two_models_differ(tmp_path, capfd):
    calls = [logged(id=f"{model}{number}", model=model) for model in ("good", "poor") for number in range(100)]
    verdicts = [
        said(f"{model}{number}", number < alive)
        for model, alive in (("good", 62), ("poor", 31))
        for number in range(100)
    ]
    lines = [*verdicts, *calls]  # verdicts before their calls, and in another file
    random.Random(1).shuffle(lines)
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    one.write_text("\n".join(map(json.dumps, lines[:150])), encoding="utf-8")
    other.write_text("\n".join(map(json.dumps, lines[150:])), encoding="utf-8")
    status, out, err = run(capfd, "audit", str(one), str(other))
    assert (status, err) == (0, "")
    assert re.search(r"^alive, per 100 .*62 \(52–71\)", out, re.M)
    assert "good abababab: alive 62 of 100 (52–71), 100 verdicts" in out
    assert "poor abababab: alive 31 of 100 (23–41), 100 verdicts" in out
    assert re.search("abababab and (good|poor) abababab differ$", out, re.M)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ((62, 100), (31, 100), "differ"),
        ((6, 10), (5, 10), "don't differ yet: about 367 more verdicts on each"),
        ((12, 20), (8, 20), "don't differ yet: about 73 more verdicts on each"),
        ((5, 10), (50, 100), "don't differ: their rates are the same"),
    ],
)
def test_how_many_verdicts_would_tell_two_models_apart(one, other, words):
    tallies = [measures.Tally(), measures.Tally()]
    for tally, (alive, count) in zip(tallies, (one, other), strict=True):
        tally.alive, tally.verdicts = alive, count
    assert audit.difference(*tallies).startswith(words)
    if "about" in words:  # and with so many the two intervals part, or nearly
        more = int(re.search(r"\d+", words)[0])
        ends = [measures.wilson(round(alive / count * (count + more)), count + more) for alive, count in (one, other)]
        assert abs(min(high for _, high in ends) - max(low for low, _ in ends)) < 0.03


def test_the_last_verdict_on_a_call_counts_and_few_say_nothing(tmp_path, capfd):
    late, early = said("1", False, "2026-12-01T13:00:00Z"), said("1", True)
    _, out, err = run(
        capfd,
        "audit",
        write_log(tmp_path, late, early, logged(), said("gone", True), {"verdict": {"call": 7}}, {"verdict": 3}),
    )
    assert re.search(r"^verdicts +1$", out, re.M)
    assert re.search(r"^alive, per 100 +too few \(1\)$", out, re.M)
    assert "1 calls that somebody judged stand in none of these logs" in err
    assert err.count("is no verdict and is passed over") == 2
    tallies, _ = audit.audit([write_log(tmp_path, late, early, logged())])
    assert [(tally.alive, tally.verdicts) for tally in tallies.values()] == [(0, 1)]


def test_blind_pairs_are_a_win_rate(tmp_path, capfd):
    calls = [logged(id=f"{model}{number}", model=model) for model in "ab" for number in range(20)]
    pairs = [better(f"a{n}", f"b{n}") if n < 15 else better(f"b{n}", f"a{n}") for n in range(20)]
    even = {"ts": "t", "id": "v", "verdict": {"even": ["a1", "b1"]}}
    _, out, _ = run(capfd, "audit", write_log(tmp_path, *calls, *pairs, even))
    assert "a abababab: better in 75 (53–89) of 100 blind pairs, 20 decided" in out
    assert "b abababab: better in 25 (11–47) of 100 blind pairs, 20 decided" in out
    assert "1 blind pairs were even" in out


RUN = "the fog stands on the quay and waits"
REPEATS = [  # the narrations in their order, the digest, what the last one says again
    ([f"You see how {RUN}.", f"Again {RUN} for you."], "U", [RUN]),
    (["One two three four five six.", "one, TWO three four five six!"], "U", ["one TWO three four five six"]),
    (["one two three four five.", "one two three four five."], "U", []),
    ([RUN, *["You hear rain."] * 4, RUN], "U", [RUN]),
    ([RUN, *["You hear rain."] * 5, RUN], "U", []),
    ([RUN, RUN], f"- {RUN}", []),
    (["İ İ İ İ one two three four five six seven"] * 2, "", ["İ İ İ İ one two three four five six seven"]),
]


@pytest.mark.parametrize(("proses", "digest", "found"), REPEATS)
def test_what_is_said_again(proses, digest, found):
    from collections import deque

    before = deque(maxlen=audit.BEFORE)
    assert [repeats.find_repeats(digest, prose, before) for prose in proses][-1] == found


def test_an_audit_counts_repeats_of_one_model_and_quotes_them(tmp_path, capfd):
    lines = [logged(response=RUN), logged(response=RUN, model="other"), logged(response=f"So {RUN}.")]
    _, out, _ = run(capfd, "audit", write_log(tmp_path, *lines), "--show")
    assert out.splitlines()[0] == f"line 3: repeats: {RUN}"
    assert re.search(r"^repeats, per 100 +50\.0 +0\.0$", out, re.M)


# 5. Blind --------------------------------------------------------------------


@pytest.mark.browser
def test_a_page_asks_blind_and_audit_reads_what_it_saves(ollama, tmp_path, capfd):
    from playwright.sync_api import sync_playwright  # only for -m browser

    answers(ollama, *[reply(f"You hear a bell, new {number}.") for number in range(4)], reply("You hear rain."))
    old = [logged(id=f"old{number}", response=f"<b>Old</b> {number}") for number in range(4)] + [logged(id="same")]
    path, page_path = write_log(tmp_path, *old), tmp_path / "page.html"
    status, out, _ = run(capfd, "replay", path, "--model", "second", "-o", str(page_path))
    (tmp_path / "again.jsonl").write_text(out, encoding="utf-8")
    assert status == 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-quic"]
        )
        page = browser.new_page(accept_downloads=True)
        page.goto(page_path.as_uri())
        page.click("#ask")
        wins = 0
        for number, key in enumerate(["ArrowLeft", "ArrowRight", "ArrowDown", " "]):
            assert f"{number} of 4 pairs" in page.text_content("#progress")
            visible = page.inner_text("#blind")
            assert not re.search(r"second|\bm\b|seed|plays_player", visible)
            sides = page.inner_text("#left"), page.inner_text("#right")
            assert sorted(side.startswith("<b>Old</b>") for side in sides) == [False, True]
            wins += key.startswith("Arrow") and key != "ArrowDown" and sides[key == "ArrowRight"].startswith("You")
            if number == 1:
                page.reload()
                page.click("#ask")
                assert (page.inner_text("#left"), page.inner_text("#right")) == sides  # the sides are remembered
            page.keyboard.press(key)
        assert f"second (again): better in {50 * wins} of 100" in page.text_content("#tally")
        with page.expect_download() as download:
            page.click("#save")
        download.value.save_as(tmp_path / "blind.jsonl")
        browser.close()
    lines = [json.loads(line) for line in (tmp_path / "blind.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [next(iter(line["verdict"])) for line in lines] == ["better", "better", "even"]
    status, out, err = run(capfd, "audit", path, str(tmp_path / "again.jsonl"), str(tmp_path / "blind.jsonl"))
    assert (status, err, "1 blind pairs were even" in out) == (0, "", True)
    assert out.count("of 100 blind pairs, 2 decided") == 2
