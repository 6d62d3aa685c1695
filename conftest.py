"""What the tests of several rooms need: a quiet environment, an Ollama of our own, the program as a process."""

import concurrent.futures
import contextlib
import http.client
import http.server
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest
import responses
from responses.registries import OrderedRegistry

import narrator_app as n

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
ALL_MODELS = {"models": [{"name": "qwen3.5:latest"}]}
REAL_SETTINGS = {name: value for name, value in os.environ.items() if name.startswith("OLLAMA_")}
posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no signals to send to a process")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, request):
    """No setting of the machine reaches a test, none of a test the next one, and the notary only its own tests."""
    if request.path.parent.name != "notary":
        monkeypatch.delitem(n.ROLES, "notary", raising=False)
    for name in list(os.environ):
        if name.startswith(("OLLAMA_", "NARRATOR_", "CALL_LOG_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setitem(n.LOG_STATE, "failure", None)
    monkeypatch.setattr(n, "MODELS_HEARD", {})


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
    return {
        "model": "m",
        "message": {"role": "assistant", "content": content},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 400,
        "eval_count": 60,
        **fields,
    }


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


def wsgi(method, path, body=b"", **headers):
    """One request to the WSGI app, held to the letter of WSGI: (status, headers, bytes)."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": "", "SCRIPT_NAME": ""}
    environ.update({"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)})
    if method == "POST":
        environ["CONTENT_TYPE"] = "application/json"
    environ.update(headers)
    setup_testing_defaults(environ)
    environ = {name: value for name, value in environ.items() if value is not None}
    seen = {}
    result = validator(n.app)(environ, lambda status, fields, exc_info=None: seen.update(status=status, fields=fields))
    with contextlib.closing(result):
        data = b"".join(result)
    return int(seen["status"][:3]), dict(seen["fields"]), data


def call_app(method, path, body=b"", **headers):
    """One request to the WSGI app: (status, JSON or None, headers)."""
    status, fields, data = wsgi(method, path, body, **headers)
    if data:
        assert fields["Content-Type"] == "application/json"
    return status, json.loads(data) if data else None, fields


def narrate(body=SMALL_LOG, **headers):
    return call_app("POST", "/dm/narrate", body, **headers)


def stream(body=SMALL_LOG, accept="text/event-stream", **headers):
    """One streamed narration: (200, events, the id of "done" checked and left out), or (status, JSON) where it was refused."""
    status, fields, data = wsgi("POST", "/dm/narrate", body, HTTP_ACCEPT=accept, **headers)
    if status != 200:
        return status, json.loads(data)
    assert fields["Content-Type"].startswith("text/event-stream")
    events = events_of(data)
    if events[-1][0] == "done":
        assert re.fullmatch("[0-9a-f]{32}", events[-1][1].pop("id"))
    return 200, events


class FakeOllama(http.server.BaseHTTPRequestHandler):
    """A real server that answers as Ollama does; `before` runs before each chat answer."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet an answer: the kernel would hold the second back

    def do_GET(self):
        self.answer(ALL_MODELS)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append((self.client_address, body))
        if body["messages"]:
            self.server.before()
        said = self.server.says(body)
        if body.get("stream"):
            self.stream([said] if isinstance(said, str) else said)
        else:
            self.answer(reply(said))

    def stream(self, pieces):
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        for piece in pieces:
            self.server.between()
            self.wfile.write(lines_of(piece, end=False))
            self.wfile.flush()
        self.wfile.write(lines_of())

    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, *args):
        pass


@pytest.fixture
def real_ollama():
    """A FakeOllama that is listening; `.bodies` are who sent what; `.says`, `.before`, `.between` its handles."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeOllama)
    server.url, server.bodies = f"http://127.0.0.1:{server.server_port}", []
    server.says, server.before, server.between = lambda body: PROSE, lambda: None, lambda: None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def server():
    """The app on its own server, in this process."""
    server = n.Server(("127.0.0.1", 0), n.Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.stop()
    server.server_close()


@pytest.fixture
def service(server):
    """The port of the app on its own server."""
    return server.server_port


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
def process(*arguments, program=(str(HERE / "narrator_app.py"),), cwd=HERE, **environment):
    """A real program; ends with it stopped. `.lines` grows with what it says on standard error."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OLLAMA_", "NARRATOR_", "CALL_LOG_"))}
    command = [sys.executable, *program, *arguments]
    with subprocess.Popen(
        command,
        cwd=cwd,
        env={**clean, "PYTHONPATH": str(HERE), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as program:
        program.lines = []
        reader = threading.Thread(target=lambda: [program.lines.append(line.decode()) for line in program.stderr])
        reader.start()
        program.waits_for = lambda text: wait_until(
            lambda: text in "".join(program.lines) or program.poll() is not None
        )
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


def lines_of(*pieces, end=True, **fields) -> bytes:
    """Ollama's stream of these pieces; without an end its last line is missing."""
    lines = [{"message": {"role": "assistant", "content": piece}, "done": False} for piece in pieces]
    if end:
        lines.append({**reply(""), **fields})
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)


def deltas(*texts):
    return [("delta", {"text": text}) for text in texts]


def events_of(data: bytes) -> list:
    """The server-sent events as (kind, data), comments aside."""
    blocks = [block for block in data.decode().split("\n\n") if block and not block.startswith(":")]
    return [
        (kind.removeprefix("event: "), json.loads(body.removeprefix("data: ")))
        for kind, body in (block.split("\n") for block in blocks)
    ]


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


@pytest.fixture
def real_model(monkeypatch, call_log):
    """A real model: Ollama where OLLAMA_BASE_URL says, or the understudy. Not reachable is a failure."""
    if os.environ.get("LIVE") == "understudy":
        for name in (
            "OLLAMA_BASE_URL",
            "OLLAMA_TIMEOUT_SECONDS",
            *(f"OLLAMA_{role.upper()}_MODEL" for role in n.ROLES),
        ):
            monkeypatch.setenv(name, "")  # so that what stand_in() sets ends with the test
        n.stand_in("understudy")
    else:
        for name, value in REAL_SETTINGS.items():
            monkeypatch.setenv(name, value)
    return n.role_model("narrator")
