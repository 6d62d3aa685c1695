"""The laws: is a narration bounded? Code checks it against the canon log it was told from, without a model.

    find_broken_laws(canon_log, prose, done_reason)    what breaks a law, as [{"law", "text"}]

LAWS names them, and each has its section below. The prose is never changed, held back or asked for again: findings
are for the log, and for whoever compares models. A law that cries wolf is worse than none.

Patterns are plain text: `re` compiles one when it is first needed and keeps it. Those that look at every character
begin with a set and look behind only then: `re` skips to a set's members fast.
"""

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

MAX_SENTENCES = 8
MAX_PROSE = 1000  # characters outside tags
MAX_CHECKED = 8_000  # characters looked at: what is longer is too long anyway


class Law(NamedTuple):
    """A law's name, and what of a Telling breaks it."""

    name: str
    broken: Callable[["Telling"], list]


LAWS = [
    Law("number", lambda t: numbers(t)),  # no digit, and no number word beside a game quantity
    Law("plays_player", lambda t: played(t)),  # the player doesn't decide, speak, feel or act
    Law("invented_name", lambda t: invented_names(t)),  # no proper noun that is neither canon nor tagged
    Law("redefines_canon", lambda t: redefined(t)),  # no fact about who the player is, none that is established
    Law("bad_tag", lambda t: bad_tags(t)),  # brackets hold [FACT: something] and nothing else
    Law("not_prose", lambda t: unprosaic(t)),  # no JSON, heading, list, label, token, talk about the task
    Law("not_second_person", lambda t: other_person(t)),  # the player is you, not I, he or she
    Law("too_long", lambda t: overlong(t)),  # at most MAX_SENTENCES and MAX_PROSE
    Law("cut_off", lambda t: [t.end] if t.done_reason == "length" else []),  # the answer ends by itself
]


def find_broken_laws(canon_log: dict, prose: str, done_reason: str | None) -> list:
    """What breaks a law, as `[{"law", "text"}]`; empty when nothing does. Nothing counts but the three arguments."""
    telling = Telling(canon_log, prose, done_reason)
    return [{"law": law.name, "text": shorten(text, 80)} for law in LAWS for text in dict.fromkeys(law.broken(telling))]


def shorten(text: str, limit: int) -> str:
    """The text on one line without control characters, cut with an ellipsis where it is longer than `limit`."""
    text = re.sub(r"[\x00-\x1f\x7f-\x9f]", "", " ".join(text.split()))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_of(words: str) -> str:
    """A table of words as a pattern's alternatives, the longest first; an underscore is a space."""
    return "|".join(sorted((word.replace("_", " ") for word in words.split()), key=len, reverse=True))


def either(patterns: str) -> str:
    """A table of patterns, one a line, as one pattern's alternatives."""
    return "|".join(line.strip() for line in patterns.strip().splitlines())


# Telling ---------------------------------------------------------------------

_FACT_TAG = r"\[FACT:(?=\s*[^\s\[\]])([^\[\]]*)\]"
_QUOTED = either(r"""
    (?<=")[^"\n]*(?:"|$)|(?<=“)[^”\n]*(?:”|$)|(?<=«)[^»\n]*(?:»|$)|(?<=^[—–]) .*$
    (?<=['‘])(?<!\w.)(?=\w)[^\n]{0,400}?[.,!?…—]['’](?!\w)
    (?<=\*)(?=[^*\n ]* )[^*\n]*\*|(?<=:)\n+[^\n]+(?:\n[^\n]+)*
""")
_SPEECH = rf"""(?m)["“«—–'‘*:](?:{_QUOTED})"""  # what somebody says, or has written or sung


class Telling:
    """A narration, taken apart once for all laws: its facts, what stands outside tags, what nobody says aloud."""

    def __init__(self, canon_log: dict, prose: str, done_reason: str | None):
        self.canon_log, self.prose, self.done_reason = canon_log, prose[:MAX_CHECKED], done_reason
        self.unchecked, self.end = len(prose) - len(self.prose), prose[-40:]
        self.facts = [fact.strip() for fact in re.findall(_FACT_TAG, self.prose)]
        self.untagged = self.prose.strip()
        if self.facts:
            self.untagged = re.sub(r" +(?=[.,;:!?])", "", re.sub(_FACT_TAG, "", self.prose)).strip()
        self.lower = self.untagged.replace("İ", "I").lower()  # as long as the text: only İ would grow
        self.narration = re.sub(_SPEECH, "”", self.untagged)  # the mark stays: something was said here
        self.sentences = split_sentences(self.untagged)
        self.texts = texts(canon_log)
        self.known = plain("\n".join([*self.texts, *self.facts]))
        self.player_names = names(canon_log["player"]["name"], self.texts)


def texts(canon_log: dict) -> list:
    """Every text of the canon log but its ids."""
    quest, player = canon_log.get("active_quest") or {}, canon_log["player"]
    companions = [companion["name"] for companion in canon_log.get("companions", ())]
    lists = [*canon_log.get("recent_events", ()), *canon_log.get("established_facts", ()), *companions]
    optional = [quest.get("title"), quest.get("summary"), canon_log.get("luck_descriptor"), player.get("description")]
    return [canon_log["location"], *lists, player["name"], *filter(None, optional)]


def names(player: str, texts: list) -> list:
    """What the player may be called: the whole name, and those of its words that nobody else in the texts bears."""
    others = "\n".join(text for text in texts if text != player).replace(player, "")
    words = [word for word in re.findall(r"\w[\w'’-]+", player) if word[0].isupper()]
    shared = r"[A-Z][\w'’-]+ {0}\b|\b{0} [A-Z]".format
    lent = [word for word in words if word in others and re.search(shared(re.escape(word)), others)]
    own = [word for word in [player, *words] if word not in lent or word == player]
    return [word for word in dict.fromkeys(own) if word.lower() not in _NO_INVENTIONS]


def plain(text: str) -> str:
    """The text for comparing: case-folded, with one kind of apostrophe."""
    return text.casefold().replace("’", "'").replace("ʼ", "'")


# number ----------------------------------------------------------------------

_TENS, _UNITS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety", "one|two|three|four|five|six|seven|eight|nine"
_COUNTS = one_of("""
    two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen hundred hundreds thousand thousands dozen dozens half
""")
_NUMBER = rf"(?:(?:{_TENS})(?:[- ](?:{_UNITS}))?|{_COUNTS})(?!-)"
_METALS = "gold|silver|copper|platinum|electrum"
_STATS = one_of("""
    hit_point hit_points health_point health_points hp mana experience xp damage percent per_cent armour_class
    armor_class skill_points luck_points points_of_damage points_of_luck points_of_health spell_slots spell_slot
    experience_points mana_points
""")
_OF = one_of("of your his her their its the my our more fewer less last remaining point points extra full good whole")
_BEHIND = one_of("""
    for and or in to from on each apiece is are if as at by but now a an the per before when left of too more richer
    poorer short lighter heavier coin coins piece pieces
""")
_LINK = one_of("""
    is are at to by of now stand stands sit sits hover hovers hang hangs drop drops fall falls rise rises read reads
    down up value score
""")
_ABOUT = "(?:only|just|about|exactly|minus|plus)"
_GAME_NUMBERS = either(rf"""
    \b(?:{_NUMBER}|one)(?: (?:{_OF}))* (?:{_STATS})\b
    \b(?:{_STATS}|luck|gold)(?: ?[:=]| (?:{_LINK}))+ (?:{_ABOUT} )?(?:{_NUMBER}|one|zero)\b(?! of\b)
    \b{_NUMBER}(?: \w+)? pieces? of (?:{_METALS})\b
    \b{_NUMBER}(?: (?:{_OF}))*(?: (?:shiny|bright|small|old|new|heavy))? (?:{_METALS})(?= (?:{_BEHIND})\b|[^\w\s]|$)
    \b{_NUMBER}(?: (?:{_OF}))*(?: (?!of\b)[a-z]+)? (?:coins?|dollars|shillings|guineas|florins|ducats|pence|credits)\b
    \b(?:gain|lose|drop|rise|climb)s? (?:{_NUMBER}|one|a) levels?\b
    \b(?:at|to|of|is|are|reach(?:es)?) level (?:{_NUMBER}|one)\b
""")


def numbers(telling: Telling) -> list:
    """Digits, and number words beside a game quantity; what canon says in so many words stays."""
    found = [match[0] for match in re.finditer(r"(?<!\w)(?:\w+[ .#-]+)?\w*\d[\d.,:/%]*\w*", telling.untagged)]
    spans = (match.span() for match in re.finditer(_GAME_NUMBERS, telling.lower))  # (?i) is four times slower
    found += [telling.untagged[start:end] for start, end in spans]
    return [text for text in found if plain(text).strip(" .,:") not in telling.known]


# plays_player ----------------------------------------------------------------

_ACTS = """
    accept admire adore advance agree aim ambush announce answer apologise apologize approach argue arm ask attack
    attempt back_away bargain beckon beg block bolt bow brace brandish brush_off brush_past buy call challenge charge
    chase cheer choose claim clamber clap clear_your climb close clutch collect confront consider contemplate continue
    count_out crack_open crawl creep cross crouch_down cup cut dart dash decide declare decline demand deny despise dig
    dive dodge doubt drag draw dread drink drop_a drop_the drop_to drop_your duck ease eat edge elbow embrace enjoy
    enter envy examine exclaim explain fear fight fire fling flip follow force fumble gather gesture get_to get_up give
    glance_back glance_over glare go grab grasp greet grin grip grit growl hack halt hammer hand hate haul head help
    hesitate hiss hoist hold_out hold_up hope hunt hurl hurry ignore inch insist inspect intend interrupt investigate
    invite jam join jump keep_going keep_moving keep_walking kick kill kiss kneel_beside kneel_down kneel_to knock laugh
    launch lay_a lay_down lay_out lay_the lay_your lead lean_forward lean_in leap leave let_go let_her let_him let_it
    let_out let_the let_them let_your lie_down lift light_a light_the light_your loathe lock loose love lower lunge
    make_a_break make_a_choice make_a_dash make_a_decision make_a_grab make_camp make_for make_haste make_up_your
    make_your march marvel mount mourn mouth move murmur mutter nock nod nudge offer open order pace pack parry part_the
    pause pay peel pick pin pity place plan plant pledge pluck plunge pocket point pole ponder pounce pour pray prepare
    press promise propose protest pry pull punch push put quicken raise ram reach_down reach_for reach_in reach_into
    reach_out reach_up read_the refuse regret relish reload remove reply resent resist resolve respond rest_a rest_your
    retort retreat return ride rip rise roll_up roll_your row rub run rush salute savour say scan scoop scramble search
    seize set_a set_down set_foot set_off set_out set_the set_to set_your settle_into shake sheathe shoot shoulder shout
    shove shrug sidestep sift sigh sign signal sip sit_down sit_up slam slap slash slice slide_your sling slip_away
    slip_between slip_inside slip_into slip_out slip_past slip_the slip_your smash smile smirk snap snarl snatch sneak
    speak spit sprint spur square_your squeeze stab stalk stand_up start_across start_down start_forward start_toward
    start_towards start_up steady_your steal steel steer step stoop stop straighten stride strike stroke stroll stuff
    surge_forward surrender swap swear sweep swim swing take tap tear_open tell test thank threaten throw thrust thumb
    tie tighten tiptoe toss touch trace trade tread trot trudge trust try tuck tug turn twist uncork unfold unlock
    unroll unsheathe untie vault venture volunteer vow wade walk want warn wave weave_through whisper whistle wield wink
    wipe wish withdraw wonder work_your wrap wrench wrestle yank yell yield
"""
_IDIOMS = either(r"""
    take \S+ (?:points? of )?damage|take (?:in|after|shape|up (?:most|half))\b
    take (?:a|the|an|another) (?:\w+ )?(?:hit|blow|beating|wound|brunt|fall|chill|arrow|bullet|elbow)
    draw (?:\w+ )?(?:stares|eyes|looks|glances|attention|breath|notice)|give (?:off|way)|pick out|cut a|answer to|pass
    leave (?:\w+ ){0,2}(?:tracks|prints|footprints|marks|trails?)|turn (?:pale|cold|blue|white|grey)|rise and fall
    go (?:cold|numb|still|pale|under|hungry|unnoticed|down|flying|sprawling|over)|read the (?:name|words?)
    run (?:out of|low|red)|stop (?:hearing|seeing)|(?:move|shake) with |smile like
""")  # what a verb of _ACTS says that is no act
_EMOTIONS = one_of("""
    grief fear dread anger rage fury joy delight relief shame guilt pity hope despair sorrow sadness pride curiosity
    excitement love hatred disgust panic terror horror anxiety unease loneliness remorse determination triumph gratitude
    envy jealousy contempt resentment longing courage confidence frustration satisfaction happiness trepidation
    foreboding apprehension nostalgia melancholy sympathy rush_of_adrenaline sense_of_wonder sense_of_awe
""")
_MOODS = one_of("""
    happy sad angry afraid nervous uneasy relieved determined furious ashamed guilty proud hopeful anxious eager scared
    frightened terrified excited curious grateful jealous worried glad homesick tempted overwhelmed delighted enraged
    horrified thrilled saddened intrigued resolved compelled disappointed heartbroken
""")
_ADVERB = r"(?:(?:\w+ly|also|then|now|just|still|soon|both|instead|at once|once more|again|finally) )"
_CLAUSE = r"(?:^|[.!?;:,—–…”()\n*]|--|\b(?i:and|but|as|while|then|so|yet)\b)[^\S\n]*"
_YOU = (
    rf"(?m)(?:{_CLAUSE}|\b(?i:only|not until) [^.!?;:\n”]{{0,40}}?\bdo )"
    rf"((?i:you)(?: and (?:the )?[A-Z]\w+)?|I)( |['’]re |['’]ll |['’]ve )({_ADVERB}*)([^.!?;:\n”—]*)"
)
_HEART = (
    rf"\b[Yy]our (?:heart|chest|blood|soul|spirits?|stomach|gut|mind|throat)\b [^.!?;:\n]{{0,40}}?"
    rf"\b(?:with|in|from) (?:\w+ )?(?:{_EMOTIONS})\b"
)
_FEEL = either(rf"""
    (?:(?:can )?feel|are|grow) (?:(?!\b(?:his|her|their|its|\w+['’]s)\b)[\w,’'-]+ ){{0,6}}?(?:{_EMOTIONS})\b
    (?:feel|are|grow) {_ADVERB}*(?:a little |very |so |suddenly )?(?:{_MOODS})\b
""")
_DECIDED = r"(?:have )?(?:(?:already|now|just) )?(?:decided|chosen|resolved|agreed|sworn|vowed|made up \w+ mind)\b"
_LEAD_IN = r"(?:can['’]t help but|cannot help but|manage to|begin to|start to|will not|will|shall) "
_LATER = {
    "": rf"(?:\band|\bthen|,) {_ADVERB}*(\w+ (?:your|yourself)\b)",
    "s": rf"(?:\band|\bthen|,) {_ADVERB}*(\w+ (?:his|her|their|the|a|an|up|down|out|in|to|at|into)\b)",
}


def played(telling: Telling) -> list:
    """Where the narrator has the player act, speak, decide or feel: as you or I, or by name."""
    found = [match[0] for match in re.finditer(_HEART, telling.narration)] if "your " in telling.lower else []
    clauses = {match[0]: match for match in re.finditer(_YOU, telling.narration)}  # small models repeat themselves
    for clause, match in clauses.items():
        if _you_act(match[2].strip(" ’'"), match[4]):
            found.append(clause.strip(" .!?;:,—–…”()\n*"))
    for name in filter(telling.narration.__contains__, telling.player_names):
        by_name = rf"(?m){_CLAUSE}({re.escape(name)} {_ADVERB}*([^.!?;:\n”—]*))"
        found += [match[1] for match in re.finditer(by_name, telling.narration) if _name_acts(match[2])]
    return found


def _you_act(link: str, rest: str) -> bool:
    """Whether what follows "you", "you're", "you'll" or "you've" is an act, a decision or a feeling."""
    being = re.match(rf"(?:are |am ){_ADVERB}*", rest)
    if link == "re" or being:
        rest = rest[being.end() :] if being else rest
        return _is_act(rest, "ing") or _matches(_FEEL, f"are {rest}")
    if link == "ve" or rest.startswith("have "):
        return _matches(_DECIDED, rest)
    if helpless := re.match(r"(?:can['’]t|cannot) help (\w+ing)\b", rest):
        return _is_act(helpless[1], "ing")
    rest = re.sub(rf"\A{_LEAD_IN}", "", rest)
    return _is_act(rest, "") or _matches(_FEEL, rest) or _acts_later(rest, "")


def _name_acts(rest: str) -> bool:
    """Whether what follows the player's name is an act or a feeling."""
    if rest.startswith("is "):
        return _is_act(rest[3:], "ing") or _matches(_FEEL, f"are {rest[3:]}")
    return _is_act(rest, "s") or _matches(_FEEL, re.sub(r"^(feel|grow)s ", r"\1 ", rest)) or _acts_later(rest, "s")


def _acts_later(rest: str, form: str) -> bool:
    """Whether a later verb of the clause is an act: "you wait and draw your blade"."""
    return any(_is_act(match[1], form) for match in re.finditer(_LATER[form], rest))


def _is_act(rest: str, form: str) -> bool:
    """Whether it begins with a verb of _ACTS in that form, and not with an idiom."""
    words = rest.lower().split(" ", 3)[:3]
    begins = {words[0].strip(",")} | {" ".join(words[:count]).strip(" ,") for count in (2, 3)}
    return not _acts(form).isdisjoint(begins) and not (form == "" and _matches(_IDIOMS, rest.lower()))


def _matches(pattern: str, text: str) -> bool:
    return re.match(pattern, text) is not None


@functools.cache
def _acts(form: str) -> set:
    """The verbs of _ACTS as they are, or in their form on -ing or -s."""
    inflect = {"": str, "ing": _ing, "s": _third}[form]
    return {" ".join([inflect(verb), *rest]) for verb, *rest in (act.split("_") for act in _ACTS.split())}


def _ing(verb: str) -> str:
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return verb + (verb[-1] if re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]", verb) else "") + "ing"


def _third(verb: str) -> str:
    verb = re.sub(r"(?<=[^aeiou])y$", "ie", verb)
    return verb + ("es" if re.search(r"(?:[sxzo]|ch|sh)$", verb) else "s")


# invented_name ---------------------------------------------------------------

_NO_INVENTIONS = set(
    """
    i you he she it we they me him her us them your yours my mine his hers its our their a an the this that these those
    there here and but or nor so yet if as when while where who what which why how not no yes then now in on at to from
    with of for by is are was were do does did have has had can could will would shall should may might must let
    somebody nobody everybody someone god gods goddess lord lords lady ladies sir madam ma'am mister mr mrs ms miss dr
    doctor st saint king queen prince princess duke duchess count countess baron baroness earl knight captain sergeant
    corporal lieutenant major colonel general admiral commander master mistress father mother brother sister uncle aunt
    auntie grandfather grandmother old young majesty lordship ladyship highness grace honour honor excellency eminence
    worship reverend professor judge mayor constable inspector monday tuesday wednesday thursday friday saturday sunday
    january february march april june july august september october november december christmas easter north south east
    west northern southern eastern western hell heaven devil death fate fortune luck time night winter summer spring
    autumn common elf elves elven elvish dwarf dwarves dwarven dwarvish orc orcs orcish goblin halfling human english
    latin ok tv o oh ah one none everyone anyone anybody stranger
""".split()
)  # function words, titles, the calendar, what is everybody's
_WORD = r"[^\W\d_a-z](?<![\w'’ʼ].)(?:[\w'’ʼ]|-(?=\w))*"
_ABBREVIATED = r"\b(?:Mr|Mrs|Ms|Mme|Mlle|Dr|St|Capt|Lt|Sgt|Col|Gen|Prof|Rev|Fr|Sr|Jr|Hon|No|[A-Z])\.$"
_OPENING = r"[.!?…:;\n—–-][\"”’'»)*_]*\s*[\"“‘«'(*_]*$|(?:^|[\s(])[\"“‘«'(*_]+$"
_ENDINGS = """
    s es ish an ans ian ians ean eans ese er ers ite ites man men woman women folk son sson dottir sdottir ic i n ns e a
    o y um us ia land mark born made
""".split()  # of nationalities, plurals, the folk of a place


def invented_names(telling: Telling) -> list:
    """Capitalised words inside a sentence that canon and this prose's facts don't know, with their neighbours."""
    text = re.sub(r"(?m)\[[^\]]*\]?|^(?:#|\*\*).*", lambda match: "." * len(match[0]), telling.untagged)
    is_known, found, last_end = functools.cache(lambda word: _is_known(word, telling.known)), [], -1
    for match in re.finditer(_WORD, text):
        start, end = match.span()
        if not _is_name(match[0]) or _opens_sentence(text, start) or is_known(match[0]):
            continue
        if found and not text[last_end:start].strip(" "):
            found[-1] += text[last_end:end]
        else:
            found.append(match[0])
        last_end = end
    return found


def _is_name(word: str) -> bool:
    """Whether the word is written as a name, a capital first and not all of it capitals, and isn't everybody's."""
    is_written_so = len(word) > 1 and word[0].isupper() and not word.isupper() and not re.match(r"I['’]", word)
    return is_written_so and word.lower() not in _NO_INVENTIONS


def _opens_sentence(text: str, start: int) -> bool:
    """Whether a sentence, a line, a quotation or the like begins with what stands there."""
    before = text[max(0, start - 12) : start]
    if not before.strip():
        return True
    return not re.search(_ABBREVIATED, before.rstrip()) and re.search(_OPENING, before) is not None


def _is_known(written: str, known: str) -> bool:
    """Whether canon has the word, a form of it, or each part of it; near misses are strangers."""
    word = re.sub(r"'s?$", "", plain(written))
    stems = {word[: -len(ending)] for ending in _ENDINGS if word.endswith(ending) and len(word) - len(ending) > 2}
    if word in _NO_INVENTIONS or any(_stands_in(stem, known) for stem in (word, *stems)):
        return True
    parts = [part for part in re.split(r"[-'’]", written) if part[:1].isupper() and len(part) > 2]
    return bool(parts) and parts != [written] and all(_is_known(part, known) for part in parts)


def _stands_in(stem: str, known: str) -> bool:
    """Whether a word of the text is the stem, or the stem with an ending."""
    start = known.find(stem)
    while start >= 0:
        tail = re.compile(r"\w*").match(known, start + len(stem))[0]
        if not known[start - 1 : start].isalnum() and (not tail or (len(stem) > 2 and tail in _ENDINGS)):
            return True
        start = known.find(stem, start + 1)
    return False


# redefines_canon -------------------------------------------------------------

_WHO = one_of("""
    is was were are has_been had_been used_to once became served come_from comes_from came_from hail_from hails_from
    grew_up descends descend born real_name true_name
""")
_KIN = one_of("name father mother brother sister parent parents past family lineage blood")
_SMALL_WORDS = frozenset("the a an of is are was were named called name to in on at by and it that this".split())


def redefined(telling: Telling) -> list:
    """Facts about who the player is, and facts that say again, or against it, what is established."""
    if not telling.facts:
        return []
    names = "|".join(re.escape(plain(_bare(name))) for name in telling.player_names) or "the player"
    about_player = (
        rf"(?:the player|you|(?:\w+ )?(?:{names}))(?:'s? (?:\w+ ){{0,2}}|'re)? ?\b(?:{_WHO})\b"
        rf"|(?:the player's|your|(?:{names})'s?) (?:real |true |full |birth |late |long-lost )?(?:{_KIN})\b"
    )
    old = [_content(fact) for fact in telling.canon_log.get("established_facts", ())]
    return [fact for fact in telling.facts if _matches(about_player, plain(_bare(fact))) or _says_again(fact, old)]


def _bare(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s'’-]", " ", text).split())


@functools.lru_cache(maxsize=4096)  # a game sends its facts with every turn
def _content(fact: str) -> frozenset:
    """The words of a fact that say something."""
    return frozenset(re.sub(r"'s?(?!\w)|[^\w\s'-]", " ", plain(fact)).split()) - _SMALL_WORDS


def _says_again(fact: str, established: list) -> bool:
    """Whether a fact has all but the same words as an old one."""
    new = _content(fact)
    alike = (len(new & old) >= 0.75 * len(new | old) or (len(new) > 2 and new <= old) for old in established)
    return bool(new) and any(alike)


# bad_tag ---------------------------------------------------------------------


def bad_tags(telling: Telling) -> list:
    """Brackets and FACT labels that are left when the sound tags are out."""
    return re.findall(r"\[.{0,60}|\S{0,80}\].{0,20}|\bFACTS?:.{0,40}", telling.untagged)


# not_prose -------------------------------------------------------------------

_LABELS = one_of("""
    Location Recent_events Established_facts Companions Companions_present Active_quest Fortune Player Scene Setting
    Narrator Narration Title Response Output Prose Description Assistant User System
""")
_LINE = either(rf"""
    [^\S\n]*(?:\{{.*|\[\s*[{{"].*)
    ```.*|\#{{1,6}} .*|\*\*[^*\n]{{1,60}}\*\*:?\s*$|(?:-{{3,}}|\*{{3,}}|={{3,}})\s*$
    [^\S\n]*(?:[-*•] .*\n\s*[-*•] .*|1[.)] .*)
    [^\w\n]*(?:{_LABELS})\b\W{{0,4}}:.{{0,40}}
    (?:Sure|Certainly|Of course|Absolutely)[!,.].{{0,40}}(?:here|scene|narrat|descri|continu).{{0,20}}
    \W?(?:Note|OOC|N\.B\.|Word count)\b\W.{{0,40}}
""")  # JSON; fences, headings, rules; lists; labels; talk
_STRUCTURE = rf"(?m)^(?:{_LINE})"
_TOKENS = either(r"""
    <\|.{0,20}|\|>|</?s>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|<[be]os>|</?think(?:ing)?>
    "\w+"\s*:\s*["\[{].{0,30}
""")  # of chat templates, and of JSON
_TALK = either(r"""
    [Aa]s (?:the|your|an?) (?:narrator|dungeon master|game master|AI|language model)
    (?:I|we) (?:(?:will|shall|can|cannot) (?:now )?|can['’]t )(?:describe|narrate|continue|provide|set the scene)
    I['’]ll (?:now )?(?:describe|narrate|continue|set the scene)
    here(?: is|['’]s) (?:the|a|your|my) (?:scene|description|narration|prose|story|response|continuation|passage)
    the scene as it is now|describe the scene|in this scene|end of (?:the )?(?:scene|narration)
    (?:based on|according to|from) the (?:established facts|context|canon|canon log|recent events|rules|details)
    (?:canon log|(?:provided|given) context|context (?:provided|given)|player character|system prompt)
    let me know (?:if|what|how)|\bwould you like (?:me )?to (?:continue|know)
""")
_TASK = rf"(?i)\b(?:{_TALK})\b.{{0,30}}"  # talk about the task


def unprosaic(telling: Telling) -> list:
    """What is no prose, and where the narrator talks about the task."""
    found = [match[0] for match in re.finditer(_STRUCTURE, telling.untagged)]
    found += [match[0] for match in re.finditer(_TOKENS, telling.untagged)]
    found += [match[0] for match in re.finditer(_TASK, telling.narration)]
    return found


# not_second_person -----------------------------------------------------------

_I_AM = r"I(?<!\w.)(?:['’](?:m|ll|ve|d)\b| [a-z]\w*)[^.!?\n]{0,30}"
_MINE = (
    r"[IMm](?<!\w.)(?:(?<=I)(?:['’](?:m|ll|ve|d)\b| [a-z]\w*)"
    r"|(?<!I)(?:y(?! (?:lord|lady|liege|dear|love|god|word))|e|yself)\b)[^.!?\n]{0,30}"
)
_SPEAK = "say|ask|call|add|tell|mutter|whisper|murmur|remark|growl|repeat|announce"
_SAID = rf"\b(?:(?:{_SPEAK})s?|said|asked|cry|cries|reply|replies)\b"


def other_person(telling: Telling) -> list:
    """The narrator as I; or a scene without you: three sentences of it, or fewer with the player by name."""
    addressed = re.search(r"\b(?:you|your|yours|yourself|yourselves)\b", telling.lower)
    own = _I_AM if addressed else _MINE
    told = split_sentences(telling.narration) if re.search(own, telling.narration) else []
    first = [match[0] for text in told if not re.search(_SAID, text) for match in re.finditer(own, text)]
    if first or addressed:
        return first[:1]
    count = len(telling.sentences) - (telling.done_reason == "length")  # the one that was cut might have said it
    does = rf"\b(?:{'|'.join(map(re.escape, telling.player_names))}) (?:{_ADVERB})*[a-z]+s\b"
    named = telling.player_names and re.search(does, telling.narration)
    return [telling.untagged[:60]] if count >= 3 or (named and count) else []


# too_long --------------------------------------------------------------------

_SENTENCE_END = r"[.!?…\n](?:(?<=\n)(?:\s*\n)?|(?<!\n)[\"”’'»)*_]*\s+)"


def overlong(telling: Telling) -> list:
    """How many sentences there are, or characters, where there are too many."""
    sentences, length = len(telling.sentences), len(telling.untagged) + telling.unchecked
    found = [f"{sentences} sentences"] if sentences > MAX_SENTENCES else []
    return found + ([f"{length} characters"] if length > MAX_PROSE else [])


def split_sentences(text: str) -> list:
    """The sentences; what a speaker asks or cries is not over before the words that say who did."""
    sentences, start = [], 0
    for match in re.finditer(_SENTENCE_END, text):
        end, after = match.start() + (match[0][0] != "\n"), match.end()
        if "\n" in match[0] or _is_over(text[max(start, end - 8) : end], text[end], text[after : after + 80]):
            sentences.append(text[start:end])
            start = after
    return [sentence for sentence in [*sentences, text[start:]] if re.search(r"\w", sentence)]


def _is_over(end: str, next_character: str, after: str) -> bool:
    """Whether a sentence that ends so is over before what comes after."""
    if after[:1].islower() or (not end[-5:].islower() and end[-1] == "." and re.search(_ABBREVIATED, end)):
        return False
    quoted = next_character in "\"”’'»" and end[-1] in "!?…."
    return not (quoted and after[:1] not in '"“‘«' and re.search(_SAID, " ".join(after.split()[:4])))


# repeats


def find_repeats(digest: str, prose: str, before) -> list:
    """The runs of six words or more that stand in a narration before, the digest's own aside; then it stands there too.

    `before` is a deque of the narrations before, which it keeps; empty when nothing is said again.
    """
    words, runs = _words_and_runs(prose[:MAX_CHECKED])
    again = set().union(*(told.intersection(runs) for told in before))
    again.difference_update(_words_and_runs(digest)[1] if again else ())
    before.append(set(runs))
    found = []
    for start, run in enumerate(runs if again else ()):
        if run in again and start and runs[start - 1] in again:
            found[-1] += " " + words[start + 5]
        elif run in again:
            found.append(" ".join(words[start : start + 6]))
    return found


def _words_and_runs(text: str) -> tuple:
    words = re.findall(r"\w[\w'’-]*", text)
    lower = [word.lower() for word in words]  # one by one: İ grows
    return words, list(zip(*(lower[start:] for start in range(6)), strict=False))
