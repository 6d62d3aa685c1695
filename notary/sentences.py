"""Records in plain words: one sentence for each kind of record of each family."""

from narrator_app import one_line

from .families import FAMILIES

# "{key}" stands for the field's words, "{?key}" for what PIECES makes of it where it says something.
SENTENCES = {
    "spells": "{caster} cast {spell}{?targets}{?outcome}",
    "npc-registry": "{name}{?role}{?attitude}{?fate}{?description}{?aliases}",
    "npc-occurrences": "{npc} {did}{?location}: {summary}",
    "item-registry": "{name}{?category}{?magical}{?description}{?aliases}",
    "item-occurrences": {
        "discovered": "{item}{?quantity} was found",
        "acquired": "{to} got {item}{?quantity}",
        "lost": "{from} lost {item}{?quantity}",
        "consumed": "{from} used up {item}{?quantity}",
        "transferred": "{from} gave {item}{?quantity} to {to}",
    },
    "location-registry": "{name}{?type}{?parent}{?description}{?aliases}",
    "location-occurrences": {
        "arrived": "{who} arrived at {location}",
        "departed": "{who} left {location}",
        "present": "At {location}: {who}",
        "mentioned": "{location} was spoken of",
    },
    "combat-turns": "{actor} in a fight: {detail}{?result}",
    "enemy-events": "{enemy}{?count} {did}{?by}",
}
DID = {"mentioned": "was spoken of", "wounded": "was wounded", "defeated": "was defeated", "revived": "came back"}
PIECES = {
    "targets": " on {}",
    "location": " at {}",
    "by": ", by {}",
    "attitude": ", {} to the party",
    "magical": ", magical",
    "parent": " in {}",
    "description": ": {}",
    "aliases": "; also called {}",
}
NOTHING = ("", "False", "1", "cast", "none", "other", "unknown")  # what goes without saying


def sentence(family: str, record: dict) -> str:
    """The record in plain words, one line. Raises KeyError where a field is missing."""
    kind, template = record.get(FAMILIES[family]["kind"]), SENTENCES[family]
    words = {key: in_words(value) for key, value in {"fate": None, **record}.items() if key != "evidence"}
    said = {f"?{key}": PIECES.get(key, " ({})").format(text) for key, text in words.items() if text not in NOTHING}
    words = {**dict.fromkeys(map("?{}".format, words), ""), **said, **words, "did": DID.get(kind, kind)}
    return (template if isinstance(template, str) else template[kind]).format_map(words)


def in_words(value) -> str:
    """The field on one line; a list with commas."""
    text = ", ".join(value) if isinstance(value, list) else "" if value is None else str(value)
    return one_line(text).strip()
