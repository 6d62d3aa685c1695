"""Who speaks in a line, and what is no speech. A name never holds a time, markup or a sentence."""

import functools
import math
import re

MAX_LABEL = 40  # characters of a name before a colon

DATE = (
    r"(?:\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/. ](?:\d\d?|[A-Za-z]{3,9})[-/., ]{1,2}\d{2,4}"
    r"|(?:[A-Za-z]{3,9}, )?[A-Za-z]{3,9}\.? \d\d?,? \d{4})"
)
CLOCK = r"\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d{1,7})?(?!\d)(?:[AP]M(?=[^\W_])|\s?[AaPp]\.?[Mm](?![^\W_])\.?)?"
_WHEN = rf"(?:{DATE}(?:T|,?\s+(?:at\s+)?))?{CLOCK}(?:Z|[+-]\d\d:?\d\d)?"
_SPAN = rf"[\[(]?\s*{_WHEN}(?:\s*(?:-+>?|[–—])\s*{_WHEN})?\s*[\])]?"
_LEAD = re.compile(rf"\s*(?:>+\s*)*(?:(?:[-+*•]|\d{{1,4}}[.)])\s+)?(?:([*_`]{{0,3}}){_SPAN}\1\s*[-–—|,:]?\s*)?")
_TAIL = re.compile(rf"\s*[-–—|@,]?\s*(?:at\s+)?{_SPAN}$")
_GLUED = re.compile(rf"(?:{DATE} ?)?\d\d?:\d\d[AP]M(?=[\w(])")  # Roll20's, which marks the name
_STAMP = re.compile(rf"^\s*[\[(]{_WHEN}[\])]")
_NAMED = re.compile(r"<([^<>]{1,80})>\s+(.*)|(.{1,90}?)(?:\s*：\s*|:(?:\s+|$)|(?<!\s):(?![\s/\\\d:()|]))(.*)")
_NO_LABEL = re.compile(r'(?i)[][(){}<>|*`"=\\:：;]|^(?:[\W\d_]*|(?:session|scene|part|round|turn)( \d+)?|date|time)$')
_BRACKETS = re.compile(r"(?:\s*(?:\[(?!\d+\.\d)[^\[\]():]*\]|\((?!\d+\.\d)[^\[\]():]*\)))+$")
_TALK = re.compile(  # what no name has, even where all its words are in capitals
    r"(?i)[!?…](?:\s|$)|(?<=\w{5})\.\s|^(?:so,|n\.b\.|p\.?s\.?|(?:ok|okay|well|and|but|now|listen|look|wait|yes|no|note"
    r"|then|because|if|what|why|how|when|where),?|(?:i|you|s?he|it|we|they|this|that|there|here)"
    r"(?:['’]\w+|\s(?:am|is|are|was|were|says?|said|asks?|asked|ha[sd])))(?:\s|$)"
)
_SENTENCE = re.compile(  # what only names in capitals have
    r"(?i)\.$|\s(?:his|her|to|the\s.*\sof)\s.*\s|^so\s|(?:^|\s)(?:i|i'm|you|he|she|it|we|they|me|him|us|them|is|are|was"
    r"|were|says?|said|asks?|asked|has|have|had|does|did|that|this|there|here|what|why|how|when|where|then|because|if|not"
    r"|my|your|will|would|can|could)(?:\s|$)"
)
_SMALL = "the of a an and y e de del della der den di du da dos la le el al ap van von zu bin ibn".split()  # in names
_DICE = re.compile(r"(?i)\d*d\d+(?:k[hl]\d*)?|\b(?:rolling|roll(?:ed|s)?|results?|total|r)\b|game_die|@\S+")
_TOOL = re.compile(r"Transcribed (?:by|with|using)\b.{,80}|Exported [\d.,\s]+message(?:s|\(s\))?\.?|\[BLANK_AUDIO\]")
NO_SPEECH = {  # reason: what a line without a speaker is then
    "only a time or a rule": re.compile(rf"{_SPAN}|[-—–\s]*{DATE}[-—–\s]*|[-=_*~—–─═\s]{{3,}}"),
    "from the tool itself": _TOOL,
    "headings": re.compile(r"#{1,6}\s.*"),
}
NO_WORDS = {  # reason: what all that somebody says is then
    "empty": re.compile(r""),
    "from the tool itself": _TOOL,
    "joins": re.compile(r"(?:Joined the server|Left the group|Added .{1,60} to the group)\."),
    "system messages": re.compile(r"(?:Pinned a message|Started a (?:thread|call).{,60}|Changed the channel .+)\.?"),
}


def spoken(line: str) -> tuple | None:
    """(speaker, words) of a line that begins with its speaker, without time and markup; else None."""
    found = divided(line)
    return found if found and (is_label(found[0]) or found[0] and _GLUED.match(line)) else None


def looks_spoken(line: str) -> bool:
    """Whether a short label begins the line, even one that spoken() takes for a sentence or for too long."""
    label = (divided(line) or ("",))[0]
    return len(label.split()) <= 4 and not _NO_LABEL.search(_BRACKETS.sub("", label))


def divided(line: str) -> tuple | None:
    """(label, words) of a line with a colon, or with <label> before it, without time and markup; else None."""
    match = _NAMED.match(line, _LEAD.match(line).end())
    if not match:
        return None
    label, words = match[1] or match[3], match[2] or match[4] or ""
    mark = re.match(r"[*_`~]*", label)[0]
    if mark and label.count(mark) == 1:  # **DM:** words, not **DM**: words
        words = words.replace(mark, "", 1)
    return bare(label), _STAMP.sub("", words).strip()


@functools.lru_cache(4096)  # a session has few speakers and many lines
def bare(label: str) -> str:
    """The label without the times, the markup and the brackets around it."""
    for _ in range(2):
        label = label.strip("*_`~ \t")
        label = _TAIL.sub("", label[_LEAD.match(label).end() :])
    whispered = re.fullmatch(r"\(From (.+)\)|From\s+(.+?)\s+[Tt]o\s.+", label)  # Roll20, Zoom's chat
    label = whispered[1] or whispered[2] if whispered else label
    return re.sub(r"^\[(.*)\]$|^\((.*)\)$|^[@+%&](.*)$", r"\1\2\3", label.strip("*_`~ \t"))


def is_label(text: str) -> bool:
    """Whether it may be a name: short, brackets at most at its end, no other markup, no sentence."""
    name = _BRACKETS.sub("", text)
    small = [word for word in name.split() if word[0].islower() and word not in _SMALL]
    sentence = len(name.split()) > 6 or len(small) > 3 or _TALK.search(name) or small and _SENTENCE.search(name)
    return len(text) <= MAX_LABEL and not _NO_LABEL.search(name) and (name.isalnum() or not sentence)


def reason(text: str, table: dict) -> str | None:
    """Why the text is left out by the table, if it is."""
    return next((why for why, pattern in table.items() if pattern.fullmatch(text)), None)


def is_dice(text: str) -> bool:
    """Whether there is nothing in it but a roll of dice."""
    return bool(re.search(r"(?i)(?:\d|\b)d\d", text)) and not any(map(str.isalpha, _DICE.sub("", text)))


def seconds(value) -> float | None:
    """The seconds of a number or of a clock such as 1:02:03.5; None for anything else."""
    try:
        parts = [float(part) for part in str(value).replace(",", ".").split(":")]
    except ValueError:
        return None
    total = sum(part * 60**power for power, part in enumerate(reversed(parts[-4:])))
    return total if math.isfinite(total) else None
