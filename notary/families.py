"""The families of records as data: how each names its records, and the rules that refuse them.

A rule is a row: when it is broken, what operators are told of each thing found, what the model is told, which names the
fields. `r` is a record and `c` the Candidate it stands in, which knows the rest of the answer and the transcript.
"""

from collections.abc import Callable
from typing import NamedTuple

from .shape import fold

POLICY = 1  # raise it when a rule changes: old answers are asked for anew


class Rule(NamedTuple):
    """What refuses a record: `broken` gives what is wrong with it, one thing or a list of them; falsy is well."""

    broken: Callable[[dict, object], object]
    operator: str
    model: str  # "{}" stands for the family's fields that the rule is about


def holder(record: dict, key: str) -> str | None:
    """The name in a nullable field; None as well for a word that means nobody, which is a rule of its own."""
    name = record[key]
    return None if name is None or fold(name) in ("", "null", "none", "unknown", "n/a") else name


def names_of(record: dict) -> list:
    return [record["name"], *record["aliases"]]


def repeated(names: list) -> list:
    """The names that stand there for a second time."""
    folded = [fold(name) for name in names]
    return [name for number, name in enumerate(names) if folded[number] in folded[:number]]


_SHOWN = 'in "evidence", "start_unit_id" and "end_unit_id" are ids that stand in brackets before a unit shown'
EVIDENCE_RULES = [
    Rule(lambda r, c: c.unresolved(r), "evidence {}: no such unit in this source", _SHOWN),
    Rule(lambda r, c: c.outside(r), "evidence {}: not in the part of the transcript that was shown", _SHOWN),
    Rule(
        lambda r, c: c.backwards(r),
        "evidence {}: runs backwards",
        'in "evidence", "start_unit_id" is the earlier unit of a range',
    ),
]
LINE_RULE = Rule(
    lambda r, c: c.ill_written(r), "{}: blank, or more than one line", "text in {} is one line with something in it"
)
NOBODY_RULE = Rule(
    lambda r, c: c.null_in_words(r),
    '{}: must be null or a name, not a word for "nobody"',
    'write null without quotes in {} where there is no name, never "", "null", "none", "unknown" or "n/a"',
)

HOLDERS = {  # kind: the sides that name somebody, and how it is said; none is ever mended: it may hide a wrong kind
    "discovered": ((), 'a discovered item has "from": null and "to": null'),
    "acquired": (("to",), 'an acquired item has "from": null and the name of who gets it in "to"'),
    "lost": (("from",), 'a lost item has the name of who had it in "from" and "to": null'),
    "consumed": (("from",), 'a consumed item has the name of who used it in "from" and "to": null'),
    "transferred": (("from", "to"), 'a transferred item has one party member in "from" and another one in "to"'),
}
HOLDER_FAULTS = {
    "missing": 'missing holder: "{}" must be a name',
    "extra": 'extra holder: "{}" must be null',
    "misplaced": 'misplaced holder: the name in "{}" belongs on the other side',
    "outside": 'outside holder: "{}" must be a member of the party',
    "equal": "equal holders: {} stands on both sides",
}
HOLDER_RULES = [
    Rule(lambda r, c, k=kind, f=fault: r["kind"] == k and c.holder_faults(r).get(f), operator, shape)
    for kind, (_, shape) in HOLDERS.items()
    for fault, operator in HOLDER_FAULTS.items()
]
REGISTRY_RULES = [
    Rule(
        lambda r, c: [name for name in names_of(r) if len(c.owners[fold(name)]) > 1],
        "{}: stands in another record too",
        'what stands in "name" or "aliases" stands in one record only: two records of one are one',
    ),
    Rule(
        lambda r, c: repeated(names_of(r)),
        "{}: stands twice in this record",
        'what stands in "aliases" differs from "name" and from the other aliases',
    ),
    Rule(
        lambda r, c: not c.is_grounded(r),
        "neither the name nor an alias stands in a cited unit",
        'the "name" or one of the "aliases" stands in a unit that "evidence" cites',
    ),
]
_PARTY_NPC = 'in "npc" stands nobody of the party'
_SIDE = 'the "side" is "party" exactly when the "actor" is in the party'

FAMILIES = {
    "spells": {
        "name": "spell",
        "kind": "outcome",
        "rules": [
            Rule(lambda r, c: repeated(r["targets"]), "target {}: stands twice", 'a target stands once in "targets"'),
        ],
    },
    "npc-registry": {
        "name": "name",
        "kind": None,
        "registry": True,
        "rules": [
            Rule(
                lambda r, c: [name for name in names_of(r) if c.is_member(name)],
                "{}: a party member is no npc",
                'in "name" and "aliases" stands nobody of the party',
            ),
            *REGISTRY_RULES,
        ],
    },
    "npc-occurrences": {
        "name": "npc",
        "kind": "kind",
        "rules": [Rule(lambda r, c: c.is_member(r["npc"]), "a party member is no npc", _PARTY_NPC)],
    },
    "item-registry": {"name": "name", "kind": "category", "registry": True, "rules": REGISTRY_RULES},
    "item-occurrences": {"name": "item", "kind": "kind", "rules": HOLDER_RULES},
    "location-registry": {
        "name": "name",
        "kind": "type",
        "registry": True,
        "rules": [
            *REGISTRY_RULES,
            Rule(
                lambda r, c: fold(holder(r, "parent")) in map(fold, names_of(r)) and r["parent"],
                "parent {}: the place itself",
                'the "parent" is a larger place, never the place itself',
            ),
            Rule(
                lambda r, c: id(r) in c.circling and r["parent"],
                "parent {}: parents run in a circle",
                'the places in "parent" never run in a circle',
            ),
        ],
    },
    "location-occurrences": {
        "name": "location",
        "kind": "kind",
        "rules": [
            Rule(
                lambda r, c: not r["who"] and r["kind"] != "mentioned",
                "who: empty though the place isn't only mentioned",
                'the list "who" is empty only when the "kind" is "mentioned"',
            ),
        ],
    },
    "combat-turns": {
        "name": "actor",
        "kind": "action",
        "counter": "encounter",
        "rules": [
            Rule(
                lambda r, c: r["side"] == "party" and not c.is_member(r["actor"]),
                "side party: the actor isn't in the party",
                _SIDE,
            ),
            Rule(
                lambda r, c: r["side"] != "party" and c.is_member(r["actor"]) and r["side"],
                "side {}: the actor is in the party",
                _SIDE,
            ),
            Rule(
                lambda r, c: r["result"] not in ("hit", "success") and r["damage"],
                "damage {}: without a hit or success",
                'a "damage" above 0 needs the "result" "hit" or "success"',
            ),
        ],
    },
    "enemy-events": {
        "name": "enemy",
        "kind": "kind",
        "rules": [
            Rule(
                lambda r, c: c.is_member(r["enemy"]),
                "a party member is no enemy",
                'in "enemy" stands nobody of the party',
            ),
            Rule(
                lambda r, c: r["kind"] == "appeared" and holder(r, "by"),
                "by {}: nobody makes an enemy appear",
                'the name in "by" is null when the "kind" is "appeared"',
            ),
            Rule(
                lambda r, c: holder(r, "by") and fold(r["by"]) == fold(r["enemy"]) and r["by"],
                "by {}: the enemy itself",
                'the name in "by" is never the enemy itself',
            ),
        ],
    },
}
