"""A session as one web page for the people at the table: records with the words that show them, custody, transcript."""

import base64
import hashlib
import re
from pathlib import Path

import bottle

from narrator_app import one_line, shorten

from .families import FAMILIES
from .sentences import sentence

TEMPLATE = Path(__file__).with_name("page.html.tpl")
MAX_QUOTES = 6  # units that a record shows; the others it counts
NUMBERS = {"encounter": "fight", "round": "round", "damage": "damage", "slot_level": "level"}  # not in the sentence
TITLES = {
    "spells": "Spells",
    "npc-registry": "People",
    "npc-occurrences": "What people did",
    "item-registry": "Items",
    "item-occurrences": "Where items went",
    "location-registry": "Places",
    "location-occurrences": "Who was where",
    "combat-turns": "Fights",
    "enemy-events": "Enemies",
}
# What turns the direction of text, and halves of characters, which no file can hold.
_STEERING = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)], "\ufffd")


def page(artifacts: list, transcript: dict, refused: list) -> str:
    """The page's HTML, self-contained; whatever a transcript or a model says is text in it, never markup."""
    units = {unit["id"]: {**unit, "cited": []} for unit in transcript["units"]}
    places = {unit_id: place for place, unit_id in enumerate(units)}
    ids, sections, told = list(units), [], {}
    for artifact in (one for one in artifacts if one["artifact"] in FAMILIES):
        family, cards = artifact["artifact"], []
        for record in artifact["records"]:
            anchor, text = told[record["id"]] = f"r{len(told) + 1}", sentence(family, record)
            cited = cited_units(record, ids, places)
            for unit_id in cited:
                units[unit_id]["cited"].append((anchor, label(family, record)))
            quotes, more = [units[unit_id] for unit_id in cited[:MAX_QUOTES]], cited[MAX_QUOTES:]
            cards.append((anchor, text, numbers(record), quotes, more))
        sections.append((family, TITLES.get(family, family), cards))
    custody = [record for one in artifacts if one["artifact"] == "item-custody" for record in one["records"]]
    source = TEMPLATE.read_text(encoding="utf-8")
    return bottle.SimpleTemplate(source, escape_func=as_text).render(
        title=transcript["source_id"],
        sections=sections,
        custody=custody,
        told=told,
        refused=refused,
        units=units.values(),
        hashes={tag: sha256(re.search(f"<{tag}>(.*?)</{tag}>", source, re.S)[1]) for tag in ("style", "script")},
    )


def as_text(text: str) -> str:
    """The text as HTML shows it: on one line, without what steers its direction."""
    return bottle.html_escape(one_line(text).translate(_STEERING))


def cited_units(record: dict, ids: list, places: dict) -> list:
    """The ids of the units that the record cites, each once, in the order of the transcript."""
    cited = set()
    for reference in record["evidence"]:
        cited.update(range(places[reference["start_unit_id"]], places[reference["end_unit_id"]] + 1))
    return [ids[place] for place in sorted(cited)]


def label(family: str, record: dict) -> str:
    """The record in a few words, for a link."""
    name, kind = record[FAMILIES[family]["name"]], record.get(FAMILIES[family]["kind"])
    return " · ".join(part for part in (shorten(name, 40), kind) if part)


def numbers(record: dict) -> str:
    return " · ".join(f"{word} {record[key]}" for key, word in NUMBERS.items() if record.get(key) is not None)


def sha256(text: str) -> str:
    """How a page's policy names a script or a style that may stand in it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
