"""Tests of transcripts.py: what people have, in each dialect's real shape, with the units that should come of it."""

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from narrator_app import InputError, SettingError
from notary.files import MAX_FILE, track_name
from notary.lines import is_label, spoken
from notary.shape import transcript_validator
from notary.transcripts import READERS, parse_party, read_transcripts, summary

FERRY = [
    ("DM", "The ferryman wants his fee: one copper each."),
    ("Ilse", "I pay for both of us."),
    ("Odo", "And I keep the lantern lit."),
]
SHARED = Path(__file__).resolve().parents[2] / "shared" / "samples"


def read(tmp_path, data, name="session.txt", **flags):
    """The reading of one file with this text, these bytes or this JSON."""
    path = tmp_path / name
    data = data if isinstance(data, (str, bytes)) else json.dumps(data, ensure_ascii=False)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_transcripts([path], **flags)


def units(reading):
    return [(unit["speaker"], unit["text"]) for unit in reading.transcript["units"]]


def refused(tmp_path, data, name="session.txt", **flags):
    """The one line in which it is refused."""
    with pytest.raises((InputError, SettingError)) as caught:
        read(tmp_path, data, name, **flags)
    text = str(caught.value)
    assert "\n" not in text and "Traceback" not in text
    return text


# 1. Formats ------------------------------------------------------------------

DISCORD_JSON = {
    "guild": {"id": "1", "name": "Table"},
    "channel": {"id": "2", "type": "GuildTextChat", "name": "game"},
    "dateRange": {"after": None, "before": None},
    "exportedAt": "2026-02-01T22:00:00+00:00",
    "messages": [
        {
            "id": "1",
            "type": "GuildMemberJoin",
            "content": "Joined the server.",
            "author": {"name": "late", "nickname": "Late"},
        },
        {
            "id": "2",
            "type": "Default",
            "timestamp": "2026-02-01T20:00:00+00:00",
            "content": FERRY[0][1],
            "author": {"id": "7", "name": "dm", "discriminator": "0000", "nickname": "DM", "isBot": False},
            "attachments": [],
        },
        {
            "id": "3",
            "type": "Reply",
            "content": "I pay for\nboth of us.",
            "author": {"name": "ilse", "nickname": "Ilse"},
        },
        {"id": "4", "type": "Default", "content": FERRY[2][1], "author": {"name": "Odo", "nickname": ""}},
        {"id": "5", "type": "ChannelPinnedMessage", "content": "Pinned a message.", "author": {"name": "Odo"}},
        {
            "id": "6",
            "type": "Default",
            "content": "",
            "attachments": [{"id": "1", "url": "https://x.example/map.png"}],
            "author": {"name": "Odo"},
        },
        {"id": "7", "type": "Default", "content": "!r 1d20+5", "author": {"name": "Odo"}},
        {
            "id": "8",
            "type": "Default",
            "content": "",
            "embeds": [{"title": "x"}],
            "author": {"name": "Avrae", "isBot": True},
        },
    ],
    "messageCount": 8,
}
DISCORD_TEXT = f"""{"=" * 62}
Guild: Table
Channel: Campaign / game
Topic: Greywater: season one
{"=" * 62}

[02/01/2026 8:00 PM] DM#0001
The ferryman wants his fee: one copper each.


[02/01/2026 8:01 PM] Ilse (pinned)
I pay for
both of us.

{{Attachments}}
https://cdn.discordapp.com/attachments/1/2/map.png

{{Reactions}}
lantern (2) heart

[02/01/2026 8:02 PM] Late
Joined the server.

[01-Feb-26 08:02 PM] Odo
And I keep the lantern lit.

{"=" * 62}
Exported 4 message(s)
{"=" * 62}
"""
DISCORD_CSV = """AuthorID,Author,Date,Content,Attachments,Reactions
"7","DM#0001","2026-02-01T20:00:00.0000000+00:00","The ferryman wants his fee: one copper each.","",""
"8","Ilse","2026-02-01T20:01:00.0000000+00:00","I pay for
both of us.","","heart (1)"
"8","Ilse","2026-02-01T20:01:30.0000000+00:00","","https://cdn.discordapp.com/map.png",""
"9","Odo","2026-02-01T20:02:00.0000000+00:00","And I keep the lantern lit.","",""
"""
DISCORD_CLIENT = """DM — Today at 8:14 PM
The ferryman wants his fee: one copper each.
Ilse — 02/01/2026 8:15 PM
I pay for both of us.(edited)
[8:16 PM]
Odo
 —
Yesterday at 20:16
And I keep
the lantern lit.
"""
FOUNDRY = """[2/1/2026, 8:00:00 PM] DM
The ferryman wants his fee: one copper each.
---------------------------
[2/1/2026, 8:00:31 PM] Ilse
I pay for both of us.
---------------------------
[2/1/2026, 8:00:45 PM] Ilse
1d20 + 5 = 12 + 5 = 17
---------------------------
[2/1/2026, 8:01:00 PM] Odo
And I keep the lantern lit.
"""
ZOOM_TXT = """[DM] 20:14:02
The ferryman wants his fee: one copper each.

[Ilse] 20:14:09
I pay for both of us.

[Odo] 20:14:11
And I keep the lantern lit.
"""
OTTER = """DM  0:05  
The ferryman wants his fee: one copper each.

Ilse  0:12
I pay for both of us.

Odo  1:00:03
And I keep the lantern lit.

Transcribed by https://otter.ai
"""
ROLL20 = """7:45PMDM:The ferryman wants his fee: one copper each.
7:45PMIlse:I pay for both of us.
7:46PMIlse:
rolling 1d20+5
(
14
)
+5
=
19
January 5, 2026 7:46PMOdo:And I keep the lantern lit.
"""
ROLL20_LINES = "7:45PM\nDM:\nThe ferryman wants his fee: one copper each.\n7:46PM\nIlse:\nI pay for both of us.\nOdo:\nAnd I keep the lantern lit.\n"
TEAMS = """WEBVTT

NOTE duration 00:00:20

0f1c9a1e-2b1f-4c3e-9a5e-1f2d3c4b5a69/12-0
00:00:01.500 --> 00:00:04.500
<v DM>The ferryman wants his fee:
one copper each.</v>

0f1c9a1e-2b1f-4c3e-9a5e-1f2d3c4b5a69/13-0
00:00:05.500 --> 00:00:06.500
<v Ilse>I pay for both of us.</v>
<v.loud Odo>And I keep the lantern lit.</v>
"""
ZOOM_VTT = """WEBVTT

1
00:00:01.500 --> 00:00:04.500
DM: The ferryman wants his fee: one copper each.

2
00:00:05.500 --> 00:00:06.500
Ilse: I pay for

3
00:00:06.600 --> 00:00:07.500
Ilse: both of us.

4
00:00:08.600 --> 00:00:09.500
Odo: And I keep the lantern lit.
"""
SRT = """1
00:00:01,500 --> 00:00:04,500
DM: <i>The ferryman</i> wants his fee: one copper each.

2
00:00:05,500 --> 00:00:06,500 X1:40 X2:600 Y1:20 Y2:50
- Ilse: I pay

for both of us.
- Odo: And I keep the lantern lit.
"""
WHISPER_SRT = """1
00:00:01,500 --> 00:00:04,500
The ferryman wants his fee: one copper each.

2
00:00:05,500 --> 00:00:06,500
He says: pay up.

3
00:00:07,500 --> 00:00:08,500
Here: the lantern.
"""
SEGMENTS = [(0.0, FERRY[0]), (4.0, FERRY[1]), (8.0, FERRY[2])]
WHISPERX = {
    "segments": [
        {"start": at, "end": at + 3, "text": f" {text}", "speaker": name, "words": []} for at, (name, text) in SEGMENTS
    ]
}
WHISPER = {
    "text": "…",
    "segments": [
        {"id": n, "seek": 0, "start": at, "end": at + 3, "text": f" {text}", "avg_logprob": float("nan")}
        for n, (at, (_, text)) in enumerate(SEGMENTS)
    ],
    "language": "en",
}
WHISPER_CPP = {
    "systeminfo": "AVX = 1",
    "model": {"type": "base"},
    "transcription": [
        {
            "timestamps": {"from": "00:00:00,000", "to": "00:00:03,000"},
            "offsets": {"from": int(at * 1000), "to": int(at * 1000) + 3000},
            "text": f" {text}",
        }
        for at, (_, text) in SEGMENTS
    ],
}
TRANSFORMERS = {"text": "…", "chunks": [{"timestamp": [at, at + 3], "text": f" {text}"} for at, (_, text) in SEGMENTS]}
WHISPER_TSV = (
    'start\tend\ttext\n0\t3000\tThe ferryman wants his fee: one copper each.\n4000\t7000\t"I pay" for both of us.\n'
)
UNITS = [
    {"id": 3, "speaker": "DM", "text": FERRY[0][1]},
    {"id": 2, "speaker": "Ilse", "text": FERRY[1][1]},
    {"id": 9, "speaker": "Odo", "text": FERRY[2][1]},
]
ALL_ONE = [("Unknown", " ".join(text for _, text in FERRY))]


def lines(shape):
    """The three lines in a shape such as `[{time}] {name}: {words}`."""
    return (
        "\n".join(shape.format(time=f"00:0{n}", name=name, words=words) for n, (name, words) in enumerate(FERRY)) + "\n"
    )


SAMPLES = {  # name: (the format it is read as, the file, its units, what is left out)
    "the transcript's JSON": ("transcript JSON", {"source_id": "s", "units": UNITS, "party": []}, FERRY, {}),
    "a JSON list of units": ("transcript JSON", UNITS, FERRY, {}),
    "JSON lines of units": ("transcript JSON", "\n".join(map(json.dumps, UNITS)), FERRY, {}),
    "one JSON line": ("transcript JSON", json.dumps(UNITS[0]) + "\n", FERRY[:1], {}),
    "Discord JSON": ("Discord export", DISCORD_JSON, FERRY, {"joins": 1, "system messages": 1, "attachments": 1, "dice": 1, "empty": 1}),
    "Discord CSV": ("Discord export (CSV)", DISCORD_CSV, FERRY, {"attachments": 1}),
    "Discord text": ("Discord export (text)", DISCORD_TEXT, FERRY, {
        "attachments": 1, "joins": 1, "before the first speaker": 3, "from the tool itself": 1, "only a time or a rule": 4}),
    "Discord client": ("Discord client", DISCORD_CLIENT, FERRY, {"only a time or a rule": 1}),
    "Discord client, German": ("Discord client", "DM — heute um 20:14 Uhr\nHalt: wer da?\nIlse — Gestern um 20:15 Uhr\nIch.\n", [("DM", "Halt: wer da?"), ("Ilse", "Ich.")], {}),
    "Foundry": ("Foundry chat log", FOUNDRY, FERRY, {"dice": 1, "only a time or a rule": 3}),
    "Zoom's saved captions": ("Zoom captions", ZOOM_TXT, FERRY, {}),
    "Otter": ("Otter transcript", OTTER, FERRY, {"from the tool itself": 1}),
    "Roll20": ("Roll20 chat", ROLL20, FERRY, {"dice": 1}),
    "Roll20 in lines": ("plain text", ROLL20_LINES, FERRY, {"only a time or a rule": 2}),
    "Teams VTT": ("WebVTT", TEAMS, FERRY, {}),
    "Zoom VTT": ("WebVTT", ZOOM_VTT, FERRY, {}),
    "VTT without hours, with a header": ("WebVTT", "WEBVTT - Table\nKind: captions\n\n00:01.000 --> 00:02.000 align:start\n<c>So &amp; so</c>\n", [("Unknown", "So & so")], {}),
    "VTT with words outside a cue": ("WebVTT", "WEBVTT\n\n00:01.000 --> 00:02.000\n<v DM>One.\n\nlost\n\n00:03.000 --> 00:04.000\n<v DM>Two.\n", [("DM", "One. Two.")], {"outside a cue": 1}),
    "SRT": ("SRT", SRT, FERRY, {}),
    "SRT without numbers": ("SRT", re.sub(r"(?m)^\d\n", "", SRT), FERRY, {}),
    "SRT of Whisper": ("SRT", WHISPER_SRT, [("Unknown", "The ferryman wants his fee: one copper each. He says: pay up. Here: the lantern.")], {("cue", 2): 1, ("cue", 3): 1}),
    "SRT of WhisperX": ("SRT", "1\n00:00:01,000 --> 00:00:02,000\n[SPEAKER_00]: Halt.\n\n2\n00:00:02,000 --> 00:00:03,000\n[SPEAKER_01]: No.\n", [("SPEAKER_00", "Halt."), ("SPEAKER_01", "No.")], {}),
    "WhisperX": ("Whisper JSON", WHISPERX, FERRY, {}),
    "Whisper": ("Whisper JSON", WHISPER, ALL_ONE, {}),
    "whisper.cpp": ("Whisper JSON", WHISPER_CPP, ALL_ONE, {}),
    "transformers": ("Whisper JSON", TRANSFORMERS, ALL_ONE, {}),
    "bare segments": ("Whisper JSON", WHISPERX["segments"], FERRY, {}),
    "Whisper TSV": ("Whisper TSV", WHISPER_TSV, [("Unknown", 'The ferryman wants his fee: one copper each. "I pay" for both of us.')], {}),
    "CSV": ("sheet", 'Start,Speaker,Text\n00:01,DM,The ferryman wants his fee: one copper each.\n00:02,Ilse,"I pay\nfor both of us."\n00:03,Odo,And I keep the lantern lit.\n', FERRY, {}),
    "semicolons": ("sheet", "Name;Words\nDM;The ferryman wants his fee: one copper each.\nIlse;I pay for both of us.\nOdo;And I keep the lantern lit.\n", FERRY, {}),
    "TSV with empty cells": ("sheet", "text\tspeaker\t\nhi\tDM\t\n\t\t\nwho?\t\t\n", [("DM", "hi"), ("Unknown", "who?")], {}),
    "plain": ("plain text", lines("{name}: {words}"), FERRY, {}),
    "no blank after the colon": ("plain text", lines("{name}:{words}"), FERRY, {}),
    "full-width colon": ("plain text", lines("{name}：{words}"), FERRY, {}),
    "French colon": ("plain text", lines("{name} : {words}"), FERRY, {}),
    "words below": ("plain text", lines("{name}:\n{words}\n"), FERRY, {}),
    "time in brackets": ("plain text", lines("[00:{time}] {name}: {words}"), FERRY, {}),
    "time before": ("plain text", lines("{time} {name}: {words}"), FERRY, {}),
    "time and dash before": ("plain text", lines("02/01/2026, 20:{time} - {name}: {words}"), FERRY, {}),
    "time with milliseconds": ("plain text", lines("{time}.120 --> {time}.950 {name}: {words}"), FERRY, {}),
    "ISO time": ("plain text", lines("2026-02-01T20:{time}+00:00 {name}: {words}"), FERRY, {}),
    "date and time": ("plain text", lines("[01/02/2026, 20:{time}] {name}: {words}"), FERRY, {}),
    "a Markdown table": ("sheet", "| Speaker | Text |\n|---|---|\n| DM | hi |\n| Mara | yo |\n", [("DM", "hi"), ("Mara", "yo")], {}),
    "a span": ("plain text", lines("[{time} - {time}] {name}: {words}"), FERRY, {}),
    "time behind": ("plain text", lines("{name} ({time}): {words}"), FERRY, {}),
    "time behind in brackets": ("plain text", lines("{name} [{time}]: {words}"), FERRY, {}),
    "bare time behind": ("plain text", lines("{name} {time} PM: {words}"), FERRY, {}),
    "time after the colon": ("plain text", lines("{name}: [{time}] {words}"), FERRY, {}),
    "list": ("plain text", lines("- {name}: {words}"), FERRY, {}),
    "numbered": ("plain text", lines("7. {name}: {words}"), FERRY, {}),
    "quoted": ("plain text", lines("> {name}: {words}"), FERRY, {}),
    "bold with the colon": ("plain text", lines("**{name}:** {words}\n"), FERRY, {}),
    "bold before the colon": ("plain text", lines("**{name}**: {words}"), FERRY, {}),
    "bold with time": ("plain text", lines("**[{time}] {name}:** {words}"), FERRY, {}),
    "bold, time behind": ("plain text", lines("* **{name}** ({time}): {words}"), FERRY, {}),
    "quoted, bold, in a list": ("plain text", lines("> - **{name} ({time}):** {words}"), FERRY, {}),
    "angled": ("plain text", lines("<{name}> {words}"), FERRY, {}),
    "angled with time": ("plain text", lines("[{time}] <@{name}> {words}"), FERRY, {}),
    "Zoom's chat": ("plain text", lines("20:{time}\t From {name} to Everyone: {words}"), FERRY, {}),
    "SPEAKER_00": ("plain text", "[SPEAKER_00]: Halt.\nSPEAKER_01: No.\n", [("SPEAKER_00", "Halt."), ("SPEAKER_01", "No.")], {}),
    "headings, rules, dates": ("plain text", "# Session 12\n\n2026-02-01\n---\nDM: hello\n20:15\nthere\n***\nMara: hi", [("DM", "hello there"), ("Mara", "hi")], {"headings": 1, "only a time or a rule": 4}),
    "lines that go on": ("plain text", "DM: at\n12:30 it rings\nhttp://x.example and https://y.example: look\nhe says: run\nMara [whispering]: hush", [
        ("DM", "at 12:30 it rings http://x.example and https://y.example: look he says: run"), ("Mara [whispering]", "hush")], {("line", 4): 1}),
    "several speakers in a label": ("plain text", "Mara & Tobin, both: aye\nMara, Tobin and Oda (angry): aye", [("Mara & Tobin, both", "aye"), ("Mara, Tobin and Oda (angry)", "aye")], {}),
    "Otter, names of common words": ("Otter transcript", "Sam W.  0:05\nhi\n\nhe who was  0:09\nHe said: run\n", [("Sam W.", "hi"), ("he who was", "He said: run")], {}),
    "Zoom's captions, names of common words": ("Zoom captions", "[Sam W.] 10:11:14\nhi\n\n[May I] 10:11:15\nyes\n", [("Sam W.", "hi"), ("May I", "yes")], {}),
    "Foundry, names of common words": ("Foundry chat log", "[2/1/2026, 8:00:00 PM] you and me\nhi\n[2/1/2026, 8:00:01 PM] Sam W.\nyes\n", [("you and me", "hi"), ("Sam W.", "yes")], {}),
    "Discord text, names of common words": ("Discord export (text)", f"{'=' * 62}\nGuild: Table\n{'=' * 62}\n\n[01-Jan-24 10:11 PM] Will the Wise\nhi\n\n[01-Jan-24 10:12 PM] So it is.\nyes\n", [
        ("Will the Wise", "hi"), ("So it is.", "yes")], {"only a time or a rule": 2, "before the first speaker": 1}),
    "Discord client, names of common words": ("Discord client", "Will the Wise — 02/01/2024 10:10 PM\nhi\nnot me — 02/01/2024 10:11 PM\nyes\n", [("Will the Wise", "hi"), ("not me", "yes")], {}),
    "Discord client, headers of three lines": ("Discord client", "Mara\n — \nToday at 10:11 PM\nHello\nTobin\n — \nToday at 10:12 PM\nHi\n", [("Mara", "Hello"), ("Tobin", "Hi")], {}),
    "Roll20, names of common words": ("Roll20 chat", "10:12PMSam W.:hi\n10:13PMwill turner:yes\n10:14PM(From So Yeon):hm\n", [("Sam W.", "hi"), ("will turner", "yes"), ("So Yeon", "hm")], {}),
    "Zoom VTT, names of common words": ("WebVTT", "WEBVTT\n\n1\n00:01.000 --> 00:02.000\nWill Turner: aye\n\n2\n00:03.000 --> 00:04.000\nSam W.: hey\n\n3\n00:05.000 --> 00:06.000\nhe said: lost\n", [
        ("Will Turner", "aye"), ("Sam W.", "hey"), ("Unknown", "he said: lost")], {("cue", 3): 1}),
    "Whisper with names in its text": ("Whisper JSON", {"segments": [{"start": 0, "text": " Mara: hello"}, {"start": 1, "text": " there"}, {"start": 2, "text": " Tobin: hi"}]}, [
        ("Mara", "hello"), ("Unknown", "there"), ("Tobin", "hi")], {}),
    "Whisper TSV with names in its text": ("Whisper TSV", "start\tend\ttext\n0\t10\tMara: hello\n10\t20\tTobin: hi\n", [("Mara", "hello"), ("Tobin", "hi")], {}),
    "speakers that are objects": ("Whisper JSON", [{"start": 0, "text": "hello", "speaker": {"name": "Mara"}}, {"start": 1, "text": "hi", "speaker": 3}, {"start": 2, "text": "ho", "speaker": {"name": 4}}], [
        ("Mara", "hello"), ("Unknown", "hi ho")], {}),
    "a sheet with numbered lines": ("sheet", "Line,Speaker,Quote\n1,Mara,hello\n2,Tobin,hi\n", [("Mara", "hello"), ("Tobin", "hi")], {}),
    "a sheet with words in its lines": ("sheet", "Line,Speaker\nhello there,Mara\nhi,Tobin\n", [("Mara", "hello there"), ("Tobin", "hi")], {}),
    "dice": ("plain text", "Mara: 1d20+5 = 17\nMara: I rolled a d20", [("Mara", "I rolled a d20")], {"dice": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_formats(tmp_path, name):
    form, data, expected, left_out = SAMPLES[name]
    reading = read(tmp_path, data)
    assert (units(reading), reading.format, +reading.left_out) == (expected, form, Counter(left_out))
    assert transcript_validator().is_valid(reading.transcript)


def test_every_reader_has_a_sample():
    assert {reader.name for reader in READERS} == {form for form, *_ in SAMPLES.values()} - {"transcript JSON"}


@pytest.mark.skipif(not SHARED.exists(), reason="the shared samples aren't beside the checkout")
def test_the_shared_samples():
    for name, expected in json.loads((SHARED / "expected.json").read_text(encoding="utf-8")).items():
        assert [list(unit) for unit in units(read_transcripts([SHARED / name]))] == expected, name


# 2. Labels -------------------------------------------------------------------


@pytest.mark.parametrize(("line", "expected"), [
    ("DM: he says: run", ("DM", "he says: run")),
    ("DM (00:05) : x", ("DM", "x")),
    ("DM - 8:14 PM: x", ("DM", "x")),
    ("[8:14 PM]DM: x", ("DM", "x")),
    ("(0:05) DM: x", ("DM", "x")),
    ("`[00:05]` DM: x", ("DM", "x")),
    ("[2026-02-01 20:14:02] DM: x", ("DM", "x")),
    ("[5 January 2026, 20:14] DM: x", ("DM", "x")),
    ("00:05 | DM: x", ("DM", "x")),
    ("07:45 Amara: x", ("Amara", "x")),
    ("7:45PMAmara: x", ("Amara", "x")),
    ("7:45 PM Pam: x", ("Pam", "x")),
    ("__DM:__ x", ("DM", "x")),
    ("*DM:* x", ("DM", "x")),
    ("***DM***: x **y**", ("DM", "x **y**")),
    ("**DM:** x **y**", ("DM", "x **y**")),
    (">> DM: x", ("DM", "x")),
    ("• DM: x", ("DM", "x")),
    ("(From Mara): x", ("Mara", "x")),
    ("Dr. Vane: x", ("Dr. Vane", "x")),
    ("Capt. Red: x", ("Capt. Red", "x")),
    ("Her Majesty: x", ("Her Majesty", "x")),
    ("Mara (she/her): x", ("Mara (she/her)", "x")),
    ("O'Brien-Smythe 2: x", ("O'Brien-Smythe 2", "x")),
    ("Guard at the gate: x", ("Guard at the gate", "x")),
    ("Łucja: x", ("Łucja", "x")),
    ("魔王：x", ("魔王", "x")),
    ("Mara: ", ("Mara", "")),
    ("Mara:", ("Mara", "")),
    ("10:30 we start", None),
    ("10:30: we start", None),
    ("At 10:30 we meet: bring rope", None),
    ("https://x.example", None),
    ("https://x.example: look", None),
    ("C:\\Users", None),
    ("std::vector", None),
    ("haha :D", None),
    ("nice :sword: hit", None),
    ("Mara :) haha", None),
    ("3:1 for us", None),
    ("And then he says: run!", None),
    ("He says: run!", None),
    ("Okay, listen: the door", None),
    ("Wait! Stop: the door", None),
    ("I have three things: a rope", None),
    ("The ferryman wants his fee: one copper", None),
    ("what they all of them wanted was a boat: this", None),
    ("a" * 41 + ": x", None),
    ("a" * 40 + ": x", ("a" * 40, "x")),
    ('"speaker": "DM",', None),
    ('{"text": "DM"', None),
    ("{whispering} DM: x", None),
    ("[12.5s] DM: x", None),
    ("| DM: | x", None),
    ("[00:05: DM", None),
    ("---", None),
    ("12: x", None),
    ("Will Turner: Give me that.", ("Will Turner", "Give me that.")),  # names whose words are common words
    ("So Yeon: hey", ("So Yeon", "hey")),
    ("Sam W.: hi", ("Sam W.", "hi")),
    ("T.J.: hi", ("T.J.", "hi")),
    ("Will the Wise: hm", ("Will the Wise", "hm")),
    ("May I: hey", ("May I", "hey")),
    ("He Jian: hey", ("He Jian", "hey")),
    ("J.R.R. Stone Jr.: hi", ("J.R.R. Stone Jr.", "hi")),
    ("Sir Will of the Lake: hm", ("Sir Will of the Lake", "hm")),
    ("7:45PMwill turner:x", ("will turner", "x")),
    ("HE SAID: run", None),
    ("P.S.: bring rope", None),
    ("But Mara: no", None),
    ("It's Mara: run", None),
    ("He said: run", None),
    ("I think so: yes", None),
    ("Session 12: the bridge", None),
    ("", None),
])  # fmt: skip
def test_who_speaks_in_a_line(line, expected):
    assert spoken(line) == expected


def test_labels_hold_neither_times_nor_markup():
    """Every way of putting times and markup around a name gives the name or nothing, never a part of both."""
    times = [
        "",
        "00:05",
        "[00:05]",
        "(1:02:03)",
        "[0:05 - 0:08]",
        "8:14 PM",
        "[8:14 pm]",
        "2026-02-01 20:14",
        "[02/01/2026 8:00 PM]",
        "00:00:05.120",
        "<00:05>",
        "{00:05}",
        "[12.5]",
    ]
    marks = ["", "**", "*", "__", "`", "~~"]
    for before in times:
        for after in times:
            for mark in marks:
                for shape in (
                    "{b} {m}Mara{m} {a}: hi",
                    "{m}{b} Mara {a}:{m} hi",
                    "- {b} {m}Mara {a}{m}: hi",
                    "> {m}{b}{m} Mara{a}: hi",
                ):
                    line = shape.format(b=before, a=after, m=mark)
                    assert (spoken(line) or ("Mara",))[0] == "Mara", line


@pytest.mark.parametrize(("name", "speaker"), [
    ("1-mara.srt", "mara"), ("2-odo_0.srt", "odo"), ("3-ilse_1234.vtt", "ilse"), ("10-Mara Reed.flac.json", "Mara Reed"),
    ("mara.vtt", "mara"), ("1-.srt", "1-"), ("4-mara_2.srt", "mara_2"), ("12.srt", "12"),
])  # fmt: skip
def test_whose_track_it_is(name, speaker):
    assert track_name(Path(name)) == speaker


# 3. Tracks and flags ---------------------------------------------------------


def cue(start, text, number=1):
    return f"{number}\n00:00:{start:02},000 --> 00:00:{start + 1:02},000\n{text}\n\n"


def folder(tmp_path, **files):
    path = tmp_path / "evening"
    path.mkdir()
    for name, text in files.items():
        (path / name.replace("__", "-", 1).replace("__", ".")).write_text(text, encoding="utf-8")
    return path


def test_the_tracks_of_a_folder(tmp_path):
    path = folder(tmp_path, **{
        "10__odo__srt": cue(3, "Three: go.") + cue(5, "Five."), "2__mara__srt": cue(1, "One.") + cue(2, "Listen: two.") + cue(5, "Also five."),
        "2__mara__json": json.dumps({"segments": [{"start": 1, "text": "One."}, {"text": "Listen: two."}, {"start": 5, "text": "Also five."}]}),
        "2__mara__txt": "One.\n", "info__txt": "Craig", "raw__dat": "\0", "__DS_Store": "\0"})  # fmt: skip
    reading = read_transcripts([path])
    assert units(reading) == [
        ("mara", "One. Listen: two."),
        ("odo", "Three: go."),
        ("mara", "Also five."),
        ("odo", "Five."),
    ]
    assert reading.transcript["source_id"] == "evening" and reading.left_out["other files"] == 5
    given = read_transcripts([path / "10-odo.srt", path / "2-mara.json"])
    assert units(given)[-2:] == [("odo", "Three: go. Five."), ("mara", "Also five.")], "ties go by file as given"


def test_a_track_without_words_is_left_out(tmp_path):
    path = folder(
        tmp_path,
        **{
            "1__a__srt": cue(1, "x"),
            "2__b__srt": cue(2, "y") + cue(3, "z"),
            "3__c__srt": "",
            "4__d__vtt": "WEBVTT\n\n",
            "5__e__json": '{"segments": []}',
            "6__f__tsv": "\n",
        },
    )
    reading = read_transcripts([path])
    assert units(reading) == [("a", "x"), ("b", "y z")]
    assert "left out: 4 tracks without words" in summary(reading)


def test_tracks_of_which_none_has_words(tmp_path):
    with pytest.raises(InputError, match="evening has no words in it"):
        read_transcripts([folder(tmp_path, **{"1__a__srt": "", "2__b__srt": ""})])


@pytest.mark.parametrize(("files", "words"), [
    ({}, "no subtitles or Whisper files"),
    ({"notes__txt": "DM: hi"}, "no subtitles or Whisper files"),
    ({"1__a__srt": cue(1, "x"), "2__b__json": json.dumps(UNITS)}, "2-b.json is no track|2-b.json"),
    ({"1__a__srt": cue(1, "x"), "2__b__vtt": TEAMS}, "2-b.vtt has several speakers"),
    ({"1__a__srt": cue(1, "x"), "2__b__vtt": ZOOM_VTT.replace("Odo", "Ilse").replace("4\n", "3\n00:00:08.000 --> 00:00:08.100\nDM: no\n\n4\n", 1)}, "2-b.vtt has several speakers .DM, Ilse"),
    ({"1__a__json": '{"segments": [{"text": 1}]}'}, "1-a.json entry 1 of the JSON has no 'text'"),
    ({"1__a__srt": cue(1, "x"), "2__a__srt": cue(2, "y")}, "1-a.srt and 2-a.srt would be one person"),
    ({"1__a__srt": cue(1, "x"), "2__A__json": '{"segments": []}'}, "1-a.srt and 2-A.json would be one person"),
    ({"1__a__srt": cue(1, "x"), "2__b__json": '{"segments": ['}, "2-b.json line 1 looks like JSON, but is broken"),
    ({"1__a__srt": cue(1, "x"), "2__b__srt": "hello\n\n" + cue(2, "y")}, "2-b.srt line 1 must be the number"),
    ({"1__a__srt": cue(1, "x"), "2__b__srt": "%PDF-1.7"}, "^2-b.srt is a PDF"),
    ({"1__a__json": json.dumps(DISCORD_JSON)}, "1-a.json is no track, read as Discord export"),
])  # fmt: skip
def test_what_are_no_tracks(tmp_path, files, words):
    with pytest.raises((SettingError, InputError), match=words):
        read_transcripts([folder(tmp_path, **files)])


def test_a_known_speaker(tmp_path):
    assert units(read(tmp_path, WHISPER, speaker="DM"))[0][0] == "DM"
    assert units(read(tmp_path, WHISPERX, speaker="Mara")) == FERRY
    with pytest.raises(SettingError, match="--speaker is for one file"):
        read_transcripts([folder(tmp_path, **{"1__a__srt": cue(1, "x")})], speaker="DM")


def test_the_party(tmp_path):
    own = {"source_id": "s", "units": UNITS, "party": [{"name": "Mara"}]}
    assert read(tmp_path, own).transcript["party"] == [{"name": "Mara"}]
    assert read(tmp_path, {**own, "party": []}, party="Odo").transcript["party"] == [{"name": "Odo", "aliases": []}]
    assert read(tmp_path, "DM: hi", party="Odo").transcript["party"] == [{"name": "Odo", "aliases": []}]
    assert "--party is for" in refused(tmp_path, own, party="Odo")
    assert "another member" in refused(tmp_path, "DM: hi", party="Odo, odo")
    assert read(tmp_path, own).transcript["units"] == UNITS, "ids as written, in the order of the file"


@pytest.mark.parametrize(("text", "party"), [
    ("", []),
    ("Mara", [("Mara", [])]),
    ("Mara (also: Mar), Tobin", [("Mara", ["Mar"]), ("Tobin", [])]),
    (" Mara  the Grey (also: Mar, M. Grey) ,Tobin", [("Mara  the Grey", ["Mar", "M. Grey"]), ("Tobin", [])]),
    ("Mara (Mar)", None), ("Mara,,Tobin", None), ("(also: Mar)", None), ("Mara (also: Mar", None), (",", None),
])  # fmt: skip
def test_the_party_of_the_command_line(text, party):
    if party is None:
        with pytest.raises(SettingError, match="--party must be like"):
            parse_party(text)
    else:
        assert parse_party(text) == [{"name": name, "aliases": aliases} for name, aliases in party]


def test_neighbours_are_one_unit_up_to_a_thousand_characters(tmp_path):
    texts = [
        unit for _, unit in units(read(tmp_path, {"segments": [{"start": n, "text": "x" * 99} for n in range(25)]}))
    ]
    assert list(map(len, texts)) == [999, 999, 499]


def test_what_is_too_long_is_cut_between_words(tmp_path):
    reading = read(tmp_path, "DM: " + "abc " * 6000 + "x" * 30_000)
    assert {unit["speaker"] for unit in reading.transcript["units"]} == {"DM"}
    assert max(len(unit["text"]) for unit in reading.transcript["units"]) <= 20_000
    assert "".join(text for _, text in units(reading)).replace(" ", "") == "abc" * 6000 + "x" * 30_000


def test_the_lines_of_plain_text(tmp_path):
    assert read(tmp_path, "\n\nDM: hello\n  there\nMara: hi").places == [3, 5]
    assert read(tmp_path, DISCORD_CLIENT).places == [1, 3, 6]
    assert read(tmp_path, WHISPER).places is None


def test_the_summary(tmp_path):
    reading = read(tmp_path, "DM: a\nDM: b\nMara: c\n---\nDM: caf\xe9".encode("latin-1"))
    assert summary(reading) == ("read as plain text: 4 units; DM 3, Mara 1 (only once); left out: 1 only a time or a rule;"
                                " not UTF-8, so read as Windows-1252")  # fmt: skip
    doubted = summary(
        read(tmp_path, "DM: a\nhe said: run\n---\nI think so: yes\nwhat all of them wanted was a boat: this\nDM: b")
    )
    assert doubted == ("read as plain text: 2 units; DM 2; left out: 1 only a time or a rule;"
                       " 2 lines look like `Name: words` and were read as going on: first is line 2")  # fmt: skip
    many = summary(read(tmp_path, "".join(f"P{chr(65 + n)}: x\nP{chr(65 + n)}: y\n" for n in range(25))))
    assert many.endswith("PT 2, 5 others")


# 4. Refusals -----------------------------------------------------------------

TEXT = lines("{name}: {words}").encode()


@pytest.mark.parametrize(("head", "words"), [
    (b"%PDF-1.7\n", "session.txt is a PDF: copy"),
    (b"PK\x03\x04\x14\0word/document.xml", "is a Word document: save it as plain text"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is a Word document"),
    (b"{\\rtf1\\ansi", "is a Word document"),
    (b"PK\x03\x04\x14\0xl/workbook.xml", "is a spreadsheet: save it as CSV"),
    (b"PK\x03\x04\x14\0", "is an archive: unpack it first"),
    (b"\x1f\x8b\x08", "is an archive"),
    (b"7z\xbc\xaf\x27\x1c", "is an archive"),
    (b"ID3\x04\0", "is an MP3: transcribe it first, for instance with Whisper, and give its .vtt"),
    (b"\xff\xfb\x90\x64", "is an MP3"),
    (b"OggS\0", "is an audio file: transcribe it first"),
    (b"fLaC\0", "is an audio file"),
    (b"RIFF\x24\0\0\0WAVEfmt ", "is an audio file"),
    (b"\0\0\0\x20ftypM4A ", "is an audio file"),
    (b"\0\0\0\x20ftypisom", "is a video"),
    (b"\x1a\x45\xdf\xa3", "is a video"),
    (b"\x89PNG\r\n\x1a\n", "is an image"),
    (b"\xff\xd8\xff\xe0", "is an image"),
    (b"GIF89a", "is an image"),
    (b"<!DOCTYPE html><html>", "is a web page"),
    (b"\xef\xbb\xbf<?xml version='1.0'?>", "is a web page"),
    (b"SQLite format 3\0", "isn't text"),
    (b"D\0M\0:\0", "isn't text"),
    (b"\x81\x8d", "line 1 isn't sound text: save the file as UTF-8"),
    (b"\xff\xfe\0\xd8A\0", "isn't sound text"),
])  # fmt: skip
def test_what_is_no_transcript(tmp_path, head, words):
    assert words in refused(tmp_path, head + TEXT)


@pytest.mark.parametrize(("data", "words"), [
    ("", "session.txt has no words in it"),
    ("\n \n---\n", "session.txt has no words in it"),
    ("\n\nOnce upon a time\nDM: hello", "line 3 has no speaker: write `Speaker: words`; it reads: Once upon a time"),
    ("WEBVTT\n\n", "has no words in it, read as WebVTT"),
    ("hello\n\n1\n00:00:01,000 --> 00:00:02,000\nhi\n", "line 1 must be the number or the time of the first cue; it reads: hello"),
    ('{"text": "x"}', "is JSON of no known shape; it begins"),
    ("[]", "session.txt has no words in it"),
    ('{"messages": [{"id": 1}]}', "entry 1 of the JSON has no 'content' with text"),
    ('{"messages": 5}', "entry 1 of the JSON has no 'content' with text; it reads: 5"),
    ('{"segments": [{"text": "a"}, {"text": 5}]}', "entry 2 of the JSON has no 'text' with text"),
    ('{"segments": [', "line 1 looks like JSON, but is broken: Expecting value"),
    ('{"id": 1, "speaker": "DM", "text": "a"}\n{"id": 2, "spea', "line 2 looks like JSON, but is broken"),
    ('{"a":' + "[" * 100_000, "looks like JSON, but is broken"),
    ('[{"id": 1, "speaker": "DM", "text": "a"}, {"id": 1, "speaker": "DM", "text": "b"}]', "must be unique"),
    ('{"units": [], "party": []}', "required property"),
    ("speaker,text\nDM,hello, world\n", "line 2 has more cells than the first: quote the words"),
    ('speaker,text\nDM,"hello', "line 2 isn't a sound row of the sheet"),
    ("speaker,text\n", "has no words in it"),
    ("Line,Speaker,Remark\n1,Mara,hello\n", "line 1 has no speaker: write `Speaker: words`; it reads: Line,Speaker,Remark"),
])  # fmt: skip
def test_what_cannot_be_read(tmp_path, data, words):
    assert words in refused(tmp_path, data)


def test_a_file_is_read_up_to_a_limit(tmp_path):
    with pytest.raises(SettingError, match="can't read .*gone"):
        read_transcripts([tmp_path / "gone"])
    (tmp_path / "large").write_bytes(b"DM: x\n" * (MAX_FILE // 6 + 1))
    with pytest.raises(SettingError, match="is larger than 16 MiB"):
        read_transcripts([tmp_path / "large"])
    if Path("/dev/zero").exists():
        with pytest.raises(SettingError, match="is larger than 16 MiB"):
            read_transcripts([Path("/dev/zero")])


# 5. Nothing is misread in silence --------------------------------------------


def as_text(data):
    return data if isinstance(data, str) else json.dumps(data, indent=1, ensure_ascii=False)


def read_or_refused(tmp_path, data):
    """Its units, or None where it was refused in one line."""
    try:
        return units(read(tmp_path, data))
    except (InputError, SettingError) as error:
        assert str(error) and "\n" not in str(error)
        return None


@pytest.mark.parametrize("name", SAMPLES)
def test_other_bytes_of_the_same_file_are_read_the_same(tmp_path, name):
    _, data, expected, _ = SAMPLES[name]
    text = as_text(data)
    assert units(read(tmp_path, text.replace("\n", "\r\n"))) == expected
    assert units(read(tmp_path, text.replace("\n", "\r"))) == expected
    assert units(read(tmp_path, b"\xef\xbb\xbf" + text.encode())) == expected
    assert units(read(tmp_path, text.encode("utf-16"))) == expected
    if "：" not in text and "Ł" not in text:
        assert units(read(tmp_path, text.encode("cp1252"))) == expected
    for head in (b"%PDF-1.7\n", b"PK\x03\x04", b"OggS", b"\x89PNG", b"\xff\xfb", b"\0"):
        refused(tmp_path, head + text.encode())


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_cut_off_or_shuffled_names_nobody_new(tmp_path, name):
    """A cut header may be lost, then its words go on the unit before; but nobody is heard who isn't there."""
    _, data, expected, _ = SAMPLES[name]
    text, known = as_text(data), {speaker for speaker, _ in expected} | {"Unknown", "Late", "Avrae", "late"}
    chance = random.Random(name)
    for cut in sorted(chance.sample(range(len(text)), min(len(text), 60))):
        found = read_or_refused(tmp_path, text[:cut]) or []
        assert {speaker for speaker, _ in found[:-1]} <= known, (cut, text[:cut][-60:])
        assert not found or any(name.startswith(found[-1][0]) for name in known), "a sheet may be cut in a name's cell"
        read_or_refused(tmp_path, text[cut:])
        read_or_refused(tmp_path, text.encode("utf-16")[:cut])
    for _ in range(10):
        shuffled = text.split("\n")
        chance.shuffle(shuffled)
        found = read_or_refused(tmp_path, "\n".join(shuffled)) or []
        assert not [
            speaker for speaker, _ in found if re.search(r"\d:\d|[*{}<>\[\]\"]", speaker.replace("[whispering]", ""))
        ], found


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_traceback(tmp_path, seed):
    chance = random.Random(seed)
    pieces = [as_text(data) for _, data, _, _ in SAMPLES.values()]
    text = "".join(piece[(at := chance.randrange(len(piece))) : at + 80] for piece in chance.choices(pieces, k=6))
    read_or_refused(tmp_path, text)
    read_or_refused(tmp_path, chance.randbytes(300))
    read_or_refused(tmp_path, "DM: " + chance.randbytes(100).decode("latin-1"))


@pytest.mark.parametrize("line", [
    "a" + " " * 200_000 + "b", ">" * 200_000 + "x", "-" * 200_000 + "x", "*" * 200_000, "a:" * 100_000, "[00:05" + " " * 200_000 + "x",
    "1-" * 100_000, "<" * 200_000, "1d1 " * 50_000 + "x", "a" * 200_000, "12:00 " * 40_000, "[" * 200_000, "((" * 90_000 + ":",
    "—" + " " * 200_000 + "x", "<b " * 60_000, "<v " * 60_000, "<v." * 60_000, "<v" + " " * 200_000 + "<", "[" + "a" * 200_000,
])  # fmt: skip
def test_no_line_takes_long(tmp_path, line):
    """Each pattern is linear: what doubles with the line's length must not quadruple (a quadratic one takes minutes)."""
    for head in (
        "DM: hi\n",
        "DM — Today at 8:14 PM\nhi\n",
        "DM  0:05\nhi\n",
        "[DM] 20:14:02\nhi\n",
        "[2/1/2026, 8:00:00 PM] DM\nhi\n",
        "WEBVTT\n\n00:01.000 --> 00:02.000\n",
    ):
        assert read_or_refused(tmp_path, f"{head}{line}\nlast")
    read_or_refused(tmp_path, line)


def test_a_character_that_the_end_cuts_in_two(tmp_path):
    reading = read(tmp_path, "DM: café\nMara: é".encode()[:-1])
    assert units(reading) == [("DM", "café")] and reading.note == ""


def test_labels_as_tools_print_them():
    assert [name for name in ("DM", "Mara Reed", "SPEAKER_00", "Speaker 1", "DM (Anna)") if not is_label(name)] == []
