"""The files of a session: which to read, and each as text, or in a line what it is instead and what to do about it."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from narrator_app import InputError, SettingError, fault, shorten

MAX_FILE = 16 * 2**20  # bytes
_TRACKS = [".json", ".vtt", ".srt", ".tsv"]  # the fullest first: Whisper can write all of them for one track
_TRANSCRIBE = "transcribe it first, for instance with Whisper, and give its .vtt"
_KINDS = [
    (rb"%PDF-", "a PDF: copy its text into a .txt file"),
    (rb"PK\x03\x04.*word/|\xd0\xcf\x11\xe0|\{\\rtf", "a Word document: save it as plain text (.txt)"),
    (rb"PK\x03\x04.*xl/", "a spreadsheet: save it as CSV"),
    (rb"PK\x03\x04|Rar!\x1a|7z\xbc\xaf|\x1f\x8b|BZh\d1AY|\xfd7zXZ|\x28\xb5\x2f\xfd", "an archive: unpack it first"),
    (rb"ID3[\x02-\x04]|\xff[\xfa\xfb\xf2\xf3]", f"an MP3: {_TRANSCRIBE}"),
    (rb"OggS|fLaC|RIFF.{4}WAVE|FORM.{4}AIF|\xff[\xf1\xf9]|.{4}ftypM4[AB]", f"an audio file: {_TRANSCRIBE}"),
    (rb".{4}ftyp|\x1a\x45\xdf\xa3|RIFF.{4}AVI|\0\0\x01\xba|\x30\x26\xb2\x75", f"a video: {_TRANSCRIBE}"),
    (rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|RIFF.{4}WEBP|II\*\0|MM\0\*", "an image: type its words into a .txt file"),
    (rb"\s*<(?i:!doctype|html|\?xml|head|body|div|table|tt)\b", "a web page: copy its text into a .txt file"),
]


def files_of(paths: list) -> tuple:
    """The files to read, one for each track, and a counter with the others beside them. Raises SettingError."""
    found, best = paths, {}
    if len(paths) == 1 and paths[0].is_dir():
        found = [path for path in paths[0].iterdir() if path.is_file()]
        found.sort(key=lambda path: (int(re.match(r"\d{,9}", path.name)[0] or 0), path.name))
        paths = [path for path in found if path.suffix.lower() in _TRACKS and not path.name.startswith(".")]
    for path in sorted(paths, key=lambda path: [*_TRACKS, path.suffix.lower()].index(path.suffix.lower())):
        best.setdefault(path.with_suffix(""), path)
    if not best:
        raise SettingError("the folder has no subtitles or Whisper files (.json, .vtt, .srt, .tsv) in it")
    files, heard = [path for path in paths if path in best.values()], {}
    for path in files:
        if (other := heard.setdefault(track_name(path).casefold(), path)) != path:
            raise SettingError(f"{other.name} and {path.name} would be one person: rename one of them")
    return files, Counter({"other files": len(found) - len(best)})


def track_name(path: Path) -> str:
    """Whose track it is: of `1-mara_0.flac.srt` mara."""
    name = re.sub(r"(?i)\.(?:flac|wav|ogg|opus|aac|m4a|mp3|webm)$", "", path.stem)
    return re.sub(r"^\d+-(?=.)|_(?:0|\d{4})$", "", name).strip() or path.stem


def open_file(path: Path) -> tuple:
    """The file's text, its JSON value or None, and what is to be said of its bytes. Raises SettingError, InputError."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        raise SettingError(f"can't read {path}: {error.strerror or error}") from error
    if len(data) > MAX_FILE:
        raise SettingError(f"{path} is larger than {MAX_FILE // 2**20} MiB, which no session is: cut it in two")
    data = data.removeprefix(codecs.BOM_UTF8)
    if kind := next((words for pattern, words in _KINDS if re.match(pattern, data, re.DOTALL)), None):
        raise refusal(path.name, f"is {kind}")
    text, note = decode(data)
    if re.search(r"[\x00-\x08\x0e-\x1a]", text):
        raise refusal(path.name, "isn't text: give a transcript, subtitles or a chat's export")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, as_json(text), note


def decode(data: bytes) -> tuple:
    """The text, without a character that the end cuts in two, and what is to be said of it. Raises InputError."""
    marked = data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    decoder, wrong = codecs.getincrementaldecoder("utf-16" if marked else "utf-8")(), len(data)
    try:
        text = decoder.decode(data)
        if marked or not (decoder.getstate()[0] and text.isascii()):
            return text, ""
    except UnicodeDecodeError as error:
        wrong = error.start
    text = data.decode("cp1252", "replace")
    if marked or "\ufffd" in text:
        line = data[:wrong].count(b"\n") + 1
        raise refusal(f"line {line}", "isn't sound text: save the file as UTF-8")
    return text, "not UTF-8, so read as Windows-1252"


def as_json(text: str):
    """The JSON value, of JSON lines their list; None where it doesn't look like JSON. Raises InputError."""
    if not re.match(r"\s*(?:\{\s*[\"}]|\[\s*[{\]])", text):
        return None
    load, values = json.JSONDecoder(parse_constant=lambda name: None).decode, []  # Whisper writes NaN
    try:
        return load(text)
    except (ValueError, RecursionError) as error:
        broken = error
    for number, line in enumerate(text.split("\n"), 1):
        try:
            values += [load(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            broken = error if values else broken  # where the first line is JSON, each must be
            raise refusal(f"line {number}", f"looks like JSON, but is broken: {broken}") from error
    return values


def entries(values, key: str) -> Iterator[dict]:
    """The objects of a JSON list, each with a text under the key. Raises InputError."""
    for number, value in enumerate(values if isinstance(values, list) else [values], 1):
        if not isinstance(value, dict) or not isinstance(value.get(key), str):
            raise refusal(f"entry {number} of the JSON", f"has no {key!r} with text", json.dumps(value)[:1000])
        yield value


def refusal(where: str, message: str, line: str = "") -> InputError:
    return InputError("transcript", [fault(where, message + (f"; it reads: {shorten(line, 60)}" if line else ""))])
