"""The calls of a log sent again, to another model or with another prompt, and how the answers compare."""

import contextlib
import itertools
import json
import os
from collections import deque
from typing import NamedTuple

from laws import find_broken_laws
from narrator_app import (
    LOG_STATE,
    ROLES,
    ModelError,
    SettingError,
    digest,
    logged_call,
    parse_seconds,
    role_timeout,
    say,
    send_chat,
    setting,
    spoken,
)

from .audit import BEFORE
from .measures import NOT_WHOLE, Tally, is_verdict, log_records, logged_laws, own_text
from .repeats import find_repeats

NAMES = (
    "name",
    "item",
    "npc",
    "spell",
    "location",
    "enemy",
    "actor",
)  # by which records are told apart, the first it has


class Turn(NamedTuple):
    """One logged call and what came of sending it again."""

    old: dict
    new: dict
    old_laws: list
    new_laws: list
    change: dict | None  # of answers that are records: "added", "lost", "changed"
    repeats: tuple = (False, False)  # whether the old, the new one said again what was told before

    @property
    def same(self) -> bool:
        if not self.old["ok"] or not self.new["ok"]:
            return False
        return not any(self.change.values()) if self.change else own_text(self.old) == own_text(self.new)

    @property
    def worse(self) -> bool:
        new, old = ({finding["law"] for finding in findings} for findings in (self.new_laws, self.old_laws))
        return self.old["ok"] and (not self.new["ok"] or len(new) > len(old))


def replay(path: str, models: list, prompt: str | None, role: str | None, limit: int, done) -> None:
    """Send the first calls of a log again, to each model in turn; `done` gets the round and each Turn.

    Answers are lines on standard output. With a `prompt`, digest and system prompt are made anew from the logged canon
    log; else the request is sent as it was.
    """
    os.environ["CALL_LOG_PATH"] = ""  # standard output
    for round_, model in enumerate(models):
        before = deque(maxlen=BEFORE), deque(maxlen=BEFORE)
        for record, laws in itertools.islice(replayable(path, prompt, role), limit):
            turn = replayed(record, laws, model, prompt)
            done(round_, turn._replace(repeats=tuple(map(repeats, (turn.old, turn.new), before))))
            if LOG_STATE["failure"]:
                raise SettingError(f"standard output can't be written: {LOG_STATE['failure']}")


def repeats(record: dict, before: deque) -> bool:
    narrates = record["ok"] and record["role"] == "narrator"
    return narrates and bool(find_repeats(record["messages"][1]["content"], own_text(record), before))


def replayable(path: str, prompt: str | None, role: str | None):
    """The whole records that can be sent again, each with its findings: of this role or all, with a canon log where one
    is to be rendered."""
    for number, record in log_records(path, lambda line: not is_verdict(line)):
        if role not in (None, record.get("role")) or (prompt is not None and "canon_log" not in record):
            continue
        try:
            laws = logged_laws(record) if record["role"] == "narrator" else []
            Tally().add(record, laws)
            texts = [record["model"], *(message["content"] for message in record["messages"][:2])]
            sound = len(texts) == 3 and all(isinstance(text, str) for text in texts) and dict(record["options"])
            sound = sound and (not record["ok"] or isinstance(own_text(record), str))
            if "canon_log" in record:
                digest(record["canon_log"])
        except NOT_WHOLE:
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
    entry = ROLES.get(role, ROLES["narrator"])
    body = {"model": model or record["model"], "messages": messages, "stream": False, "truncate": False}
    body.update(options=dict(record["options"]), keep_alive=entry["keep_alive"])
    body.update({key: record[key] for key in ("think", "format") if record.get(key) is not None})
    kept = ("canon_log", "family", "source_id", "chunk", "fingerprint")
    about = {"replay_of": record.get("id"), **{key: record[key] for key in kept if key in record}}
    answers_records = records_of(own_text(record)) if record["ok"] else None
    with contextlib.suppress(ModelError), logged_call(role, **about) as new:
        send_chat(body, patience(role), new, answers_records is not None)
        if "canon_log" in record:
            new["laws"] = find_broken_laws(record["canon_log"], new["response"], new["done_reason"])
    change = compare(answers_records, records_of(own_text(new))) if new["ok"] else None
    return Turn(record, new, old_laws, new.get("laws", []), change)


def patience(role: str) -> float:
    """Seconds for one attempt; of a role that isn't here now, what its variable says."""
    return (
        role_timeout(role) if role in ROLES else setting(f"OLLAMA_{role.upper()}_TIMEOUT_SECONDS", parse_seconds, 300)
    )


def records_of(text: str) -> list | None:
    """The records of an answer that is JSON with records; None of any other."""
    with contextlib.suppress(*NOT_WHOLE, RecursionError):
        records = json.loads(spoken(text).strip().removeprefix("```json").strip("`"))["records"]
        if isinstance(records, list) and all(isinstance(record, dict) for record in records):
            return records
    return None


def compare(old: list | None, new: list | None) -> dict | None:
    """The names of the records that are "added", "lost" or "changed"; None when either is no list of records."""
    if old is None or new is None:
        return None
    before, after = named(old), named(new)
    return {
        "added": [name for name, _ in after.keys() - before.keys()],
        "lost": [name for name, _ in before.keys() - after.keys()],
        "changed": [key[0] for key in before.keys() & after.keys() if before[key] != after[key]],
    }


def named(records: list) -> dict:
    """The records by name and how often it stood before: two of one name are compared in their order."""
    found = {}
    for record in records:
        name = str(next((record[key] for key in NAMES if key in record), "a record")).casefold()
        found[name, sum(name == other for other, _ in found)] = record
    return found
