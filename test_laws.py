"""Tests of laws.py: what breaks a law, what doesn't, what is meant to hurt. `python -m pytest -q test_laws.py`"""

import json
from pathlib import Path

import pytest

from laws import LAWS, find_broken_laws

LAW_LOG = {
    "schema_version": 1,
    "location": "the Crooked Lantern, an inn at Dock 7 in Greywater",
    "recent_events": ["Arrived at Greywater by barge before dawn", "Zoë Ó Briain paid the toll with two silver coins"],
    "established_facts": [
        "the harbourmaster is named Oda Fenn",
        "the eastern bridge out of Greywater is washed out",
        "the Widow's Portion sails for Lower Sarn with salt",
        "Captain d'Arcy-Vell of the Third Company is dead",
        "the Vessians dig at night",
        "李明 keeps the gate",
        "nobody opens a grave on Moonday",
    ],
    "companions": [{"name": "Brannoc Thane", "disposition": -37}, {"name": "the Hound"}],
    "active_quest": {"title": "The Missing Ledger", "summary": "Find who took Fenn's ledger before Saint Ebb's feast"},
    "luck_descriptor": "luck is a rope tonight",
    "player": {"name": "Aldric Reed", "description": "a sellsword"},
}

CLEAN = [  # proses that break no law
    "Fog stands on the quay, and the quay stands on nothing much. You hear a chain let go of something.",
    "Two guards wait at the door of the Crooked Lantern. One of them looks at you twice, and one more step creaks above.",
    "You are thrown against the rail. The Widow's Portion heels over and you slide, fall, and land on somebody's hat.",
    "You stand in the rain at Dock 7. Brannoc Thane counts the barges under his breath and gets a different sum each time.",
    '"I never liked you," says Oda Fenn, "and I never will. My brother liked everybody." You smell tar.',
    "Oda's lamps are out. So are Fenn's, and the harbourmaster's house has been dark since you landed.",
    "You see the Vessian before he sees you. He is digging, as Vessians do, and he isn't alone in it.",
    "You feel the cold come up through the boards. The Hound has found the one dry place and will not share it.",
    "'Not on a Moonday,' says the digger, and he spits. 'Ask me tomorrow.' You can hear the spade bite anyway.",
    "Brannoc draws his blade. Zoë Ó Briain steps past you, takes the lamp from its hook and walks out into it.",
    "A ferryman, one Pip Larch [FACT: a ferryman of the docks is called Pip Larch], waves to you. Larch has no teeth.",
    "Dr. Fenn is not here. St. Ebb is, in plaster, and he looks past you at the door of the inn.",
    "Will the rope hold? You could find out. Nobody at the Lantern would stop you, and nobody would help.",
    "You know the smell. You have smelled it on barges, in cellars and, once, in a church.",
    "The knife you carry is wet. The coat you wear belonged to a taller man, and the man wants it back.",
    '"Draw your blade, Aldric!" shouts Brannoc. "Take the stairs!" The stairs are behind you and they are on fire.',
    "Your Grace is a title, says Brannoc, and what this man has is a hat. You are in plain view of both.",
    "The Third Company marches past, what is left of it. D'Arcy-Vell's horse walks with them, and looks at you.",
    "Rain falls on Greywater. Greywater's gutters pass it on. You are the last thing between it and the floor.",
    "Fortune has left the room, and Luck with her. You can hear them laughing on the stairs, going down.",
    "A sign over the bar says NO CREDIT. Under it, in chalk, somebody has added your name.",
    "You wake to bells. It is Friday, or the ringer thinks so, and the whole of Lower Sarn is in the street.",
    "李明 has left the gate open. You hear 李明 breathing behind it.",
    "If you step closer the dog will bark; it has said so. You might go round by the well, where the light is worse.",
    "Gold light lies along the silver birches, and copper pans hang over the hearth. You smell onions.",
    "Brannoc says I told you so with his whole face. You are soaked to the skin, and so is he.",
    "The reed-cutters are out. Reeds bend where they work, and the wind makes way for you.",
    "You take in the room: the bar, the stair, the door that is not quite shut. You take a blow on the shoulder, late and soft.",
    "You can't make out the words. You find the rail with your hip, stumble, and lose sight of the boat.",
    "The boy asks what you want. He asks it again, louder, in a language that he has just made up.",
    "Who rang the bell? The Hound would like to know, and so would half the Portion's crew. You are between them and it.",
    '"Sister," says the man nearest you, "I dreamt I was well." It was, he says, bloody awful.',
    "Fenn's ledger lies open. You read the name at the top, and it is written in a hand that shakes.",
    "You are held by the collar, shaken like a rug and set down facing the other way. The guards find it funny.",
    'Somewhere a door bangs, and keeps banging. "Shut it!" calls a woman. It is not your door. It is not hers either.',
    "Greywater men don't sing. Greywaterers, says Brannoc, hum. You hear humming from the eastern bridge.",
]


@pytest.mark.parametrize("prose", CLEAN)
def test_prose_within_its_bounds(prose):
    assert find_broken_laws(LAW_LOG, prose, "stop") == []


BROKEN = {  # proses that break this law, whatever else they break
    "number": [
        "You have 3 arrows left.",
        "The fine is 20 gold. You hear a cough.",
        "It is 12:30 by the bell, and you are late.",
        "You see twenty gold coins on the bar.",
        "He wants a dozen silver pieces for it, and looks at you.",
        "Half your hit points lie in the ditch with you.",
        "You lose six hit points.",
        "The blow deals four points of damage to you.",
        "Your luck stands at minus four.",
        '"Forty percent," says Fenn, to you.',
        "It costs you two hundred gold, and a smile.",
        "You are at level five now, says the sign.",
        "Sixty pieces of gold lie in front of you.",
        "Your HP is down to seven.",
    ],
    "plays_player": [
        "You decide to trust him.",
        "You say nothing is wrong and smile.",
        "You draw your blade.",
        "You nod slowly.",
        "The door opens, and you step inside.",
        "As you walk along the quay, a gull follows.",
        "You feel a surge of anger.",
        "You are afraid of him.",
        "You make your way through the crowd.",
        "You quickly take the ledger and run.",
        "Aldric pushes the door open, and you hear it.",
        '"Fine," you reply.',
        "You can't help but laugh.",
        "You stand up, look round and draw your knife.",
        "You're reaching for the lamp already.",
        "You have made up your mind.",
        "You and Brannoc slip out by the back.",
        "Only then do you open it.",
        "Your heart fills with grim determination.",
        "I duck under the beam and you follow.",
    ],
    "invented_name": [
        "You see Elara at the bar.",
        "The inn belongs to a man called Grimjack. You smell him.",
        "You hear the bells of Saint Orsolo.",
        "A certain Judith Marlow waits for you.",
        "Oda Fennick looks at you.",
        "The road runs to Blackthorn Keep, and you are on it.",
        '"Ask at Corvane," she says. "In Corvane they know you."',
        "He prays to Ishtara while you watch.",
        "You can see the Bright Venture at her moorings.",
        "The Duke of Lys nods to you.",
        "A Kessarian sits by you.",
        "You hear that Brannoc Holt is dead.",
        "It is the month of Reapmoon, and you are cold.",
    ],
    "redefines_canon": [
        f"You hear rain. [FACT: {fact}]"
        for fact in (
            "the harbourmaster is named Oda Fenn",
            "The harbourmaster is Oda Fenn",
            "the eastern bridge out of Greywater is washed out",
            "the eastern bridge is washed out",
            "the Vessians dig at night",
            "The Vessians dig only at night",
            "Aldric Reed was once a monk",
            "Aldric is a deserter",
            "Aldric's father was a miller",
            "the player is the lost heir",
            "you were born in Sarn",
            "Captain Reed comes from Lower Sarn",
            "Aldric's real name is Jon",
        )
    ],
    "bad_tag": [
        "You hear rain. [FACT: ]",
        "You hear rain. [FACT:]",
        "You hear rain. [FACT: the rain is",
        "You hear rain. [FACT the rain is warm]",
        "[Scene: the inn]\nYou hear rain.",
        "You hear rain. [FACTS: rain; wind]",
        "You hear rain. [fact: rain is warm]",
        "You hear rain. [FACT: a [FACT: b]]",
        "You hear rain. [pause]",
        "You hear rain. FACT: the rain is warm",
        "You hear rain] and wind.",
        "You hear rain. [[FACT: it is warm]]",
        "You hear rain. [Perception: success]",
    ],
    "not_prose": [
        '{"prose": "You hear rain."}',
        "# The inn\nYou hear rain.",
        "**The inn**\nYou hear rain.",
        "```\nYou hear rain.\n```",
        "- You hear rain.\n- You smell tar.",
        "1. You hear rain.\n2. You smell tar.",
        "Location: the inn\nYou hear rain.",
        "As the Narrator, I describe what you hear.",
        "Here is the scene: you hear rain.",
        "You hear rain.<|im_end|>",
        "Sure! Here is a description. You hear rain.",
        "Let me know if you want more rain.",
        "You hear rain. [/INST]",
        "Based on the context, you hear rain.",
        "Note: this follows the facts. You hear rain.",
    ],
    "not_second_person": [
        "I hear rain.",
        "I'm on the stairs, and the rain is loud.",
        "My boots fill with rain.",
        "The rain gets at me through the roof.",
        "Rain falls. The fire dies. Nobody speaks.",
        "Aldric stands at the bar.",
        "Aldric hears rain on the roof.",
        "The bar is wet. He stands at it, wet too. It rains.",
        "She waits by the door. The rain waits too. It is late.",
        "Aldric Reed sleeps badly. The rain does not.",
        "Rain. Wind. More rain.",
        "I have been here before, and so have you.",
        "The inn is full. The fire is low. Brannoc coughs, and coughs again.",
    ],
    "too_long": [
        "You hear rain. " * 9,
        "You hear rain! " * 12,
        "You hear " + "rain and " * 130 + "wind.",
        "Rain?\n" * 9 + "You listen.",
        "You hear rain. Dr. Fenn coughs. " * 5,
        "“You hear rain.” " * 9,
        "You hear rain… " * 9,
        "You hear rain.\n\n" * 9,
        '"Rain!" she cries. You hear it. ' * 5,
        "You hear rain (again). " * 10,
        "You hear *rain*. " * 9,
        "龍 is wet; you hear it. " * 9,
    ],
    "cut_off": CLEAN[:12],  # for the done_reason alone
}


@pytest.mark.parametrize(("law", "prose"), [(law, prose) for law, proses in BROKEN.items() for prose in proses])
def test_prose_that_breaks_a_law(law, prose):
    done_reason = "length" if law == "cut_off" else "stop"
    assert law in [finding["law"] for finding in find_broken_laws(LAW_LOG, prose, done_reason)]


def test_the_labelled_examples_of_the_standard():
    path = Path(__file__).resolve().parent.parent / "shared" / "laws-examples.json"
    if not path.exists():
        pytest.skip("the examples aren't beside this checkout")
    for example in json.loads(path.read_text(encoding="utf-8")):
        found = {
            finding["law"]
            for finding in find_broken_laws(example["canon_log"], example["prose"], example["done_reason"])
        }
        assert set(example["must"]) <= found <= {*example["must"], *example["may"]}, example["id"]


def test_a_finding_is_a_law_and_a_short_text():
    laws = {law.name for law in LAWS}
    for proses in BROKEN.values():
        for finding in find_broken_laws(LAW_LOG, " ".join(proses), "length"):
            assert list(finding) == ["law", "text"]
            assert finding["law"] in laws
            assert 0 < len(finding["text"]) <= 80
            assert finding["text"].isprintable()


@pytest.mark.parametrize(
    "prose",
    [
        "",
        " ",
        "\n",
        "\x00",
        "\ud800",
        "[" * 30_000,
        "]" * 30_000,
        '"' * 30_001,
        "'a" * 30_000,
        "You " * 30_000,
        "A. " * 30_000,
        "Xy " * 30_000,
        "* " * 30_000,
        ":\n" * 30_000,
        "1" * 30_000,
        "two coins " * 9000,
    ],
)
def test_prose_that_is_meant_to_hurt(prose):
    assert isinstance(find_broken_laws(LAW_LOG, prose, "stop"), list)
    assert isinstance(
        find_broken_laws({**LAW_LOG, "player": {"name": prose[:500] or "x"}}, "You x. " + prose[:300], "stop"), list
    )
