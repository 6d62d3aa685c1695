# /// script
# requires-python = ">=3.10"
# dependencies = ["bottle>=0.13,<0.14", "requests>=2.32,<3", "jsonschema>=4.21,<5"]
# ///
"""Narrator: the voice of a bounded dungeon master.

A game POSTs its canon log, a local model answers as the Narrator, the game gets
prose. Code owns state; the model owns text.

    python narrator_app.py                 with Ollama on this machine
    python narrator_app.py --understudy    without it: a small model stands in
                                           (then play at http://127.0.0.1:8080/)
    python narrator_app.py --cassette LOG  what a call log holds, for a game's tests

Contents
    1. Settings and roles         every knob, and what each role sends
    2. Prompts and digest         what comes in, and what the model reads of it
    3. Call log                   one JSON line a call
    4. Model call                 everything sent to Ollama leaves here
    5. Narrator                   canon log in, prose out
    6. Routes                     HTTP, and every error as JSON
    7. Command line and server    settings checked, server started and stopped
"""

import argparse
import contextlib
import functools
import hashlib
import http.client
import importlib
import io
import ipaddress
import itertools
import json
import math
import os
import queue
import random
import re
import signal
import socket
import socketserver
import sys
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import bottle
import requests
import urllib3

from laws import find_broken_laws

if os.name == "nt":
    import msvcrt
else:
    import fcntl

# 1. Settings and roles -------------------------------------------------------
# Environment beats default; a bad value stops the start and names its variable.

# fmt: off
ROLES = {
    "narrator": {
        "prompt": "narrator.md",                    # the system prompt, beside this file
        "model": "qwen3.5:latest",                  # OLLAMA_NARRATOR_MODEL beats it; None: the narrator's
        "options": {                                # OLLAMA_NARRATOR_OPTIONS is laid over it
            "temperature": 0.8,
            "top_p": 0.9,
            "num_predict": 300,                     # tokens an answer may have
            "num_ctx": 8192,                        # tokens prompt and answer may have; of one model the largest
        },
        "think": False,                             # None: not sent
        "keep_alive": "30m",                        # how long Ollama keeps the model loaded
        "timeout": ("OLLAMA_TIMEOUT_SECONDS", 30),  # seconds, one attempt's whole time
    },
}

SETTINGS = {
    "OLLAMA_BASE_URL": "http://127.0.0.1:11434",
    "CALL_LOG_PATH": "",                            # empty: standard output
    "NARRATOR_HOST": "127.0.0.1",
    "NARRATOR_PORT": "8080",                        # 0: any free port
    "NARRATOR_ALLOWED_ORIGINS": "",                 # comma-separated, such as https://play.example
}

MAX_ANSWER = 4 * 2**20                              # bytes of one Ollama answer
MAX_CANON_LOG = 2**20                               # bytes of one posted canon log
MAX_INPUT_ERRORS = 20                               # listed in one 422
WATCH_SECONDS = 0.25                                # how often a silent stream looks whether its client is there
SEND_SECONDS = 10                                   # how long a client may keep us waiting to take its answer
READ_SECONDS = 60                                   # a client's whole time to send its request
LINGER_SECONDS = 2                                  # a client's time to see that it is refused, while it sends
HEALTH_SECONDS = 3                                  # how long /health waits for Ollama, and believes what it heard
WARM_UP_SECONDS = 600                               # a large model loads slowly
HERE = Path(__file__).resolve().parent
FAULT = "a fault in the service; what happened stands on its standard error"
# fmt: on


class NarratorError(Exception):
    """What went wrong, in words that say what to do next; `status` and `detail()` are how HTTP says it."""

    status, key, errors = 500, "request_error", None

    def detail(self) -> dict:
        return {self.key: self.errors or str(self)}


class SettingError(NarratorError):
    """An environment variable, a flag or a file can't be used; a client needn't hear its value."""


class ModelError(NarratorError):
    """The model gave no usable answer; the text is the reason, one line of at most 300 characters."""

    status, key = 502, "model_error"

    def __init__(self, reason: str):
        super().__init__(shorten(reason, 300))


class UnusableAnswer(ModelError):
    """Ollama answered, but not with something to serve: the same request would fail the same way."""


class ClientLeft(NarratorError):
    """Nobody listens to the stream any more."""


class InputError(NarratorError):
    """What was posted isn't what it should be; `errors` are `{"path", "message"}`."""

    status = 422

    def __init__(self, key: str, errors: list):
        super().__init__("; ".join(f"{error['path']} {error['message']}" for error in errors))
        self.key, self.errors = key, errors


RequestError = bottle.HTTPError  # (status, text): the HTTP request itself is refused, whatever its body says


def setting(name: str, parse=str, default: object = ""):
    """The environment variable as `parse` reads it; unset or blank, the default. Raises SettingError."""
    text = os.environ.get(name, "").strip() or str(SETTINGS.get(name, default))
    try:
        return parse(text)
    except ValueError as error:
        raise SettingError(f"{name} is {shorten(repr(text), 80)}, but {error}") from error


def role_model(role: str) -> str:
    """The model's name as Ollama knows it."""
    return setting(f"OLLAMA_{role.upper()}_MODEL", default=ROLES[role]["model"] or role_model("narrator"))


def role_options(role: str) -> dict:
    """The role's sampling options with the variable's laid over them; no seed unless one is set there."""
    own = {
        name: ROLES[name]["options"] | setting(f"OLLAMA_{name.upper()}_OPTIONS", parse_options, "{}") for name in ROLES
    }
    model = full_name(role_model(role))
    sizes = [own[name].get("num_ctx", 0) for name in ROLES if full_name(role_model(name)) == model]
    return own[role] | ({"num_ctx": max(sizes)} if any(sizes) else {})  # Ollama loads a model anew when it changes


def full_name(model: str) -> str:
    """The model's name with its tag, in one spelling: Ollama takes `Llama3.2` and `llama3.2:latest` for the same."""
    return (model if ":" in model.rpartition("/")[2] else f"{model}:latest").casefold()


def role_timeout(role: str) -> float:
    """Seconds one attempt may take."""
    name, default = ROLES[role]["timeout"]
    return setting(name, parse_seconds, default)


def parse_json(text: str):
    """The value; stricter than `json.loads`: no repeated keys, no NaN, no infinity. Raises ValueError."""
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _unique_keys(pairs: list) -> dict:
    if len(found := dict(pairs)) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {shorten(repr(key), 60)} is repeated")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is no number that JSON has")
    return number


def parse_options(text: str) -> dict:
    """Ollama's sampling options, those that are known to be numbers checked. Raises ValueError."""
    whole, numbers = ("num_predict", "num_ctx", "seed"), ("temperature", "top_p")
    try:
        options = dict(parse_json(text).items())
    except (ValueError, AttributeError) as error:
        raise ValueError(f'it must be a JSON object such as {{"temperature": 0.5}}: {error}') from error
    for name, value in options.items():
        if (name in whole and type(value) is not int) or (name in numbers and type(value) not in (int, float)):
            raise ValueError(f"{name} must be a {'whole ' if name in whole else ''}number")
    return options


def parse_number(kind: type, lowest: float, highest: float, text: str) -> float:
    """The text as a number of this kind in this range. Raises ValueError."""
    with contextlib.suppress(ValueError):
        if lowest <= kind(text) <= highest:
            return kind(text)
    raise ValueError(f"it must be a {'whole ' if kind is int else ''}number from {lowest} to {highest}")


parse_seconds = functools.partial(parse_number, float, 0.001, 86400)
parse_port = functools.partial(parse_number, int, 0, 65535)


def parse_base_url(text: str) -> str:
    """Ollama's address as `scheme://host[:port]`, read the way Ollama reads its own OLLAMA_HOST. Raises ValueError."""
    scheme, scheme_given, rest = text.strip().lower().rpartition("://")
    netloc, _, path = rest.rstrip("/").partition("/")
    if path:
        raise ValueError(f"it must end behind the port: leave out '/{path}', the service adds /api/chat itself")
    parts = re.fullmatch(r"(\[[0-9a-f:.]+\]|[\w.-]*)(?::([0-9]+))?", netloc)
    if not parts or scheme not in ("", "http", "https") or (scheme_given and not netloc):
        raise ValueError("it must be only http:// or https://, a host and a port, such as http://127.0.0.1:11434")
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(parts[1], parts[1])
    port = parts[2] or ("" if scheme_given else "11434")
    return f"{scheme or 'http'}://{host}{f':{parse_port(port)}' if port else ''}"


def parse_origins(text: str) -> list:
    """Comma-separated browser origins as browsers write them. Raises ValueError."""
    origins = [origin.strip().rstrip("/").lower() for origin in text.split(",") if origin.strip()]
    if not all(re.fullmatch(r"[a-z][a-z0-9+.-]*://[\w.-]+(:[0-9]{1,5})?", origin) for origin in origins):
        raise ValueError("each origin must be like https://play.example or http://localhost:3000")
    return [re.sub(r"^(http://.+):80$|^(https://.+):443$", r"\1\2", origin) for origin in origins]


def is_loopback(host: str) -> bool:
    """Whether the host is this machine and nothing else."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def shorten(text: str, limit: int) -> str:
    """The text on one line, cut with an ellipsis where it is longer than `limit` characters."""
    text = one_line(text).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_line(text: str) -> str:
    """The text with every run of white space as one space, and no other control character."""
    return _SPACE.sub(" ", _CONTROL.sub("", text))


_SPACE, _CONTROL = re.compile(r"\s+"), re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")


def say(text: str) -> None:
    """Tell the operator, on standard error; one that is closed must not cost a player the prose."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"narrator: {text}\n")
        sys.stderr.flush()


def why(error: BaseException) -> str:
    """The first cause, on one line, without the machine's paths, which an OSError carries along."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return shorten(getattr(error, "strerror", None) or str(error), 120)


# 2. Prompts and digest -------------------------------------------------------
# The model reads a projection of the canon log, never the log itself.


def digest(canon_log: dict) -> str:
    """The canon log as the model reads it: labels, one line a field, no number and no id of the game's."""
    quest, player = canon_log.get("active_quest"), canon_log["player"]
    companions = ", ".join(in_prompt(companion["name"]) for companion in canon_log.get("companions", []))
    lines = [f"Location: {in_prompt(canon_log['location'])}"]
    for label, key in (("Recent events:", "recent_events"), ("Established facts:", "established_facts")):
        if items := canon_log.get(key):
            lines += [label, *(f"- {in_prompt(item)}" for item in items)]
    lines.append(f"Companions present: {companions if canon_log.get('companions') else 'none'}")
    if quest:
        lines.append(f"Active quest: {in_prompt(quest['title'])} — {in_prompt(quest['summary'])}")
    if canon_log.get("luck_descriptor"):
        lines.append(f"Fortune: {in_prompt(canon_log['luck_descriptor'])}")
    lines.append("Player: " + ", ".join(in_prompt(player[key]) for key in ("name", "description") if key in player))
    return "\n".join([*lines, "", "Describe the scene as it is now."])


def in_prompt(text: str) -> str:
    """One field as one line that can't pose as a chat-template token, a tag or another line."""
    return one_line(text).translate(_HARMLESS)


_HARMLESS = str.maketrans("<>[]", "‹›()")


def system_prompt(role: str) -> str:
    """The role's prompt, as its file is now: editing it needs no restart. Raises SettingError."""
    return read_file(HERE / ROLES[role]["prompt"], parse_prompt)


def parse_prompt(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


def read_file(path: Path, parse):
    """What stands in a file, as `parse` reads it. Raises SettingError."""
    try:
        return parse(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise SettingError(f"the file {path.name} can't be used: {why(error)}") from error


def make_validator(schema: dict):
    """jsonschema's validator; a list that is too long is one fault: judging 300,000 items would take seconds."""
    import jsonschema  # only here: a start needn't wait for it

    check_items = jsonschema.Draft202012Validator.VALIDATORS["items"]

    def items(validator, items, value, schema):
        if not isinstance(value, list) or len(value) <= schema.get("maxItems", len(value)):
            yield from check_items(validator, items, value, schema)

    return jsonschema.validators.extend(jsonschema.Draft202012Validator, {"items": items})(schema)


def read_input(data: bytes, validator, key: str) -> dict:
    """The posted document, valid by its schema. Raises InputError with all that is wrong, at most 20."""
    try:
        document = parse_json(data.decode("utf-8-sig"))
    except ValueError as error:
        message = f"it must be sound JSON in UTF-8: {error}" if data.strip() else "it is empty"
        raise InputError(key, [fault("$", message)]) from error
    check_input(document, validator, key)
    return document


def check_input(document, validator, key: str) -> None:
    """Raises InputError where the document isn't valid."""
    try:
        errors = list(itertools.islice(validator.iter_errors(document), 1000))
    except RecursionError as error:
        raise InputError(key, [fault("$", "it is nested too deeply")]) from error
    if errors:
        errors.sort(key=lambda error: [(isinstance(step, str), step) for step in error.absolute_path])
        raise InputError(key, [fault(error.json_path, explain(error)) for error in errors[:MAX_INPUT_ERRORS]])


def fault(path: str, message: str) -> dict:
    """One entry of a 422."""
    return {"path": shorten(path, 200), "message": shorten(message, 200)}


def explain(error) -> str:
    """jsonschema's words, with "it" for the value, which may be a megabyte long, and with the limit."""
    if error.validator == "pattern":
        return "must hold something other than white space"
    limit = f" ({error.validator}: {error.validator_value})" if type(error.validator_value) is int else ""
    return error.message.replace(repr(error.instance), "it", 1) + limit


# 3. Call log -----------------------------------------------------------------
# Each call is one JSON line, whole, complete enough to be sent again.


@contextlib.contextmanager
def logged_call(role: str, record: dict | None = None, **about):
    """The record of one model call, to be filled while it runs; written as one line however it ends."""
    record = {} if record is None else record
    record.update({**stamp(), "role": role, **about})
    started = time.perf_counter()
    try:
        yield record
    except BaseException as error:
        reason = str(error) if isinstance(error, NarratorError) else f"the service broke it off: {type(error).__name__}"
        record.update(ok=False, error=reason)
        raise
    finally:
        record["latency_ms"] = milliseconds_since(started)
        if record.get("attempts"):  # else there was no call
            write_record(record)


def stamp() -> dict:
    """What every line begins with: when it was, and its name."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"ts": now, "id": f"{random.getrandbits(128):032x}"}


def milliseconds_since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 1)


LOG_STATE = {"failure": None}  # why the last record isn't there
_ONE_AT_A_TIME = threading.Lock()


def write_record(record: dict) -> bool:
    """Append the record to the call log, and whether it is there.

    A log that fails costs a loud line, which holds the record, and nothing else.
    """
    text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    try:
        with _ONE_AT_A_TIME, _open_log() as log:
            _append(log, f"{text}\n".encode("utf-8", "backslashreplace"))
        LOG_STATE["failure"] = None
        return True
    except (OSError, ValueError) as error:
        LOG_STATE["failure"] = why(error)
        say(f"THE CALL LOG CAN'T BE WRITTEN ({why(error)}). The record: {text}")
        return False


def _open_log():
    """The call log, to append to; opened each time anew, as the file may be moved away while we run."""
    if path := setting("CALL_LOG_PATH"):
        return open(path, "a+b", buffering=0)
    if sys.__stdout__ is None:
        raise OSError(0, "standard output is closed")
    return open(sys.__stdout__.fileno(), "wb", buffering=0, closefd=False)


def _append(log, line: bytes) -> None:
    """Write the line whole or not at all, on a line of its own: a crash or a full disk may have cut the last one."""
    cut, size = LOG_STATE["failure"], None
    if log.readable() and log.seekable():  # a file, and not standard output
        with contextlib.suppress(OSError):  # where there is no lock, appending in one write has to do
            _lock(log)
        size = log.seek(0, os.SEEK_END)
        cut = size > 0 and log.seek(-1, os.SEEK_END) >= 0 and log.read(1) != b"\n"
    line = b"\n" + line if cut else line
    try:
        while line := line[log.write(line) :]:
            pass  # one write is enough, but where the disk is full: then the next one says so
    except OSError:
        if size is not None:
            log.truncate(size)
        raise


def _lock(log) -> None:
    if os.name == "nt":
        log.seek(2**31 - 2)  # a byte that no record reaches
        msvcrt.locking(log.fileno(), msvcrt.LK_LOCK, 1)
    else:
        fcntl.flock(log, fcntl.LOCK_EX)


def call_log_state() -> str:
    """ "ok", or why the log can't be written now."""
    try:
        _open_log().close()
        return LOG_STATE["failure"] or "ok"
    except (OSError, ValueError) as error:
        return why(error)


# 4. Model call ---------------------------------------------------------------
# Everything sent to Ollama leaves here; chat() is the one way to a model's words.


def chat(role: str, messages: list, record: dict, *, format: dict | None = None, raw=False, on_delta=None) -> str:
    """The model's text without its reasoning, or as it came when `raw`; `record` gets the fields of the call log.

    `on_delta` hears the text while it is made. Raises ModelError.
    """
    return send_chat(chat_body(role, messages, format), role_timeout(role), record, raw, on_delta)


def chat_body(role: str, messages: list, format: dict | None = None) -> dict:
    """What POST /api/chat is sent. Whatever differs beyond messages, seed and format could make Ollama load anew."""
    entry = ROLES[role]
    body = {"model": role_model(role), "messages": messages, "stream": False, "keep_alive": entry["keep_alive"]}
    body["options"] = {"seed": random.randrange(2**31), **role_options(role)}
    body["truncate"] = False  # an overlong prompt must fail, not lose canon in silence
    beside = {"think": entry["think"], "format": format or entry.get("format")}
    return {**body, **{key: value for key, value in beside.items() if value is not None}}


def send_chat(body: dict, timeout: float, record: dict, raw: bool = False, on_delta=None) -> str:
    """What chat() gives, for a body that is made already: a call that fails before its first word is made once more."""
    system = body["messages"][0]["content"].encode("utf-8", "replace")
    record.update({key: body.get(key) for key in ("model", "options", "think", "messages")}, attempts=[])
    record.update(prompt_sha256=hashlib.sha256(system).hexdigest(), **{k: body[k] for k in ("format",) if k in body})
    began = time.perf_counter()
    for last in (False, True):
        attempt, started = {"seed": body["options"]["seed"]}, time.perf_counter()
        record["options"] = body["options"]  # with the seed that gave this outcome
        record["attempts"].append(attempt)
        try:
            ask = functools.partial(_stream, record, on_delta, began) if on_delta else ask_ollama
            record.update(usable_answer(ask("POST", "/api/chat", body, timeout), raw), ok=True)
            break
        except ModelError as error:
            attempt["error"] = str(error)
            if last or "partial" in record:
                raise
            if isinstance(error, UnusableAnswer):  # the identical request would fail identically
                body["options"] = {**body["options"], "seed": (attempt["seed"] + 1) % 2**31}
        finally:
            attempt["latency_ms"] = milliseconds_since(started)
    record.pop("partial", None)
    return record.get("raw", record["response"]) if raw else record["response"]


def _stream(record: dict, on_delta, began: float, method: str, path: str, body: dict, seconds: float) -> dict:
    """Ollama's last line with the whole text in it; on the way `on_delta` hears what may be told of it already."""
    content = ""
    with _response(method, path, {**body, "stream": True}, seconds) as raw:
        for line in map(_json_object, _texts(raw, split=True)):
            content, done = content + message_text(line), line.get("done") is True
            text, told = spoken(content, more=not done), record.get("partial", "")
            if text.strip() and text.startswith(told) and text != told:
                record.setdefault("first_token_ms", milliseconds_since(began))
                record["partial"] = text
                on_delta(text[len(told) :])
            if done:
                return {**line, "message": {"content": content}}
    raise ModelError("Ollama's stream broke off before its last line: is it still running?")


def usable_answer(reply: dict, raw: bool = False) -> dict:
    """The record's fields of an answer that says something, its reasoning counted when `raw`. Raises UnusableAnswer."""
    content = message_text(reply)
    response = spoken(content)
    if not (content if raw else response).strip():
        spent = reply.get("done_reason") == "length"
        what = "reasoning alone" if content.strip() else "nothing"
        silent = f"the model answered with {what}: ask again, or choose another model"
        raise UnusableAnswer("the answer budget (num_predict) was spent on thinking" if spent else silent)
    counts = {key: reply.get(key) for key in ("done_reason", "prompt_eval_count", "eval_count")}
    return {"response": response, **({"raw": content} if content != response else {}), **counts}


def message_text(reply: dict) -> str:
    """The text of Ollama's message, or of a stream's line. Raises UnusableAnswer."""
    message = reply.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, str):
        raise UnusableAnswer("Ollama's answer has no text in message.content")
    return content


# What models write and no player is to read: tags around reasoning, in any case; tokens that end a turn.
REASONING_TAGS = ("think", "thinking", "thought", "reasoning")
END_TOKENS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<|return|>", "<|endoftext|>", "<end_of_turn>", "</s>")
_TAG = re.compile(rf"<(/?)(?:{'|'.join(REASONING_TAGS)})(?:\s[^<>]*)?>", re.I)
_END = re.compile("|".join(map(re.escape, END_TOKENS)))
_TAG_SO_FAR = re.compile(_TAG.pattern.rstrip(">"), re.I)
_MARKS = (*END_TOKENS, *(f"<{slash}{name}" for slash in ("", "/") for name in REASONING_TAGS))


def spoken(content: str, more: bool = False) -> str:
    """The text up to the end of the turn and behind the last reasoning; nothing when reasoning never closes.

    While there is `more` to come, what may yet become reasoning, a tag or a token is held back.
    """
    said = _END.split(content, maxsplit=1)[0]
    tags = list(_TAG.finditer(said))
    closing = [tag.end() for tag in tags if tag[1]]
    said = said[closing[-1] :] if closing else said
    if _TAG.search(said) or (more and 2 * len(closing) < len(tags)):
        return ""
    start = said.rfind("<")
    if more and start >= 0:
        ending = said[start:]
        if _TAG_SO_FAR.fullmatch(ending) or any(mark.startswith(ending.lower()) for mark in _MARKS):
            said = said[:start]
    return said.strip() if closing else said


def ask_ollama(method: str, path: str, body: dict | None, seconds: float) -> dict:
    """Ollama's answer, a JSON object, all of it within the seconds. Raises ModelError with what to do."""
    with _response(method, path, body, seconds) as raw:
        return _json_object(*_texts(raw, split=False))


@contextlib.contextmanager
def _response(method: str, path: str, body: dict | None, seconds: float):
    """Ollama's answer, to be read in here and within the seconds. Raises ModelError."""
    check_listener()
    address = setting("OLLAMA_BASE_URL", parse_base_url)
    how = {"timeout": urllib3.Timeout(total=seconds), "stream": True}
    if not is_loopback(urlsplit(address).hostname):  # then proxy variables and certificates of one's own count
        how.update(session().merge_environment_settings(address, {}, True, None, None))
    request = _request(method, address + path).copy()
    request.prepare_body(None, None, body)
    try:
        # the adapter's send(): the session's would look where a redirect leads
        with session().get_adapter(address).send(request, **how) as response:
            if response.status_code // 100 != 2:
                raise ModelError(_refusal(response.status_code, next(_texts(response.raw, split=False)), body))
            yield response.raw
    except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
        slow = f"the model at {address} gave no complete answer within {seconds:g} seconds. A smaller one is faster;"
        slow += " OLLAMA_TIMEOUT_SECONDS (OLLAMA_NOTARY_TIMEOUT_SECONDS for the notary) gives it longer"
        raise ModelError(slow) from error
    except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
        broken = f"the connection to Ollama at {address} failed ({why(error)}). Is `ollama serve` running?"
        raise ModelError(broken) from error


@functools.lru_cache
def _request(method: str, url: str):
    return requests.Request(method, url, headers={"Accept-Encoding": "identity"}).prepare()


def _refusal(status: int, text: bytes, body: dict | None) -> str:
    words = f"Ollama answered {status} {shorten(text.decode('utf-8', 'replace'), 180)}"
    if status == 404 and body and "not found" in words:
        return f"Ollama has no model {body['model']}: run `ollama pull {body['model']}` ({words})"
    return f"redirects aren't followed: set OLLAMA_BASE_URL to the final address ({words})" if status < 400 else words


def _texts(raw, split: bool):
    """The JSON texts of an answer as they come: of a stream its lines, whose last may lack its newline; else one."""
    rest, size = b"", 0
    while piece := raw.read1(65536):
        size += len(piece)
        if size > MAX_ANSWER:
            raise UnusableAnswer(f"Ollama's answer is larger than {MAX_ANSWER // 2**20} MiB")
        *lines, rest = (rest + piece).split(b"\n") if split else [rest + piece]
        yield from lines
    if rest or not split:
        yield rest


def _json_object(text: bytes) -> dict:
    try:
        reply = parse_json(text.decode())
    except ValueError as error:
        raise UnusableAnswer(f"Ollama's answer is not JSON: {error}") from error
    if not isinstance(reply, dict):
        raise UnusableAnswer("Ollama's answer is not a JSON object")
    if reply.get("error"):
        raise UnusableAnswer(f"Ollama reported an error: {reply['error']}")
    return reply


@functools.cache
def session() -> requests.Session:
    """The one session, set up once and then only used: many threads share its connections."""
    shared = requests.Session()
    for scheme in ("http://", "https://"):
        shared.mount(scheme, _DeadlineAdapter(pool_maxsize=64))
    return shared


LISTENER = threading.local()  # .gone: the Event that says that this thread streams in vain


def check_listener() -> None:
    """Raises ClientLeft when this thread streams and nobody listens any more."""
    if hasattr(LISTENER, "gone") and LISTENER.gone.is_set():
        raise ClientLeft("the client left")


class DeadlineReader(io.RawIOBase):
    """A socket's bytes until a moment: a timeout alone starts anew with every byte that drips in."""

    def __init__(self, connection: socket.socket, raw: io.RawIOBase, seconds: float, check):
        self.connection, self.raw, self.ends = connection, raw, time.monotonic() + seconds
        self.check = check  # called now and then; raises when nobody waits for them any more

    def readable(self):
        return True

    def readinto(self, buffer):
        usual = self.connection.gettimeout()
        try:
            while (left := self.ends - time.monotonic()) > 0:
                self.check()
                self.connection.settimeout(min(left, WATCH_SECONDS))
                with contextlib.suppress(TimeoutError):
                    return self.connection.recv_into(buffer)
            raise TimeoutError("timed out")
        finally:
            self.connection.settimeout(usual)

    def close(self):
        self.raw.close()
        super().close()


class _DeadlineResponse(http.client.HTTPResponse):
    def __init__(self, sock, *args, **kwargs):
        super().__init__(sock, *args, **kwargs)
        left = sock.gettimeout()  # of the attempt's whole time
        self.fp = io.BufferedReader(DeadlineReader(sock, self.fp.detach(), left, check_listener))


class _DeadlineAdapter(requests.adapters.HTTPAdapter):
    """requests' own transport, with connections that answer by a deadline."""

    def get_connection_with_tls_context(self, *args, **kwargs):
        pool = super().get_connection_with_tls_context(*args, **kwargs)
        if pool.ConnectionCls.response_class is not _DeadlineResponse:
            pool.ConnectionCls = type("Connection", (pool.ConnectionCls,), {"response_class": _DeadlineResponse})
        return pool


MODELS_HEARD = {}  # by address: when it may be asked again, and what it said


def available_models() -> set:
    """The models Ollama has, as full_name() spells them, asked at most once in HEALTH_SECONDS. Raises ModelError."""
    address = setting("OLLAMA_BASE_URL", parse_base_url)
    again, heard = MODELS_HEARD.get(address, (0, set()))
    if time.monotonic() > again:
        models = ask_ollama("GET", "/api/tags", None, HEALTH_SECONDS).get("models")
        listed = models if isinstance(models, list) else ()
        heard = {full_name(str(model.get("name"))) for model in listed if isinstance(model, dict)}
        MODELS_HEARD[address] = time.monotonic() + HEALTH_SECONDS, heard
    return heard


def stand_in(leaf: str, path: str | None = None) -> None:
    """Have our leaf "understudy" or "cassette" answer every role from now on. Raises SettingError."""
    try:
        url, transport, model, patience = importlib.import_module(leaf).transport(path, say, check_listener)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise SettingError(f"the {leaf} can't be used: {error}") from error
    session().mount(url, transport)
    waits = os.environ.get("OLLAMA_TIMEOUT_SECONDS", "").strip() or patience
    os.environ.update(OLLAMA_BASE_URL=url, OLLAMA_TIMEOUT_SECONDS=waits)
    os.environ.update((f"OLLAMA_{role.upper()}_MODEL", model) for role in ROLES)


# 5. Narrator -----------------------------------------------------------------
# Canon log in, prose out.


@functools.cache
def canon_log_validator():
    return make_validator(read_file(HERE / "canon-log.schema.json", parse_json))


def narrate(canon_log: dict, on_delta=None, record: dict | None = None) -> str:
    """The scene as prose; `on_delta` hears it while it is made, but what is given back is what counts.

    `record` gets the call's record. Raises ModelError, and then the client shows its own degraded text.
    """
    system, user = system_prompt("narrator"), digest(canon_log)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    with logged_call("narrator", record=record, canon_log=canon_log) as call:
        prose = chat("narrator", messages, call, on_delta=on_delta)
        call["laws"] = find_broken_laws(canon_log, prose, call["done_reason"])
        return prose


# 6. Routes -------------------------------------------------------------------
# HTTP says what the sections above raise, always as {"detail": …}.

app = bottle.Bottle()


@app.post("/dm/narrate")
def post_narrate():
    canon_log = read_input(read_body(MAX_CANON_LOG), canon_log_validator(), "canon_log")
    if "text/event-stream" not in bottle.request.environ.get("HTTP_ACCEPT", "").lower():
        record = {}
        prose = narrate(canon_log, record=record)
        bottle.response.set_header("X-Call-Id", record["id"])
        return {"prose": prose}
    bottle.response.content_type = "text/event-stream; charset=utf-8"
    bottle.response.set_header("Cache-Control", "no-store")
    return event_stream(canon_log, "details" in bottle.request.query_string)


def event_stream(canon_log: dict, details: bool = False):
    """The narration as server-sent events: "delta", for the play page "call", then "done" or "error"."""
    events, gone = queue.SimpleQueue(), threading.Event()
    # in a thread of its own, so that this one can keep watch whether the client still listens
    threading.Thread(target=narrate_into, args=(events, gone, canon_log, details)).start()
    try:
        yield ": listening\n\n"  # the status goes out at once
        kind = None
        while kind not in ("done", "error"):
            try:
                kind, data = events.get(timeout=WATCH_SECONDS)
                yield f"event: {kind}\ndata: {json.dumps(data)}\n\n"
            except queue.Empty:
                yield ": still listening\n\n"  # which fails when nobody is
    finally:
        gone.set()


def narrate_into(events: queue.SimpleQueue, gone: threading.Event, canon_log: dict, details: bool) -> None:
    """Put the narration's events there, unless the client is gone."""
    LISTENER.gone, record = gone, {}
    try:
        prose = narrate(canon_log, lambda text: events.put(("delta", {"text": text})), record)
        last = "done", {"prose": prose, "id": record["id"]}
    except Exception as error:
        last = "error", {"detail": detail_of(error)}
    if details and record.get("attempts"):
        shown = {key: record.get(key) for key in ("model", "options", "latency_ms", "first_token_ms", "laws")}
        events.put(("call", {**shown, "digest": digest(canon_log)}))
    events.put(last)


def detail_of(error: Exception) -> dict:
    """What the client hears of what went wrong; what only the operator can mend, only the operator hears."""
    if isinstance(error, NarratorError) and not isinstance(error, SettingError):
        return error.detail()
    say(str(error) if isinstance(error, SettingError) else f"a fault:\n{''.join(traceback.format_exception(error))}")
    return {"request_error": FAULT}


@functools.cache
def verdict_validator():
    text = {"type": "string", "maxLength": 500, "pattern": r"\S"}
    fields = {"call": text, "alive": {"type": "boolean"}, "note": text}
    closed = {"type": "object", "additionalProperties": False, "required": ["call", "alive"]}
    return make_validator({**closed, "properties": fields})


@app.post("/dm/verdict")
def post_verdict():
    """What somebody felt at a narration: a line in the log, and nothing else is kept."""
    verdict = read_input(read_body(MAX_CANON_LOG), verdict_validator(), "verdict")
    if not write_record({**stamp(), "verdict": verdict}):
        raise NarratorError("the verdict is not kept: the call log can't be written; standard error says why")
    return {"call": verdict["call"]}


@app.get("/")
def get_play_page():
    return bottle.static_file("play.html", root=HERE)


@app.get("/health")
def get_health():
    """Whether a call could succeed now, and the state of the call log."""
    log = call_log_state()
    try:
        available, ollama = available_models(), "ok"
        check_roles()
    except NarratorError as error:
        available, ollama = set(), detail_of(error)[error.key]
    wanted = {role: role_model(role) for role in ROLES}
    models = {role: {"model": model, "available": full_name(model) in available} for role, model in wanted.items()}
    possible = all(model["available"] for model in models.values())
    bottle.response.status = 200 if possible else 503
    status = "unavailable" if not possible else "ok" if log == "ok" else "degraded"
    return {"status": status, "ollama": ollama, "models": models, "call_log": log}


def check_roles() -> None:
    """Read what every call of a role reads. Raises SettingError."""
    for role, entry in ROLES.items():
        for check in (role_options, role_timeout, system_prompt):
            check(role)
        entry.get("check", lambda: None)()


def read_body(limit: int) -> bytes:
    """The JSON body of this request, at most `limit` bytes of it. Raises RequestError."""
    environ = bottle.request.environ
    if environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "send the body as Content-Type: application/json")
    length = environ.get("CONTENT_LENGTH", "")
    if "HTTP_TRANSFER_ENCODING" in environ or not re.fullmatch("[0-9]{1,18}", length):
        raise RequestError(411, "send the body in one piece, with its number of bytes as Content-Length")
    if int(length) > limit:
        raise RequestError(413, f"the body has {length} bytes; at most {limit} are read")
    try:
        body = environ["wsgi.input"].read(int(length))
    except OSError as error:
        raise RequestError(408, f"the body did not arrive within {READ_SECONDS} seconds") from error
    if len(body) < int(length):
        raise RequestError(400, f"the body ended after {len(body)} of {length} bytes")
    return body


def error_as_json(error: bottle.HTTPError) -> str:
    """The body of every error, Bottle's own included: the one place where what went wrong becomes JSON."""
    detail = {"request_error": error.body}
    if error.exception:
        detail = detail_of(error.exception)
        bottle.response.status = getattr(error.exception, "status", 500)
    elif error.status_code == 405:
        detail = {"request_error": f"this route takes {error.headers.get('Allow')}"}
    elif "bottle.route" not in bottle.request.environ and error.status_code == 404:
        routes = ", ".join(f"{route.method} {route.rule}" for route in app.routes)
        detail = {"request_error": f"there is nothing here; the routes are {routes}"}
    add_cors_headers()  # again: this answer's headers took the place of the hook's
    bottle.response.content_type = "application/json"
    return json.dumps({"detail": detail})


@app.hook("before_request")
def check_caller():
    """Refuse web pages of others and re-bound names before anything else; answer an allowed page's preflight."""
    environ = bottle.request.environ
    environ["wsgi.errors"] = io.StringIO()  # Bottle writes each exception there; detail_of() says what is news
    environ["PATH_INFO"] = environ["PATH_INFO"].rstrip("/") or "/"  # a trailing slash makes no difference
    origins = setting("NARRATOR_ALLOWED_ORIGINS", parse_origins)
    bound = environ.get("SERVER_NAME", "")
    host = environ.get("HTTP_HOST", bound)
    if not is_host_ours(host, bound, origins):
        call_it = "call it by its address, or allow the page's origin in NARRATOR_ALLOWED_ORIGINS"
        raise RequestError(403, f"this Host is not the service's: {call_it}")
    own, origin = f"{environ['wsgi.url_scheme']}://{host}", environ.get("HTTP_ORIGIN")
    if origin is not None and origin.lower() not in (own.lower(), *origins):
        raise RequestError(403, "this Origin may not call; name it in NARRATOR_ALLOWED_ORIGINS if it may")
    if bottle.request.method == "OPTIONS" and environ.get("HTTP_ACCESS_CONTROL_REQUEST_METHOD"):
        raise bottle.HTTPResponse(status=204)


def is_host_ours(host: str, bound: str, origins: list) -> bool:
    """Whether the Host header names this service: loopback, the bound host or an allowed origin's."""
    match = re.fullmatch(r"(\[[0-9a-f:.]+\]|[\w.-]+)(:[0-9]{1,5})?", host.strip().lower())
    name = match[1].strip("[]").removesuffix(".") if match else ""
    if is_loopback(name) or name in (bound.lower(), *(urlsplit(origin).hostname for origin in origins)):
        return bool(name)
    # bound to every interface any address is its own; a name isn't: a web page could make it mean us
    return bound in ("", "0.0.0.0", "::") and re.fullmatch(r"[0-9.]+|[0-9a-f.]*:[0-9a-f:.]*", name) is not None


@app.hook("after_request")
def add_cors_headers():
    """What a browser wants to see before it shows an allowed page the answer."""
    origin, headers = bottle.request.environ.get("HTTP_ORIGIN"), bottle.response.headers
    if origin is not None and bottle.response.status_code != 403:
        headers.update({"Access-Control-Allow-Origin": origin, "Vary": "Origin"})
        headers.update({"Access-Control-Allow-Methods": "GET, POST", "Access-Control-Allow-Headers": "Content-Type"})
        headers["Access-Control-Expose-Headers"] = "X-Call-Id"


app.default_error_handler = error_as_json


# 7. Command line and server --------------------------------------------------
# Settings checked, server started and stopped.

MOVED = {"notarize": "notary", "audit": "workbench audit", "replay": "workbench replay"}


def main(argv: list | None = None) -> int:
    """Serve as the command line says; the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        if argv and argv[0] in MOVED:
            raise SettingError(f"`{argv[0]}` has moved: run `python -m {MOVED[argv[0]]} FILE`")
        arguments = parse_arguments(argv)
        if arguments.understudy:
            stand_in("understudy")
        if arguments.cassette:
            stand_in("cassette", arguments.cassette)
        os.environ.update(NARRATOR_HOST=arguments.host, NARRATOR_PORT=arguments.port)
        check_settings()
        serve(setting("NARRATOR_HOST").strip("[]"), setting("NARRATOR_PORT", parse_port))
        return 0
    except NarratorError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        return 130


def parse_arguments(argv: list) -> argparse.Namespace:
    """The command line; of what isn't in it the environment's, which a flag beats."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    host, port = setting("NARRATOR_HOST"), setting("NARRATOR_PORT")
    parser.add_argument("--host", default=host, help="the address to listen on (default: NARRATOR_HOST, %(default)s)")
    parser.add_argument("--port", default=port, help="the port to listen on (default: NARRATOR_PORT, %(default)s)")
    parser.add_argument("--understudy", action="store_true", help="answer with a small model inside this process")
    parser.add_argument("--cassette", metavar="LOG", help="answer what a call log holds, without a model")
    return parser.parse_args(argv)


def check_settings() -> None:
    """Read everything once that a call will read. Raises SettingError."""
    setting("OLLAMA_BASE_URL", parse_base_url)
    setting("NARRATOR_PORT", parse_port)
    setting("NARRATOR_ALLOWED_ORIGINS", parse_origins)
    check_roles()
    read_file(HERE / "canon-log.schema.json", parse_json)
    if call_log_state() != "ok":
        path = setting("CALL_LOG_PATH")
        log = f"CALL_LOG_PATH is {path!r}, which can't be appended to" if path else "set CALL_LOG_PATH to a file"
        raise SettingError(f"{log}: {call_log_state()}")


def serve(host: str, port: int) -> None:
    """Answer until Ctrl-C or SIGTERM, then until the running calls are answered. Raises SettingError."""
    try:
        server = Server((host, port), Handler)
    except (OSError, UnicodeError) as error:
        raise SettingError(f"can't listen on NARRATOR_HOST {host}, NARRATOR_PORT {port}: {why(error)}") from error

    def stop(number, frame):
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL)
        say("stopping: running calls are finished first; once more stops at once")
        threading.Thread(target=server.stop).start()  # in the thread that it stops it would wait for itself

    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, stop)
    allow_many_connections()
    threading.Thread(target=greet, args=(server.server_name, server.server_port), daemon=True).start()
    server.serve_forever()
    server.server_close()
    server.threads.shutdown()


def allow_many_connections() -> None:
    """As many open files as this process may have: a client is two, and 256, as on a Mac, is few."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # which Windows hasn't got, nor the limit

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if 0 < hard < 65536 else 65536, hard))


def greet(host: str, port: int) -> None:
    """Say where we are and what answers, then have the model loaded so that the first player needn't wait."""
    model = role_model("narrator")
    try:
        state = "ready" if full_name(model) in available_models() else f"NOT there: run `ollama pull {model}`"
    except ModelError as error:
        state = f"NOT ready: {error}"
    address = parse_base_url(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    example = json.dumps({"schema_version": 1, "location": "the Greywater docks", "player": {"name": "Aldric"}})
    say(
        f"listening on {address}, model {model} {state}\nTry: {address}/ in a browser, or\n"
        f'curl -s {address}/dm/narrate -H "Content-Type: application/json" -d {json.dumps(example)}'
    )
    if not is_loopback(host):
        say(f"listening beyond this machine ({host}): anyone on the network may call")
    canon_log_validator()  # the first player needn't wait for it either
    try:
        body = chat_body("narrator", [])  # without messages Ollama only loads the model
        del body["options"]["seed"]
        ask_ollama("POST", "/api/chat", body, WARM_UP_SECONDS)
    except ModelError as error:
        say(f"the model could not be loaded ahead: {error}")


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """A thread a connection, kept for the next one; stopping waits for calls, never for clients that say nothing."""

    request_queue_size = 1024
    allow_reuse_address = os.name != "nt"  # there it would let two servers share a port
    server_bind = socketserver.TCPServer.server_bind  # WSGIServer's looks the host's name up, which may take seconds

    def __init__(self, address: tuple, handler: type):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.stopping, self.threads = False, ThreadPoolExecutor(max_workers=10**6)  # as many as the machine has
        super().__init__(address, handler)
        self.server_name, self.server_port = address[0], self.server_address[1]
        self.setup_environ()
        self.set_app(app)

    def process_request(self, request, client_address):
        self.threads.submit(self.process_request_thread, request, client_address)

    def stop(self):
        """Take no more connections and read nothing more; whoever is being answered still gets the answer."""
        self.shutdown()
        self.stopping = True

    def check_running(self):
        """Raises OSError when there is no time left to wait for a request."""
        if self.stopping:
            raise OSError("the service is stopping")

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # a client that left or never spoke is no news
            say(f"a fault:\n{traceback.format_exc()}")


class Handler(WSGIRequestHandler):
    """The one request of a connection, read by a deadline, and its answer in one piece."""

    protocol_version = "HTTP/1.1"  # of requests: one that expects 100 Continue, as older .NET clients do, gets it
    default_request_version = "HTTP/1.0"  # even what is no HTTP gets an answer with a status
    disable_nagle_algorithm = True
    timeout = SEND_SECONDS  # of one write
    wbufsize = -1  # head and body in one packet
    refused = False
    get_stderr = io.StringIO  # nobody's: detail_of() tells faults, and a client that leaves is none
    error_content_type = "application/json"
    error_message_format = '{"detail": {"request_error": "%(explain)s"}}'

    def setup(self):
        super().setup()
        reader = DeadlineReader(self.connection, self.rfile.detach(), READ_SECONDS, self.server.check_running)
        self.rfile = io.BufferedReader(reader)

    def handle(self):
        """Answer what begins as HTTP does; a TLS hello would keep us waiting for the end of its line."""
        if re.match(rb"[A-Za-z]{1,20}(?: |$)", self.rfile.peek(1)[:21]):
            super().handle()

    def flush_headers(self):
        super().flush_headers()
        self.wfile.flush()  # whoever expects 100 Continue waits for it

    def log_request(self, code="-", size="-"):
        """No access log: standard output is the call log's, standard error the operator's."""
        self.refused = int(code) >= 400

    def log_message(self, *args):
        """Nor one of errors: they are answered."""

    def finish(self):
        """Close; after a refusal not before the client does, for a while: one that still sends wouldn't see it."""
        with contextlib.suppress(OSError):
            if self.refused:
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_WR)
                self.rfile.raw.ends = time.monotonic() + LINGER_SECONDS
                while self.rfile.read1():
                    pass
        super().finish()


if __name__ == "__main__":
    sys.exit(main())
