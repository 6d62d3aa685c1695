"""A canon log drafted from artifacts, so that the Narrator goes on where the table stopped. No model is asked."""

import heapq
from collections import deque
from pathlib import Path
from typing import NamedTuple

from narrator_app import ROLES, SettingError, digest, parse_json, read_file, shorten, system_prompt

from .custody import custody, member_names, records_of
from .families import FAMILIES, names_of
from .joining import united
from .sentences import sentence
from .shape import fold

MAX_EVENTS = 12  # recent ones, of all families
MAX_TEXT, MAX_FACTS, MAX_COMPANIONS = 500, 1000, 50  # as the canon log's schema has them
NOWHERE = "somewhere unrecorded"
KINDS = ("people", "places", "things held")  # of facts


class Fact(NamedTuple):
    kind: str
    name: str
    text: str


def draft(artifacts: list, player: str | None = None, party: list | None = None) -> tuple:
    """The canon log of one session's or a campaign's artifacts, later before earlier, and a line for all left out.

    Raises SettingError where nobody says who plays, and where the artifacts aren't as the notary writes them.
    """
    try:
        sessions, twice = sessions_of(artifacts)
        party = party or next((one["party"] for one in reversed(artifacts) if one.get("party")), [])
        player = player_name(player, party)
        location, events = last_location(sessions), recent_events(sessions)
        facts = established_facts(sessions, party)
    except (LookupError, TypeError, AttributeError) as error:
        raise SettingError(f"these artifacts aren't as `python -m notary` writes them: {error!r}") from error
    companions = [one["name"] for one in party if one["name"] != player and fold(one["name"])]
    canon_log = {
        "schema_version": 1,
        "location": shorten(location or NOWHERE, MAX_TEXT),
        "recent_events": [shorten(event, MAX_TEXT) for event in events],
        "established_facts": [],
        "companions": [{"name": shorten(name, MAX_TEXT)} for name in companions[:MAX_COMPANIONS]],
        "player": {"name": shorten(player, MAX_TEXT)},
    }
    kept = fitting(facts, canon_log)
    canon_log["established_facts"] = [shorten(fact.text, MAX_TEXT) for fact in kept]
    said = {"location": location, "recent events": events, **{fact.kind: fact for fact in facts}}
    unfit = {kind: [fact.name for fact in facts[: len(facts) - len(kept)] if fact.kind == kind] for kind in KINDS}
    unfit["companions"] = companions[MAX_COMPANIONS:]
    long = [text for text in (*events, *(fact.text for fact in kept)) if len(text) > MAX_TEXT]
    return canon_log, [
        *twice,
        *(f"{what}: no record says any" for what in ("location", "recent events", *KINDS) if not said.get(what)),
        *(f"{what} that did not fit: {', '.join(names)}" for what, names in unfit.items() if names),
        *(f"cut to {MAX_TEXT} characters: {shorten(text, 60)}" for text in long),
    ]


def read_artifacts(path: Path) -> list:
    """The artifacts in a file that the notary wrote. Raises SettingError."""
    artifacts = read_file(path, parse_json)
    if not isinstance(artifacts, list):
        raise SettingError(f"{path.name} isn't a list of artifacts: give what `python -m notary … -o` wrote")
    return artifacts


def sessions_of(artifacts: list) -> tuple:
    """The sessions in their order, each its artifacts in the families' order, and what was given twice."""
    by_source, twice = {}, []
    for one in (one for one in artifacts if one["artifact"] in FAMILIES):
        found = by_source.setdefault(one["source_id"], {})
        if one["artifact"] in found:
            twice.append(f"{shorten(one['source_id'], 60)}: {one['artifact']} is given twice, the later one counts")
        found[one["artifact"]] = one
    return [[found[family] for family in FAMILIES if family in found] for found in by_source.values()], twice


def player_name(player: str | None, party: list) -> str:
    """The player's name in the party. Raises SettingError, which names the party."""
    names = ", ".join(one["name"] for one in party)
    if player is None and len(party) == 1:
        return party[0]["name"]
    if not fold(player):
        whom = f"one of {names}" if party else "nothing names a party, so any name will do"
        raise SettingError(f"who plays on? Give --player: {whom}")
    if party and fold(player) not in member_names(party):
        raise SettingError(f"--player {shorten(player, 60)} isn't in the party: give one of {names}")
    return member_names(party).get(fold(player), player)


def last_location(sessions: list) -> str | None:
    """Where the last session that says so arrived last; else where somebody was present."""
    for session in reversed(sessions):
        records = [record for record in records_of(session, "location-occurrences") if fold(record["location"])]
        for kind in ("arrived", "present"):
            if places := [record["location"] for record in records if record["kind"] == kind]:
                return places[-1]
    return None


def recent_events(sessions: list) -> list:
    """The last occurrences in plain words, in order."""
    last = deque(maxlen=MAX_EVENTS)
    for session in sessions:
        occurrences = [one for one in session if not FAMILIES[one["artifact"]].get("registry")]
        ways = [[(one["artifact"], record) for record in one["records"]] for one in occurrences]
        last.extend(heapq.merge(*ways, key=lambda pair: pair[1]["earliest_unit_id"]))
    return [sentence(family, record) for family, record in last]


def established_facts(sessions: list, party: list) -> list:
    """People, places and who holds what now, as Facts, those of the latest session last; of one thing the latest."""
    artifacts = [one for session in sessions for one in session]
    numbered = [(number, one) for number, session in enumerate(sessions) for one in session]
    session_of = {record["id"]: number for number, one in numbered for record in one["records"]}
    told = [record for record in records_of(artifacts, "npc-occurrences") if record["kind"] != "mentioned"]
    fates = {fold(record["npc"]): record["kind"] for record in told}  # the last thing that each did
    items = map(latest, united(records_of(artifacts, "item-registry")))
    known, facts = {fold(one["name"]): sentence("item-registry", one) for one in items}, []
    for kind, family in (("people", "npc-registry"), ("places", "location-registry")):
        for one in map(latest, united(records_of(artifacts, family))):
            one["fate"] = "dead" if "died" in {fates.get(fold(name)) for name in names_of(one)} else None
            facts.append((session_of[one["id"]], Fact(kind, one["name"], sentence(family, one))))
    for item in custody(artifacts, party)["records"] if artifacts else ():
        last, name = item["steps"][-1], item["item"]
        if last["holder"]:
            text = f"Held by {last['holder']}: {known.get(fold(name), name)}"
            facts.append((session_of[last["occurrence"]], Fact("things held", name, text)))
    return [fact for _, fact in sorted(facts, key=lambda pair: pair[0])]


def latest(group: list) -> dict:
    """The records of one thing as one: of each field the last that says something, and all names."""
    one = dict(group[0])
    for record in group[1:]:
        one.update({key: value for key, value in record.items() if value not in (None, "unknown", "other")})
    names = {fold(name): name for record in group for name in names_of(record)}
    return {**one, "aliases": [name for key, name in names.items() if key != fold(one["name"])]}


def fitting(facts: list, canon_log: dict) -> list:
    """The last facts, as many as fit the Narrator's context beside the rest; a quarter of it is left to play on."""
    options = ROLES["narrator"]["options"]
    room = (options["num_ctx"] - options["num_predict"]) * 3 * 3 // 4  # bytes: three to a token are on the safe side
    room -= len(system_prompt("narrator").encode()) + len(digest(canon_log).encode("utf-8", "replace"))
    for number, fact in enumerate(reversed(facts)):
        room -= len(f"- {shorten(fact.text, MAX_TEXT)}\n".encode("utf-8", "replace"))
        if room < 0 or number == MAX_FACTS:
            return facts[len(facts) - number :]
    return facts
