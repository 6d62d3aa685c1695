"""What people have, read by content into a transcript: read_transcripts() and, in one line, summary().

1. Readers   one for each shape, and their table: a new format is a reader and a row
2. Reading   what all formats have in common: names, tracks, neighbours, ids
"""

import csv
import html
import io
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import webvtt

from narrator_app import InputError, SettingError, check_input, one_line, read_input, shorten
from notary.files import entries, files_of, open_file, refusal, track_name
from notary.lines import CLOCK, DATE, NO_SPEECH, NO_WORDS, is_dice, looks_spoken, reason, seconds, spoken
from notary.shape import check_transcript, parse_party, transcript_validator

MAX_TEXT = 20_000  # characters of one unit
MAX_MERGED = 1_000  # characters of neighbouring cues that become one unit


# 1. Readers ------------------------------------------------------------------
# Each yields parts in the order of the file and counts in `left_out` what only it can know.


class Part(NamedTuple):
    speaker: str | None
    text: str
    start: float | None = None  # seconds; they order tracks
    line: int | None = None


def read_lines(text: str, left_out: Counter, begins: Callable = spoken) -> Iterator[Part]:
    """Lines that begin with their speaker, and the lines that go on. Raises InputError."""
    speaker, words, start = None, [], None
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        if not line or (why := reason(line, NO_SPEECH)):
            left_out.update([why] if line else [])
        elif found := begins(line):
            if start:
                yield Part(speaker, " ".join(words), None, start)
            speaker, words, start = found[0], [found[1]], number
        elif start:
            words.append(line)
            left_out.update([("line", number)] if begins is spoken and looks_spoken(line) else [])
        elif begins is spoken:
            raise refusal(f"line {number}", "has no speaker: write `Speaker: words`", line)
        else:
            left_out["before the first speaker"] += 1
    if start:
        yield Part(speaker, " ".join(words), None, start)


def headed(pattern: str) -> tuple:
    """(looks_like, read) of a format whose speakers stand in header lines, with their words below."""

    def begins(line: str) -> tuple | None:
        match = re.fullmatch(pattern, line)
        return (match["name"], "") if match else None

    def looks_like(text: str, document) -> bool:
        """Whether one of the first lines is such a header, and none before it names a speaker."""
        lines = (line for line in map(str.strip, text[:20_000].split("\n")) if line and not reason(line, NO_SPEECH))
        return next((not spoken(line) for line in itertools.islice(lines, 10) if spoken(line) or begins(line)), False)

    return looks_like, lambda text, left_out: read_lines(text, left_out, begins)


_ZOOM = rf"\[(?P<name>(?:[^\w\[\]]|\d)*[^\W\d][^\[\]]*)\]\s+{CLOCK}"
_OTTER = rf"(?P<name>\S(?:(?!\s\s).){{,60}}?)(?:\s{{2,20}}|\t){CLOCK}"
_STAMPED = rf"\[{DATE},?\s+{CLOCK}\] (?P<name>[^\n]+?)(?:#\d{{4}})?(?: \(pinned\))?"
_TODAY = rf"(?:{DATE},?\s+|[^\W\d]+(?:’\w+)? \w{{1,3}} )?{CLOCK}(?: Uhr)?"
_CLIENT = rf"(?P<name>[^—]{{1,60}}?)(?:\s{{1,9}}(?:BOT|APP))?\s{{1,9}}—\s+{_TODAY}"
_IN_LINES = re.compile(rf"\n[ \t]*—[ \t]*(?:(\n)[ \t]*)?({_TODAY})(?=\n|$)")  # the client's header of three lines
_EXTRA = re.compile(rf"(?ms)^\{{(Attachments|Embed|Stickers|Reactions)\}}$.*?(?=^\[{DATE}[^\n\]]*\] |^={{20}}|\Z)")


def read_discord_text(text: str, left_out: Counter) -> Iterator[Part]:
    left_out.update(kind.lower() for kind in _EXTRA.findall(text))
    text = _EXTRA.sub(lambda match: "\n" * match[0].count("\n"), text)  # the numbers of the lines stay
    yield from headed(_STAMPED)[1](text, left_out)


def read_discord_client(text: str, left_out: Counter) -> Iterator[Part]:
    """What is copied from the client, where a header may take three lines and every message has its time."""
    for part in headed(_CLIENT)[1](_IN_LINES.sub(r" — \2\n\1", text), left_out):
        yield part._replace(text=re.sub(rf"(?:^| )\[{CLOCK}\]| ?\(edited\)", " ", part.text))


def read_discord_json(document: dict, left_out: Counter) -> Iterator[Part]:
    for message in entries(document["messages"], "content"):
        kind, author = str(message.get("type", "Default")), message.get("author")
        if kind not in ("Default", "Reply") and not (kind.isdecimal() and int(kind) > 18):  # above are bots' answers
            left_out["joins" if re.match("GuildMember|Recipient", kind) else "system messages"] += 1
        elif not message["content"].strip() and message.get("attachments"):
            left_out["attachments"] += 1
        else:
            author = author if isinstance(author, dict) else {}
            yield Part(author.get("nickname") or author.get("name"), message["content"])


def read_segments(document, left_out: Counter) -> Iterator[Part]:
    for segment in entries(segments_of(document), "text"):
        offsets, stamp = segment.get("offsets"), segment.get("timestamp")
        start = segment.get("start", stamp[0] if isinstance(stamp, list) and stamp else None)
        start = seconds(offsets.get("from")) if isinstance(offsets, dict) else seconds(start)  # offsets: milliseconds
        name = segment.get("speaker")
        name = name.get("name") if isinstance(name, dict) else name
        yield Part(name if isinstance(name, str) and name != "?" else None, segment["text"], start)


def segments_of(document) -> list | None:
    """The segments in what a Whisper wrote; also those of JSON that is only their list."""
    keys = "segments", "transcription", "chunks"  # Whisper and WhisperX, whisper.cpp, transformers
    values = [document.get(key) for key in keys] if isinstance(document, dict) else [document]
    return next((value for value in values if isinstance(value, list)), None)


_TAG = re.compile(r"</?(?:[biuvc]|font|lang|ruby|rt)\b[^<>]*>|<[\d:.]+>|\{\\an?\d\}")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?[ \t]([^<>]*)(?:>|$)")
_TIMING = r"[ \t]*(?:\d+:)?\d+:\d\d[.,]\d{1,3}[ \t]*-->[ \t]*[\d:.,]+[ \t]*(?:(?:[XY]\d|align|line|position|size):.*)?$"
_STRAY = re.compile(r"\n\n(?!NOTE|STYLE|REGION|\n)(?!(?:[^\n]*\n)?[^\n]*-->)[^\n]")  # text after a cue's empty line


def read_subtitles(text: str, left_out: Counter) -> Iterator[Part]:
    """The cues of WebVTT and SRT, one part for each voice. Raises InputError."""
    text, kind = text.strip() + "\n", "vtt" if text.startswith("WEBVTT") else "srt"
    if kind == "vtt":
        left_out["outside a cue"] += len(_STRAY.findall(text))
    else:  # webvtt drops a cue without a number
        text = re.sub(rf"(?m)^(?<!\d\n)(?<!\d \n){_TIMING}", r"0\n\g<0>", text)
    try:
        cues = webvtt.from_buffer(io.StringIO(text), format=kind).captions
    except webvtt.errors.MalformedFileError:
        raise refusal("line 1", "must be the number or the time of the first cue", text.split("\n")[0]) from None
    left_out["broken or empty cues"] += max(0, text.count("-->") - len(cues))
    for cue in cues:
        voices = ["", *_VOICE.split(cue.raw_text)]
        for name, words in zip(voices[::2], voices[1::2], strict=True):
            if words.strip() or len(voices) == 2:
                yield Part(html.unescape(name).strip(), html.unescape(_TAG.sub("", words)).strip(), seconds(cue.start))


_COLUMNS = [  # of a sheet, in the order they're looked for
    "nickname speaker name author who character user username participant player from sender".split(),
    "text words content message dialogue dialog transcript utterance speech caption quote said body line".split(),
    "start start_time time timestamp begin date".split(),
]


def columns(text: str) -> tuple | None:
    """(delimiter, names, [speaker, text, start]) of a sheet by its first lines, each column a number or None."""
    first, *lines = text.lstrip()[:20_000].split("\n")
    for delimiter in ",;\t|":
        names = [name.strip(' "').casefold().replace(" ", "_") for name in first[:1000].split(delimiter)]
        speaker, words, start = ([names.index(name) for name in known if name in names] for known in _COLUMNS)
        if words and (speaker or start):
            rows = list(filter(None, csv.reader(lines, delimiter=delimiter)))
            words = [n for n in words if not rows or any(map(str.isalpha, "".join(row[n] for row in rows if row[n:])))]
            return (delimiter, names, [next(iter(found), None) for found in (speaker, words, start)]) if words else None
    return None


def read_sheet(text: str, left_out: Counter) -> Iterator[Part]:
    """The rows of a sheet. Raises InputError."""
    delimiter, names, (speaker, words, start) = columns(text)
    quoting = csv.QUOTE_NONE if names == ["start", "end", "text"] else csv.QUOTE_MINIMAL  # Whisper's TSV has no quotes
    rows = csv.reader(io.StringIO(text), delimiter=delimiter, quoting=quoting, strict=True)
    try:
        for row in itertools.islice(filter(lambda row: any(map(str.isalnum, "".join(row))), rows), 1, None):
            if any(row[len(names) :]):
                raise refusal(f"line {rows.line_num}", "has more cells than the first: quote the words", ",".join(row))
            cells = row + [""] * len(names)
            if not cells[words] and "attachments" in names and cells[names.index("attachments")]:
                left_out["attachments"] += 1
                continue
            name = "" if speaker is None else re.sub(r"#\d{4}$", "", cells[speaker])
            yield Part(name, cells[words], None if start is None else seconds(cells[start]), rows.line_num)
    except csv.Error as error:
        raise refusal(f"line {rows.line_num}", f"isn't a sound row of the sheet: {error}") from error


class Reader(NamedTuple):
    name: str
    looks_like: Callable  # of the text and of its JSON value, None where it isn't JSON
    read: Callable  # of the JSON value or else the text, and of the counter of what is left out
    cues: bool = False  # whether neighbours of one speaker become one unit


READERS = [  # in the order they're tried
    Reader("Discord export", lambda t, d: isinstance(d, dict) and "messages" in d, read_discord_json),
    Reader("Whisper JSON", lambda t, d: d is not None and segments_of(d) is not None, read_segments, True),
    Reader("WebVTT", lambda t, d: t.startswith("WEBVTT"), read_subtitles, True),
    Reader("SRT", lambda t, d: bool(re.search(f"(?m)^{_TIMING}", t[:4000])), read_subtitles, True),
    Reader("Whisper TSV", lambda t, d: t.startswith("start\tend\ttext") and columns(t), read_sheet, True),
    Reader("Discord export (CSV)", lambda t, d: t.startswith("AuthorID,") and columns(t), read_sheet),
    Reader("sheet", lambda t, d: columns(t) is not None, read_sheet),
    Reader("Discord export (text)", lambda t, d: bool(re.match(r"={20,}\nGuild: ", t)), read_discord_text),
    Reader("Discord client", lambda t, d: headed(_CLIENT)[0](_IN_LINES.sub(r" — \2", t), d), read_discord_client),
    Reader("Foundry chat log", *headed(_STAMPED)),
    Reader("Zoom captions", *headed(_ZOOM)),
    Reader("Otter transcript", *headed(_OTTER)),
    Reader("Roll20 chat", lambda t, d: bool(re.match(rf"(?:{DATE} ?)?\d\d?:\d\d[AP]M\w", t)), read_lines),
    Reader("plain text", lambda t, d: d is None, read_lines),
]


# 2. Reading ------------------------------------------------------------------


class Reading(NamedTuple):
    transcript: dict
    format: str
    left_out: Counter  # how many, by reason; and ("line", 12) for each that is left in, but looks like `Name: words`
    places: list | None = None  # each unit's line, where it has one
    note: str = ""


def read_transcripts(paths: list, party: str | None = None, speaker: str | None = None) -> Reading:
    """The transcript of one file, or of several or a folder of them: the tracks of one session, one person each.

    `party` is as parse_party() reads it; `speaker` speaks where the file names nobody. Raises SettingError, InputError.
    """
    files, left_out = files_of([Path(path) for path in paths])
    first, tracks, members = Path(paths[0]), len(files) > 1 or Path(paths[0]).is_dir(), parse_party(party or "")
    if tracks and speaker:
        raise SettingError("--speaker is for one file: of several, each file's name is its speaker")
    parts, notes, reader = [], set(), READERS[-1]
    for path in files:
        try:
            text, document, note = open_file(path)
            if not tracks and (own := own_transcript(path.stem, text, document, members, party)):
                return Reading(own, "transcript JSON", left_out, None, note)
            if tracks and not text.strip():
                left_out["tracks without words"] += 1
                continue
            reader = next((reader for reader in READERS if reader.looks_like(text.lstrip(), document)), None)
            if not reader:
                raise refusal(path.name, "is JSON of no known shape; it begins", text[:100])
            found = reader.read(text if document is None else document, left_out)
            if tracks:
                found = track(path, reader, found, left_out)
            elif reader.cues:
                found = labelled(found, left_out)
            parts += found
            notes.add(note)
        except InputError as error:
            named = not tracks or error.errors[0]["path"] == path.name
            raise error if named else refusal(path.name, str(error)) from None
    parts = sorted(parts, key=lambda part: part.start if tracks else 0)
    parts = list(units_of(parts, left_out, reader.cues, speaker or "Unknown"))
    if not parts:
        raise refusal(first.name, f"has no words in it, read as {reader.name}")
    units = [{"id": number, "speaker": part.speaker, "text": part.text} for number, part in enumerate(parts, 1)]
    name = first.stem if not tracks else (first if len(paths) == 1 else first.parent).resolve().name
    transcript = {"source_id": name.strip() or "session", "units": units[:1], "party": members}
    check_input(transcript, transcript_validator(), "transcript")  # one unit stands for all: they're made alike
    places = [part.line for part in parts] if parts[0].line else None
    return Reading({**check_transcript(transcript), "units": units}, reader.name, left_out, places, "".join(notes))


def summary(reading: Reading) -> str:
    """How it was read, in one line: the format, the speakers, what was left out and why."""
    speakers = Counter(unit["speaker"] for unit in reading.transcript["units"]).most_common()
    told = [f"{shorten(name, 40)} {count}{' (only once)' if count == 1 else ''}" for name, count in speakers[:20]]
    told += [f"{len(speakers) - 20} others"] if len(speakers) > 20 else []
    left_out = ", ".join(f"{count} {why}" for why, count in reading.left_out.items() if count and isinstance(why, str))
    kept = [place for place in reading.left_out if isinstance(place, tuple)]
    what, first = kept[0] if kept else ("line", 0)
    doubt = kept and f"{len(kept)} {what}s look like `Name: words` and were read as going on: first is {what} {first}"
    text = f"read as {reading.format}: {len(reading.transcript['units'])} units; {', '.join(told)}"
    return "; ".join(filter(None, [text, left_out and f"left out: {left_out}", doubt, reading.note]))


def own_transcript(stem: str, text: str, document, members: list, party: str | None) -> dict | None:
    """A transcript's own JSON, or that of its units; None for any other. Raises SettingError, InputError."""
    if isinstance(document, dict) and "units" in document:
        if party is not None and document.get("party"):
            raise SettingError("--party is for transcripts that name no party: this JSON names its own")
        document = read_input(text.encode(), transcript_validator(), "transcript")
    else:
        units = document if isinstance(document, list) else [document]
        if not units or not isinstance(units[0], dict) or units[0].keys() != {"id", "speaker", "text"}:
            return None
        document = {"source_id": stem, "units": units, "party": []}
        check_input(document, transcript_validator(), "transcript")
    return check_transcript({**document, "party": document["party"] or members})


def track(path: Path, reader: Reader, parts: Iterable, left_out: Counter) -> Iterator[Part]:
    """The parts of one person's track, spoken by the file's name without Craig's number. Raises InputError."""
    if not reader.cues:
        raise refusal(path.name, f"is no track, read as {reader.name}: give one file, or only subtitles and Whisper's")
    parts = list(parts)
    left_out["tracks without words"] += not any(part.text.strip() for part in parts)
    speakers = {part.speaker for part in parts if part.speaker and not part.speaker.startswith("SPEAKER_")}
    speakers.update(name for name, count in names_at_start(parts).items() if count > 1)
    if len(speakers) > 1:
        raise refusal(path.name, f"has several speakers ({', '.join(sorted(speakers))}), a track one: give it alone")
    start = 0.0
    for part in parts:
        start = start if part.start is None else part.start
        yield Part(track_name(path), part.text, start)


def names_at_start(parts: list) -> Counter:
    """How often each `Name:` begins a part, where that is the file's habit; else none."""
    found = (None if part.speaker else spoken(part.text.partition("\n")[0]) for part in parts)
    names = Counter(name for name, _ in filter(None, found))
    return names if 3 * sum(names.values()) > len(parts) else Counter()


def labelled(parts: Iterable, left_out: Counter) -> Iterator[Part]:
    """The parts, spoken by the `Name:` at their start where that is the file's habit."""
    parts = list(parts)
    names = names_at_start(parts)
    for number, part in enumerate(parts, 1):
        name = part.speaker
        for line in part.text.split("\n"):
            found = spoken(line) if names and not part.speaker else None
            if found and (found[0] in names or line.startswith("-")):
                name, line = found
            elif not part.speaker and looks_spoken(line):
                left_out["cue", number] = 1
            yield Part(name, line, part.start)


def units_of(parts: Iterable, left_out: Counter, cues: bool, unknown: str) -> Iterator[Part]:
    """The parts that have words, each with a speaker, none too long; neighbouring cues of one speaker joined."""
    last = None
    for part in parts:
        words, speaker = one_line(part.text).strip(), shorten(str(part.speaker or ""), 500) or unknown
        if why := "dice" if is_dice(words) else reason(words, NO_WORDS):
            left_out[why] += 1
            continue
        for text in re.findall(rf"\S.{{,{MAX_TEXT - 2}}}\S(?!\S)|\S{{1,{MAX_TEXT}}}", words):
            if cues and last and last.speaker == speaker and len(last.text) + len(text) < MAX_MERGED:
                last = last._replace(text=f"{last.text} {text}")
                continue
            if last:
                yield last
            last = part._replace(speaker=speaker, text=text)
    if last:
        yield last
