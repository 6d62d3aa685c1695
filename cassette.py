"""A call log that answers instead of a model, for a game's own tests: what was recorded once is said again.

`Cassette` is a transport for requests that sends nothing anywhere. Mounted on a session under `URL`, it answers
POST /api/chat and GET /api/tags in Ollama's own shapes, in pieces where a stream is asked for.
"""

import io
import json
import re
import threading
from pathlib import Path
from urllib.parse import urlsplit

import urllib3
from requests.adapters import HTTPAdapter

URL = "http://cassette"  # no such host: only a session that has the adapter knows it
MISSING = (
    "this call isn't on the cassette: another canon log, or the prompt or digest changed since;"
    " record it: play it to a model with CALL_LOG_PATH set"
)


def transport(path: str, _say, _check) -> tuple:
    """(URL, the transport, its model, its patience: none of its own). Raises OSError, ValueError as Cassette does."""
    tape = Cassette(path)
    return URL, tape, tape.model, ""


class Cassette(HTTPAdapter):
    """The transport. Raises OSError when the log can't be read, ValueError when no call stands in it."""

    def __init__(self, path: str):
        super().__init__()
        self.model, self.turn = f"cassette/{Path(path).stem}", threading.Lock()
        self.recordings = read_recordings(path)

    def send(self, request, **_ignored):
        if urlsplit(request.url).path == "/api/tags":
            status, lines = 200, [{"models": [{"name": self.model, "model": self.model}]}]
        else:
            status, lines = self.answer(json.loads(request.body))
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        answer = urllib3.HTTPResponse(io.BytesIO(data), status=status, preload_content=False)
        return self.build_response(request, answer)

    def answer(self, body: dict) -> tuple:
        """Status and lines: one line, or when `stream`, one for each piece and the last."""
        if not body["messages"]:  # a model is loaded so
            return 200, [{"model": self.model, "message": {"content": ""}, "done": True, "done_reason": "load"}]
        replies = self.recordings.get(question(body))
        if not replies:
            return 404, [{"error": MISSING}]
        with self.turn:
            record = replies.pop(0) if len(replies) > 1 else replies[0]  # the last again and again
        if not record["ok"] and not (body.get("stream") and record.get("partial")):
            return 500, [{"error": record.get("error")}]
        text = record.get("raw", record.get("response", record.get("partial")))
        pieces = re.findall(r"\s*\S+\s*", text) or [text] if body.get("stream") else [text]
        lines = [{"message": {"role": "assistant", "content": piece}, "done": False} for piece in pieces]
        counts = {key: record.get(key) for key in ("done_reason", "prompt_eval_count", "eval_count")}
        if not body.get("stream"):
            return 200, [{**lines[0], "model": self.model, "done": True, **counts}]
        last = {"message": {"role": "assistant", "content": ""}, "model": self.model, "done": True, **counts}
        return 200, [*lines, last] if record["ok"] else lines  # one that broke off breaks off again


def question(call: dict) -> str:
    """What tells one call from another: model, seed and options are no matter."""
    return json.dumps([call["messages"], call.get("format")], sort_keys=True)


def read_recordings(path: str) -> dict:
    """The logged calls by question(), each list in the order of the log; a failed one twice, as it was tried twice."""
    recordings = {}
    with open(path, encoding="utf-8-sig", errors="surrogateescape") as log:
        for line in log:
            try:
                record = json.loads(line)
                said = record.get("raw", record["response"]) if record["ok"] else record.get("partial", record["error"])
                replies = recordings.setdefault(question(record), []) if isinstance(said, str) else []
                replies += [record] if record["ok"] or "partial" in record else [record, record]
            except (ValueError, TypeError, KeyError, RecursionError):
                continue  # a verdict, a line that a crash cut
    if not recordings:
        raise ValueError(f"{path} has no calls in it")
    return recordings
