"""What the cassette promises: a recorded log answers as the model did, without one."""

import json

import pytest

import cassette
import narrator_app as n
from conftest import CANON_LOG, PROSE, SMALL_LOG, answers, call_app, deltas, lines_of, narrate, reply, stream


@pytest.fixture
def recorded(ollama, call_log, tmp_path, monkeypatch):
    """Play these replies to SMALL_LOG once, and use their log as the cassette from then on."""

    def record(*replies, play=narrate):
        for one in replies:
            answers(ollama, *one) if isinstance(one, list) else answers(ollama, one)
            play()
        path = tmp_path / "evening.jsonl"
        (tmp_path / "calls.jsonl").rename(path)
        for name in ("OLLAMA_BASE_URL", *(f"OLLAMA_{role.upper()}_MODEL" for role in n.ROLES)):
            monkeypatch.setenv(name, "")  # so that what stand_in() sets ends with the test
        own = n.session.__wrapped__()
        monkeypatch.setattr(n, "session", lambda: own)
        n.stand_in("cassette", str(path))

    return record


def test_a_recorded_call_is_said_again_whatever_the_seed(recorded, call_log):
    recorded(reply("<think>hm</think>Fog."))
    assert narrate()[:2] == (200, {"prose": "Fog."})
    (record,) = call_log()
    assert (record["model"], record["raw"], record["eval_count"]) == ("cassette/evening", "<think>hm</think>Fog.", 60)
    status, health, _ = call_app("GET", "/health")
    assert (status, health["models"]["narrator"]) == (200, {"model": "cassette/evening", "available": True})


def test_several_recordings_of_one_question_come_in_their_order_the_last_again_and_again(recorded):
    recorded(reply("One."), reply("Two."))
    assert [narrate()[1]["prose"] for _ in range(4)] == ["One.", "Two.", "Two.", "Two."]


def test_a_stream_comes_in_pieces(recorded):
    recorded(reply("Fog stands on\n\nthe quay."))
    assert stream()[1][:-1] == deltas("Fog ", "stands ", "on\n\n", "the ", "quay.")


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: {**SMALL_LOG, "location": "a barn"},
        lambda patch: patch.setattr(n, "system_prompt", lambda role: "Be brief.") or SMALL_LOG,
        lambda patch: patch.setattr(n, "digest", lambda canon_log: "All is well.") or SMALL_LOG,
    ],
    ids=["canon log", "prompt", "digest"],
)
def test_a_call_that_is_not_on_it_says_why_and_how_to_record_it(change, recorded, monkeypatch):
    recorded(reply())
    status, answer, _ = narrate(change(monkeypatch))
    assert status == 502
    assert "ollama pull" not in answer["detail"]["model_error"]
    for words in ("isn't on the cassette", "another canon log", "prompt or digest changed", "record it"):
        assert words in answer["detail"]["model_error"]


def test_a_failed_call_fails_as_it_did(recorded):
    recorded([500, 500], reply())
    status, answer, _ = narrate()
    assert (status, "Ollama answered 500" in answer["detail"]["model_error"]) == (502, True)
    assert narrate()[:2] == (200, {"prose": PROSE})


def test_a_stream_that_broke_off_breaks_off_again(recorded):
    recorded(lines_of("Fog ", "stands", end=False), play=stream)
    events = stream()[1]
    assert events[:-1] == deltas("Fog ", "stands")
    assert (events[-1][0], "broke off" in events[-1][1]["detail"]["model_error"]) == ("error", True)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"", "no calls"), (b'{"verdict": {}}\nnonsense\n\xff\n[1]\n7\n', "no calls")],
)
def test_what_is_no_cassette_stops_the_start(content, words, tmp_path, capsys, call_log):
    path = tmp_path / "tape.jsonl"
    path.write_bytes(content) if content is not None else None
    assert n.main(["--cassette", str(path)]) == 2
    assert words in capsys.readouterr().err


def test_a_models_loading_is_no_call(recorded):
    recorded(reply())
    assert n.ask_ollama("POST", "/api/chat", n.chat_body("narrator", []), 5)["done_reason"] == "load"


@pytest.mark.parametrize(
    "line",
    [
        '{"messages": [], "ok": true, "response": 5}',
        '{"messages": [], "ok": true}',
        '{"messages": [], "ok": true, "response": "x", "raw": []}',
        '{"messages": [], "ok": false, "error": "x", "partial": 5}',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_whole_call_is_passed_over(line, tmp_path):
    (tmp_path / "log").write_text(f'{line}\n{{"messages": [1], "ok": true, "response": "y"}}\n', encoding="utf-8")
    assert [len(found) for found in cassette.read_recordings(str(tmp_path / "log")).values() if found] == [1]


def test_other_lines_of_a_log_are_passed_over(tmp_path):
    call = {"messages": [{"role": "user", "content": "x"}], "ok": True, "response": "y"}
    path = tmp_path / "log"
    path.write_text(
        "\n".join(["{", json.dumps({"verdict": {"call": "1", "alive": True}}), json.dumps(call)]), encoding="utf-8"
    )
    assert list(cassette.read_recordings(str(path))) == [cassette.question({**call, "format": None})]


def test_records_of_the_notary_are_found_by_their_format():
    call = {"messages": [{"role": "user", "content": json.dumps(CANON_LOG)}]}
    assert cassette.question(call) != cassette.question({**call, "format": {"type": "object"}})
