"""Tests of who holds what: every kind of occurrence after every other one, and before anything."""

import json
from pathlib import Path

import pytest

from notary.custody import custody, united

EXAMPLE = json.loads(Path(__file__).with_name("example.json").read_text(encoding="utf-8"))
PARTY = [{"name": "Mara", "aliases": ["Mar"]}, {"name": "Tobin"}]
KINDS = {
    "discovered": (None, None),
    "acquired": (None, "Mara"),
    "lost": ("Mara", None),
    "consumed": ("Mara", None),
    "transferred": ("Mara", "Tobin"),
}


def followed(*occurrences, registry=(), party=PARTY) -> list:
    """The records of occurrences written as (item, kind, from, to, quantity), of a registry as (category, names)."""
    occurrences = [
        {
            "id": f"o{n}",
            "item": item,
            "kind": kind,
            "from": giver,
            "to": taker,
            "quantity": (*quantity, None)[0],
            "earliest_unit_id": n,
        }
        for n, (item, kind, giver, taker, *quantity) in enumerate(occurrences, 1)
    ]
    things = [{"name": name, "aliases": aliases, "category": category} for category, name, *aliases in registry]
    return custody(
        [
            {"artifact": "item-registry", "source_id": "s", "records": things},
            {"artifact": "item-occurrences", "source_id": "s", "records": occurrences},
        ],
        party,
    )["records"]


def test_the_artifact_of_the_example():
    assert custody(EXAMPLE[:9], EXAMPLE[-1]["party"]) == EXAMPLE[9]
    assert {key: EXAMPLE[9][key] for key in EXAMPLE[9] if key != "records"} == {
        "artifact": "item-custody",
        "schema_version": 1,
        "source_id": "example",
    }


def test_a_step_and_a_doubt_name_their_occurrence():
    assert followed(("rope", "acquired", None, "Mar"), ("rope", "lost", "Tobin", None)) == [
        {
            "item": "rope",
            "steps": [
                {"occurrence": "o1", "unit_id": 1, "holder": "Mara"},
                {"occurrence": "o2", "unit_id": 2, "holder": None},
            ],
            "doubts": [{"occurrence": "o2", "text": "Tobin loses it, but it is with Mara."}],
        }
    ]


@pytest.mark.parametrize(
    ("kind", "holder"),
    [("discovered", None), ("acquired", "Mara"), ("lost", None), ("consumed", None), ("transferred", "Tobin")],
)
def test_nothing_is_doubted_of_what_nobody_spoke_of_before(kind, holder):
    [item] = followed(("lamp", kind, *KINDS[kind]))
    assert (item["steps"][0]["holder"], item["doubts"]) == (holder, [])


@pytest.mark.parametrize(
    ("first", "then", "holder", "doubt"),
    [
        ("discovered", "discovered", None, None),
        ("discovered", "acquired", "Mara", None),
        ("discovered", "lost", None, "Mara loses it, but nobody has taken it yet."),
        ("discovered", "consumed", None, "Mara uses it up, but nobody has taken it yet."),
        ("discovered", "transferred", "Tobin", "Mara hands it over, but nobody has taken it yet."),
        ("acquired", "discovered", "Mara", "It is found, but it is with Mara already."),
        ("acquired", "acquired", "Mara", "Mara takes it, but it is with Mara already."),
        ("acquired", "lost", None, None),
        ("acquired", "consumed", None, None),
        ("acquired", "transferred", "Tobin", None),
        ("lost", "discovered", None, None),
        ("lost", "acquired", "Mara", None),
        ("lost", "lost", None, "Mara loses it, but Mara lost it before."),
        ("lost", "consumed", None, "Mara uses it up, but Mara lost it before."),
        ("lost", "transferred", "Tobin", "Mara hands it over, but Mara lost it before."),
        ("consumed", "discovered", None, None),
        ("consumed", "acquired", "Mara", None),  # another one of the kind
        ("consumed", "lost", None, "Mara loses it, but it was used up before."),
        ("consumed", "consumed", None, "Mara uses it up, but it was used up before."),
        ("consumed", "transferred", "Tobin", "Mara hands it over, but it was used up before."),
        ("transferred", "discovered", "Tobin", "It is found, but it is with Tobin already."),
        ("transferred", "acquired", "Mara", "Mara takes it, but it is with Tobin already."),
        ("transferred", "lost", None, "Mara loses it, but it is with Tobin."),
        ("transferred", "consumed", None, "Mara uses it up, but it is with Tobin."),
        ("transferred", "transferred", "Tobin", "Mara hands it over, but it is with Tobin."),
    ],
)
def test_each_kind_of_occurrence_after_each_other(first, then, holder, doubt):
    [item] = followed(*(("lamp", kind, *KINDS[kind]) for kind in (first, then)))
    assert item["steps"][1]["holder"] == holder
    assert item["doubts"] == ([{"occurrence": "o2", "text": doubt}] if doubt else [])


@pytest.mark.parametrize(
    ("name", "occurrences", "registry", "holders", "doubts"),
    [
        (
            "coins may come often and go anyhow",
            [
                ("gold", "acquired", None, "Mara"),
                ("gold", "acquired", None, "Tobin", 5),
                ("gold", "lost", "Tobin", None, 9),
            ],
            [],
            ["Mara", "Mara, Tobin", "Mara"],
            [],
        ),
        (
            "what the registry calls currency is coins",
            [("crowns of Oss", "lost", "Mara", None), ("oss", "consumed", "Mara", None)],
            [("currency", "crowns of Oss", "oss")],
            [None, None],
            [],
        ),
        (
            "several pieces with several people",
            [
                ("torch", "acquired", None, "Mara", 3),
                ("torch", "acquired", None, "Tobin", 2),
                ("torch", "consumed", "Mara", None),
            ],
            [],
            ["Mara", "Mara, Tobin", "Mara, Tobin"],
            [],
        ),
        (
            "a number that somebody hasn't got",
            [
                ("torch", "acquired", None, "Mara", 3),
                ("torch", "consumed", "Mara", None, 2),
                ("torch", "lost", "Mara", None, 2),
            ],
            [],
            ["Mara", "Mara", None],
            ["Mara loses 2, but has only 1."],
        ),
        (
            "the last one used up and one more",
            [("torch", "acquired", None, "Mara", 2), *[("torch", "consumed", "Mara", None)] * 3],
            [],
            ["Mara", "Mara", None, None],
            ["Mara uses it up, but it was used up before."],
        ),
        (
            "without a number it may be any",
            [("torches", "acquired", None, "Mara"), *[("torches", "consumed", "Mara", None, 9)] * 2],
            [],
            ["Mara"] * 3,
            [],
        ),
        ("a quiver from before doesn't run out", [*[("arrows", "consumed", "Tobin", None)] * 3], [], [None] * 3, []),
        (
            "a few handed on stay a few",
            [
                ("torches", "acquired", None, "Mara", 2),
                ("torches", "transferred", "Mara", "Tobin"),
                ("torches", "lost", "Tobin", None, 2),
            ],
            [],
            ["Mara", "Mara, Tobin", "Mara"],
            ["Tobin loses 2, but has only 1."],
        ),
        (
            "another's torch",
            [("torches", "acquired", None, "Mara", 2), ("torches", "consumed", "Tobin", None)],
            [],
            ["Mara", "Mara"],
            ["Tobin uses it up, but it is with Mara."],
        ),
        (
            "what all have anyone may give",
            [("map", "acquired", None, "the party"), ("map", "lost", "Mar", None)],
            [],
            ["the party", None],
            [],
        ),
        (
            "what one has the party may lose",
            [("map", "acquired", None, "Mara"), ("map", "lost", "Party", None)],
            [],
            ["Mara", None],
            [],
        ),
        (
            "what all have one may take",
            [("map", "acquired", None, "everyone"), ("map", "acquired", None, "Mara")],
            [],
            ["the party", "Mara"],
            [],
        ),
        (
            "torches of all",
            [
                ("torch", "acquired", None, "us", 2),
                ("torch", "consumed", "Tobin", None, 2),
                ("torch", "consumed", "Tobin", None, 1),
            ],
            [],
            ["the party", None, None],
            ["Tobin uses it up, but it was used up before."],
        ),
        (
            "a name and an alias are one",
            [
                ("ring", "acquired", None, "MARA "),
                ("ring", "transferred", "mar", "Tobin"),
                ("ring", "lost", "tobin", None),
            ],
            [],
            ["Mara", "Tobin", None],
            [],
        ),
        (
            "somebody outside the party",
            [("ring", "acquired", None, "Old  Pell"), ("ring", "lost", "old pell", None)],
            [],
            ["Old  Pell", None],
            [],
        ),
        (
            "the registry's names are one item",
            [("Tidecutter", "acquired", None, "Mara"), ("the  SWORD", "acquired", None, "Tobin")],
            [("weapon", "Tidecutter", "the sword")],
            ["Mara", "Tobin"],
            ["Tobin takes it, but it is with Mara already."],
        ),
    ],
)
def test_numbers_people_and_names(name, occurrences, registry, holders, doubts):
    [item] = followed(*occurrences, registry=registry)
    assert [step["holder"] for step in item["steps"]] == holders
    assert [doubt["text"] for doubt in item["doubts"]] == doubts


def test_items_stand_in_the_order_in_which_they_come_up_by_the_registrys_name():
    items = followed(
        ("sword", "discovered", None, None),
        ("rope", "lost", "Mara", None),
        ("blade", "lost", "Mara", None),
        registry=[("weapon", "Tidecutter", "sword", "blade")],
    )
    assert [(item["item"], [step["occurrence"] for step in item["steps"]]) for item in items] == [
        ("Tidecutter", ["o1", "o3"]),
        ("rope", ["o2"]),
    ]


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        ([], []),
        (["a", "b"], ["a", "b"]),
        (["a b", "c", "B d"], ["a b/B d", "c"]),
        (["a", "b", "c", "b c", "d a"], ["a/d a", "b/c/b c"]),
        (["a", "b", "a b"], ["a/b/a b"]),
    ],
)
def test_records_of_one_thing_come_together_by_way_of_others(names, groups):
    records = [{"name": text.split()[0], "aliases": text.split()[1:]} for text in names]
    assert ["/".join(" ".join([one["name"], *one["aliases"]]) for one in group) for group in united(records)] == groups
