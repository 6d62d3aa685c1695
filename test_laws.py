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


NO_LOOPS = """
You hear rain, rain on the roof and rain in the gutter.
Drip, drip, says the roof, and you are under it.
Fog. Fog on the quay, fog on the water. You can see neither.
"Not tonight," says Fenn. "Not tonight." You hear him spit.
"Pull on that rope!" cries Brannoc. "Pull on that rope!" You hear it part.
Brannoc, Brannoc, Brannoc, says the gull, or you hear it so.
The bell rings. The bell stops. You hear the harbour breathe.
You hear it again and again, and then not.
It is late. It is wet. It is Greywater. You are in it.
No light. No light. You see the shape of the rail.
The Hound growls. You hear the boards creak. The Hound growls.
Knock, knock. You hear somebody on the other side, breathing.
On and on and on it goes, and you can hear where it is going.
Less and less of the lamp is left. You see more and more of the dark.
A man on the left, a man on the right, a man in the door. You are between them.
You are cold, and the rail is cold, and the rope is cold.
He had had enough of that that you could see.
He says that that is that. You hear the till shut.
Up the stairs, down the stairs, up the stairs goes the boy, past you.
Long, long ago this was a church. You can see where the altar stood.
The rope swings. Nobody has touched it. The rope swings slower, and you see it stop.
Side by side they stand, side by side they look at you.
Old Fenn coughs. Young Fenn coughs. You are the only one here who can breathe.
The quay is empty. The quay is never empty. You hear a chain.
""".strip().splitlines()
NOT_FOREIGN = """
李明 has left the gate open, and you hear 李明's keys.
You hear 李 on the stairs.
The café is shut, naïve as that is, and you smell coffee.
Zoë Ó Briain looks past you at the Straße.
A ξ is chalked on the door. You can smell the chalk.
You see the sign of the 龍 over the gate.
A smile 🙂 is painted on the boat; you see it from here.
Smørrebrød and ærter, says the board. You smell both.
Ångström, Þór, Łódź: you hear the clerk read them out.
“Ça va?” asks the girl at the rail, and you hear her laugh.
Việt Nam, Hà Nội, says the crate you sit on.
The heat is 40° and you feel it.
You hear the clerk’s pen… scratch – and stop.
A coin lies at your feet, stamped ℵ.
‘Hallå,’ says the digger, who can’t see you.
You see an ſ in the old hand, long as a finger.
Señor Fenn’s façade, crème and doré, is peeling; you smell the paint.
The price is in £ and €, and you have neither.
½ of the sign is gone. You can read the rest.
You hear ʻokina, says Brannoc, and he means the stop in it.
Ⅳ is cut over the door you stand in.
The ﬁre is low, and you feel the draught.
Œdipus, says the spine of the book you are sitting on.
™ and ©, says the crate. You smell salt.
""".strip().splitlines()
PROSE_THAT_LOOKS_BROKEN = [  # kinds of prose near the laws that break none
    "Muffled shouts come from the cellar, and heavy steps. Nervous glances go from table to table, and end at you.",
    '"Rope\'s cut," says Brannoc. "Tide\'s turning. Door\'s barred." You hear him spit.',
    "The fear in the room has a smell. It grips the men by the hearth. You are in their way.",
    "Your hand is numb. Your fingers won't close. Your purse is lighter than it was.",
    "Before you can answer the door opens. If you take the stairs you will meet him. He wants you to choose.",
    "You are told to drop your blade and raise your hands. You are offered a chair.",
    "You see the guard turn and draw his knife. You hear Brannoc shout and run for the stairs.",
    "Lamplight turns the puddles gold. Silence leans on the door. Two steps creak above you.",
    "The knife you took is gone. You were told there was another. There is.",
    "(Fenn is counting the barges.) The rain counts with him. You are dry at last, or nearly.",
    "There are two ways out: the door, which is watched, and the window. You feel the draught from both.",
    "Reeds bend at the water's edge, and you hear geese.",
]


@pytest.mark.parametrize(
    ("law", "prose"), [*(("loops", prose) for prose in NO_LOOPS), *(("foreign_script", prose) for prose in NOT_FOREIGN)]
)
def test_prose_that_breaks_no_law_of_its_kind(law, prose):
    assert law not in [finding["law"] for finding in find_broken_laws(LAW_LOG, prose, "stop")]


@pytest.mark.parametrize("prose", PROSE_THAT_LOOKS_BROKEN)
def test_prose_that_looks_broken(prose):
    assert find_broken_laws(LAW_LOG, prose, "stop") == []


@pytest.mark.parametrize(
    "menu",
    [
        "1) Go to Sarn  2) Talk to Larch",
        "1) Go up\n2) Ask Larch\n3) Sleep",
        "(Ask Larch) (Leave Corvane)",
        "> Ask Larch\n> Leave Corvane",
    ],
)
def test_the_words_of_a_menu_are_no_names(menu):
    laws = [finding["law"] for finding in find_broken_laws(LAW_LOG, f"You hear rain.\n{menu}", "stop")]
    assert "not_prose" in laws
    assert "invented_name" not in laws


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
        "Without a word you draw your blade.",
        "In one motion you draw your blade and turn.",
        "Slowly you rise.",
        "Stepping inside, you see a bar.",
        "You begin walking up the quay.",
        "You find yourself wondering who rang.",
        "Your hand drifts to the hilt.",
        "Your fingers wrap around the rail.",
        "A wave of dread washes over you.",
        "Fear grips you.",
        "Your heart sinks.",
        "You feel a mixture of pride and sorrow.",
        "You stand and walk to the bar.",
        "You are wet, and pull your cloak tighter.",
        "You're already running when the bell stops.",
        "You'll take the stairs.",
        "You're not sure why, but you trust her.",
        "The two of you run for it.",
        "You drew your blade and stepped inside. It was cold.",
        "You ran. The quay was empty.",
        "Aldric drew his knife. It was cold, and you heard it.",
        'Aldric: "I would rather not."',
        "We follow the boy up the stairs.",
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
        "Elara leans against the bar and looks at you.",
        "Finn's laugh carries. You hear it.",
        "Jarek and Brannoc are arguing with you.",
        "Lysandra smiles at you.",
        "Tomas whispers something to you.",
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
        "You hear one ___ [FACT: ___] cough.",
        "You hear rain. [FACT: …]",
        "You hear rain. [FACT: ...]",
        "You hear rain. [FACT: the ferryman is called ___]",
        "You hear rain. [FACT: <fact>]",
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
        "You hear rain. 1) Go  2) Talk",
        "You hear rain.\n1) Go up\n2) Talk to Fenn\n3) Sleep",
        "You hear rain.\n(Go) (Talk)",
        "You hear rain.\n(Go)\n(Talk to Fenn)",
        "You hear rain. Do you a) go, or b) talk?",
        "You hear rain.\n> Go\n> Talk",
        "You hear rain.\n\nOptions:\nGo, or talk",
        "You hear rain. (I've kept this in second person.)",
        "You hear rain. Feel free to go on.",
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
        "We hear the rain. It is loud.",
        "Our boots fill with rain.",
        '"You there," says Fenn. Aldric looks round.',
        "Aldric's boots fill with rain.",
        "The sellsword hears rain.",
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
    "loops": [
        "You hear rain on the roof. It is late. You hear rain on the roof.",
        "The lamp is out, Fenn. The lamp is out, Fenn!",
        "Fog and fog and fog and fog stands on the quay.",
        "You hear the bell the bell the bell.",
        "Rain rain rain. You are wet.",
        "The door opens. You see it. THE DOOR OPENS, YOU SEE IT. The door opens; you see it.",
        "You see the quay and the boat. You see the quay and the boat. You",
        "drip, drip, drip, says the roof to you",
        "You are cold. You are cold. You are cold.",
        "the cask is dry to the last stave the cask is dry to the last stave the cask is dry to the last stave",
        "“Not on a Moonday, no.” “Not on a Moonday, no.” “Not on a Moonday, no.” You hear it.",
        "You hear rain... rain... rain... and",
        "龍 龍 龍, and you hear the gate.",
    ],
    "foreign_script": [
        "You hear rain. 雨が降る.",
        "You hear 下雨了 on the roof.",
        "The inn is темно, and you smell tar.",
        "You smell tar, and the bell is الصمت tonight.",
        "Fog stands on the quay.然后 you hear a bell.",
        "You see the sign: ΒΗΛΟΣ.",
        "You hear שלום from the stairs.",
        "ฝนตก on the roof; you hear it.",
        "You hear rain and 비가 온다.",
        "You hear rain in Grey水港water.",
        "Дождь. You hear rain on the roof of the inn.",
        "You see बारिश in chalk.",
    ],
    "cut_off": CLEAN[:12],  # for the done_reason alone
}


@pytest.mark.parametrize(("law", "prose"), [(law, prose) for law, proses in BROKEN.items() for prose in proses])
def test_prose_that_breaks_a_law(law, prose):
    canon_log = {**LAW_LOG, "established_facts": []} if law == "foreign_script" else LAW_LOG  # a fact is about 李明
    done_reason = "length" if law == "cut_off" else "stop"
    assert law in [finding["law"] for finding in find_broken_laws(canon_log, prose, done_reason)]


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
