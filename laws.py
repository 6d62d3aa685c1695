"""The laws: is a narration bounded? Code checks it against the canon log it was told from, without a model.

LAWS names them, and each has its section below. The prose is never changed, held back or asked for again: findings
are for the log, and for whoever compares models. A law that cries wolf is worse than none.
"""

import collections
import functools
import re
import unicodedata

MAX_SENTENCES = 8
MAX_PROSE = 1000  # characters outside tags
MAX_RUN = 12  # words that may come round in a loop
MAX_CHECKED = 8_000  # characters looked at: what is longer is too long anyway

Law = collections.namedtuple("Law", "name broken")  # broken(telling) is a list: what of it breaks the law
LAWS = [
    Law("number", lambda t: numbers(t)),  # no digit, and no number word beside a game quantity
    Law("plays_player", lambda t: played(t)),  # the player doesn't decide, speak, feel or act
    Law("invented_name", lambda t: invented_names(t)),  # no proper noun that is neither canon nor tagged
    Law("redefines_canon", lambda t: redefined(t)),  # no fact about who the player is, none that is established
    Law("bad_tag", lambda t: re.findall(_BAD_TAG, t.untagged)),  # brackets hold [FACT: something] and nothing else
    Law("not_prose", lambda t: unprosaic(t)),  # no JSON, heading, list, label, token, talk about the task
    Law("not_second_person", lambda t: other_person(t)),  # the player is you, not I, he or she
    Law("too_long", lambda t: overlong(t)),  # at most MAX_SENTENCES and MAX_PROSE
    Law("loops", lambda t: loops(t)),  # no sentence of four words twice, no run of words three times in a row
    Law("foreign_script", lambda t: foreign_words(t)),  # no word in a script of neither canon nor the prose
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
# Patterns are plain text, compiled when first needed. A set at the beginning lets `re` skip what can't match.

_FACT_TAG = r"\[FACT:(?=[^\[\]]*[^\W_])(?![^\[\]]*(?:__|[<>]))([^\[\]]*)\]"  # with a word in it and no blank to fill
_BAD_TAG = r"[\[\]F](?:(?<!F).{0,60}|(?<!\wF)ACTS?:.{0,40})"  # what is left when the sound ones are out
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
        self.untagged = re.sub(rf" *{_FACT_TAG}(?=[.,;:!?])|{_FACT_TAG}", "", self.prose).strip()
        self.menu = f"|{_MENU}" if any(sign in self.untagged for sign in ")>2") else ""
        self.written = re.findall(r"\w+(?:['’-]\w+)*", self.untagged)
        self.words = plain("\n".join(self.written)).split("\n")
        self.vocabulary = frozenset("\n".join(self.words).replace("-", "\n").replace("'", "\n").split("\n"))
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
    own = [word for word in words if word not in others or not re.search(shared(re.escape(word)), others)]
    return [word for word in dict.fromkeys([player, *own]) if word.lower() not in _NO_INVENTIONS]


def plain(text: str) -> str:
    """The text for comparing: case-folded, without accents, with one kind of apostrophe."""
    text = text if text.isascii() else re.sub(r"[\u0300-\u036f]", "", unicodedata.normalize("NFKD", text))
    return text.casefold().replace("’", "'").replace("ʼ", "'")


# number ----------------------------------------------------------------------

_TENS, _UNITS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety", "one|two|three|four|five|six|seven|eight|nine"
_COUNTS = one_of("""
    two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen hundred hundreds thousand thousands dozen dozens half
""")
_NUMBER = rf"(?:(?:{_TENS})(?:[- ](?:{_UNITS}))?|{_COUNTS})(?!-)"
_METALS = "gold|silver|copper|platinum|electrum"
_COINS = "coin|coins|dollars|shillings|guineas|florins|ducats|pence|credits"
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
    \b{_NUMBER}(?: (?:{_OF}))*(?: (?!of\b)[a-z]+)? (?:{_COINS})\b
    \b(?:gain|lose|drop|rise|climb)s? (?:{_NUMBER}|one|a) levels?\b
    \b(?:at|to|of|is|are|reach(?:es)?) level (?:{_NUMBER}|one)\b
""")
_DIGITS = r"(?<!\w)(?:\w+[ .#-]+)?\w*\d[\d.,:/%]*\w*"
_QUANTITIES = frozenset(re.findall(r"\w+", f"{_STATS} {_METALS} {_COINS} luck level levels")) - {"of"}


def numbers(telling: Telling) -> list:
    """Digits, and number words beside a game quantity; what canon says in so many words stays."""
    found = [match[0] for match in re.finditer(_DIGITS, telling.untagged if re.search(r"\d", telling.untagged) else "")]
    lower = telling.untagged.replace("İ", "I").lower() if _QUANTITIES & telling.vocabulary else ""  # only İ would grow
    found += [telling.untagged[match.start() : match.end()] for match in re.finditer(_GAME_NUMBERS, lower)]
    return [text for text in found if plain(text).strip(" .,:") not in telling.known]


# plays_player ----------------------------------------------------------------

_ACTS = """
    accept adjust admire adore advance agree aim allow_yourself ambush announce answer apologize apply appreciate
    approach argue arm ask assess assist attack attempt avoid back_away bandage bargain beckon beg bellow
    bend_down|over|to bite block bolt bow brace brandish brave breathe_a_sigh break_open|the|your|off bribe bring_your
    brush_off|past bury buy call cast_a_spell|about|your challenge charge chase check cheer choose claim clamber clap
    clean clear_your clench climb close clutch collect come_forward|to_a compliment conceal concentrate confess confront
    consider contemplate continue convince count_out crack_open crawl creep cross crouch_down cup curse cut dart dash
    deal decide declare decline defend demand deny descend despise destroy dig dip disarm dismiss dive dodge doubt douse
    drag draw dread drink drive_your drop_a|into_a|the|to|your duck ease eat edge elbow embrace empty encourage enjoy
    enter envy examine exclaim explain explore extend_a|your extinguish fall_into_step fear fetch fight finish fire flee
    flick fling flip focus follow force fumble gather gesture get_back|down|out|ready|to|up give glance_back|over glare
    go grab grasp greet grin grip grit growl guide gulp hack hail halt hammer hand hate haul head heave heed help
    hesitate hiss hoist hold_out|up|your hope hug hunt hurl hurry ignore inch inhale inquire insist inspect intend
    interrupt introduce investigate invite jab jam jerk join joke jump keep_going|moving|one|to|walking|your kick kill
    kindle kiss kneel_beside|down|to knock land_a lash laugh launch lay_a|an|down|hands|out|the|your lead
    lean_across|close|closer|forward|in|over leap leave let_fly|go|her|him|it|out|the|them|your|yourself lie_down lift
    light_a|the|your loathe lock long_for loose love lower lunge
    make_a_break|a_choice|a_dash|a_decision|a_grab|a_mental|a_run|an_offer|camp|for|haste|no|sure|up_your|your march
    marvel mock motion mount mourn mouth move murmur mutter navigate negotiate nock nod nudge obey offer open order pace
    pack panic parry part_the pat pause pay peek peel peer persuade pick pin pity pivot place plan plant play plead
    pledge pluck plunge pocket point pole ponder pounce pour pray prefer prepare press proceed promise propose protest
    pry pull punch pursue push put question quicken raise ram reach_down|for|in|into|out|up read_the ready reassure
    refuse regret release relish reload remove repeat reply request rescue resent resist resolve respond rest_a|your
    retort retreat retrieve return ride rip rise roll_aside|to|up|your row rub rummage run rush salute saunter savour
    say scale scan scold scoop scramble scratch search secure seize set_a|an|down|foot|off|out|the|to|your settle_into
    shake sheathe shield shift_your shoot shoulder shout shove shovel shrug shuffle shut sidestep sift sigh sign signal
    sing sip sit_down|up slam slap slash slice slide_a|into|the|your sling slink
    slip_away|between|inside|into|out|past|the|your smash smile smirk snap snarl snatch sneak sneer sniff snort speak
    spin_around|on|to spit spread_your sprint spur square_your squeeze stab stalk stand_up|your
    start_across|down|forward|running|toward|towards|up|walking stash steady_your steal steel steer step stoop stop
    straighten strap stretch_out stride strike strip stroke stroll study stuff suggest summon surge_forward surrender
    survey swallow_your swap swear sweep swerve swim swing take tap taunt tear_open tease tell test thank think_about|of
    threaten throw thrust thumb tie tighten tip_your tiptoe toss touch trace trade tread treat trot trudge trust try
    tuck tug turn twist uncork uncover unfasten unfold unlock unpack unroll unsheathe untie unwrap urge use utter vault
    veer venture volunteer vow wade walk want warn wave weave_through weigh_your whip whirl whisper whistle wield
    wind_the|up|your wink wipe wish withdraw wonder work_your worry wrap wrench wrestle wring write yank yell yield
"""
_IDIOMS = either(r"""
    take \S+ (?:points? of )?damage|take (?:in|after|shape|up (?:most|half))\b
    take (?:a|the|an|another) (?:\w+ )?(?:hit|blow|beating|wound|brunt|fall|chill|arrow|bullet|elbow|moment|while)
    draw (?:\w+ )?(?:stares|eyes|looks|glances|attention|breath|notice)|give (?:off|way)|pick out|cut a|answer to|pass
    leave (?:\w+ ){0,2}(?:tracks|prints|footprints|marks|trails?)|turn (?:pale|cold|blue|white|grey)|rise and fall
    go (?:cold|numb|still|pale|under|hungry|unnoticed|down|flying|sprawling|over)|read the (?:name|words?)
    run (?:out of|low|red|into)|stop (?:hearing|seeing)|(?:move|shake) with |smile like|treat(?:ed)? to|use to
""")  # what a verb of _ACTS says that is no act
_PAST = """
    choose chose creep crept draw drew drink drank fight fought give gave go went hold held keep kept kneel knelt lead
    led leap leapt make made pay paid ride rode rise rose run ran say said shake shook shoot shot speak spoke steal
    stole stride strode strike struck swing swung take took tell told think thought throw threw flee fled buy bought
""".split()
_EMOTIONS = one_of("""
    grief fear dread anger rage fury joy delight relief shame guilt pity hope despair sorrow sadness pride curiosity
    excitement love hatred disgust panic terror horror anxiety unease loneliness remorse determination triumph gratitude
    envy jealousy contempt resentment longing courage confidence frustration satisfaction happiness trepidation
    apprehension nostalgia melancholy sympathy dismay defiance resolve foreboding adrenaline wonder awe
""")
_MOODS = one_of("""
    happy sad angry afraid nervous uneasy relieved determined furious ashamed guilty proud hopeful anxious eager scared
    frightened terrified excited curious grateful jealous worried glad tempted overwhelmed delighted horrified thrilled
    intrigued resolved compelled disappointed heartbroken confident wary lonely impatient irritated annoyed frustrated
    amused shocked surprised bewildered confused puzzled reassured pleased disgusted hopeless desperate reluctant
    uncomfortable
""")
_ADVERB = r"(?:(?:(?!reply)\w+ly|all|two|already|also|then|now|just|still|both|instead|at once|again) )"
_CLAUSE = r"(?:^|[.!?;:,—–…”()\n*]|--|\b(?i:and|but|as|while|then|so|yet)\b)[^\S\n]*"
_WITH = r"\b(?:With|Without|In one|In a) [^.!?,;:\n”]{1,40} |\b[A-Z]\w+ly |\b(?:two|all|both) of "
_ONLY = r"\b(?i:only|not until) [^.!?;:\n”]{0,40}?\bdo "
_YOU = (
    rf"(?m)(?:{_CLAUSE}|{_ONLY}|{_WITH})"
    rf"(?:(?i:you)(?: and (?:the )?[A-Z]\w+)?|I|We)(?: {_ADVERB}*|(?=['’]))(?=([^.!?;:\n”—]{{0,200}}))"
)
_SEIZES = one_of("""
    grips seizes fills washes_over settles_over settles_in settles_into surges_through floods overwhelms takes_hold_of
    courses_through tugs_at gnaws_at coils_in creeps_into strikes hits floods_through sweeps_over
""")
_HANDLES = one_of("""
    reach reaches tighten tightens wrap wraps curl curls dart darts drifts_to grabs grab flies_to goes_to moves_to
    close_around closes_around closes_over slips_into slips_to slam slams
""")
_ORGANS = "heart|chest|blood|soul|spirits?|stomach|gut|mind|throat"
_INNER = either(rf"""
    \b[Yy]our (?:{_ORGANS})\b [^.!?;:\n]{{0,40}}?\b(?:with|in|from) (?:\w+ )?(?:{_EMOTIONS})\b
    \b[Yy]our (?:heart|spirits?) (?:sinks?|sank|soars?|swells?|aches?|breaks?|leaps?|lifts?)\b
    \b[Yy]our (?:\w+ )?(?:{_EMOTIONS}|temper|curiosity) (?:is|[a-z]+s)\b
    \b(?i:{_EMOTIONS}) (?:[^.!?;:\n”]{{0,30}}? )?(?:{_SEIZES}) you(?:r \w+)?\b
    \b[Yy]our (?:\w+ )?(?:hand|hands|fingers|fist) {_ADVERB}*(?:{_HANDLES})\b
""")
_INNER_WORDS = {*_EMOTIONS.split("|"), *"temper heart spirit spirits hand hands fingers fist".split()}
_FEELS = "(?:feels?|felt|are|grows?|becomes?)"
_FEEL = either(rf"""
    (?:can )?{_FEELS} (?:(?!\b(?:his|her|their|its|\w+['’]s)\b)[\w,’'-]+ ){{0,6}}(?:{_EMOTIONS})\b
    {_FEELS} {_ADVERB}*(?:(?:a little|very|so|suddenly|more|too|strangely) )?(?:{_MOODS})\b
    feel an? (?:\w+ )?(?:sense|mix|mixture|twinge) of (?!\w+ing\b)|(?:can['’]t|cannot) (?:help feeling|bring yourself)
""")
_DECIDED = r"(?:already |now |just )?(?:decided|chosen|resolved|agreed|sworn|vowed|made up \w+ mind)\b"
_LEAD_IN = r"(?:can['’]t help but|cannot help but|manage to|begin to|start to|will not|will|['’]ll|['’]d|shall|would) "
_ING_IN = rf"(?:can['’]t help|cannot help|find yourself|begin|start|keep|go on|resume) {_ADVERB}*"
_STILL = r"(?:stand|sit|wait|look|listen|glance|stare|crouch|kneel|remain|stay|hesitate|blink|wake|breathe)\b"
_THINGS = "the|a|an|your|his|her|their|it|him|them|to|towards?|into|at|for|out|up|down|back|away|over|inside|forward"
_LATER = {
    "": rf"(?:\band|\bthen|,) {_ADVERB}*(\w+ (?:your|yourself)\b)",
    "ing": rf", {_ADVERB}*(\w+ your\b)",
    "still": rf"(?:\band|\bthen|,) {_ADVERB}*(\w+(?: (?:{_THINGS})\b|$))",
    "s": rf"(?:\band|\bthen|,) {_ADVERB}*(\w+ (?:his|her|their|the|a|an|up|down|out|in|to|at|into)\b)",
}
_IS, _WAS = r"\b(?:is|are|has|have|see|hear|feel|stand|['’]re)\b", r"\b(?:was|were|had|saw|heard|felt|stood)\b"
_PARTICIPLE = rf"(?m)(?:^|[.!?”] )(?:{_ADVERB}|\w+ly )?([A-Z]?\w+ing [^.!?;:\n”]{{1,80}}?), you\b"


def played(telling: Telling) -> list:
    """Where the narrator has the player act, speak, decide or feel: as you, I or we, or by name."""
    told = "".join(dict.fromkeys(re.findall(r"[.!?;:\n]?[^.!?;:\n]+", telling.narration)))  # small models loop
    found = [match[0] for match in re.finditer(_INNER, told if _INNER_WORDS & telling.vocabulary else "")]
    found += [match[1] for match in re.finditer(_PARTICIPLE, told) if _is_act(match[1], "ing")]
    clauses = (match for match in re.finditer(_YOU, told) if _acts(match[1], "", telling.narration))
    found += [(match[0] + match[1]).strip(" .!?;:,—–…”()\n*") for match in clauses]
    for name in filter(told.__contains__, telling.player_names):
        by_name = rf"(?m){_CLAUSE}({re.escape(name)}(?:: ?”| {_ADVERB}*([^.!?;:\n”—]*)))"
        found += [
            match[1] for match in re.finditer(by_name, told) if not match[2] or _acts(match[2], "s", telling.narration)
        ]
    return found


def _acts(rest: str, form: str, told: str) -> bool:
    """Whether what follows "you" or, in the form on -s, a name is an act, a decision or a feeling."""
    if being := re.match(rf"(?:are|am|were|is|was|['’](?:re|m)) {_ADVERB}*", rest):
        rest = rest[being.end() :]
        later = not re.search(r"\bto [a-z]+ ", rest) and _acts_later(rest, form)
        return _is_act(rest, "ing") or later or bool(re.match(_FEEL, f"are {rest}"))
    if had := re.match(r"(?:have|has|['’]ve) ", rest):
        return bool(re.match(_DECIDED, rest[had.end() :]))
    rest = re.sub(rf"\A{_LEAD_IN}", "", rest)
    if (into := re.match(_ING_IN, rest)) and _is_act(rest[into.end() :], "ing"):
        return True
    past = _is_act(rest, "ed") and len(re.findall(_WAS, told)) >= len(re.findall(_IS, told))
    now = _is_act(rest, form) or past or bool(re.match(_FEEL, rest))
    still = form == "" and bool(re.match(_STILL, rest)) and _acts_later(rest, "", _LATER["still"])
    itself = form == "s" and re.match(r"\w+(?:s|ed) (?:himself|herself|themsel\w+)\b", rest)
    return now or still or bool(itself) or _acts_later(rest, form) or _acts_later(rest, "ing")


def _acts_later(rest: str, form: str, later: str = "") -> bool:
    return any(_is_act(match[1], form) for match in re.finditer(later or _LATER[form], rest))


def _is_act(rest: str, form: str) -> bool:
    words = rest.lower().split(" ", 3)[:3]
    begins = {words[0].strip(",")} | {" ".join(words[:count]).strip(" ,") for count in (2, 3)}
    return not _verbs(form).isdisjoint(begins) and not (form == "" and re.match(_IDIOMS, rest.lower()))


@functools.cache
def _verbs(form: str) -> set:
    table = [act.partition("_") for act in _ACTS.split()]
    verbs = [(verb, phrase.replace("_", " ")) for verb, _, phrases in table for phrase in phrases.split("|")]
    return {f"{_inflect(verb, form)} {phrase}".strip() for verb, phrase in verbs}


def _inflect(verb: str, form: str) -> str:
    if form == "s":
        verb = re.sub(r"(?<=[^aeiou])y$", "ie", verb)
        return verb + ("es" if re.search(r"(?:[sxzo]|ch|sh)$", verb) else "s")
    if form == "ed" and verb in _PAST[::2]:
        return _PAST[_PAST.index(verb) + 1]
    doubled = verb[-1] if form and re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]", verb) else ""
    stem = {"": verb, "ing": re.sub(r"(?<!e)e$", "", re.sub("ie$", "y", verb)), "ed": re.sub("e$", "", verb)}[form]
    return (re.sub(r"(?<=[^aeiou])y$", "i", stem) if form == "ed" else stem) + doubled + form


# invented_name ---------------------------------------------------------------

_NO_INVENTIONS = """
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
""".split()  # function words, titles, the calendar, what is everybody's
_WORD = r"[^\W\d_a-z](?<![\w'’ʼ].)(?:[\w'’ʼ]|-(?=\w))*"
_ABBREVIATED = r"\b(?:Mr|Mrs|Ms|Mme|Mlle|Dr|St|Capt|Lt|Sgt|Col|Gen|Prof|Rev|Fr|Sr|Jr|Hon|No|[A-Z])\.$"
_AFTER = "her|his|your|you|at you|up at|at her|at his|forward|aside|closer|back|out|into|something|the|a|and|but|as"
_SAYS = "says|said|asks|leans|takes|pulls|speaks|adds|tells|strides|kneels|grabs|raises|enters"
_DOES = one_of("""
    nods smiles grins laughs chuckles shrugs whispers mutters murmurs sighs frowns glares steps turns looks glances
    stares watches draws winks smirks points gestures shakes calls shouts yells replies answers waves walks
""")  # or the plural of a noun, unless what comes after tells
_PERSON = rf" {_ADVERB}*(?:(?:{_SAYS})\b|(?:{_DOES})(?: (?:{_AFTER})\b| \w+ly\b|[.]))|,? and (?!I\b)[A-Z]\w+ [a-z]"
_NOT_PEOPLE = """
    nothing something everything anything another neither either each both all many most few some any somewhere nowhere
    outside inside behind below above overhead rain wind smoke fog mist steam water snow thunder lightning light
    darkness dark silence dust mud ice fire wood stone sand moonlight sunlight firelight dawn dusk morning evening
    midnight today tonight tomorrow yesterday blood sweat frost men women children people two three four five six seven
    eight nine ten lamplight
""".split()
_OPENING = r"[.!?…:;\n—–-][\"”’'»)*_]*\s*[\"“‘«'(*_]*$|(?:^|[\s(])[\"“‘«'(*_]+$"
_ENDINGS = """
    а у ы и е ой ом s es ish an ans ian ians ean eans ese er ers ite ites man men woman women folk son sson dottir
    sdottir ic i n ns e a o y um us ia land mark born made
""".split()  # of nationalities, plurals, the folk of a place


def invented_names(telling: Telling) -> list:
    """Capitalised words inside a sentence that canon and this prose's facts don't know, with their neighbours."""
    text = re.sub(f"(?m){_MASKED}{telling.menu}", lambda match: "." * len(match[0]), f"\n{telling.untagged}")
    is_known, found, last_end = functools.cache(lambda word: _is_known(word, telling.known)), [], -1
    for match in re.finditer(_WORD, text):
        start, end = match.span()
        is_name = match[0][0].isupper() and not match[0].isupper() and not match[0].startswith(("I'", "I’"))
        if not is_name or is_known(match[0]):
            continue
        if _opens_sentence(text, start) and not _names_somebody(match[0], text[end : end + 40], telling):
            continue
        beside = found and not text[last_end:start].strip(" ")
        found.append(found.pop() + text[last_end:end] if beside else match[0])
        last_end = end
    return found


def _opens_sentence(text: str, start: int) -> bool:
    before = text[max(0, start - 12) : start]
    opens = re.search(_OPENING, before) and not re.search(_ABBREVIATED, before.rstrip())
    return bool(opens) or not before.strip()


def _names_somebody(word: str, after: str, telling: Telling) -> bool:
    """Whether a capitalised first word is a name, by what comes after: it does what people do, or owns something."""
    owns = word.endswith(("'s", "’s")) and re.match(r" (?!\w+ing\b|gone|not|been|in|out|up|a|the)\w", after)
    if not (owns or re.match(_PERSON, after)) or word + after[:12] not in telling.narration:
        return False
    return re.sub(r"['’]s$", "", word).lower() not in [*_NOT_PEOPLE, *_NO_INVENTIONS]


def _is_known(written: str, known: str) -> bool:
    """Whether canon has the word, a form of it, or each part of it; near misses are strangers."""
    word = re.sub(r"'s?$", "", plain(written))
    stems = {word[: -len(ending)] for ending in _ENDINGS if word.endswith(ending) and len(word) - len(ending) > 2}
    if word in _NO_INVENTIONS or any(_stands_in(stem, known) for stem in (word, *stems)):
        return True
    parts = [part for part in re.split(r"[-'’]", written) if part[:1].isupper() and len(part) > 2]
    return bool(parts) and parts != [written] and all(_is_known(part, known) for part in parts)


def _stands_in(stem: str, known: str) -> bool:
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
    names = "|".join(re.escape(plain(_bare(name))) for name in telling.player_names) or "the player"
    about_player = (
        rf"(?:the player|you|(?:\w+ )?(?:{names}))(?:'s? (?:\w+ ){{0,2}}|'re)? ?\b(?:{_WHO})\b"
        rf"|(?:the player's|your|(?:{names})'s?) (?:real |true |full |birth |late |long-lost )?(?:{_KIN})\b"
    )
    old = [_content(fact) for fact in telling.canon_log.get("established_facts", ())]
    return [fact for fact in telling.facts if re.match(about_player, plain(_bare(fact))) or _says_again(fact, old)]


def _bare(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s'’-]", " ", text).split())


def _says_again(fact: str, established: list) -> bool:
    new = _content(fact)
    alike = (len(new & old) >= 0.75 * len(new | old) or (len(new) > 2 and new <= old) for old in established)
    return bool(new) and any(alike)


@functools.lru_cache(maxsize=4096)  # a game sends its facts with every turn
def _content(fact: str) -> frozenset:
    return frozenset(re.sub(r"'s?(?!\w)|[^\w\s'-]", " ", plain(fact)).split()) - _SMALL_WORDS


# not_prose -------------------------------------------------------------------

_LABELS = one_of("""
    Choices Options Your_choices Your_options Actions Possible_actions Location Recent_events Established_facts
    Companions Companions_present Active_quest Fortune Player Scene Setting Narrator Narration Title Response Output
    Prose Description Assistant User System
""")
_LINE = either(rf"""
    [^\S\n]*(?:\{{.*|\[\s*[{{"].*)
    ```.*|\#{{1,6}} .*|\*\*[^*\n]{{1,60}}\*\*:?\s*$|(?:-{{3,}}|\*{{3,}}|={{3,}})\s*$
    [^\S\n]*(?:[-*•] .*\n\s*[-*•] .*|1[.)] .*)
    [^\w\n]*(?:{_LABELS})\b\W{{0,4}}:.{{0,40}}
    (?:Sure|Certainly|Of course|Absolutely|Okay|Alright)[!,.].{{0,40}}(?:here|scene|narrat|descri|continu).{{0,20}}
    \W?(?:Note|OOC|N\.B\.|Word count)\b\W.{{0,40}}
""")  # JSON; fences, headings, rules; lists; labels; talk
_MENU = either(r"""
    (?<!\w)\(?(?:1[.)]|[aA]\)) .{1,80}(?:\s|[;,])\(?(?:2[.)]|[bB]\)) .*|(?<!\w)\(1\).{1,80}\(2\).*
    ^[ \t]*\([^()\n]{1,60}\)(?:[\s,/|]*\([^()\n]{1,60}\))+[ \t]*$|^[ \t]*>.+\n[ \t]*>.+
""")  # of choices
_MASKED = r"\[[^\]]*\]?|\n(?:#|\*\*|[ \t]*(?:\d|[A-Da-d])[.)]|[ \t]*>).*"  # no place for a name
_TOKENS = either(r"""
    <\|.{0,20}|\|>|</?s>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|<[be]os>|</?think(?:ing)?>
    "\w+"\s*:\s*["\[{].{0,30}
""")  # of chat templates, and of JSON
_TALK = either(r"""
    as (?:the|your|an?) (?:narrator|dungeon master|game master|ai|language model)
    (?:I|we) (?:(?:will|shall|can|cannot) (?:now )?|can['’]t )(?:describe|narrate|continue|provide|set the scene)
    I['’]ll (?:now )?(?:describe|narrate|continue|set the scene)
    here(?: is|['’]s) (?:the|a|your|my) (?:scene|description|narration|prose|story|response|continuation|passage)
    the scene as it is now|describe the scene|in this scene|end of (?:the )?(?:scene|narration)
    (?:based on|according to|from) the (?:established facts|context|canon|canon log|recent events|rules|details)
    (?:canon log|(?:provided|given) context|context (?:provided|given)|player character|system prompt)
    let me know (?:if|what|how)|\bwould you like (?:me )?to (?:continue|know)
    feel free to|I hope (?:this|that) (?:helps|meets|works)|as requested|the user
    I(?:['’]ve| have) (?:kept|included|avoided|written|tried|followed)|(?:second|third|first)[- ]person
""")
_TASK_WORDS = {*re.findall(r"[a-z]{4,}|ai", _TALK)} - {
    *"from here this that your what will would have feel first".split()
}
_TASK = rf"(?i)\b(?:{_TALK})\b.{{0,30}}"  # talk about the task


def unprosaic(telling: Telling) -> list:
    """What is no prose, and where the narrator talks about the task."""
    lines, task = f"(?m)\n(?:{_LINE}){telling.menu}", _TASK if _TASK_WORDS & telling.vocabulary else "(?!)"
    places = ((lines, f"\n{telling.untagged}"), (_TOKENS, telling.untagged), (task, telling.narration))
    return [match[0] for pattern, text in places for match in re.finditer(pattern, text)]


# not_second_person -----------------------------------------------------------

_I_AM = r"[IW](?<!\w.)(?:(?<=I)|e)(?:['’](?:m|re|ll|ve|d)\b| [a-z]\w*)[^.!?\n]{0,30}"
_MINE = rf"{_I_AM}|[MmOo](?<!\w.)(?:y(?! (?:lord|lady|liege|dear|love|god|word))|e|yself|ur)\b[^.!?\n]{{0,30}}"
_YOU_AT_ALL = r"\b(?:[Yy]ou|YOU|[Yy]ours?|[Yy]ourself|[Yy]ourselves)\b"
_SAID = r"\b(?:says?|said|asks?|asked|adds?|tells?|cry|cries|reply|replies|(?:call|mutter|whisper|murmur)s?)\b"


def other_person(telling: Telling) -> list:
    """The narrator as I or we; or a scene without you, of three sentences or fewer with the player in it."""
    told, addressed = telling.narration, re.search(_YOU_AT_ALL, telling.narration)
    own = _I_AM if addressed else _MINE
    parts = split_sentences(told) if re.search(own, told) else ()
    told_so = [text for text in parts if not re.search(_SAID, text) and not re.search(_TASK, text)]
    first = [match[0] for text in told_so for match in re.finditer(own, text)]
    if first or addressed:
        return first[:1]
    kind = re.findall(r"^an? ([a-z-]+)$", telling.canon_log["player"].get("description") or "")
    who = "|".join(map(re.escape, [*telling.player_names, "The player", *(f"The {word}" for word in kind)]))
    does = rf" {_ADVERB}*(?:[a-z]+s\b|[^\W\d_a-zA-Z]{{3}})"  # in any script
    named = re.search(rf"(?m){_CLAUSE}((?:{who})(?:['’]s \w+|{does}).{{0,40}})", told)
    count = len(telling.sentences) - (telling.done_reason == "length")  # the one that was cut might have said it
    alone = count >= 3 and not re.search(f"{_YOU_AT_ALL}|^[^A-Za-z]+$", telling.untagged)
    return [named[1]] if named and count else [telling.untagged[:60]] * alone


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
    if after[:1].islower() or (not end[-5:].islower() and end[-1] == "." and re.search(_ABBREVIATED, end)):
        return False
    quoted = next_character in "\"”’'»" and end[-1] in "!?…."
    return not (quoted and after[:1] not in '"“‘«' and re.search(_SAID, " ".join(after.split()[:4])))


# loops -----------------------------------------------------------------------


def loops(telling: Telling) -> list:
    """Sentences of four words or more that stand twice, and a run of words that stands three times in a row."""
    found, times = [], collections.Counter()
    plainly = re.sub(r"[^\w\n]+", " ", plain("\n".join(telling.sentences))).split("\n")
    for sentence, words in zip(telling.sentences, map(str.strip, plainly), strict=False):
        times[words] += 1
        if times[words] in (2, 3) and words.count(" ") >= 3:
            spoken = re.fullmatch(_SPEECH, sentence.strip())  # what is said may come twice
            found += [sentence] if times[words] == 3 or not spoken else []
    often = collections.Counter(telling.words)
    if "xxx" not in "".join("x" if often[word] > 2 else " " for word in telling.words):  # no run stands three times
        return found
    for match in re.finditer(rf"(?i)(?<!\S)((?:\S+ ){{1,{MAX_RUN}}}?)\1\1", " ".join([*telling.written, ""])):
        if not all(word[0].isupper() and plain(word) in telling.known for word in match[1].split()):
            return [*found, match[0].strip()]
    return found


# foreign_script --------------------------------------------------------------


def foreign_words(telling: Telling) -> list:
    """Words of two signs or more in a script that canon hasn't got and most of the prose isn't written in."""
    words = re.findall(r"[^\W\d_\0-\u024f][^\s\0-\u024f\u2000-\u206f\u3000-\u303f\uff00-\uff0f]+", telling.untagged)
    if not words:
        return []
    scripts = collections.Counter(map(script, filter(str.isalpha, telling.untagged)))
    home = {scripts.most_common(1)[0][0], *map(script, filter(str.isalpha, "".join(telling.texts)))}
    return [word for word in words if script(word[0]) not in home]


@functools.cache
def script(letter: str) -> str:
    """The script of a letter: LATIN, CYRILLIC, CJK (with Japan's own signs) and so on."""
    name = unicodedata.name(letter, "LATIN").split()[0]
    return {"HIRAGANA": "CJK", "KATAKANA": "CJK"}.get(name, name)
