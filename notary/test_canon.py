"""Tests of the canon log that is drafted from artifacts."""

import json
from pathlib import Path

import pytest

import narrator_app as n
from notary.canon import draft, read_artifacts
from notary.families import FAMILIES
from notary.sentences import sentence

EXAMPLE = json.loads(Path(__file__).with_name("example.json").read_text(encoding="utf-8"))
PARTY = [{"name": "Mara", "aliases": ["Mar"]}, {"name": "Tobin"}]
VALID = n.make_validator(json.loads((n.HERE / "canon-log.schema.json").read_text(encoding="utf-8")))
FIELDS = {
    "npc-registry": {"aliases": [], "role": None, "attitude": "unknown", "description": None},
    "npc-occurrences": {"summary": "x", "location": None},
    "item-registry": {"aliases": [], "category": "other", "magical": None, "description": None},
    "item-occurrences": {"quantity": None, "from": None, "to": None},
    "location-registry": {"aliases": [], "type": "other", "parent": None, "description": None},
    "location-occurrences": {"who": ["Mara"]},
}


def artifact(family, *records, source="s") -> dict:
    """An artifact of records with what a test leaves out; `at` is the earliest unit."""
    full = [
        {
            "id": f"{source}-{family}-{k}",
            "earliest_unit_id": one.get("at", k),
            "evidence": [],
            **FIELDS.get(family, {}),
            **one,
        }
        for k, one in enumerate(records, 1)
    ]
    return {"artifact": family, "schema_version": 1, "source_id": source, "records": full}


def drafted(*artifacts, player="Mara", party=PARTY) -> dict:
    canon_log, _ = draft(list(artifacts), player, party)
    assert list(VALID.iter_errors(canon_log)) == []
    return canon_log


def arrived(place, source="s", kind="arrived"):
    return artifact("location-occurrences", {"location": place, "kind": kind}, source=source)


def test_the_draft_of_the_example():
    canon_log, left_out = draft(EXAMPLE, "mar")
    assert (list(VALID.iter_errors(canon_log)), left_out) == ([], [])
    assert (canon_log["location"], canon_log["player"]) == ("the Tallow Lamp", {"name": "Mara"})
    assert canon_log["companions"] == [{"name": "Tobin"}, {"name": "Isolde"}]
    assert canon_log["recent_events"][:1] + canon_log["recent_events"][-2:] == [
        "Isolde cast Slumber on the Eel (countered)",
        "Tobin got silver coins (15)",
        "Mara, Tobin, Isolde, Pell Harrow arrived at the Tallow Lamp",
    ]
    assert len(canon_log["recent_events"]) == 12
    assert [
        fact for fact in canon_log["established_facts"] if "Rusk" in fact or "Tidecutter" in fact or "crypt" in fact
    ] == [
        "Captain Rusk (smuggler captain), hostile to the party (dead): brings in every barrel in Saltmere that has no stamp; also called the Eel",
        "crypt (room) in drowned chapel: knee-deep in water, six stone coffins; also called chapel crypt",
        "Held by Mara: Tidecutter (weapon), magical: blue steel without rust, its name cut into the blade; also called sword",
    ]
    assert draft(EXAMPLE, "mar") == (canon_log, left_out)
    assert "- Captain Rusk was defeated, by Mara\n" in n.digest(canon_log)


def test_what_no_record_says_is_named():
    canon_log, left_out = draft([], "Mara")
    assert canon_log == {
        "schema_version": 1,
        "location": "somewhere unrecorded",
        "recent_events": [],
        "established_facts": [],
        "companions": [],
        "player": {"name": "Mara"},
    }
    assert left_out == [
        f"{what}: no record says any" for what in ("location", "recent events", "people", "places", "things held")
    ]


@pytest.mark.parametrize(
    ("player", "party", "found"),
    [
        (None, [PARTY[0]], "Mara"),
        ("MAR", PARTY, "Mara"),
        ("Tobin ", PARTY, "Tobin"),
        ("Ilse", [], "Ilse"),
        ("Ilse", None, "Ilse"),
        (None, PARTY, "who plays on? Give --player: one of Mara, Tobin"),
        ("", PARTY, "who plays on? Give --player: one of Mara, Tobin"),
        (None, None, "who plays on? Give --player: nothing names a party, so any name will do"),
        (" ", [], "who plays on?"),
        ("Ilse", PARTY, "--player Ilse isn't in the party: give one of Mara, Tobin"),
    ],
)
def test_who_plays_on(player, party, found):
    if len(found) < 10:
        assert drafted(player=player, party=party)["player"] == {"name": found}
    else:
        with pytest.raises(n.SettingError, match=found.replace("?", r"\?")):
            draft([], player, party)


def test_the_party_is_the_last_sessions_that_names_one_unless_it_is_given():
    sessions = [
        {"artifact": "session", "source_id": str(k), "party": party, "units": 1}
        for k, party in enumerate((PARTY, PARTY[:1], []))
    ]
    assert drafted(*sessions, player=None, party=None)["player"] == {"name": "Mara"}
    assert drafted(*sessions, player=None, party=[{"name": "Odo"}])["player"] == {"name": "Odo"}


@pytest.mark.parametrize(
    ("artifacts", "location"),
    [
        ([arrived("quay", kind="mentioned")], "somewhere unrecorded"),
        (
            [
                artifact(
                    "location-occurrences",
                    {"location": "inn", "kind": "arrived"},
                    {"location": "quay", "kind": "present"},
                )
            ],
            "inn",
        ),
        (
            [
                artifact(
                    "location-occurrences",
                    {"location": "inn", "kind": "present"},
                    {"location": "quay", "kind": "present"},
                )
            ],
            "quay",
        ),
        ([arrived("inn", "1"), arrived("quay", "2")], "quay"),
        ([arrived("inn", "1"), arrived("quay", "2", "present")], "quay"),
        ([arrived("inn", "1"), arrived("quay", "2", "mentioned")], "inn"),
        ([arrived("\x07"), arrived("l\x07ake\n shore", "2")], "lake shore"),
    ],
)
def test_where_it_goes_on(artifacts, location):
    assert drafted(*artifacts)["location"] == location


def test_events_stand_in_the_order_of_the_sessions_and_then_of_the_transcript():
    spell = {"caster": "Mara", "targets": [], "slot_level": 3, "outcome": "cast"}
    first = artifact("spells", {"spell": "late", "at": 9, **spell}, source="one")
    second = [
        artifact("enemy-events", {"enemy": "rat", "kind": "fled", "count": None, "by": None, "at": 5}, source="two"),
        artifact("spells", *({"spell": f"s{k}", "at": k, **spell} for k in (4, 6)), source="two"),
    ]
    assert drafted(first, *second)["recent_events"] == ["Mara cast late", "Mara cast s4", "rat fled", "Mara cast s6"]
    assert drafted(*second, first)["recent_events"][-1] == "Mara cast late"


def test_later_beats_earlier():
    one = [
        artifact(
            "npc-registry",
            {"name": "the hooded woman", "role": "stranger", "attitude": "hostile", "description": "limps"},
            source="1",
        ),
        artifact("item-registry", {"name": "ring", "aliases": ["band"]}, source="1"),
        artifact(
            "item-occurrences",
            {"item": "ring", "kind": "acquired", "to": "Mara"},
            {"item": "map", "kind": "acquired", "to": "Mara"},
            source="1",
        ),
    ]
    two = [
        artifact("npc-registry", {"name": "Oda", "aliases": ["The Hooded Woman"], "role": "harbourmaster"}, source="2"),
        artifact(
            "item-occurrences",
            {"item": "band", "kind": "transferred", "from": "Mar", "to": "Tobin"},
            {"item": "map", "kind": "lost", "from": "Mara"},
            source="2",
        ),
    ]
    assert drafted(*one, *two)["established_facts"] == [
        "Oda (harbourmaster), hostile to the party: limps; also called The Hooded Woman",
        "Held by Tobin: ring; also called band",
    ]


@pytest.mark.parametrize(
    ("kinds", "fact"),
    [(["died"], "Oda (dead)"), (["died", "mentioned"], "Oda (dead)"), (["died", "spoke"], "Oda"), (["spoke"], "Oda")],
)
def test_the_dead_stay_dead_until_they_are_met_again(kinds, fact):
    met = artifact("npc-occurrences", *({"npc": "ODA", "kind": kind} for kind in kinds))
    assert drafted(artifact("npc-registry", {"name": "Oda"}), met)["established_facts"] == [fact]


def test_a_family_given_twice_for_a_session_counts_once():
    canon_log, left_out = draft([arrived("inn"), arrived("quay")], "Mara", PARTY)
    assert (canon_log["location"], left_out[0]) == (
        "quay",
        "s: location-occurrences is given twice, the later one counts",
    )


@pytest.mark.parametrize("letter", ["a", "語", "\ud800", "😀"])
def test_a_campaign_of_200_sessions_is_a_draft_that_the_narrator_takes_at_once(letter):
    artifacts = []
    for s in range(200):
        names = [f"{letter * 9}{s}-{k}" for k in range(30)]
        artifacts += [
            artifact(
                "npc-registry",
                *({"name": name, "role": letter * 240, "description": letter * 240} for name in names),
                source=f"s{s}",
            ),
            artifact(
                "item-occurrences",
                *({"item": name, "kind": "acquired", "to": "Mara"} for name in names),
                source=f"s{s}",
            ),
        ]
    party = [{"name": f"{letter}{k}"} for k in range(60)]
    canon_log, left_out = draft(artifacts, f"{letter}0", party)
    assert list(VALID.iter_errors(canon_log)) == []
    assert canon_log["established_facts"][-1] == f"Held by Mara: {letter * 9}199-29"
    assert len(n.digest(canon_log).encode("utf-8", "replace")) < 3 * 7000
    assert {line.partition(":")[0] for line in left_out} == {
        "location",
        "places",
        "people that did not fit",
        "things held that did not fit",
        "companions that did not fit",
    }
    assert f"{letter * 9}0-0, " in "".join(left_out)
    assert draft(artifacts, f"{letter}0", party) == (canon_log, left_out)


def test_what_is_too_long_is_cut_and_named():
    canon_log, left_out = draft(
        [artifact("location-occurrences", {"location": "inn", "kind": "arrived", "who": ["x" * 120] * 10})],
        "Mara",
        PARTY,
    )
    assert [len(event) for event in canon_log["recent_events"]] == [500]
    assert left_out[-1] == f"cut to 500 characters: {'x' * 59}…"


@pytest.mark.parametrize(
    "artifacts",
    [
        [7],
        [{}],
        [{"artifact": "spells"}],
        [{"artifact": "spells", "source_id": "s", "records": [{}]}],
        ["x"],
        [None],
        [{"artifact": "npc-registry", "source_id": "s", "records": [{"id": "x", "name": 7, "aliases": []}]}],
        [{"artifact": "session", "source_id": "s", "party": [7]}],
    ],
)
def test_what_the_notary_never_wrote_is_refused_in_a_line(artifacts):
    with pytest.raises(n.SettingError, match="aren't as `python -m notary` writes them"):
        draft(artifacts, "Mara")


@pytest.mark.parametrize(
    ("text", "found"),
    [("[]", []), ("{", "can't be used"), ("{}", "isn't a list of artifacts"), (None, "can't be used")],
)
def test_reading_the_notarys_file(text, found, tmp_path):
    path = tmp_path / "out.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    if text == "[]":
        assert read_artifacts(path) == found
    else:
        with pytest.raises(n.SettingError, match=f"out.json.*{found}"):
            read_artifacts(path)


def test_every_kind_of_record_has_a_sentence():
    schema = json.loads(Path(__file__).with_name("notary.schema.json").read_text(encoding="utf-8"))["records"]
    for family, row in FAMILIES.items():
        fields = {key: ["a", "b"] if field["type"] == "array" else "x" for key, field in schema[family].items()}
        for kind in schema[family].get(row["kind"], {}).get("enum", [None]):
            assert " " in sentence(family, {**fields, **({row["kind"]: kind} if kind else {})})


@pytest.mark.parametrize(
    ("family", "record", "text"),
    [
        (
            "spells",
            {"caster": "Mara", "spell": "Spark", "targets": ["rat", "bat"], "slot_level": 1, "outcome": "failed"},
            "Mara cast Spark on rat, bat (failed)",
        ),
        (
            "item-occurrences",
            {"item": "{who}", "kind": "acquired", "quantity": 1, "from": None, "to": "Mara"},
            "Mara got {who}",
        ),
        (
            "enemy-events",
            {"enemy": "rats", "kind": "wounded", "count": 3, "by": "Mara"},
            "rats (3) was wounded, by Mara",
        ),
        (
            "combat-turns",
            {"actor": "Mara", "action": "attack", "detail": "swings", "result": "none", "damage": 7},
            "Mara in a fight: swings",
        ),
        (
            "location-registry",
            {"name": "Rim", "aliases": [], "type": "other", "parent": "the\nsea", "description": None},
            "Rim in the sea",
        ),
        (
            "item-registry",
            {"name": "orb", "aliases": ["ball"], "category": "wondrous", "magical": True, "description": "hums"},
            "orb (wondrous), magical: hums; also called ball",
        ),
    ],
)
def test_a_record_in_plain_words(family, record, text):
    assert sentence(family, {**record, "evidence": []}) == text
