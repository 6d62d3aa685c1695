"""The calls of a log sent again, to another model or with another prompt, and how the answers compare."""

import contextlib
import itertools
import json
from typing import NamedTuple

import narrator_app
from laws import find_broken_laws
from narrator_app import ROLES, ModelError, SettingError, digest, one_line, spoken

from .audit import NOT_WHOLE, Tally, find_all, for_each_line

NAMES = ("name", "item", "npc", "spell", "location", "actor", "enemy")  # the first that a record has tells it apart
CARRIED = ("canon_log", "family", "source_id", "chunk", "fingerprint")  # what the new line says as the old one did


class Turn(NamedTuple):
    """One logged call and what came of sending it again, each with its findings."""

    old: dict
    new: dict
    change: list | None  # of answers that are records: which were added, lost or changed

    @property
    def same(self) -> bool:
        if not self.old["ok"] or not self.new["ok"]:
            return False
        return own_text(self.old) == own_text(self.new) if self.change is None else not self.change


def replay(calls: list, models: list, prompt: str | None):
    """The Turns of calls sent again, to each model in turn: as they were, or rendered anew with a `prompt`."""
    told = {}
    for model, old in itertools.product(models, calls):
        new = send_again(old, model or old["model"], prompt)
        new["findings"] = find_all(new, told)
        yield Turn(old, new, compare(records_in(old), records_in(new)))
        if narrator_app.LOG_STATE["failure"]:
            raise SettingError(f"standard output can't be written: {narrator_app.LOG_STATE['failure']}")


def replayable(path: str, role: str | None = None, rendered: bool = False) -> list:
    """The calls of a log that can be sent again, each with its findings; what is no whole record is passed over."""
    calls, told = [], {}

    def take(record: dict, where: str) -> None:
        if role not in (None, record.get("role")) or (rendered and "canon_log" not in record):
            return
        record["findings"] = find_all(record, told)
        Tally().add(record, record["findings"])
        texts = [record["model"], record["role"], *(record["messages"][place]["content"] for place in (0, 1))]
        "".join(texts + ([record["response"], own_text(record)] if record["ok"] else []))  # raises if one is no text
        {**record["options"]}["seed"] + 0
        if "canon_log" in record:
            digest(record["canon_log"])
        calls.append(record)

    for_each_line([path], take)
    return calls


def send_again(old: dict, model: str, prompt: str | None) -> dict:
    """The new record; where no answer came it says why."""
    role, messages = old["role"], old["messages"]
    if prompt is not None:
        messages = [{"role": "system", "content": prompt}, {"role": "user", "content": digest(old["canon_log"])}]
    keep_alive = ROLES.get(role, ROLES["narrator"])["keep_alive"]
    body = {"model": model, "messages": messages, "stream": False, "keep_alive": keep_alive, "truncate": False}
    body.update({key: old[key] for key in ("options", "think", "format") if old.get(key) is not None})
    # A role that isn't here now, as the notary's, has at least its variable.
    variable, default = ROLES.get(role, {"timeout": (f"OLLAMA_{role.upper()}_TIMEOUT_SECONDS", 300)})["timeout"]
    seconds = narrator_app.setting(variable, narrator_app.parse_seconds, default)
    carried = {key: old[key] for key in CARRIED if key in old}
    with contextlib.suppress(ModelError), narrator_app.logged_call(role, replay_of=old.get("id"), **carried) as new:
        narrator_app.send_chat(body, seconds, new, raw=records_in(old) is not None)
        if "canon_log" in old:
            new["laws"] = find_broken_laws(old["canon_log"], new["response"], new["done_reason"])
    return new


def own_text(record: dict) -> str:
    """The model's own text, its reasoning included."""
    return record.get("raw", record["response"])


def compare(old: dict | None, new: dict | None) -> list | None:
    """`["added: rope", "lost: axe", "changed: sword"]`; None where either answer holds no records."""
    if old is None or new is None:
        return None
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [f"{'added' if key not in old else 'changed' if key in new else 'lost'}: {key[0]}" for key in keys]


def records_in(record: dict) -> dict | None:
    """The records of an answer that is JSON, by name and how often that stood before; None of any other."""
    found = {}
    with contextlib.suppress(*NOT_WHOLE):
        text = spoken(own_text(record))
        for number, one in enumerate(json.loads(text[text.find("{") : text.rfind("}") + 1])["records"], 1):
            name = str(next((one[key] for key in NAMES if key in one), f"record {number}")).casefold()
            found[name, [other for other, _ in found].count(name)] = {**one}
        return found
    return None


def totals(turns: list) -> dict:
    """The measures before, and of each model after, as columns of a table."""
    calls = [("before", one.old, {}) for one in {id(one.old): one for one in turns}.values()]
    calls += [(one_line(one.new["model"]), one.new, {"same": one.same}) for one in turns]
    tallies = {}
    for name, record, more in calls:
        role = "" if record["role"] == "narrator" else f"\n({record['role']})"
        tallies.setdefault(name + role, Tally()).add(record, record["findings"], **more)
    return {name: tally.rows("calls") for name, tally in tallies.items()}
