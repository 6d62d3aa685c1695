"""What the workbench promises, as lists of examples: audit, replay and its page, verdicts, the blind question."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections import deque
from pathlib import Path

import pytest

import laws
import narrator_app as n
from conftest import CANON_LOG, SMALL_LOG, answers, narrate, posix, process, reply, sent, wait_until
from workbench import __main__ as command
from workbench import audit, page, replay, verdicts

HERE = Path(__file__).parent


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


def notary_line(*records, **change) -> dict:
    """The line of a call whose answer is JSON records, of a role that isn't here."""
    answer = json.dumps({"records": records})
    return logged(role="notary", family="spells", canon_log=..., laws=..., think=..., **{"response": answer, **change})


def write_log(tmp_path, *lines, name="old.jsonl"):
    path = tmp_path / name
    texts = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    path.write_bytes(b"".join(text + b"\n" for text in texts))
    return str(path)


def run(capfd, *arguments):
    """One command: (exit status, standard output, standard error)."""
    status = command.main(list(map(str, arguments)))
    return status, *capfd.readouterr()


def row(text, name):
    """The cells of one row of a table."""
    (line,) = (line for line in text.splitlines() if line.startswith(name))
    return re.split(r"\s{2,}", line.removeprefix(name).strip())


# 1. Audit --------------------------------------------------------------------


def test_an_audit_side_by_side(tmp_path, capfd):
    broken = [{"law": "number", "text": "3"}, {"law": "number", "text": "4"}, {"law": "cut_off", "text": "x"}]
    path = write_log(
        tmp_path,
        *[logged(latency_ms=1000.0 * second) for second in range(1, 19)],
        logged(laws=broken, done_reason="length", latency_ms=19000.0),
        failed(latency_ms=60000.0),
        logged(model="llama3.2", latency_ms=500.0),
        notary_line(),
        logged(prompt_sha256="cd" * 32),
    )
    status, out, err = run(capfd, "audit", path)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "                             m  llama3.2         m",
        "                      abababab  abababab  cdcdcdcd",
        "narrations                  20         1         1",
        "failures                     1         0         0",
        "cut off                      1         0         0",
        "latency, median s         10.0       0.5       2.0",
        "latency, 95th s           19.0       0.5       2.0",
        "tokens/s                  10.0       200      50.0",
        "prompt tokens              180         9         9",
        "laws broken, per 100       5.3       0.0       0.0",
        "  number                   5.3       0.0       0.0",
        "  cut_off                  5.3       0.0       0.0",
        "repeats, per 100           0.0       0.0       0.0",
    ]


def test_a_table_comes_out_whole_where_there_is_no_terminal(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    models = [
        f"hf.co/somebody/a-[b]very-long-name\x1b[31m-of-a-model-that-never-ends-GGUF:Q{number}" for number in "48"
    ]
    _, out, _ = run(
        capfd, "audit", write_log(tmp_path, *(logged(model=model) for model in models), logged(model=models[1]))
    )
    assert out.splitlines()[0].split() == [model.replace("\x1b", "") for model in models]
    assert row(out, "narrations") == ["1", "2"]


def test_an_audit_shows_what_broke_a_law_and_judges_older_lines_now(tmp_path, capfd):
    old = logged(laws=..., response="You draw your \x1bblade at dawn.")
    status, out, _ = run(capfd, "audit", path := write_log(tmp_path, logged(), old), "--show")
    assert status == 0
    assert out.splitlines()[0] == f"{path} line 2: plays_player: You draw your blade at dawn"
    assert row(out, "  plays_player") == ["50.0"]


BAD_LINES = {  # a line of a log, and whether it is a record that audit counts all the same (None: it isn't audit's)
    "no json": (b"nonsense", False),
    "empty": (b"", None),
    "a list": (b"[]", False),
    "no utf-8": (b"\xff", False),
    "deep": (b"[" * 5000, False),
    "cut": (b'{"cut": tr', False),
    "only a role": (b'{"role": "narrator"}', False),
    "a model that is a number": ({"role": "narrator", "ok": True, "model": 7}, False),
    "latency": (logged(latency_ms="x"), False),
    "laws as text": (logged(laws="x"), False),
    "a law as number": (logged(laws=[7]), False),
    "no model": (logged(model=...), False),
    "tokens": (logged(eval_count="x"), False),
    "canon log": (logged(laws=..., canon_log=7), False),
    "response": (logged(laws=..., response=None), False),
    "hash": (logged(prompt_sha256=7), False),
    "id": (logged(id=[7]), False),
    "no hash": (logged(prompt_sha256=...), True),
    "no counts": (logged(eval_count=None, done_reason=None), True),
    "a mark at its start": (b"\xef\xbb\xbf" + json.dumps(logged()).encode(), True),
    "another role": ({"role": "bard"}, None),
}


@pytest.mark.parametrize(("line", "counted"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_line_that_cannot_be_read_is_named_and_passed_over(line, counted, tmp_path, capfd):
    path = write_log(tmp_path, logged(), line, logged())
    status, out, err = run(capfd, "audit", path)
    assert status == 0
    assert sum(map(int, row(out, "narrations"))) == (3 if counted else 2)
    assert (f"{path} line 2 is passed over" in err) == (counted is False)


@pytest.mark.parametrize("name", ["audit", "replay"])
def test_a_log_that_is_not_there(name, capfd):
    status, out, err = run(capfd, name, "no-such.jsonl")
    assert (status, out, err) == (2, "", "narrator: can't read or write no-such.jsonl: No such file or directory\n")


@posix
def test_a_pipe_is_refused_for_it_can_be_read_only_once(capfd):
    status, _, err = run(capfd, "audit", "/dev/null")
    assert (status, err) == (2, "narrator: /dev/null must be a file: it is read twice\n")


def test_a_log_without_narrations_says_so(tmp_path, capfd):
    status, out, err = run(capfd, "audit", path := write_log(tmp_path, notary_line()))
    assert (status, out, err) == (2, "", f"narrator: {path}: no narrations to count\n")


def test_an_audit_keeps_no_line(tmp_path):
    path = write_log(tmp_path, *(logged(id=str(number)) for number in range(2500)))
    audit.audit([path])  # Python keeps some thousand tuples at hand, once it had them
    tracemalloc.start()
    audit.audit([path])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < os.path.getsize(path) / 10


# 2. Replay -------------------------------------------------------------------


def test_a_replay_sends_what_was_sent(ollama, tmp_path, capfd):
    fields = {"type": "object"}
    old = [logged(id="a"), logged(id="b", think=None, response="You see fog."), notary_line(id="c", format=fields)]
    answers(ollama, reply("You hear rain."), reply("You draw your blade."), reply('<think>a</think>{"records": []}'))
    status, out, err = run(capfd, "replay", write_log(tmp_path, *old))
    assert status == 0
    bodies = [sent(ollama, number) for number in range(3)]
    shared = {"model": "m", "messages": old[0]["messages"], "options": old[0]["options"]}
    shared.update(stream=False, truncate=False, keep_alive="30m")
    assert bodies == [{**shared, "think": False}, shared, {**shared, "format": fields}]
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["replay_of"] for line in lines] == ["a", "b", "c"]
    assert [[finding["law"] for finding in line.get("laws", ())] for line in lines] == [[], ["plays_player"], []]
    assert (lines[0]["canon_log"], lines[2]["family"], lines[2]["role"]) == (SMALL_LOG, "spells", "notary")
    assert [row(err, name) for name in ("calls", "same as before")] == [["2", "1", "2", "1"], ["-", "-", "1", "1"]]
    assert err.partition("replayed\n")[2].partition("calls")[0].split() == "before m before (notary) m (notary)".split()


@pytest.mark.parametrize(
    ("role", "variable", "seconds"),
    [
        ("notary", {}, 300),
        ("notary", {"OLLAMA_NOTARY_TIMEOUT_SECONDS": "7"}, 7),
        ("narrator", {"OLLAMA_TIMEOUT_SECONDS": "8"}, 8),
        ("bard", {}, 300),
    ],
)
def test_how_long_a_replay_waits(role, variable, seconds, tmp_path, capfd, monkeypatch):
    waited = []
    monkeypatch.setattr(
        n, "ask_ollama", lambda method, path, body, patience, hear=None: waited.append(patience) or reply()
    )
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    assert run(capfd, "replay", write_log(tmp_path, logged(role=role)))[0] == 0
    assert waited == [seconds]


def test_a_replay_to_other_models_one_after_the_other(ollama, tmp_path, capfd):
    answers(ollama, *[reply()] * 2, 500, 500, 500, 500)
    path = write_log(tmp_path, logged(), logged(), logged())
    status, out, err = run(capfd, "replay", path, "--model", "x", "y", "--limit", "2")
    assert [sent(ollama, number)["model"] for number in range(6)] == ["x", "x", "y", "y", "y", "y"]
    assert [json.loads(line)["ok"] for line in out.splitlines()] == [True, True, False, False]
    assert (status, err.count("the first failure: Ollama answered 500")) == (1, 1)
    assert [row(err, name) for name in ("calls", "failures")] == [["2", "2", "2"], ["0", "0", "2"]]


def test_how_far_a_replay_is_without_a_terminal(ollama, tmp_path, capfd):
    answers(ollama, *[reply()] * 3)
    _, _, err = run(capfd, "replay", write_log(tmp_path, *[logged()] * 3))
    lines = err.partition("narrator: replayed")[0].splitlines()
    assert [re.sub(r"\d+ s left", "N s left", line) for line in lines] == [
        "narrator: 1 of 3, m",
        "narrator: 2 of 3, m, about N s left",
        "narrator: 3 of 3, m",
    ]


@pytest.mark.parametrize("mine", [False, True], ids=["--render", "--prompt"])
def test_a_replay_rendered_anew(mine, ollama, tmp_path, capfd):
    (tmp_path / "mine.md").write_text("Be terse.\n", encoding="utf-8")
    answers(ollama, reply())
    path = write_log(tmp_path, notary_line(), logged())
    assert run(capfd, "replay", path, *(["--prompt", tmp_path / "mine.md"] if mine else ["--render"]))[0] == 0
    system, user = (message["content"] for message in sent(ollama)["messages"])
    assert (system, user) == ("Be terse." if mine else n.system_prompt("narrator"), n.digest(SMALL_LOG))
    assert sent(ollama)["options"] == {"seed": 7, "temperature": 0.8}


def test_a_replay_of_one_role(ollama, tmp_path, capfd):
    answers(ollama, reply('{"records": []}'))
    status, out, _ = run(capfd, "replay", write_log(tmp_path, logged(), notary_line()), "--role", "notary")
    assert (status, [json.loads(line)["role"] for line in out.splitlines()]) == (0, ["notary"])


NOT_TO_BE_SENT = {
    "no json": b"nonsense",
    "messages as number": {"role": "narrator", "messages": 7},
    "options as number": logged(options=7),
    "no options": logged(options=...),
    "no seed": logged(options={"temperature": 1}),
    "canon log": logged(canon_log=7),
    "an empty message": logged(messages=[{}]),
    "a message as number": logged(messages=[7]),
    "one message": logged(messages=[{"role": "system", "content": "S"}]),
    "no ok": logged(ok=...),
    "no model": logged(model=...),
    "a response as number": logged(response=7),
}


@pytest.mark.parametrize("line", NOT_TO_BE_SENT.values(), ids=NOT_TO_BE_SENT)
def test_a_replay_passes_over_what_is_no_record(line, ollama, tmp_path, capfd):
    answers(ollama, reply())
    status, out, err = run(capfd, "replay", write_log(tmp_path, line, logged()), "-o", tmp_path / "page.html")
    assert (status, len(out.splitlines()), err.count("line 1 is passed over")) == (0, 1, 1)


REFUSED = {
    "no folder": (["-o", "no/such/folder/page.html"], "can't read or write no/such/folder/page.html: No such file"),
    "over the log": (["-o", "LOG"], "the page can't be written over the log"),
    "an empty prompt": (["--prompt", "EMPTY"], "it is empty"),
    "no prompt": (["--prompt", "no-such.md"], "can't be used"),
    "a role nobody had": (["--role", "notary"], "no calls to replay"),
    "a limit of none": (["--limit", "0"], "no calls to replay"),
    "a limit below it": (["--limit", "-1"], "no calls to replay"),
}


@pytest.mark.parametrize(("arguments", "words"), REFUSED.values(), ids=REFUSED)
def test_a_replay_that_cannot_be_is_refused_before_any_call(arguments, words, tmp_path, capfd, ollama):
    (tmp_path / "empty.md").write_text(" \n", encoding="utf-8")
    path = write_log(tmp_path, logged())
    named = {"LOG": path, "EMPTY": str(tmp_path / "empty.md")}
    before = Path(path).read_bytes()
    status, out, err = run(capfd, "replay", path, *(named.get(argument, argument) for argument in arguments))
    assert (status, out, err.count("\n"), words in err) == (2, "", 1, True)
    assert Path(path).read_bytes() == before


def program(arguments, stdout, **environment):
    """The command as a program of its own: (exit status, standard error)."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("OLLAMA_", "CALL_LOG_"))}
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *map(str, arguments)],
        env={**clean, **environment},
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=HERE.parent,
    )
    return done.returncode, done.stderr.decode()


def test_a_replay_into_its_own_log_ends(real_ollama, tmp_path):
    path = write_log(tmp_path, logged(), logged())
    with open(path, "ab") as log:
        status, _ = program(["replay", path], log, OLLAMA_BASE_URL=real_ollama.url)
    assert (status, len(Path(path).read_text(encoding="utf-8").splitlines())) == (0, 4)


full_disk = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")


@full_disk
def test_a_replay_whose_output_cannot_be_written_ends_with_what_was_done(real_ollama, tmp_path):
    path, shown = write_log(tmp_path, *[logged()] * 3), tmp_path / "page.html"
    with open("/dev/full", "wb") as full:
        status, err = program(["replay", path, "-o", shown], full, OLLAMA_BASE_URL=real_ollama.url)
    assert (status, row(err, "calls"), shown.read_text(encoding="utf-8").count("<article")) == (2, ["1", "1"], 1)
    assert err.splitlines()[-1] == "narrator: standard output can't be written: No space left on device"


@full_disk
def test_an_audit_on_a_full_disk_is_one_line(tmp_path):
    with open("/dev/full", "wb") as full:
        done = program(["audit", write_log(tmp_path, logged())], full)
    assert done == (2, "narrator: can't read or write standard output: No space left on device\n")


@posix
def test_ctrl_c_keeps_what_a_replay_has_done(real_ollama, tmp_path):
    asked = threading.Event()
    real_ollama.before = lambda: asked.wait(30) if len(real_ollama.bodies) == 3 else None
    path, program = write_log(tmp_path, *[logged()] * 9), ("-m", "workbench")
    page = tmp_path / "page.html"
    with process("replay", path, "-o", str(page), program=program, OLLAMA_BASE_URL=real_ollama.url) as program:
        wait_until(lambda: len(real_ollama.bodies) == 3)
        program.send_signal(signal.SIGINT)
        assert program.wait(30) == 130
        asked.set()
        lines = program.stdout.read().splitlines()
    assert [json.loads(line)["ok"] for line in lines] == [True, True, False]
    assert row("".join(program.lines), "calls") == ["2", "2"]
    assert page.read_text(encoding="utf-8").count("<article") == 2


ROPE, AXE = {"item": "rope", "to": "Mara"}, {"item": "axe", "to": "Mara"}
COMPARED = {  # the old records, the new ones, what is said of them
    "another order": ([ROPE, AXE], [AXE, ROPE], []),
    "two of one name": (
        [ROPE, ROPE],
        [{**ROPE, "item": "ROPE"}, {**ROPE, "to": "Tobin"}, AXE],
        ["changed: rope", "changed: rope", "added: axe"],
    ),
    "none left": ([ROPE], [], ["lost: rope"]),
    "no names": ([{"x": 1}, {"x": 2}], [{"x": 1}, {"x": 3}], ["changed: record 2"]),
    "a person before a place": (
        [{"npc": "Oda", "location": "docks"}],
        [{"npc": "Oda", "location": None}],
        ["changed: oda"],
    ),
}


@pytest.mark.parametrize(("old", "new", "change"), COMPARED.values(), ids=COMPARED)
def test_records_are_compared_by_name(old, new, change):
    assert replay.compare(*map(replay.records_in, (notary_line(*old), notary_line(*new)))) == change


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("chatter", None),
        ("[]", None),
        ('{"records": 7}', None),
        ('{"records": [7]}', None),
        ('{"records": []}', {}),
        ('<think>{"records": [{"item": "axe"}]}</think>```json\n{"records": []}\n```', {}),
        ('{"records": [{"item": "Axe"}]}', {("axe", 0): {"item": "Axe"}}),
    ],
)
def test_an_answer_of_records(answer, found):
    assert replay.records_in(notary_line(response=answer)) == found
    assert replay.records_in(failed()) is None


# 3. The page -----------------------------------------------------------------


def test_the_page_of_a_replay(ollama, tmp_path, capfd):
    evil = "<img src=x onerror=alert(1)> </div> {{evil}} % end \\\\. You draw your blade. \u202e\x07"
    answers(ollama, reply(evil), reply("You hear rain."), 500, 500)
    path, shown = (
        write_log(tmp_path, logged(messages=[{"content": "S"}, {"content": "<script>"}]), logged(), logged()),
        tmp_path / "page.html",
    )
    assert run(capfd, "replay", path, "-o", shown)[0] == 1
    text = shown.read_text(encoding="utf-8")
    assert "<img" not in text
    assert text.count("<script ") == 1
    assert (
        "&lt;img src=x onerror=alert(1)&gt; &lt;/div&gt; {{evil}} % end \\\\. You draw your blade. \ufffd\ufffd"
        in re.sub("</?ins>", "", text)
    )
    assert not re.search("[\u202e\x07]", text)
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
    nonce = re.search(r"script-src 'nonce-([\w-]+)'", text)[1]
    assert f'<script nonce="{nonce}">' in text


NUMBER, REPEAT = {"law": "number", "text": "3"}, {"law": "repeats", "text": "x"}
WORSE = {  # the old line, the new line's laws or None where it failed, whether that is worse
    "a law more": (logged(), [NUMBER], True),
    "no answer": (logged(), None, True),
    "none had come before": (failed(), [NUMBER], False),
    "the same law twice": (logged(laws=[NUMBER]), [NUMBER, {**NUMBER, "text": "4"}], False),
    "a repeat is no law": (logged(), [REPEAT], False),
}


@pytest.mark.parametrize(("old", "found", "worse"), WORSE.values(), ids=WORSE)
def test_a_turn_is_worse_when_it_broke_more_laws_or_none_came(old, found, worse, tmp_path):
    old, new = (
        {**old, "findings": old.get("laws", [])},
        {**(failed() if found is None else logged()), "findings": found or []},
    )
    page.write_page(tmp_path / "page.html", "log", "", [replay.Turn(old, new, None)])
    assert f"worse ({int(worse)})" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_what_changed_is_marked_word_by_word():
    assert page.marked("You hear the rain.", "You hear a rain.") == (
        [(False, "You hear "), (True, "the"), (False, " rain.")],
        [(False, "You hear "), (True, "a"), (False, " rain.")],
    )
    assert page.marked("x " * 9000, "y " * 9000) == ([(True, "x " * 9000)], [(True, "y " * 9000)])


@pytest.mark.live
def test_a_replay_to_the_model_that_wrote_the_log_is_the_same(real_model, tmp_path, capfd, monkeypatch):
    if not real_model.startswith("understudy/"):
        pytest.skip("an Ollama on a graphics card may answer the same seed differently")
    monkeypatch.setenv("OLLAMA_NARRATOR_OPTIONS", '{"num_predict": 30}')
    monkeypatch.setenv("CALL_LOG_PATH", path := str(tmp_path / "calls.jsonl"))
    narrate(CANON_LOG), narrate(SMALL_LOG)
    status, _, err = run(capfd, "replay", path, "--understudy")
    assert (status, row(err, "same as before")) == (0, ["-", "2"])


# 4. Verdicts -----------------------------------------------------------------


def said(call, alive, ts="2026-12-01T12:00:00.000Z"):
    return {"ts": ts, "id": f"v{random.random()}", "verdict": {"call": call, "alive": alive}}


def better(one, other, number="v"):
    return {"ts": "2026-12-01T12:00:00.000Z", "id": number, "verdict": {"better": one, "worse": other}}


def even(one, other, number="v"):
    return {"ts": "2026-12-01T12:00:00.000Z", "id": number, "verdict": {"even": [one, other]}}


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [  # R. G. Newcombe, Statistics in Medicine 17 (1998) 857, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_wilson_interval_as_published(count, of, low, high):
    assert verdicts.wilson(count, of) == pytest.approx((low, high), abs=0.00006)
    assert verdicts.wilson(of - count, of) == pytest.approx((1 - high, 1 - low), abs=0.00006)


def test_95_of_100_intervals_hold_the_true_rate():
    dice, held = random.Random(7), 0
    for _ in range(4000):
        true, of = dice.uniform(0.1, 0.9), dice.randrange(10, 200)
        low, high = verdicts.wilson(sum(dice.random() < true for _ in range(of)), of)
        held += low <= true <= high
    assert 0.94 < held / 4000 < 0.96


def test_the_closing_sentence(tmp_path, capfd):
    calls = [logged(id=f"{model}{number}", model=model) for model in ("good", "poor") for number in range(100)]
    judged = [
        said(f"{model}{number}", number < alive)
        for model, alive in (("good", 62), ("poor", 31))
        for number in range(100)
    ]
    lines = [*judged, *calls]  # in any order, over several files
    random.Random(1).shuffle(lines)
    paths = write_log(tmp_path, *lines[:150]), write_log(tmp_path, *lines[150:], name="other.jsonl")
    status, out, err = run(capfd, "audit", *paths)
    assert (status, err) == (0, "")
    names = out.split()[:2]
    assert [row(out, name) for name in ("verdicts", "alive, per 100")] == [
        ["100", "100"],
        [{"good": "62 (52–71)", "poor": "31 (23–41)"}[name] for name in names],
    ]
    rates = {
        "good": "good with prompt abababab: alive 62 of 100 (52–71)",
        "poor": "poor with prompt abababab: alive 31 of 100 (23–41)",
    }
    assert out.splitlines()[-1] == "; ".join([*(rates[name] for name in names), "they differ."])


def test_one_model_alone_has_its_sentence_too(tmp_path, capfd):
    lines = [line for number in range(10) for line in (logged(id=str(number)), said(str(number), number < 7))]
    _, out, _ = run(capfd, "audit", write_log(tmp_path, *lines))
    assert out.splitlines()[-1] == "m with prompt abababab: alive 70 of 100 (40–89)."


MORE = "they don't differ yet: about {} more on each would tell, if the rates stay"


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ((62, 100), (31, 100), "they differ"),
        ((31, 100), (62, 100), "they differ"),
        ((6, 10), (5, 10), MORE.format(390)),
        ((12, 20), (8, 20), MORE.format(77)),
        ((10, 10), (9, 10), MORE.format(67)),
        ((0, 20), (1, 20), MORE.format(140)),
        ((500, 1000), (501, 1000), MORE.format("4,000,000")),
        ((5, 10), (50, 100), "they don't differ, their rates are the same"),
        ((1, 9), (50, 100), "too few to tell"),
    ],
)
def test_how_many_verdicts_would_tell_two_models_apart(one, other, words):
    assert verdicts.difference(one, other) == words


@pytest.mark.parametrize("seed", range(20))
def test_so_many_more_verdicts_part_the_intervals_and_half_as_many_do_not(seed):
    dice = random.Random(seed)
    two = [(dice.randrange(3, 9), 12), (dice.randrange(30, 60), 90)]
    more = re.search("about ([0-9,]+) more", verdicts.difference(*two))
    if more:
        more = int(more[1].replace(",", ""))
        assert (verdicts.apart(*two, 2 * more), verdicts.apart(*two, more // 2)) == (True, False)


def test_the_last_verdict_on_a_call_counts_and_few_say_nothing(tmp_path, capfd):
    late, early = said("1", False, "2026-12-01T13:00:00Z"), said("1", True)
    tallies, _ = audit.audit([write_log(tmp_path, late, early, logged())])
    assert [(tally.count["alive"], tally.count["verdicts"]) for tally in tallies.values()] == [(0, 1)]
    _, out, err = run(
        capfd, "audit", write_log(tmp_path, late, early, logged(), said("gone", True), said("away", True))
    )
    assert (row(out, "verdicts"), row(out, "alive, per 100")) == (["1"], ["too few (1)"])
    assert err == "narrator: 2 judged calls stand in none of these logs, such as gone\n"


@pytest.mark.parametrize(
    "verdict",
    [
        3,
        {},
        {"call": "1"},
        {"call": 7, "alive": True},
        {"call": "1", "alive": 1},
        {"better": "1"},
        {"even": ["1"]},
        {"even": "1"},
        {"better": [], "worse": "1"},
    ],
    ids=str,
)
def test_a_line_that_is_no_verdict_is_named(verdict, tmp_path, capfd):
    status, out, err = run(
        capfd, "audit", path := write_log(tmp_path, logged(), {"ts": "t", "id": "v", "verdict": verdict})
    )
    assert (status, err.startswith(f"narrator: {path} line 2 is passed over"), err.count("\n")) == (
        0,
        True,
        1,
    )
    assert "verdicts" not in out


def test_a_game_may_speak_of_verdicts(tmp_path, capfd):
    line = logged(canon_log={**SMALL_LOG, "location": 'the "verdict"'}, id="1")
    note = {**said("1", True), "verdict": {"call": "1", "alive": True, "note": 'the "messages" on the wall'}}
    _, out, err = run(capfd, "audit", write_log(tmp_path, line, note))
    assert (row(out, "narrations"), row(out, "verdicts"), err) == (["1"], ["1"], "")


def test_blind_pairs_are_a_win_rate(tmp_path, capfd):
    calls = [logged(id=f"{model}{number}", model=model) for model in "ab" for number in range(20)]
    pairs = [better(f"a{n}", f"b{n}") if n < 15 else better(f"b{n}", f"a{n}") for n in range(20)]
    saved_early = write_log(tmp_path, *pairs[:8], name="blind.jsonl")  # and again when all were judged
    odd = [even("a1", "b1"), better("a0", "a1", "same model"), better("a0", "gone", "unknown")]
    status, out, err = run(capfd, "audit", saved_early, write_log(tmp_path, *calls, *pairs, *odd))
    assert (status, err) == (0, "narrator: 1 judged calls stand in none of these logs, such as gone\n")
    assert out.splitlines()[-1] == (
        "Blind, 20 pairs decided and 1 even: a with prompt abababab: better 75 of 100 (53–89); "
        "b with prompt abababab: better 25 of 100 (11–47); they differ."
    )


RUN = "the fog stands on the quay and waits"
REPEATS = {  # the narrations in their order, the digest, what the last one says again
    "a run of six and more": ([f"You see how {RUN}.", f"Again {RUN} for you."], "U", [RUN]),
    "case and marks are no matter": (
        ["One two three four five six.", "one, TWO three four five six!"],
        "U",
        ["one TWO three four five six"],
    ),
    "five words are none": (["one two three four five.", "one two three four five."], "U", []),
    "five narrations before": ([RUN, *["You hear rain."] * 4, RUN], "U", [RUN]),
    "six narrations before": ([RUN, *["You hear rain."] * 5, RUN], "U", []),
    "the digest's own words": ([RUN, RUN], f"- {RUN}", []),
    "two runs": (
        ["a b c d e f.", "g h i j k l.", "So g h i j k l, then a b c d e f."],
        "U",
        ["g h i j k l", "a b c d e f"],
    ),
    "twice in one narration": (["You hear rain.", f"{RUN}. {RUN}."], "U", []),
    "a letter that grows when it is made small": (["İ İ İ one two three four"] * 2, "U", ["İ İ İ one two three four"]),
}


@pytest.mark.parametrize(("proses", "digest", "found"), REPEATS.values(), ids=REPEATS)
def test_what_is_said_again(proses, digest, found):
    before = deque(maxlen=audit.BEFORE)
    assert [audit.find_repeats(digest, prose, before) for prose in proses][-1] == found


def test_an_audit_counts_repeats_of_one_model_and_quotes_them(tmp_path, capfd):
    thought = logged(response="You hear rain.", raw=f"<think>{RUN}</think>You hear rain.")  # which no player read
    lines = [logged(response=RUN), logged(response=RUN, model="other"), thought, logged(response=f"So {RUN}.")]
    _, out, _ = run(capfd, "audit", path := write_log(tmp_path, *lines), "--show")
    assert out.splitlines()[0] == f"{path} line 4: repeats: {RUN}"
    assert row(out, "repeats, per 100") == ["33.3", "0.0"]


def test_a_replay_counts_repeats_of_old_and_new(ollama, tmp_path, capfd):
    answers(ollama, reply(RUN), reply(RUN), reply("You hear rain."))
    _, _, err = run(
        capfd, "replay", write_log(tmp_path, logged(response=RUN), logged(model="other", response=RUN), logged())
    )
    assert row(err, "repeats, per 100") == ["0.0", "0.0", "0.0"]
    answers(ollama, reply(RUN), reply(f"So {RUN}."))
    _, _, err = run(
        capfd, "replay", write_log(tmp_path, logged(), logged()), "--model", "new", "-o", tmp_path / "page.html"
    )
    assert row(err, "repeats, per 100") == ["0.0", "50.0"]
    assert f'<span class="law">repeats</span> {RUN}' in (tmp_path / "page.html").read_text(encoding="utf-8")


# 5. Blind --------------------------------------------------------------------


@pytest.fixture
def browser():
    from playwright.sync_api import sync_playwright  # only for -m browser

    with sync_playwright() as playwright:
        args = ["--no-sandbox", "--disable-quic"]
        with playwright.chromium.launch(executable_path=shutil.which("chromium"), args=args) as browser:
            yield browser


@pytest.fixture
def replayed(ollama, tmp_path, capfd):
    """A log of five narrations, its replay, of which the last is the same, and their page."""
    answers(ollama, *[reply(f"You hear a bell, new {number}.") for number in range(4)], reply("You hear rain."))
    old = [logged(id=f"old{number}", response=f"<b>Old</b> {number}") for number in range(4)] + [logged(id="same")]
    path, page_path = write_log(tmp_path, *old), tmp_path / "page.html"
    status, out, _ = run(capfd, "replay", path, "--model", "second", "-o", page_path)
    (tmp_path / "again.jsonl").write_text(out, encoding="utf-8")
    assert status == 0
    return [path, str(tmp_path / "again.jsonl")], page_path.as_uri()


@pytest.mark.browser
def test_a_page_asks_blind_and_audit_reads_what_it_saves(browser, replayed, tmp_path, capfd):
    logs, address = replayed
    view, faults, wins = browser.new_page(accept_downloads=True), [], 0
    view.on("pageerror", lambda error: faults.append(str(error)))
    view.on("console", lambda message: faults.append(message.text))
    view.goto(address)
    view.click("#ask")
    for number, key in enumerate(["ArrowLeft", "ArrowRight", "ArrowDown", " "]):
        assert f"{number} of 4 pairs" in view.text_content("#progress")
        assert not re.search(r"second|\bm\b|2\.0 s|plays_player|better in", view.inner_text("body"))
        assert view.inner_text("#digest") == "U"
        sides = view.inner_text("#left"), view.inner_text("#right")
        assert sorted(side.startswith("<b>Old</b>") for side in sides) == [False, True]
        wins += key in ("ArrowLeft", "ArrowRight") and sides[key == "ArrowRight"].startswith("You")
        if number == 1:
            view.reload()
            view.click("#ask")
            assert (view.inner_text("#left"), view.inner_text("#right")) == sides  # the sides are remembered
            view.keyboard.press("Alt+ArrowDown")
            assert (view.inner_text("#left"), view.inner_text("#right")) == sides
        view.keyboard.press(key)
    assert f"second (again): better in {wins} of 2, too few to say" in view.text_content("#tally")
    assert "1 even" in view.text_content("#tally")
    with view.expect_download() as download:
        view.click("#save")
    download.value.save_as(tmp_path / "blind.jsonl")
    assert faults == []
    lines = [json.loads(line) for line in (tmp_path / "blind.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [next(iter(line["verdict"])) for line in lines] == ["better", "better", "even"]
    assert all(set(line) == {"ts", "id", "verdict"} and re.fullmatch("[0-9a-f]{32}", line["id"]) for line in lines)
    status, out, err = run(capfd, "audit", *logs, tmp_path / "blind.jsonl")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1].startswith("Blind, 2 pairs decided and 1 even: ")


@pytest.mark.browser
def test_a_held_key_judges_once_and_a_friend_begins_anew(browser, replayed):
    view = browser.new_page(viewport={"width": 390, "height": 800})
    view.goto(replayed[1])
    view.click("#ask")
    for _ in range(5):
        view.keyboard.down("ArrowLeft")
    view.keyboard.up("ArrowLeft")
    assert "1 of 4 pairs" in view.text_content("#progress")
    view.click("button[data-say=even]")
    view.keyboard.press(" ")
    assert "3 of 4 pairs" in view.text_content("#progress")
    view.click("#anew")
    assert "0 of 4 pairs" in view.text_content("#progress")
    assert view.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.browser
def test_the_page_filters(browser, replayed):
    view = browser.new_page()
    view.goto(replayed[1])
    assert view.locator("article:visible").count() == 5
    view.click("button[data-show=different]")
    assert view.locator("article:visible").count() == 4
    assert view.get_attribute("button[data-show=different]", "aria-pressed") == "true"


def test_the_page_counts_as_audit_does(tmp_path):
    """The interval is written twice, in Python and in the page: the same figures stand in both."""
    script = audit_script = (HERE / "page.html.tpl").read_text(encoding="utf-8")
    assert re.search(r"const z = ([\d.]+)", script)[1] == f"{verdicts.Z:.6f}"
    node = shutil.which("node")
    if not node:
        pytest.skip("no node here")
    function = re.search(r"function interval.*?\n}\n", audit_script, re.S)[0]
    cases = [(0, 20), (20, 20), (15, 20), (81, 263), (1, 10)]
    done = subprocess.run(
        [node, "-e", f"{function}; for (const [a, b] of {json.dumps(cases)}) console.log(interval(a, b))"],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.stdout.split() == [re.search(r"\((.*)\)", verdicts.rate(*case))[1] for case in cases]


# 6. Its README ---------------------------------------------------------------


def test_the_readmes_laws_are_the_laws():
    text = (HERE / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.M) == [law.name for law in laws.LAWS]


def test_the_readmes_commands_are_understood():
    text = (HERE / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"-m workbench (.*?)(?: >.*)?$", text, re.M)
    assert len(commands) >= 4
    for line in commands:
        command.parse_arguments(line.split())
