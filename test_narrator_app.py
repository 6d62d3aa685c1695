"""What the service promises, as lists of examples. The banners are the service's own, in its order.

python -m pytest              all of it, seconds, no network
python -m pytest -m live      against a real model: Ollama, or LIVE=understudy
python -m pytest -m browser   the play page in a real browser (Debian's chromium, Playwright)
"""

import ast
import concurrent.futures
import contextlib
import doctest
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import requests

import narrator_app as n
from conftest import (
    ALL_MODELS,
    CANON_LOG,
    HERE,
    PROSE,
    SMALL_LOG,
    TAGS,
    answers,
    ask,
    call_app,
    deltas,
    events_of,
    lines_of,
    narrate,
    port_of,
    posix,
    process,
    reply,
    sent,
    stream,
    wait_until,
    wsgi,
)

# 1. Settings and roles -------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434"),
        ("127.0.0.1", "http://127.0.0.1:11434"),
        ("127.0.0.1:9999", "http://127.0.0.1:9999"),
        (" localhost ", "http://localhost:11434"),
        ("localhost:11434///", "http://localhost:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("http://0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("[::]:8000", "http://[::1]:8000"),
        ("[::1]", "http://[::1]:11434"),
        ("http://box", "http://box"),
        ("HTTPS://Box.Example:8443", "https://box.example:8443"),
    ],
)
def test_base_url(text, expected):
    assert n.parse_base_url(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:11434/v1",
        "127.0.0.1:11434/api/chat",
        "ftp://box",
        "http://",
        "http://a b",
        "http://me:secret@box",
        "http://box?x=1",
        "http://box#x",
        "[zzz]",
        "[::1",
        "http://*box",
        "box:port",
        "box:70000",
        "box:-1",
        "a\tb",
    ],
)
def test_a_base_url_that_is_none(text):
    with pytest.raises(ValueError, match="leave out '/v1'" if text.endswith("/v1") else "must|[Pp]ort|IPv6"):
        n.parse_base_url(text)


BAD_SETTINGS = {
    "OLLAMA_BASE_URL": ["http://127.0.0.1:11434/v1"],
    "OLLAMA_TIMEOUT_SECONDS": ["soon", "0", "nan", "inf"],
    "OLLAMA_NARRATOR_OPTIONS": [
        "temperature=1",
        '{"temperature": 1e999}',
        '{"top_p": 1, "top_p": 0.5}',
        '{"temperature": "hot"}',
        '{"num_ctx": 4096.5}',
        '{"num_predict": true}',
        '{"seed": null}',
        "[" * 5000,
    ],
    "NARRATOR_PORT": ["http", "65536"],
    "NARRATOR_ALLOWED_ORIGINS": [
        "*",
        "play.example",
        "https://ok.example, https://play.example/game",
        "https://me@play.example",
    ],
    "CALL_LOG_PATH": ["/no/such/folder/calls.jsonl", str(HERE)],
}


@pytest.fixture
def not_started(monkeypatch):
    monkeypatch.setattr(n, "serve", lambda host, port: pytest.fail("it was started"))


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in BAD_SETTINGS for value in BAD_SETTINGS[name]],
    ids=lambda text: text[:30],
)
def test_a_bad_setting_stops_the_start_with_one_line_that_names_it(name, value, not_started, monkeypatch, capsys):
    monkeypatch.setenv(name, value)
    assert n.main([]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n"), name in said.err) == ("", 1, True)


OPTIONS = {"temperature": 0.8, "top_p": 0.9, "num_predict": 300, "num_ctx": 8192}
LAID_OVER = '{"temperature": 0, "top_k": 5}'


@pytest.mark.parametrize(
    ("name", "value", "read", "expected"),
    [
        ("OLLAMA_NARRATOR_MODEL", "", n.role_model, "qwen3.5:latest"),
        ("OLLAMA_NARRATOR_MODEL", " llama3.2 ", n.role_model, "llama3.2"),
        ("OLLAMA_TIMEOUT_SECONDS", "0.5", n.role_timeout, 0.5),
        ("OLLAMA_NARRATOR_OPTIONS", " ", n.role_options, OPTIONS),
        ("OLLAMA_NARRATOR_OPTIONS", LAID_OVER, n.role_options, {**OPTIONS, "temperature": 0, "top_k": 5}),
    ],
)
def test_a_setting_is_read_when_used(name, value, read, expected, monkeypatch):
    monkeypatch.setenv(name, value)
    assert read("narrator") == expected


ELSEWHERE = {"NARRATOR_HOST": "::1", "NARRATOR_PORT": "9000"}


@pytest.mark.parametrize(
    ("environment", "arguments", "expected"),
    [
        ({}, [], ("127.0.0.1", 8080)),
        (ELSEWHERE, [], ("::1", 9000)),
        (ELSEWHERE, ["--host", "0.0.0.0", "--port", "0"], ("0.0.0.0", 0)),
    ],
)
def test_a_flag_beats_the_environment_beats_the_default(environment, arguments, expected, monkeypatch, call_log):
    for name in ELSEWHERE:
        monkeypatch.setenv(name, environment.get(name, ""))
    asked = []
    monkeypatch.setattr(n, "serve", lambda host, port: asked.append((host, port)))
    assert n.main(arguments) == 0
    assert asked == [expected]


def role(monkeypatch, name="bard", **changed):
    """A second role beside the narrator, as a tinkerer would add it."""
    monkeypatch.setitem(n.ROLES, name, {**n.ROLES["narrator"], **changed})


BROKEN_ROLES = [{"prompt": "no-such-bard.md"}, {"check": lambda: n.setting("no-such-bard.md", int, "x")}]


@pytest.mark.parametrize("broken", BROKEN_ROLES, ids=["no prompt", "its own check"])
def test_a_role_that_could_not_be_called_stops_the_start(broken, not_started, monkeypatch, capsys):
    role(monkeypatch, **broken)
    assert n.main([]) == 2
    said = capsys.readouterr().err
    assert (said.count("\n"), "no-such-bard.md" in said) == (1, True)


def test_adding_a_role_is_an_entry_a_prompt_and_a_service(ollama, call_log, tmp_path, monkeypatch):
    (tmp_path / "bard.md").write_text("You are the Bard.", encoding="utf-8")
    options = {"temperature": 1.5, "num_ctx": 2048}
    role(monkeypatch, prompt=str(tmp_path / "bard.md"), model="llama3.2", options=options, think=None)
    monkeypatch.setenv("OLLAMA_BARD_OPTIONS", '{"seed": 7}')

    def sing(subject):
        messages = [{"role": "system", "content": n.system_prompt("bard")}, {"role": "user", "content": subject}]
        with n.logged_call("bard", subject=subject) as record:
            return n.chat("bard", messages, record)

    answers(ollama, reply("Oh."))
    assert sing("rain") == "Oh."
    body = sent(ollama)
    assert (body["model"], body["options"], "think" in body) == ("llama3.2", {**options, "seed": 7}, False)
    assert body["messages"][0]["content"] == "You are the Bard."
    (record,) = call_log()
    assert (record["role"], record["subject"], record["think"]) == ("bard", "rain", None)


SHARED_MODELS = [  # the narrator's model, the bard's model and num_ctx, the narrator's variable; what both send
    ("one model", "m", None, 16384, "{}", (16384, 16384)),
    ("one model named twice", "m", "m", 16384, "{}", (16384, 16384)),
    ("the narrator's is the larger", "m", "m", 2048, "{}", (8192, 8192)),
    ("laid over by the variable", "m", "m", 2048, '{"num_ctx": 32768}', (32768, 32768)),
    ("two models", "m", "other", 16384, "{}", (8192, 16384)),
]


@pytest.mark.parametrize(("model", "own", "num_ctx", "options", "both"), [row[1:] for row in SHARED_MODELS])
def test_roles_that_share_a_model_send_the_largest_num_ctx(model, own, num_ctx, options, both, ollama, monkeypatch):
    """Ollama would load the model anew at each change of role."""
    role(monkeypatch, model=own, options={**OPTIONS, "num_ctx": num_ctx})
    monkeypatch.setenv("OLLAMA_NARRATOR_MODEL", model)
    monkeypatch.setenv("OLLAMA_NARRATOR_OPTIONS", options)
    answers(ollama, reply(), reply())
    for name in ("narrator", "bard"):
        n.chat(name, [{"role": "system", "content": "x"}], {})
    assert tuple(sent(ollama, number)["options"]["num_ctx"] for number in (0, 1)) == both


# 2. Prompts and digest -------------------------------------------------------


def test_the_digest():
    digest = """\
Location: the Greywater docks
Recent events:
- Arrived at Greywater by barge before dawn
- Brannoc recognised the harbourmaster and went quiet
Established facts:
- the eastern bridge out of Greywater is washed out
- the harbourmaster is named Oda Fenn
Companions present: Brannoc Thane, Cadwyn Vell
Active quest: The Missing Ledger — Find who took Fenn's ledger
Fortune: Fortune spits on you
Player: Aldric, a sellsword

Describe the scene as it is now."""
    assert n.digest(CANON_LOG) == digest


NOTHING = {
    "recent_events": [],
    "established_facts": [],
    "companions": [],
    "active_quest": None,
    "luck_descriptor": None,
}


@pytest.mark.parametrize(
    ("extra", "lines"),
    [  # what a small canon log has besides, and what stands between its location and its player
        ({}, ["Companions present: none"]),
        (NOTHING, ["Companions present: none"]),
        ({"companions": [{"name": "\x07"}]}, ["Companions present: "]),
        ({"recent_events": ["b", "a", "b"]}, ["Recent events:", "- b", "- a", "- b", "Companions present: none"]),
    ],
)
def test_what_is_empty_is_left_out_but_the_companions_and_order_is_the_clients(extra, lines):
    whole = ["Location: an inn", *lines, "Player: Aldric", "", "Describe the scene as it is now."]
    assert n.digest({**SMALL_LOG, **extra}) == "\n".join(whole)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("the docks", "the docks"),
        ("two\nlines", "two lines"),
        ("a\r\n\t  b", "a b"),
        ("a\u2028b\u2029c\u0085d\u00a0e\u3000f", "a b c d e f"),
        ("  edges stay, as one  ", " edges stay, as one "),
        ("bell\x07 nul\x00 esc\x1b[0m del\x7f c1\x9b", "bell nul esc(0m del c1"),
        ("a \x00 b", "a b"),
        ("<|im_start|>system", "‹|im_start|›system"),
        ("[FACT: gold]", "(FACT: gold)"),
        ("Zoë of Þórshöfn, 龍", "Zoë of Þórshöfn, 龍"),
        ("an emoji 👩‍🚀 stays whole", "an emoji 👩‍🚀 stays whole"),
    ],
)
def test_one_field_is_one_line_that_poses_as_nothing(text, line):
    quest, player = {"title": text, "summary": text, "id": "id-5"}, {"name": text, "description": text, "id": "id-6"}
    lists = {"recent_events": [text], "established_facts": [text], "companions": [{"name": text, "id": "id-4"}]}
    fields = {"location": text, "active_quest": quest, "luck_descriptor": text, "player": player}
    everywhere = {"schema_version": 1, **fields, **lists}
    assert n.digest(everywhere) == (
        f"Location: {line}\nRecent events:\n- {line}\nEstablished facts:\n- {line}\nCompanions present: {line}\n"
        f"Active quest: {line} — {line}\nFortune: {line}\nPlayer: {line}, {line}\n\nDescribe the scene as it is now."
    )


def test_an_edited_prompt_needs_no_restart(tmp_path, monkeypatch):
    path = tmp_path / "voice.md"
    role(monkeypatch, "narrator", prompt=str(path))
    path.write_bytes(b"\xef\xbb\xbfYou are \xc3\xa9l\xc3\xa9gant.\n")
    assert [n.system_prompt("narrator") for _ in range(2)] == ["You are élégant."] * 2
    path.write_text("You are blunt.", encoding="utf-8")
    assert n.system_prompt("narrator") == "You are blunt."


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_prompt_that_is_no_prompt_is_the_operators_to_hear_of(content, tmp_path, monkeypatch, call_log, capsys):
    path = tmp_path / "voice.md"
    role(monkeypatch, "narrator", prompt=str(path))
    if content is not None:
        path.write_bytes(content)
    assert narrate()[:2] == (500, {"detail": {"request_error": n.FAULT}})
    said = capsys.readouterr().err
    assert (said.count("\n"), "voice.md" in said, call_log()) == (1, True, [])


def test_the_narrators_prompt_has_no_name_to_leak():
    prompt = n.system_prompt("narrator")
    names = set(re.findall(r"(?<=[a-z,;] )[A-Z][a-z]+", prompt))
    assert names <= {"Narrator"}
    assert prompt.count("[FACT: ") == 2


LONG = "x" * 501
SCHEMA_CASES = [  # name, change (a value of ... removes the key), the paths of the faults
    ("whole", {}, []),
    ("no version", {"schema_version": ...}, ["$"]),
    ("version 2", {"schema_version": 2}, ["$.schema_version"]),
    ("version as text", {"schema_version": "1"}, ["$.schema_version"]),
    ("version as boolean", {"schema_version": True}, ["$.schema_version"]),
    ("location null", {"location": None}, ["$.location"]),
    ("location white space", {"location": " \n\u2003"}, ["$.location"]),
    ("location 500 characters of many bytes", {"location": "龍" * 500}, []),
    ("location 501 characters", {"location": LONG}, ["$.location"]),
    ("no player", {"player": ...}, ["$"]),
    ("player a name", {"player": "Aldric"}, ["$.player"]),
    ("player's description null", {"player": {"name": "A", "description": None}}, ["$.player.description"]),
    ("player's id a number", {"player": {"name": "A", "id": 3}}, ["$.player.id"]),
    ("player with hit points", {"player": {"name": "A", "hp": 3}}, ["$.player"]),
    ("events left out", {"recent_events": ...}, []),
    ("201 events", {"recent_events": ["rain"] * 201}, ["$.recent_events"]),
    ("an event too long", {"recent_events": ["a", LONG]}, ["$.recent_events[1]"]),
    ("1001 facts", {"established_facts": ["rain"] * 1001}, ["$.established_facts"]),
    ("a blank fact", {"established_facts": ["a", "\t"]}, ["$.established_facts[1]"]),
    ("51 companions", {"companions": [{"name": "A"}] * 51}, ["$.companions"]),
    ("a companion's name alone", {"companions": ["A"]}, ["$.companions[0]"]),
    ("dispositions at the edges", {"companions": [{"name": "A", "disposition": d} for d in (-100, 0, 100)]}, []),
    ("disposition 101", {"companions": [{"name": "A", "disposition": 101}]}, ["$.companions[0].disposition"]),
    ("disposition 1.5", {"companions": [{"name": "A", "disposition": 1.5}]}, ["$.companions[0].disposition"]),
    ("quest null", {"active_quest": None}, []),
    ("quest without summary", {"active_quest": {"title": "T"}}, ["$.active_quest"]),
    ("quest's title blank", {"active_quest": {"title": "", "summary": "S"}}, ["$.active_quest.title"]),
    ("luck null", {"luck_descriptor": None}, []),
    ("luck blank", {"luck_descriptor": ""}, ["$.luck_descriptor"]),
    ("a misspelt key", {"establised_facts": []}, ["$"]),
    ("two faults", {"location": "", "player": {"name": 3}}, ["$.location", "$.player.name"]),
]


def read_canon_log(document):
    return n.read_input(json.dumps(document).encode(), n.canon_log_validator(), "canon_log")


@pytest.mark.parametrize(
    ("change", "paths"), [case[1:] for case in SCHEMA_CASES], ids=[case[0] for case in SCHEMA_CASES]
)
def test_the_canon_log(change, paths):
    document = {key: value for key, value in {**CANON_LOG, **change}.items() if value is not ...}
    if not paths:
        assert read_canon_log(document) == document
        return
    with pytest.raises(n.InputError) as caught:
        read_canon_log(document)
    assert [error["path"] for error in caught.value.errors] == paths
    assert all(0 < len(error["message"]) <= 200 for error in caught.value.errors)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"companion": []}, "'companion' was unexpected"),
        ({"location": None}, "it is not of type 'string'"),
        ({"location": " "}, "must hold something other than white space"),
        ({"active_quest": 3}, "'object', 'null'"),
        ({"location": LONG}, "it is too long (maxLength: 500)"),
        ({"companions": [{"name": "A", "disposition": 300}]}, "100"),
        ({"player": {}}, "'name' is a required property"),
        ({"schema_version": 2}, "1 was expected"),
    ],
)
def test_a_fault_says_what_is_wanted(change, words):
    with pytest.raises(n.InputError, match=re.escape(words)):
        read_canon_log({**CANON_LOG, **change})


def test_the_schema_is_sound_and_flat():
    import jsonschema

    schema = json.loads((HERE / "canon-log.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "$ref" not in json.dumps(schema)


# 3. Call log -----------------------------------------------------------------


def test_the_record_of_a_success(ollama, call_log):
    answers(ollama, reply("<think>hm</think>\n" + PROSE))
    narrate(CANON_LOG)
    (record,) = call_log()
    body = sent(ollama)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record.pop("ts"))
    assert re.fullmatch("[0-9a-f]{32}", record.pop("id"))
    (attempt,) = record.pop("attempts")
    assert attempt.pop("latency_ms") >= 0
    assert attempt == {"seed": body["options"]["seed"]}
    assert record.pop("latency_ms") >= 0
    assert record.pop("prompt_sha256") == hashlib.sha256(body["messages"][0]["content"].encode()).hexdigest()
    counts = {"done_reason": "stop", "prompt_eval_count": 400, "eval_count": 60}
    about = {"role": "narrator", "canon_log": CANON_LOG, "ok": True, "response": PROSE, "laws": [], **counts}
    was_sent = {key: body[key] for key in ("model", "options", "think", "messages")}
    assert record == {**about, **was_sent, "raw": "<think>hm</think>\n" + PROSE}


def test_the_record_of_a_failure(ollama, call_log):
    answers(ollama, 500, 503)
    assert narrate()[0] == 502
    (record,) = call_log()
    assert (record["ok"], "response" in record, "raw" in record) == (False, False, False)
    assert "503" in record["error"]
    assert [set(attempt) for attempt in record["attempts"]] == [{"seed", "latency_ms", "error"}] * 2


def test_a_fault_of_ours_has_its_record_too(ollama, call_log, monkeypatch, capsys):
    monkeypatch.setattr(n, "find_broken_laws", lambda *args: 1 / 0)
    answers(ollama, reply())
    assert narrate()[0] == 500
    (record,) = call_log()
    assert (record["ok"], record["error"]) == (False, "the service broke it off: ZeroDivisionError")


def test_the_log_keeps_the_original_and_only_newlines_part_its_lines(ollama, call_log):
    text = "a\u2028b\u0085c\r\n[FACT: d] \ud800 龍"
    answers(ollama, reply("e\u2029f\x85 g"))
    assert narrate({**SMALL_LOG, "location": text})[0] == 200
    raw = Path(os.environ["CALL_LOG_PATH"]).read_bytes()
    assert raw.count(b"\n") == 1
    raw.decode("utf-8")
    assert (b"\\ud800" in raw, "龍".encode() in raw) == (True, True)
    (record,) = call_log()
    assert (record["canon_log"]["location"], record["response"]) == (text, "e\u2029f\x85 g")


LEFT_BY_A_CRASH = [(b"", 1), (b'{"a": 1}\n', 2), (b'{"a": 1}\n{"cut": tr', 3), (b"\n", 2), (b'{"cut', 2), (b"x", 2)]


@pytest.mark.parametrize(("before", "lines"), LEFT_BY_A_CRASH)
def test_a_record_starts_on_its_own_line_whatever_a_crash_left(before, lines, call_log):
    path = Path(os.environ["CALL_LOG_PATH"])
    path.write_bytes(before)
    n.write_record({"b": 2})
    raw = path.read_bytes()
    assert raw.startswith(before)
    assert raw.split(b"\n")[-2:] == [b'{"b": 2}', b""]
    assert raw.count(b"\n") == lines


def test_whole_lines_of_many_threads_and_processes(call_log):
    code = """if True:
        import sys, threading, narrator_app as n
        def write(name): [n.write_record({"name": name, "text": "x" * 20000}) for _ in range(25)]
        threads = [threading.Thread(target=write, args=(f"{sys.argv[1]}-{i}",)) for i in range(4)]
        [t.start() for t in threads]; [t.join() for t in threads]"""
    programs = [subprocess.Popen([sys.executable, "-c", code, str(i)], cwd=HERE) for i in range(3)]
    assert [program.wait() for program in programs] == [0] * 3
    records = call_log()
    assert {record["text"] for record in records} == {"x" * 20000}
    names = [record["name"] for record in records]
    assert {name: names.count(name) for name in names} == {f"{p}-{t}": 25 for p in range(3) for t in range(4)}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full disk to write to")
def test_a_full_disk_costs_one_loud_line_and_not_the_prose(ollama, call_log, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CALL_LOG_PATH", "/dev/full")
    assert n.call_log_state() == "ok"
    answers(ollama, reply())
    assert narrate()[:2] == (200, {"prose": PROSE})
    said = capsys.readouterr().err
    assert (said.count("\n"), "CAN'T BE WRITTEN" in said, "No space left" in said) == (1, True, True)
    assert json.loads(said[said.index("{") :])["response"] == PROSE
    ollama.get(TAGS, json=ALL_MODELS)
    status, health, _ = call_app("GET", "/health")
    assert (status, health["status"]) == (200, "degraded")
    assert "No space left" in health["call_log"]
    monkeypatch.setenv("CALL_LOG_PATH", str(tmp_path / "calls.jsonl"))
    n.write_record({})
    assert n.call_log_state() == "ok"


@posix
def test_a_line_that_was_written_in_part_is_taken_back(call_log, capsys):
    import resource  # which Windows hasn't got

    n.write_record({"whole": 1})
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(os.environ["CALL_LOG_PATH"]) + 3, usual[1]))
    try:
        n.write_record({"lost": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert '{"lost": 1}' in capsys.readouterr().err
    n.write_record({"next": 1})
    assert call_log() == [{"whole": 1}, {"next": 1}]


def test_a_standard_output_that_is_closed_stops_the_start(not_started, monkeypatch, capsys):
    monkeypatch.setattr(sys, "__stdout__", None)
    assert n.main([]) == 2
    assert "set CALL_LOG_PATH to a file: standard output is closed" in capsys.readouterr().err


def test_without_a_path_the_log_is_standard_output(real_ollama):
    with process("--port", "0", OLLAMA_BASE_URL=real_ollama.url) as program:
        assert ask(port_of(program), body=SMALL_LOG) == (200, {"prose": PROSE})
        line = program.stdout.readline()
        assert json.loads(line)["response"] == PROSE
        if os.name != "nt":
            program.send_signal(signal.SIGTERM)
            assert program.wait(30) == 0
            assert program.stdout.read() == b""


# 4. Model call ---------------------------------------------------------------


def test_what_is_sent(ollama, call_log):
    answers(ollama, *[reply()] * 5)
    assert [narrate(CANON_LOG)[:2] for _ in range(5)] == [(200, {"prose": PROSE})] * 5
    seeds = {sent(ollama, number)["options"]["seed"] for number in range(5)}  # each call's own
    assert len({seed for seed in seeds if type(seed) is int and 0 <= seed < 2**31}) == 5
    body = sent(ollama)
    del body["options"]["seed"]
    system, user = n.system_prompt("narrator"), n.digest(CANON_LOG)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    beside = {"stream": False, "think": False, "keep_alive": "30m", "truncate": False}
    assert body == {"model": "qwen3.5:latest", "messages": messages, "options": OPTIONS, **beside}


SAME_SEED = [requests.ConnectionError("refused"), requests.ReadTimeout("slow"), 400, 500]
NEXT_SEED = [
    (204, b""),
    b"not JSON",
    b"\xff\xfe",
    b'{"message": {"content": NaN}}',
    b"[" * 20000,
    b'{"eval_count": ' + b"9" * 5000 + b"}",
    b'{"eval_count": 1e999, "message": {"content": "x"}}',
    b'{"message": {"content": "' + b"x" * (4 * 2**20) + b'"}}',
    {"error": "model runner has unexpectedly stopped"},
    {"message": "text"},
    {"message": {"content": ["x"]}},
    reply(" \n\t"),
    reply("<think>only thinking</think>  "),
    reply("<think>it never ends"),
    reply("<|im_end|>and more"),
    reply("", done_reason="length"),
]


@pytest.mark.parametrize("first", SAME_SEED + NEXT_SEED, ids=lambda value: str(value)[:40])
def test_one_retry_and_its_seed(first, ollama, call_log):
    answers(ollama, first, reply())
    assert narrate()[:2] == (200, {"prose": PROSE})
    one, two = sent(ollama, 0), sent(ollama, 1)
    assert two["options"]["seed"] == one["options"]["seed"] + (first in NEXT_SEED)
    assert {**one, "options": None} == {**two, "options": None}
    (record,) = call_log()
    assert record["options"] == two["options"]
    attempts = [(attempt["seed"], "error" in attempt) for attempt in record["attempts"]]
    assert attempts == [(one["options"]["seed"], True), (two["options"]["seed"], False)]


REFUSED = requests.ConnectionError(ConnectionRefusedError(111, "Connection refused"))


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (REFUSED, ["http://127.0.0.1:11434", "refused", "`ollama serve`"]),
        (requests.ReadTimeout("slow"), ["30 seconds"]),
        ((404, {"error": "model 'qwen3.5' not found"}), ["`ollama pull qwen3.5:latest`", "not found"]),
        ((400, {"error": "prompt is too long"}), ["400", "prompt is too long"]),
        ((500, {"error": {"message": "CUDA out of memory"}}), ["500", "CUDA out of memory"]),
        ((502, b"<html>bad gateway</html>"), ["502", "bad gateway"]),
        (307, ["307", "OLLAMA_BASE_URL"]),
        (b"<html>", ["not JSON"]),
        ({"error": "runner\nstopped"}, ["runner stopped"]),
        ({"done": True}, ["message.content"]),
        (b'"' + b"x" * (5 * 2**20), ["4 MiB"]),
        (reply("", done_reason="length"), ["the answer budget (num_predict) was spent on thinking"]),
        (reply("<think>hm", done_reason="length"), ["the answer budget (num_predict) was spent on thinking"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_reason_when_both_attempts_fail(second, words, ollama, call_log):
    answers(ollama, 500, second)
    status, body, _ = narrate()
    reason = body["detail"]["model_error"]
    assert (status, body) == (502, {"detail": {"model_error": reason}})
    assert [word for word in words if word not in reason] == []
    assert len(reason) <= 300
    assert reason.isprintable()
    assert call_log()[0]["error"] == reason


# What models write around their prose: the text, and what of it is the prose. Pieces of a stream may be cut anywhere.
DIALECTS = [
    ("Plain.", "Plain."),
    ("  edges are the model's own \n", "  edges are the model's own \n"),
    ("a\u2028b\u0085c 龍👩‍🚀", "a\u2028b\u0085c 龍👩‍🚀"),
    ("<think>a</think>\n\nTold. ", "Told."),
    ("<thinking>a</thinking> Told.", "Told."),
    ("<THINK>a</Think>Told.", "Told."),
    ("<reasoning>a</reasoning>Told.", "Told."),
    ("<thought id=1>a</thought>Told.", "Told."),
    ('<think lang="en"\n>a < b</think >Told.', "Told."),
    ("<think></think>Told.", "Told."),
    ("<think>a <thought>b</thought> c</think>Told.", "Told."),
    ("<think>a <think> b</think>Told.", "Told."),
    ("<think>a</think><reasoning>b</reasoning> Told.", "Told."),
    ("a < b and b > c", "a < b and b > c"),
    ("a <b> c </b> <", "a <b> c </b> <"),
    ("<thinker> waits </thinker>", "<thinker> waits </thinker>"),
    ("a < thinking b", "a < thinking b"),
    ("it ends in <thou", "it ends in <thou"),
    ("it ends in <thought id=1", "it ends in <thought id=1"),
    ("it ends in </thin", "it ends in </thin"),
    ("it ends in <|im_", "it ends in <|im_"),
    ("<|im_ender|>", "<|im_ender|>"),
    *((f"Told. {token}user\nAnd you?{token}", "Told. ") for token in n.END_TOKENS),
    ("<think>a</think> Told. <|im_end|>", "Told."),
]
TAKEN_BACK = [  # the same where a part was told before the tag that makes it reasoning
    ("a</think> Told. ", "Told."),
    ("so it is.</THOUGHT>Told.", "Told."),
    ("<think>a</think>b</think>Told.", "Told."),
    ("Fog. <think>and</think> Told.", "Told."),
]
NOT_TOLD = ["<think>a", "<think>a</think>", "</think> \n", "<|im_end|>Told.", "<think>a<|im_end|></think>b", " \n"]
TOLD_AND_LOST = ["Told. <think>and", "<think>a</think>Told. <reasoning>b"]


@pytest.mark.parametrize(("text", "prose"), DIALECTS + TAKEN_BACK + [(text, "") for text in NOT_TOLD + TOLD_AND_LOST])
def test_reasoning_and_tokens_never_reach_the_player(text, prose):
    assert n.spoken(text).strip() == prose.strip()
    if prose:
        assert n.spoken(text) == prose


def test_each_reasoning_tag_and_end_token_stands_in_the_table():
    texts = " ".join(text.lower() for text, _ in DIALECTS)
    assert [name for name in n.REASONING_TAGS if f"</{name}>" not in texts] == []
    assert " ".join(n.END_TOKENS) == "<|im_end|> <|eot_id|> <|end|> <|return|> <|endoftext|> <end_of_turn> </s>"


def test_an_answer_cut_at_its_length_is_served_without_its_thinking_field(ollama, call_log):
    message = {"content": "You stand in the", "thinking": "a secret"}
    answers(ollama, reply(message=message, done_reason="length"))
    assert narrate()[1] == {"prose": "You stand in the"}
    (record,) = call_log()
    assert (record["done_reason"], "raw" in record) == ("length", False)


def test_a_raw_answer_counts_its_reasoning(ollama):
    answers(ollama, reply("<think>hm</think>"))
    record = {}
    assert n.chat("narrator", [{"role": "system", "content": "x"}], record, raw=True) == "<think>hm</think>"
    assert (record["response"], record["raw"]) == ("", "<think>hm</think>")


DRIP = {  # how a server drips, byte after byte, for longer than anyone waits
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
    "chunked body": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n",
    "head": b"HTTP/1.1 200 OK\r\nX-Slow: ",
    "status line": b"",
}


@pytest.mark.parametrize("start", DRIP.values(), ids=DRIP)
def test_dripping_bytes_do_not_outlast_the_timeout(start, raw_ollama, call_log, monkeypatch):
    monkeypatch.setenv("OLLAMA_TIMEOUT_SECONDS", "0.2")

    def drip(connection, ended):
        connection.sendall(start)
        while not ended.wait(0.05):
            connection.sendall(b"x")

    raw_ollama(drip)
    status, body, _ = narrate()
    assert (status, "0.2 seconds" in body["detail"]["model_error"]) == (502, True)
    assert [attempt["latency_ms"] >= 150 for attempt in call_log()[0]["attempts"]] == [True, True]


MOVED_AWAY = b"HTTP/1.1 302 Found\r\nConnection: close\r\nContent-Length: 0\r\nLocation: "


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "connection"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"mess', "connection"),
        (b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{"mess', "connection"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nx", "connection"),
        (b"SSH-2.0-OpenSSH\r\n", "connection"),
        (MOVED_AWAY + b"http://[bad\r\n\r\n", "302"),
        (MOVED_AWAY + b"http://\xff/\r\n\r\n", "302"),
        (MOVED_AWAY + b"/api/chat\r\n\r\n", "302"),
    ],
    ids=lambda value: str(value)[-20:],
)
def test_an_answer_that_breaks_off_or_leads_elsewhere(said, words, raw_ollama, call_log):
    def answer(connection, ended):
        request = b""
        while b'"think": false}' not in request:  # closing with something unread would take the answer back
            request += connection.recv(65536)
        connection.sendall(said)

    raw_ollama(answer)
    status, body, _ = narrate()
    assert (status, words in body["detail"]["model_error"]) == (502, True)
    assert len(call_log()[0]["attempts"]) == 2


def test_threads_share_kept_connections_and_no_proxy(real_ollama, call_log, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("OLLAMA_BASE_URL", real_ollama.url)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: n.narrate(SMALL_LOG), range(40))) == [PROSE] * 40
    assert len({client for client, _ in real_ollama.bodies}) <= 8
    assert len(call_log()) == 40


@pytest.mark.parametrize(("no_proxy", "served"), [("", True), ("ollama.test", False)])
def test_an_ollama_elsewhere_is_reached_through_the_proxy(no_proxy, served, real_ollama, call_log, monkeypatch):
    """real_ollama stands in for the proxy: what is asked of it names the other machine."""
    monkeypatch.setenv("http_proxy", real_ollama.url)
    monkeypatch.setenv("no_proxy", no_proxy)
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://ollama.test:1")
    assert narrate()[0] == (200 if served else 502)
    assert len(real_ollama.bodies) == served


@pytest.mark.parametrize(
    ("wanted", "listed", "same"),
    [
        ("qwen3.5", "qwen3.5:latest", True),
        ("llama3.2:3b", "llama3.2:3b", True),
        ("llama3.2", "llama3.2:3b", False),
        ("hf.co/someone/model", "hf.co/someone/model:latest", True),
        ("localhost:5000/model", "localhost:5000/model:latest", True),
    ],
)
def test_two_names_of_one_model(wanted, listed, same):
    assert (n.full_name(wanted) == n.full_name(listed)) == same


# 5. Narrator -----------------------------------------------------------------


def test_laws_are_in_shadow(ollama, call_log):
    prose = "You draw your blade. [FACT: ]"
    answers(ollama, reply(prose))
    assert narrate()[:2] == (200, {"prose": prose})
    assert [finding["law"] for finding in call_log()[0]["laws"]] == ["plays_player", "bad_tag"]
    assert len(ollama.calls) == 1


@pytest.mark.live
def test_a_real_model_narrates_and_says_the_same_for_the_same_seed(real_model, call_log, monkeypatch):
    status, body, _ = narrate(CANON_LOG)
    (record,) = call_log()
    assert (status, body, record["model"], record["ok"]) == (200, {"prose": record["response"]}, real_model, True)
    assert 20 < len(body["prose"].strip()) < 3000
    assert not re.search(r"</?think>|<\|", body["prose"])
    assert record["eval_count"] > 0
    monkeypatch.setenv("OLLAMA_NARRATOR_OPTIONS", '{"seed": 7, "num_predict": 20}')
    first, _other, again = narrate(CANON_LOG), narrate(SMALL_LOG), narrate(CANON_LOG)
    assert first[1] == again[1]


# 6. Routes -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b"{", "JSON"),
        (b"\xff\xfe{}", "UTF-8"),
        (json.dumps(SMALL_LOG).encode("utf-16"), "UTF-8"),
        (json.dumps({**SMALL_LOG, "location": "é"}, ensure_ascii=False).encode("latin-1"), "UTF-8"),
        (b'{"schema_version": NaN}', "NaN"),
        (b'{"schema_version": -Infinity}', "Infinity"),
        (b'{"schema_version": 1e999}', "1e999"),
        (b'{"schema_version": ' + b"1" * 5000 + b"}", "digits"),
        (b'{"player": {"name": "a", "name": "b"}}', "'name' is repeated"),
        (b"{" + b"".join(b'"%d":1,' % number for number in range(90_000)) + b'"7":1}', "'7' is repeated"),
        (b"[" * 100_000, "nested"),
        (b'{"a":' * 100_000, "nested"),
        (b'[{"a":' * 400 + b"1" + b"}]" * 400, "'object'"),
        (b"[]", "'object'"),
        (b'{"a": 1} {"b": 2}', "JSON"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_body_that_is_no_canon_log(body, words, ollama, call_log):
    status, answer, _ = narrate(body, HTTP_ACCEPT="text/event-stream")
    assert (status, list(answer["detail"])) == (422, ["canon_log"])
    error = answer["detail"]["canon_log"][0]
    assert (error["path"], words in error["message"]) == ("$", True)
    assert len(error["message"]) <= 200
    assert call_log() == []


def test_all_faults_at_once_at_most_twenty_in_the_order_of_their_paths():
    events = [None] * 30
    status, answer, _ = narrate({**SMALL_LOG, "recent_events": events, "player": {}, "companions": [{"name": ""}]})
    assert status == 422
    paths = [error["path"] for error in answer["detail"]["canon_log"]]
    assert paths == ["$.companions[0].name", "$.player", *(f"$.recent_events[{i}]" for i in range(18))]


def test_what_is_huge_is_one_short_fault():
    status, answer, _ = narrate({**SMALL_LOG, "recent_events": [0] * 300_000})
    ((path, message),) = [error.values() for error in answer["detail"]["canon_log"]]
    assert (status, path, message) == (422, "$.recent_events", "it is too long (maxItems: 200)")
    assert len(json.dumps(narrate({**SMALL_LOG, "k" * 1_000_000: 1})[1])) < 1000


@pytest.mark.parametrize(
    ("path", "mark", "headers"),
    [
        ("/dm/narrate", b"\xef\xbb\xbf", {"CONTENT_TYPE": "Application/JSON; charset=utf-8"}),
        ("/dm/narrate/", b"", {}),
        ("/dm/narrate", b"", {"HTTP_HOST": "LOCALHOST.:8080", "HTTP_ORIGIN": "http://LOCALHOST.:8080"}),
    ],
    ids=["byte-order mark", "trailing slash", "Host"],
)
def test_what_is_fine(path, mark, headers, ollama, call_log):
    answers(ollama, reply())
    assert call_app("POST", path, mark + json.dumps(SMALL_LOG).encode(), **headers)[:2] == (200, {"prose": PROSE})


EVIL = "https://evil.example"
PREFLIGHT = {"HTTP_ACCESS_CONTROL_REQUEST_METHOD": "POST"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "words"),
    [
        ("GET", "/nothing", {}, 404, "POST /dm/narrate"),
        ("GET", "/dm/narrate", {}, 405, "POST"),
        ("POST", "/health/", {}, 405, "GET"),
        ("POST", "/dm/narrate", {"CONTENT_TYPE": "text/plain"}, 415, "application/json"),
        ("POST", "/dm/narrate", {"CONTENT_TYPE": ""}, 415, "application/json"),
        ("POST", "/dm/narrate", {"CONTENT_TYPE": "application/x-www-form-urlencoded"}, 415, "application/json"),
        ("POST", "/dm/narrate", {"CONTENT_LENGTH": str(2**20 + 1)}, 413, str(2**20)),
        ("POST", "/dm/narrate", {"HTTP_HOST": "evil.example"}, 403, "Host"),
        ("GET", "/nothing", {"HTTP_HOST": "evil.example"}, 403, "Host"),
        ("POST", "/dm/narrate", {"HTTP_ORIGIN": EVIL}, 403, "Origin"),
        ("GET", "/health", {"HTTP_ORIGIN": "null"}, 403, "Origin"),
        ("OPTIONS", "/dm/narrate", {"HTTP_ORIGIN": EVIL, **PREFLIGHT}, 403, "Origin"),
    ],
)
def test_a_request_that_is_refused(method, path, headers, status, words, ollama, call_log):
    body = SMALL_LOG if method == "POST" else b""
    for accept in ("*/*", "text/event-stream"):  # before a stream begins, too
        got, answer, _ = call_app(method, path, body, HTTP_ACCEPT=accept, **headers)
        assert (got, list(answer), list(answer["detail"])) == (status, ["detail"], ["request_error"])
        assert words in answer["detail"]["request_error"]
        assert str(HERE) not in answer["detail"]["request_error"]


HOSTS = {  # where the service is bound: the Host headers that are ours, and others
    "127.0.0.1": (
        [
            "127.0.0.1:8080",
            "localhost:8080",
            "localhost.",
            "LOCALHOST.",
            "LOCALHOST.:80",
            "game.localhost",
            "[::1]:8080",
            "play.example",
        ],
        [
            "evil.example",
            "localhost.evil.example",
            "evillocalhost",
            "192.168.1.5:8080",
            "",
            "me@127.0.0.1",
            "127.0.0.1,evil.example",
            "127.0.0.1:x",
            "[::1",
        ],
    ),
    "192.168.1.5": (["192.168.1.5:8080", "127.0.0.1"], ["192.168.1.6", "box.lan"]),
    "box.lan": (["box.lan:8080", "Box.Lan"], ["evil.example"]),
    "0.0.0.0": (["192.168.1.5:8080", "[fe80::1]:8080"], ["box.lan", "evil.example", ":8080"]),
    "::": (["[fe80::1]:8080"], ["box.lan"]),
}


@pytest.mark.parametrize("bound", HOSTS)
def test_whose_host_it_is(bound, monkeypatch):
    monkeypatch.setenv("NARRATOR_ALLOWED_ORIGINS", "https://play.example")
    ours, others = HOSTS[bound]
    found = {host: call_app("GET", "/nothing", HTTP_HOST=host, SERVER_NAME=bound)[0] for host in ours + others}
    assert found == {**dict.fromkeys(ours, 404), **dict.fromkeys(others, 403)}


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://127.0.0.1", True),
        ("http://127.0.0.1:3000", False),
        ("http://localhost", False),
        ("https://play.example", True),
        ("https://play.example:444", False),
        ("https://sub.play.example", False),
        ("http://localhost:3000", True),
        ("null", False),
        ("", False),
    ],
)
def test_which_pages_may_call(origin, allowed, ollama, call_log, monkeypatch):
    monkeypatch.setenv("NARRATOR_ALLOWED_ORIGINS", "https://Play.example:443/, http://localhost:3000,")
    if allowed:
        answers(ollama, reply())
    status, _, headers = narrate(SMALL_LOG, HTTP_ORIGIN=origin, HTTP_HOST="127.0.0.1")
    assert status == (200 if allowed else 403)
    assert headers.get("Access-Control-Allow-Origin") == (origin if allowed else None)


@pytest.mark.parametrize(("body", "status"), [(SMALL_LOG, 502), (b"{", 422), (b"{}", 500)])
def test_an_allowed_page_may_read_the_errors_too(body, status, ollama, call_log, monkeypatch, capsys):
    monkeypatch.setenv("NARRATOR_ALLOWED_ORIGINS", "https://play.example")
    if status == 502:
        answers(ollama, 500, 500)
    if status == 500:
        monkeypatch.setattr(n, "read_input", lambda *args: 1 / 0)
    got, _, headers = narrate(body, HTTP_ORIGIN="https://play.example")
    assert (got, headers["Access-Control-Allow-Origin"], headers["Vary"]) == (status, "https://play.example", "Origin")


def test_a_preflight_of_an_allowed_page(monkeypatch):
    monkeypatch.setenv("NARRATOR_ALLOWED_ORIGINS", "https://play.example")
    status, _, headers = call_app("OPTIONS", "/dm/narrate", HTTP_ORIGIN="https://play.example", **PREFLIGHT)
    assert status == 204
    wanted = {"Origin": "https://play.example", "Methods": "GET, POST", "Headers": "Content-Type"}
    assert {name: headers[f"Access-Control-Allow-{name}"] for name in wanted} == wanted


def test_a_fault_of_ours_says_so_without_its_traceback(service, monkeypatch, capfd):
    monkeypatch.setattr(n, "read_input", lambda *args: 1 / 0)
    assert ask(service, body=SMALL_LOG) == (500, {"detail": {"request_error": n.FAULT}})
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_setting_that_went_bad_under_another_server_keeps_its_value_to_itself(monkeypatch, call_log, capsys):
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://me:secret@box")
    status, answer, _ = narrate()
    assert (status, answer) == (500, {"detail": {"request_error": n.FAULT}})
    assert "OLLAMA_BASE_URL" in capsys.readouterr().err
    status, health, _ = call_app("GET", "/health")
    assert (status, "secret" in json.dumps(health)) == (503, False)


SHOUTED = {"models": [{"name": one["name"].upper()} for one in ALL_MODELS["models"]] + [{"name": "x"}]}


@pytest.mark.parametrize(
    ("tags", "status", "words", "available"),
    [  # Ollama's list of models, the status, words of "ollama", whether the model is available
        (ALL_MODELS, 200, "ok", True),
        (SHOUTED, 200, "ok", True),
        ({"models": []}, 503, "ok", False),
        ({"models": [{"name": "qwen3.5:7b"}]}, 503, "ok", False),
        (b"<html>", 503, "not JSON", False),
        (requests.ConnectionError("refused"), 503, "`ollama serve`", False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_health(tags, status, words, available, ollama, call_log):
    ollama.get(TAGS, body=json.dumps(tags) if isinstance(tags, dict) else tags)
    got, health, _ = call_app("GET", "/health/")
    assert (got, list(health)) == (status, ["status", "ollama", "models", "call_log"])
    assert words in health["ollama"]
    assert health["models"]["narrator"] == {"model": "qwen3.5:latest", "available": available}
    assert (health["status"], health["call_log"]) == ("ok" if status == 200 else "unavailable", "ok")


@pytest.mark.parametrize("broken", BROKEN_ROLES, ids=["no prompt", "its own check"])
def test_health_is_503_when_a_role_could_not_be_called(broken, ollama, call_log, monkeypatch, capsys):
    ollama.get(TAGS, json=ALL_MODELS)
    role(monkeypatch, **broken)
    status, health, _ = call_app("GET", "/health")
    assert (status, health["status"].startswith("unavailable"), "no-such" in str(health)) == (503, True, False)
    assert "no-such-bard.md" in capsys.readouterr().err


# Streaming


def told(events):
    return "".join(data["text"] for kind, data in events if kind == "delta")


@pytest.mark.parametrize(
    ("pieces", "heard", "prose"),
    [  # the pieces, the deltas, the prose
        (["Fog ", "stands."], ["Fog ", "stands."], "Fog stands."),
        (["", " \n", " Fog", " "], [" \n Fog", " "], " \n Fog "),
        (["<think>a", "b</think>", "\n\nFog."], ["Fog."], "Fog."),
        (["<th", "ink>a</th", "ink> Fog", " "], ["Fog"], "Fog"),
        (["Fog <th", "e> sea <"], ["Fog ", "<the> sea ", "<"], "Fog <the> sea <"),
        (["Fog", ".<|im", "_end|>", "user"], ["Fog", "."], "Fog."),
        (["hm ", "so</think>Fog", "."], ["hm "], "Fog."),
        (["Fog. <think>and</think> Sea."], ["Sea."], "Sea."),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_stream(pieces, heard, prose, ollama, call_log):
    answers(ollama, lines_of(*pieces))
    status, events = stream()
    assert (status, events[-1]) == (200, ("done", {"prose": prose}))
    assert events[:-1] == deltas(*heard)
    assert sent(ollama)["stream"] is True
    (record,) = call_log()
    assert (record["ok"], record["response"], record["done_reason"], record["eval_count"]) == (True, prose, "stop", 60)
    assert ("first_token_ms" in record, "partial" in record, "laws" in record) == (bool(heard), False, True)


CUTS = {"whole": "(?s).+", "letter by letter": "(?s).", "in threes": "(?s).{1,3}"}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize(("text", "prose"), DIALECTS + TAKEN_BACK)
def test_the_deltas_joined_are_the_prose_unless_a_part_is_taken_back(text, prose, cut, ollama, call_log):
    answers(ollama, lines_of(*re.findall(cut, text)).rstrip(b"\n"))  # the last line needs no newline
    _, events = stream()
    assert events[-1] == ("done", {"prose": prose})
    assert events[0][0] == "done" or events[0][1]["text"].strip()  # white space comes with the first word
    assert not re.search(r"</?(think|thought|reasoning)\b[^<]*>|<\|im_end\|>", told(events))
    if (text, prose) not in TAKEN_BACK:
        assert told(events) == prose


def test_streaming_is_the_only_difference(ollama, call_log, monkeypatch):
    monkeypatch.setattr(n.random, "randrange", lambda limit: 7)
    answers(ollama, reply(), lines_of(PROSE))
    narrate(), stream()
    one, other = sent(ollama, 0), sent(ollama, 1)
    assert {**one, "stream": True} == other
    first, second = call_log()
    assert set(second) - set(first) == {"first_token_ms"}


@pytest.mark.parametrize(
    "first",
    [  # what fails before anything was said is tried again as ever
        requests.ConnectionError("refused"),
        500,
        b"nonsense\n",
        b"",
        lines_of("", end=False),
        {"error": "why"},
        b'{"message": {"content": 7}}\n',
        lines_of("", done_reason="length"),
        *(lines_of(text) for text in NOT_TOLD),
    ],
    ids=lambda value: str(value)[-60:],
)
def test_a_stream_that_fails_before_its_first_word_is_tried_again(first, ollama, call_log):
    answers(ollama, first, lines_of(PROSE), first, 500)
    assert stream(accept="text/html, Text/Event-Stream;q=0.9") == (200, [*deltas(PROSE), ("done", {"prose": PROSE})])
    status, ((kind, data),) = stream()
    assert (status, kind, "500" in data["detail"]["model_error"]) == (200, "error", True)
    one, other = call_log()
    assert [("error" in attempt) for attempt in one["attempts"] + other["attempts"]] == [True, False, True, True]
    assert (one["ok"], other["ok"], "partial" in other, "first_token_ms" in other) == (True, False, False, False)


SAID = lines_of("Fog stands", end=False)


@pytest.mark.parametrize(
    ("lines", "words"),
    [  # a stream that fails after the first words, and words of the reason
        (SAID, "broke off"),
        (SAID + b'{"error": "out of memory"}\n', "out of memory"),
        (SAID + b"nonsense\n", "not JSON"),
        (SAID + b"nonsense", "not JSON"),
        (SAID + b"[]\n", "not a JSON object"),
        (SAID + b'{"message": {"content": null}}\n', "message.content"),
        (SAID + b"x" * (5 * 2**20), "4 MiB"),
        (SAID + lines_of("more", end=False), "broke off"),
        *((lines_of(*text), "reasoning alone") for text in TOLD_AND_LOST),
    ],
    ids=lambda value: str(value)[-60:],
)
def test_a_stream_that_fails_after_its_first_word_is_an_error_never_a_short_story(lines, words, ollama, call_log):
    answers(ollama, lines)
    status, events = stream()
    kind, data = events[-1]
    assert (status, kind, words in data["detail"]["model_error"]) == (200, "error", True)
    (record,) = call_log()
    assert (record["ok"], len(record["attempts"]), "response" in record) == (False, 1, False)
    assert record["partial"] == told(events) != ""


def test_a_fault_of_ours_ends_a_stream_with_words(monkeypatch, capsys, call_log):
    monkeypatch.setattr(n, "digest", lambda canon_log: 1 / 0)
    assert stream() == (200, [("error", {"detail": {"request_error": n.FAULT}})])
    assert "ZeroDivisionError" in capsys.readouterr().err


def open_stream(port):
    """A connection on which a stream was asked for, and its file to read from."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(post(SMALL_LOG, b"Accept: text/event-stream\r\n"))
    return connection, connection.makefile("rb")


def post(body, headers=b"") -> bytes:
    """A narration's request on the wire."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    length = b"" if b"Content-Length" in headers else b"Content-Length: %d\r\n" % len(data)
    head = b"POST /dm/narrate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return head + headers + length + b"\r\n" + data


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n"


def test_each_delta_comes_when_it_is_made_and_the_status_before(service, raw_ollama, call_log):
    step = threading.Semaphore(0)
    words = ["Fog ", "stands ", "on ", "the ", "quay: 龍."]

    def speak(connection, ended):
        connection.recv(65536)
        step.acquire(timeout=30)
        connection.sendall(HEAD)
        for word in words:
            line = lines_of(word, end=False)
            cut = line.index(b"content") + 15  # inside the character, in the last one
            connection.sendall(line[:cut]), connection.sendall(line[cut:])
            step.acquire(timeout=30)
        connection.sendall(lines_of())

    raw_ollama(speak)
    connection, read = open_stream(service)
    with connection, read:
        assert re.match(rb"HTTP/1\.[01] 200", read.readline())
        step.release()
        for word in words:  # the next one is only made when this one is here
            while not (line := read.readline()).startswith(b"data"):
                assert line
            assert json.loads(line[6:]) == {"text": word}
            step.release()
        done = json.loads(re.search(rb'data: (\{"prose".*)', read.read())[1])
        assert done["prose"] == "Fog stands on the quay: 龍."


LEFT_AT = {
    "silent": b"",
    "no word yet": HEAD,
    "after a word": HEAD + lines_of("Fog ", end=False),
    "thinking": HEAD + lines_of("<think>", end=False),
}


@pytest.mark.parametrize("before", LEFT_AT.values(), ids=LEFT_AT)
@pytest.mark.parametrize("flood", [False, True])
def test_when_the_client_leaves_the_model_is_told_and_the_line_written(
    before, flood, service, raw_ollama, call_log, monkeypatch
):
    monkeypatch.setattr(n, "WATCH_SECONDS", 0.02)
    closed = []

    def speak(connection, ended):
        connection.recv(65536)
        connection.sendall(before)
        connection.settimeout(0.01)
        with contextlib.suppress(ConnectionError):
            while not ended.is_set():
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(65536):
                        break
                if flood and before:
                    connection.sendall(lines_of("", end=False))
        closed.append(not ended.is_set())

    raw_ollama(speak)
    for number in range(3):
        connection, read = open_stream(service)
        assert re.match(rb"HTTP/1\.[01] 200", read.readline())
        read.close()
        connection.close()
        wait_until(lambda number=number: len(closed) > number and len(call_log()) > number)
    assert closed == [True] * 3
    assert {(record["ok"], record["error"]) for record in call_log()} == {(False, "the client left")}
    assert {record.get("partial") for record in call_log()} <= {None, "Fog "}
    assert ask(service, "GET", "/nothing")[0] == 404


def test_a_client_that_does_not_read_holds_nobody(server, raw_ollama, call_log, monkeypatch, capfd):
    monkeypatch.setattr(n.Handler, "timeout", 0.2)

    def flood(connection, ended):
        connection.recv(65536)
        connection.sendall(HEAD)
        while not ended.is_set():
            connection.sendall(lines_of("words " * 200, end=False))

    raw_ollama(flood)
    connection, read = open_stream(server.server_port)
    wait_until(call_log)
    assert call_log()[0]["error"] in ("the client left", "Ollama's answer is larger than 4 MiB")
    idle = threading.Thread(target=server.threads.shutdown, daemon=True)
    idle.start()
    idle.join(10)
    assert not idle.is_alive()
    read.close()
    connection.close()
    assert "Traceback" not in capfd.readouterr().err


def test_a_silent_stream_keeps_watch(service, raw_ollama, call_log, monkeypatch):
    monkeypatch.setattr(n, "WATCH_SECONDS", 0.01)
    heard = threading.Event()

    def speak(connection, ended):
        connection.recv(65536)
        heard.wait(30)
        connection.sendall(HEAD + lines_of("x"))

    raw_ollama(speak)
    connection, read = open_stream(service)
    with connection, read:
        lines = iter(read.readline, b"\r\n")
        assert b"200" in next(lines)
        list(lines)
        assert [read.readline()[:1] for _ in range(10)] == [b":", b"\n"] * 5
        heard.set()
        assert b'event: done\ndata: {"prose": "x"' in read.read()


@pytest.mark.live
def test_a_real_model_streams(real_model, call_log, monkeypatch):
    monkeypatch.setenv("OLLAMA_NARRATOR_OPTIONS", '{"num_predict": 40}')
    status, events = stream(CANON_LOG)
    assert (status, events[-1][0]) == (200, "done")
    assert len(events) > 10
    assert told(events) == events[-1][1]["prose"]
    assert 0 < call_log()[0]["first_token_ms"] < call_log()[0]["latency_ms"]


# Verdicts

BAD_VERDICTS = [  # the body, the path of the first fault
    ({}, "$"),
    ([], "$"),
    (b"{", "$"),
    ({"call": "x"}, "$"),
    ({"alive": True}, "$"),
    ({"call": "", "alive": True}, "$.call"),
    ({"call": 7, "alive": True}, "$.call"),
    ({"call": "x" * 501, "alive": True}, "$.call"),
    ({"call": "x", "alive": 1}, "$.alive"),
    ({"call": "x", "alive": "yes"}, "$.alive"),
    ({"call": "x", "alive": None}, "$.alive"),
    ({"call": "x", "alive": True, "note": " "}, "$.note"),
    ({"call": "x", "alive": True, "mood": 1}, "$"),
]


def test_a_narration_has_an_id_and_its_verdict_is_a_line_of_the_log(ollama, call_log):
    answers(ollama, reply(), lines_of(PROSE))
    status, answer, headers = narrate()
    assert (status, answer) == (200, {"prose": PROSE})
    streamed = events_of(wsgi("POST", "/dm/narrate", SMALL_LOG, HTTP_ACCEPT="text/event-stream")[2])[-1]
    ids = [record["id"] for record in call_log()]
    assert [headers["X-Call-Id"], streamed[1]["id"]] == ids
    said = [
        {"call": ids[0], "alive": True},
        {"call": ids[0], "alive": False, "note": "he said it twice"},
        {"call": "nobody's", "alive": True},
    ]
    assert [call_app("POST", "/dm/verdict", verdict)[:2] for verdict in said] == [
        (200, {"call": one["call"]}) for one in said
    ]
    lines = call_log()[2:]
    assert [line["verdict"] for line in lines] == said
    assert {tuple(line) for line in lines} == {("ts", "id", "verdict")}
    assert len({line["id"] for line in lines}) == 3


@pytest.mark.parametrize(("body", "path"), BAD_VERDICTS, ids=lambda value: str(value)[:40])
def test_a_verdict_that_is_none(body, path, call_log):
    status, answer, _ = call_app("POST", "/dm/verdict", body)
    assert (status, list(answer["detail"]), answer["detail"]["verdict"][0]["path"]) == (422, ["verdict"], path)
    assert call_log() == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"CONTENT_TYPE": "text/plain"}, 415),
        ({"HTTP_ORIGIN": "https://evil.example"}, 403),
        ({"CONTENT_LENGTH": "2000000"}, 413),
    ],
)
def test_a_verdict_is_refused_as_everything_is(headers, status, call_log):
    assert call_app("POST", "/dm/verdict", {"call": "x", "alive": True}, **headers)[0] == status


def test_a_verdict_that_cannot_be_kept_is_a_500(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CALL_LOG_PATH", str(tmp_path / "no folder" / "log"))
    status, answer, _ = call_app("POST", "/dm/verdict", {"call": "x", "alive": True})
    assert (status, "not kept" in answer["detail"]["request_error"]) == (500, True)
    assert '"alive": true' in capsys.readouterr().err


# The play page


def test_the_play_page_is_served_whole_and_asks_nobody_else():
    status, headers, data = wsgi("GET", "/")
    page = data.decode()
    assert (status, headers["Content-Type"].partition(";")[0]) == (200, "text/html")
    assert "default-src 'none'" in headers.get("Content-Security-Policy", page)
    assert page == (HERE / "play.html").read_text(encoding="utf-8")
    loads = r"(?:https?:)?//[a-z]|innerHTML|insertAdjacent|document\.write|eval\("
    assert not re.search(loads, page.replace("// ", ""))
    sample = re.search(r"const SAMPLE = (\{.*?\n\});", page, re.S)[1]
    as_json = re.sub(r",(\s*[\]}])", r"\1", re.sub(r"([{,]\s*)(\w+):", r'\1"\2":', sample))
    read_canon_log(json.loads(as_json))


def test_the_details_of_a_turn_come_before_its_end(ollama, call_log):
    answers(ollama, lines_of("You draw your blade."), lines_of("<think>x</think>"), lines_of("<think>x</think>"))
    (_, call), (kind, _) = stream(QUERY_STRING="details")[1][-2:]
    record = call_log()[0]
    wanted = ("model", "options", "latency_ms", "first_token_ms", "laws")
    assert (kind, call) == ("done", {**{key: record[key] for key in wanted}, "digest": n.digest(SMALL_LOG)})
    (_, call), (kind, _) = stream(QUERY_STRING="details")[1]
    assert (kind, call["first_token_ms"], call["laws"]) == ("error", None, None)


# 7. Command line and server --------------------------------------------------

HARDLY_HTTP = [  # bytes on the wire, the status, words of the answer
    (b"GET /health HTTP/9.9\r\n\r\n", 505, ""),
    (b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n", 414, "too long"),
    (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431, "headers"),
    (b"GET / HTTP/1.1\r\nHost: x\r\nHost: 127.0.0.1\r\n\r\n", 403, "Host"),
    (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 403, "Host"),
    (b"BREW /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 405, "GET"),
    (b"OPTIONS /nothing HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n", 404, "routes"),
    (post(b"", b"Content-Length: -5\r\n"), 411, "Content-Length"),
    (post(b"", b"Content-Length: 1e3\r\n"), 411, "Content-Length"),
    (post(b"2\r\n{}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked\r\n"), 411, "Content-Length"),
    (post(b"", b"Content-Length: 4000000000\r\n"), 413, "at most"),
]


def all_of(connection) -> bytes:
    """What comes until the other side closes."""
    with contextlib.suppress(ConnectionResetError):
        return b"".join(iter(lambda: connection.recv(65536), b""))
    return b""


@pytest.mark.parametrize(("data", "status", "words"), HARDLY_HTTP, ids=lambda value: str(value)[:40])
def test_bytes_that_are_hardly_http_are_answered_in_json(data, status, words, service):
    with socket.create_connection(("127.0.0.1", service), timeout=30) as connection:
        connection.sendall(data)
        response = http.client.HTTPResponse(connection)
        response.begin()
        body = response.read()
    assert (response.status, response.headers["Content-Type"]) == (status, "application/json")
    assert words in json.loads(body)["detail"]["request_error"]


NO_HTTP = {
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(11, 256)) * 2,
    "a few bytes": b"\x16\x03\x01",
    "zeros": b"\x00" * 60000,
    "words": b"nonsense, and no end of line",
    "SSH": b"SSH-2.0-OpenSSH_9.9\r\n",
}


@pytest.mark.parametrize("data", NO_HTTP.values(), ids=NO_HTTP)
def test_what_is_no_http_is_closed_at_once(data, service):
    """Without the deadline for requests in sight, which is longer than this test waits."""
    assert n.READ_SECONDS > 10
    with socket.create_connection(("127.0.0.1", service), timeout=10) as connection:
        connection.sendall(data)
        assert all_of(connection) == b""


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Origin", 403),
        ("Host", 403),
        ("Content-Type", 415),
        ("Content-Length", 411),
        ("Transfer-Encoding", 411),
        ("Accept", 200),
        ("Access-Control-Request-Method", 200),
        ("User-Agent", 200),
    ],
)
def test_a_header_that_is_not_utf_8_is_answered_in_json(header, status, service, real_ollama, call_log, monkeypatch):
    monkeypatch.setenv("OLLAMA_BASE_URL", real_ollama.url)
    got, answer = ask(service, body=SMALL_LOG, headers={header: "\xff"})
    assert (got, list(answer)) == (status, ["prose" if status == 200 else "detail"])


@pytest.mark.parametrize(
    ("size", "headers", "status"),
    [
        (2**20, {}, 422),
        (2**20 + 1, {}, 413),
        (9 * 2**20, {}, 413),
        (9 * 2**20, {"Content-Type": "text/plain"}, 415),
        (9 * 2**20, {"Host": "evil.example"}, 403),
    ],
)
def test_a_client_that_sends_too_much_still_sees_the_answer(size, headers, status, service):
    got, answer = ask(service, body=b" " * size, headers=headers)
    assert (got, "detail" in answer) == (status, True)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_connection_is_closed_behind_its_answer(method, service):
    with socket.create_connection(("127.0.0.1", service), timeout=30) as connection:
        connection.sendall(f"{method} /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: keep-alive\r\n\r\n".encode())
        head, _, body = all_of(connection).partition(b"\r\n\r\n")
    assert (head.split()[1], bool(body)) == (b"404", method == "GET")
    assert (
        head.startswith(b"HTTP/1.0") or b"\r\nConnection: close" in head
    )  # no client is to send its next request here


def test_100_continue(service):
    with socket.create_connection(("127.0.0.1", service), timeout=30) as connection:
        connection.sendall(post(b"", b"Expect: 100-continue\r\nContent-Length: 2\r\n"))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert all_of(connection).split()[1] == b"422"


@pytest.mark.parametrize(
    ("first", "drip", "status"),
    [  # what comes at first, what drips in after it, the answer
        (b"", b"", b""),
        (b"GET /nothing HTTP/1.1\r\nX: ", b"x", b""),
        (post(b"{", b"Content-Length: 5000\r\n"), b"", b"408"),
        (post(b"{", b"Content-Length: 5000\r\n"), b" ", b"408"),
    ],
)
def test_a_request_that_does_not_come_in_time_is_given_up(first, drip, status, monkeypatch, service):
    monkeypatch.setattr(n, "READ_SECONDS", 0.2)
    answer, ends = b"", time.monotonic() + 20
    with (
        socket.create_connection(("127.0.0.1", service), timeout=30) as connection,
        contextlib.suppress(ConnectionError),
    ):
        connection.sendall(first)
        connection.settimeout(0.02)
        while time.monotonic() < ends:
            connection.sendall(drip)
            with contextlib.suppress(TimeoutError):
                if not (piece := connection.recv(65536)):
                    break
                answer += piece
    assert time.monotonic() < ends
    assert answer.split()[1:2] == status.split()


def test_nobody_delays_anybody(service, real_ollama, call_log, monkeypatch):
    monkeypatch.setenv("OLLAMA_BASE_URL", real_ollama.url)
    together = threading.Barrier(40)  # it opens only when all forty calls are at Ollama at once
    real_ollama.before = lambda: together.wait(30)
    with contextlib.ExitStack() as silent, concurrent.futures.ThreadPoolExecutor(40) as pool:
        for number in range(60):
            connection = silent.enter_context(socket.create_connection(("127.0.0.1", service)))
            connection.sendall([b"", post(b"{", b"Content-Length: 9\r\n")][number % 2])
        found = list(pool.map(lambda _: ask(service, body=SMALL_LOG), range(40)))
    assert found == [(200, {"prose": PROSE})] * 40
    assert len(call_log()) == 40


def test_a_client_that_leaves_loses_nothing_of_the_log(service, real_ollama, call_log, monkeypatch, capfd):
    monkeypatch.setenv("OLLAMA_BASE_URL", real_ollama.url)
    left = threading.Event()
    real_ollama.before = lambda: left.wait(30)
    for number in range(10):
        with socket.create_connection(("127.0.0.1", service)) as connection:
            connection.sendall(post(SMALL_LOG))
            wait_until(lambda number=number: len(real_ollama.bodies) > number)
    left.set()
    wait_until(lambda: len(call_log()) == 10)
    assert capfd.readouterr().err == ""


@posix
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_lets_running_calls_finish_and_waits_for_no_silent_client(name, real_ollama, tmp_path):
    stopped = threading.Event()
    real_ollama.before = lambda: stopped.wait(30)
    log = tmp_path / "calls.jsonl"
    with contextlib.ExitStack() as stack:
        program = stack.enter_context(process("--port", "0", OLLAMA_BASE_URL=real_ollama.url, CALL_LOG_PATH=str(log)))
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(4))
        port = port_of(program)
        for _ in range(60):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        running = [pool.submit(ask, port, body=SMALL_LOG) for _ in range(4)]
        connection, read = open_stream(port)
        wait_until(lambda: sum(bool(body["messages"]) for _, body in real_ollama.bodies) == 5)
        program.send_signal(getattr(signal, name))
        program.waits_for("stopping")
        stopped.set()
        assert [call.result() for call in running] == [(200, {"prose": PROSE})] * 4
        with connection, read:
            assert b'event: done\ndata: {"prose": "Fog' in read.read()
        assert program.wait(30) == 0
        assert "Traceback" not in "".join(program.lines)
    assert [json.loads(line)["ok"] for line in log.read_text(encoding="utf-8").splitlines()] == [True] * 5


def test_the_start_line_its_curl_and_the_warm_up(real_ollama, tmp_path):
    folder = tmp_path / "a folder with späces"
    folder.mkdir()
    log, proxy = folder / "calls.jsonl", "http://127.0.0.1:9"
    settings = {"OLLAMA_BASE_URL": real_ollama.url, "CALL_LOG_PATH": str(log), "LC_ALL": "C", "HTTP_PROXY": proxy}
    with process("--port", "0", cwd=folder, http_proxy=proxy, **settings) as program:
        port = port_of(program)
        said = "".join(program.lines)
        assert f"listening on http://127.0.0.1:{port}, model qwen3.5:latest ready" in said
        assert "anyone" not in said
        wait_until(lambda: real_ollama.bodies)
        ((_, warm_up),) = real_ollama.bodies
        assert (warm_up["messages"], "seed" in warm_up["options"]) == ([], False)
        body = {**SMALL_LOG, "location": "Þórshöfn"}
        assert ask(port, body=body) == (200, {"prose": PROSE})
        call = real_ollama.bodies[-1][1]
        if os.name != "nt":
            command = next(line for line in program.lines if line.startswith("curl"))
            done = subprocess.run(command, shell=True, capture_output=True, check=True)
            assert json.loads(done.stdout) == {"prose": PROSE}
    differing = {key for key in call if key not in ("messages", "options") and call[key] != warm_up[key]}
    assert (differing, {**call["options"], **warm_up["options"]}) == (set(), call["options"])
    assert json.loads(log.read_text(encoding="utf-8").splitlines()[0])["canon_log"] == body


def test_a_start_without_ollama_says_what_to_do():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with process("--port", "0", OLLAMA_BASE_URL=f"127.0.0.1:{unused.getsockname()[1]}") as program:
            status, health = ask(port_of(program), "GET", "/health")
            program.waits_for("ahead")
    assert "`ollama serve`" in "".join(program.lines)
    assert (status, health["status"]) == (503, "unavailable")


BEYOND = [("127.0.0.1", False), ("localhost", False), ("::1", False), ("0.0.0.0", True), ("192.168.1.5", True)]


@pytest.mark.parametrize(("host", "warned"), BEYOND)
def test_listening_beyond_this_machine_is_said(host, warned, ollama, capsys):
    ollama.get(TAGS, json=ALL_MODELS)
    answers(ollama, reply())
    n.greet(host, 8080)
    assert ("anyone on the network may call" in capsys.readouterr().err) == warned


def test_a_port_in_use_is_one_line(service, capsys, call_log):
    assert n.main(["--port", str(service)]) == 2
    said = capsys.readouterr().err
    assert (said.count("\n"), f"NARRATOR_PORT {service}" in said) == (1, True)


@pytest.mark.parametrize("arguments", [["--port", "x"], ["--port", "70000"], ["--host", "no such host", "--port", "0"]])
def test_an_address_that_is_none_is_named(arguments, capsys, call_log):
    assert n.main(arguments) == 2
    said = capsys.readouterr().err
    assert (said.count("\n"), f"NARRATOR_{arguments[0][2:].upper()}" in said, arguments[1] in said) == (1, True, True)


MOVED = {"notarize": "python -m notary", "audit": "python -m workbench audit", "replay": "python -m workbench replay"}


@pytest.mark.parametrize(("command", "now"), MOVED.items())
def test_a_command_that_moved_says_where_to(command, now, not_started, capsys):
    assert n.main([command, "x", "--model", "m"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n"), now in said.err) == ("", 1, True)


def test_help_is_the_docstring_and_its_examples_are_true(capsys):
    with pytest.raises(SystemExit):
        n.main(["--help"])
    assert n.__doc__.strip() in capsys.readouterr().out
    assert doctest.testmod(n).failed == 0


# README ----------------------------------------------------------------------

README = (HERE / "README.md").read_text(encoding="utf-8")


def readme_section(title) -> str:
    """From a heading to the next one."""
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", README, re.S | re.M)[1]


def readme_blocks(language) -> list:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_the_readme_names_every_setting_and_no_other():
    settings = set(n.SETTINGS) | {n.ROLES[role]["timeout"][0] for role in n.ROLES}
    settings |= {f"OLLAMA_{role.upper()}_{what}" for role in n.ROLES for what in ("MODEL", "OPTIONS")}
    table = readme_section("Settings")
    named = set(re.findall(r"`((?:OLLAMA|NARRATOR|CALL)_[A-Z_]+)`", table)) - {"OLLAMA_HOST"}
    assert {name for name in named if "NOTARY" not in name} == settings
    assert [default for default in n.SETTINGS.values() if default not in table] == []


def test_the_readmes_curl_posts_a_sound_canon_log():
    command = next(block for block in readme_blocks("sh") if block.startswith("curl"))
    read_canon_log(json.loads(re.search(r"-d '(.*)'", command, re.S)[1]))
    assert list(json.loads(readme_blocks("json")[0])) == ["prose"]


def test_the_readme_lists_the_fields_of_the_log(ollama, call_log):
    answers(ollama, reply("<think>x</think>" + PROSE), 500, 500, lines_of("Fog"), lines_of("Fog", end=False))
    narrate(), narrate(), stream(), stream()
    table = readme_section("The call log")
    fields = {field for record in call_log() for field in record}
    assert {"raw", "error", "first_token_ms", "partial"} <= fields
    assert [field for field in fields if f"`{field}`" not in table] == []


def run_readmes(command, script, port) -> str:
    """What one of the README's clients says when it is run against this port."""
    if not shutil.which(command[0]):
        pytest.skip(f"no {command[0]} here")
    script = script.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    done = subprocess.run(command, input=script, capture_output=True, text=True, encoding="utf-8", check=True)
    return done.stdout


NODE = ["node", "--input-type=module", "-"]
CLIENTS = {
    "python": ([sys.executable, "-X", "utf8", "-"], 'print(canon_log["established_facts"])'),
    "js": (NODE, "console.log(canonLog.established_facts)"),
}


@pytest.mark.parametrize("language", CLIENTS)
def test_the_readmes_clients_narrate_and_harvest(language, service, real_ollama, call_log, monkeypatch):
    monkeypatch.setenv("OLLAMA_BASE_URL", real_ollama.url)
    real_ollama.says = lambda body: "Fog. [FACT: the ferryman is called Corrow] It lifts. [FACT: ]"
    command, show = CLIENTS[language]
    script = f"{readme_blocks(language)[0]}\n{show}"
    prose, harvest = run_readmes(command, script, service).strip().splitlines()
    assert (prose, json.loads(harvest.replace("'", '"'))) == ("Fog. It lifts.", ["the ferryman is called Corrow"])
    assert "The moment passes in silence." in run_readmes(command, script, 9)


def test_the_readmes_streaming_client(service, real_ollama, call_log, monkeypatch):
    monkeypatch.setenv("OLLAMA_BASE_URL", real_ollama.url)
    real_ollama.says = lambda body: ["Fog ", "stands on the ", "quay: 龍."]
    assert run_readmes(NODE, readme_blocks("js")[1], service) == "Fog stands on the quay: 龍.\n"


def test_the_readmes_godot_client_speaks_the_services_words():
    """`.ci/run` parses it."""
    (script,) = readme_blocks("gdscript")
    body = re.search(r"var canon_log := (\{.*\})", script)[1]
    read_canon_log(json.loads(body))
    assert [word for word in ("/dm/narrate", "Content-Type: application/json", '["prose"]') if word not in script] == []


# 8. The house ----------------------------------------------------------------
# A room for each job: who may import whom, and how long a room may be.

SOURCES = [path for path in HERE.rglob("*.py") if not {".venv", ".ci-venv", ".ci"} & set(path.relative_to(HERE).parts)]
ROOMS = [path for path in SOURCES if not path.name.startswith(("test_", "conftest"))]
MAY_IMPORT = {
    "laws": set(),
    "understudy": set(),
    "cassette": set(),
    "narrator_app": {"laws", "understudy", "cassette"},
    "notary": {"laws", "understudy", "narrator_app", "notary"},
    "workbench": {"laws", "narrator_app", "workbench"},
}


def room_of(path) -> str:
    return path.relative_to(HERE).with_suffix("").parts[0]


def imports_of(tree) -> set:
    """Which of our modules are imported anywhere in it; "." is the room's own."""
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.partition(".")[0] for name in names} & set(MAY_IMPORT)


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: str(path.relative_to(HERE)))
def test_imports_run_downwards_only(path):
    assert imports_of(parsed(path)) <= MAY_IMPORT[room_of(path)]


def test_the_understudy_is_imported_only_when_asked_for():
    at_import = [
        node for node in parsed(HERE / "narrator_app.py").body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert imports_of(ast.Module(at_import, [])) == {"laws"}


BUDGETS = {
    "narrator_app.py": 1144,  # 1,000 is wanted
    "laws.py": 600,
    "understudy.py": 180,
    "cassette.py": 100,
    "notary": 2320,  # 1,400 is wanted
    "workbench": 500,
    "play.html": 400,
}


@pytest.mark.parametrize(("room", "limit"), BUDGETS.items())
def test_a_room_stays_within_its_lines(room, limit):
    paths = [path for path in ROOMS if path.is_relative_to(HERE / room)] or [HERE / room]
    count = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths if path.is_file())
    assert count <= limit


def test_the_server_stays_within_its_lines():
    source = (HERE / "narrator_app.py").read_text(encoding="utf-8")
    assert len(source[source.index("\n# 7. ") :].strip().splitlines()) <= 200


@pytest.mark.skipif(not shutil.which("ruff", path=Path(sys.executable).parent), reason="no ruff here")
def test_the_lines_are_those_of_the_formatter():
    command = [shutil.which("ruff", path=Path(sys.executable).parent), "format", "--check", "--line-length", "120"]
    done = subprocess.run([*command, *map(str, ROOMS)], capture_output=True, text=True, encoding="utf-8")
    assert (done.returncode, [line for line in done.stdout.splitlines() if "Would reformat" in line]) == (0, [])


def test_a_section_uses_only_what_stands_above_it():
    source = (HERE / "narrator_app.py").read_text(encoding="utf-8")
    starts = [number for number, line in enumerate(source.splitlines(), 1) if re.match(r"# \d+\. ", line)]
    tree, names = ast.parse(source), {}

    def section(line):
        return sum(start <= line for start in starts)

    for node in tree.body:
        targets = [node] if hasattr(node, "name") else getattr(node, "targets", [])
        names.update({getattr(one, "name", getattr(one, "id", None)): section(node.lineno) for one in targets})
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in names]
    assert [(node.id, node.lineno) for node in used if names[node.id] > section(node.lineno)] == []
    assert len(starts) == 7


def test_the_contents_are_the_banners():
    source = (HERE / "narrator_app.py").read_text(encoding="utf-8")
    banners = re.findall(r"^# (\d+\. .+?) -+$", source, re.M)
    assert re.findall(r"^    (\d+\. .+?)  ", n.__doc__, re.M) == banners
    assert all(len(line) == 79 for line in re.findall(r"^# \d+\. .*$", source, re.M))
    tests = re.findall(r"^# (\d+\. .+?) -+$", Path(__file__).read_text(encoding="utf-8"), re.M)
    assert tests == [*banners, "8. The house"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(HERE)))
def test_docstrings_and_comments_name_nothing_outside_the_repository(path):
    forbidden = "|".join(["DES" + "IGN", "NOTARY" + r"\.md", "WORKBENCH" + r"\.md", r"\bis" + "sue #?[0-9]"])
    assert re.findall(forbidden, path.read_text(encoding="utf-8")) == []


def test_the_script_metadata_are_the_services_packages():
    source = (HERE / "narrator_app.py").read_text(encoding="utf-8")
    block = re.match(r"# /// script\n(.*?)# ///\n", source, re.S)[1]
    packages = json.loads(re.search(r"^# dependencies = (\[.*\])$", block, re.M)[1])
    service, _, _tests = (HERE / "requirements.txt").read_text(encoding="utf-8").partition("\n\n")
    assert packages == [line for line in service.splitlines() if not line.startswith("#")]
    assert '# requires-python = ">=3.10"\n' in block


def test_importing_does_nothing(tmp_path):
    rooms = [room for room in sorted({room_of(path) for path in ROOMS}) if room in MAY_IMPORT]
    code = f"import sys; sys.argv = ['x', '--nonsense']; import {', '.join(rooms)}; print(narrator_app.app.__class__.__name__)"
    settings = {**os.environ, "PYTHONPATH": str(HERE), "NARRATOR_PORT": "nonsense"}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=settings, check=True)
    assert (done.stdout, done.stderr) == ("Bottle\n", "")
    assert list(tmp_path.iterdir()) == []


ALONE = """narrator_app.py laws.py narrator.md canon-log.schema.json play.html README.md requirements.txt pyproject.toml
 conftest.py test_narrator_app.py""".split()
SLOW = (
    "alone or within_its_lines or formatter or signal or start or readmes or leaves or dripping or nobody or processes"
)


def test_the_service_alone_passes_its_tests_and_narrates(tmp_path, real_ollama):
    """Whoever deletes the other rooms and the understudy loses their commands and nothing else."""
    for name in ALONE:
        shutil.copy(HERE / name, tmp_path)
    settings = {**os.environ, "PYTHONPATH": "", "OLLAMA_BASE_URL": real_ollama.url, "CALL_LOG_PATH": os.devnull}

    def run(*arguments):
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, encoding="utf-8")

    tests = run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", f"not ({SLOW})")
    assert tests.returncode == 0, tests.stdout[-2000:]
    code = "import conftest as c; print(c.narrate(c.CANON_LOG)[1])"
    assert run("-c", code).stdout == f"{ {'prose': PROSE} }\n"
    assert "understudy can't be used" in run("narrator_app.py", "--understudy").stderr
