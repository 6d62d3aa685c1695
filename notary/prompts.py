"""What is asked, and of what: the notary's prompt, the schema of an answer, and a transcript cut into chunks."""

import functools
import hashlib
import json
import re
from typing import NamedTuple

from narrator_app import (
    InputError,
    SettingError,
    fault,
    in_prompt,
    make_validator,
    parse_json,
    read_file,
    role_model,
    role_options,
    system_prompt,
)

from .families import FAMILIES, POLICY
from .shape import SCHEMAS, fold

MAX_RECORDS = 60  # of one answer
MAX_CORRECTION = 2000  # bytes of one correction, and so at most as many characters


@functools.lru_cache(maxsize=4)
def _prompt_sections(text: str) -> dict:
    preamble, *sections = re.split(r"^## ", text, flags=re.M)
    return {"": preamble, **{name.strip(): body for name, _, body in (section.partition("\n") for section in sections)}}


def shared_prompt() -> str:
    """The system message, the same for every family: preamble and evidence. Raises SettingError."""
    return _section("") + "## evidence\n" + _section("evidence")


def family_question(family: str) -> str:
    """The last user message: the family's section. Raises SettingError."""
    return f"## {family}\n{_section(family)}".strip()


def family_prompt(family: str) -> str:
    """All that a family's answer depends on, in one text. Raises SettingError."""
    return shared_prompt() + family_question(family)


def _section(name: str) -> str:
    text = _prompt_sections(system_prompt("notary")).get(name, "")
    if not text.strip():
        raise SettingError(f"notary.md has no section '## {name}'")
    return text


@functools.cache
def answer_schema(family: str) -> dict:
    """The whole answer's schema as `format` has it: flat, for grammar compilers; never trusted. Raises SettingError."""
    schemas = read_file(SCHEMAS, parse_json)
    if family not in schemas["records"]:
        raise SettingError(f"notary.schema.json has no records of {family}")
    fields = {"evidence": schemas["evidence"], **schemas["records"][family]}
    return _object({"records": {"type": "array", "maxItems": MAX_RECORDS, "items": _object(fields)}})


def _object(fields: dict) -> dict:
    return {"type": "object", "additionalProperties": False, "required": list(fields), "properties": fields}


def record_fields(family: str) -> dict:
    """The schema of each field of a record."""
    return answer_schema(family)["properties"]["records"]["items"]["properties"]


@functools.cache
def record_validator(family: str) -> object:
    """jsonschema's validator of one record."""
    return make_validator(answer_schema(family)["properties"]["records"]["items"])


def fingerprint(family: str, prompt: str) -> str:
    """16 hex digits that change with all that may change an answer or its judgement, transcript and seed aside."""
    options = {name: value for name, value in role_options("notary").items() if name != "seed"}
    parts = [prompt, answer_schema(family), POLICY, role_model("notary"), options]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def question(fingerprint: str, text: str) -> str:
    """What was asked of whom, as one key: the fingerprint has all but the user message."""
    return hashlib.sha256(json.dumps([fingerprint, text]).encode()).hexdigest()


def questions(family: str, chunk: "Chunk") -> list:
    """The four messages of one question, what stays the same longest first: a model needn't read that again."""
    return [
        {"role": "system", "content": shared_prompt().strip()},
        {"role": "user", "content": chunk.text},
        {"role": "assistant", "content": "I have read them."},
        {"role": "user", "content": family_question(family)},
    ]


def cut_into_chunks(transcript: dict) -> list:
    """Chunks of whole units, the same for every family. Raises InputError for what doesn't fit, SettingError."""
    party = party_line(transcript["party"])
    room = tokens_left() - tokens(party)
    if room < 1:
        raise InputError("transcript", [fault("$.party", "is too long for num_ctx")])
    starts, used = [0], 0
    lines = [unit_line(unit) for unit in transcript["units"]]
    for number, line in enumerate(lines):
        if tokens(line) > room:
            alone = f"unit {transcript['units'][number]['id']} alone needs about {tokens(line)} tokens"
            words = f"{alone}, and num_ctx has room for {room}: cut it in two"
            raise InputError("transcript", [fault(f"$.units[{number}]", words)])
        used += tokens(line)
        if used > room:
            starts.append(number)
            used = tokens(line)
    source = Source(transcript)
    return [
        Chunk(source, first, stop, f"{party}\n\n" + "\n".join(lines[first:stop]))
        for first, stop in zip(starts, [*starts[1:], len(lines)], strict=True)
    ]


def tokens(text: str) -> int:
    """An estimate: UTF-8 bytes / 3, and one for the line's end."""
    return len(text.encode("utf-8", "replace")) // 3 + 2


def tokens_left() -> int:
    """Tokens for party and units beside the longest prompt, a rejected answer, its correction and a new answer.

    Raises SettingError.
    """
    options, longest = role_options("notary"), max(tokens(family_prompt(family)) for family in FAMILIES)
    left = options["num_ctx"] - 2 * options["num_predict"] - longest - MAX_CORRECTION // 3 - 64
    if options["num_predict"] < 1 or left < 1:
        needs = "num_predict must be above 0, and num_ctx must hold the prompt, a correction and twice num_predict"
        raise SettingError(f"OLLAMA_NOTARY_OPTIONS leaves a transcript no room: {needs}")
    return left


def check_prompts() -> None:
    """Read what every question needs. Raises SettingError."""
    tokens_left()
    for family in FAMILIES:
        answer_schema(family)


def party_line(party: list) -> str:
    """`Party: Mara (also: Mar), Tobin`, or `Party: none`."""
    members = []
    for member in party:
        also = ", ".join(in_prompt(alias) for alias in member.get("aliases", ()))
        members.append(in_prompt(member["name"]) + (f" (also: {also})" if also else ""))
    return f"Party: {', '.join(members) or 'none'}"


def unit_line(unit: dict) -> str:
    """`[12] SPEAKER: words`, on one line whatever they hold: no unit can pose as another."""
    return f"[{unit['id']}] {in_prompt(unit['speaker'])}: {in_prompt(unit['text'])}"


class Source:
    """A transcript, ready to be looked up: positions of ids, names of the party, units as fold() has them."""

    def __init__(self, transcript: dict):
        self.id, self.units = transcript["source_id"], transcript["units"]
        self.position = {unit["id"]: number for number, unit in enumerate(self.units)}
        self.member = {
            fold(name): number
            for number, member in enumerate(transcript["party"])
            for name in (member["name"], *member.get("aliases", ()))
        }

    @functools.cached_property
    def folded(self) -> list:
        return [f"{fold(unit['speaker'])}\n{fold(unit['text'])}" for unit in self.units]

    def positions(self, reference: dict) -> tuple:
        """Where the reference's endpoints stand; None for one that is missing or unknown."""
        start, end = reference.get("start_unit_id"), reference.get("end_unit_id")
        return (
            self.position.get(start) if type(start) is int else None,
            self.position.get(end) if type(end) is int else None,
        )


class Chunk(NamedTuple):
    """What one call shows of a source: the units from `first` to before `stop`, and the user message."""

    source: Source
    first: int
    stop: int
    text: str

    @property
    def ends(self) -> list:
        return [self.source.units[self.first]["id"], self.source.units[self.stop - 1]["id"]]
