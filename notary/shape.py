"""What a transcript must be, whoever made it: {"source_id", "units": [{"id", "speaker", "text"}], "party"}."""

import functools
import re
from pathlib import Path

from narrator_app import (
    MAX_INPUT_ERRORS,
    InputError,
    SettingError,
    fault,
    in_prompt,
    make_validator,
    parse_json,
    read_file,
)

SCHEMAS = Path(__file__).with_name("notary.schema.json")


def check_transcript(transcript: dict) -> dict:
    """The transcript, valid by its schema, with what no schema says. Raises InputError."""
    transcript = whole_numbers(transcript)
    seen, owners, faults = set(), {}, []
    for number, member in enumerate(transcript["party"]):
        for name in (member["name"], *member.get("aliases", ())):
            if not is_line(name):
                faults.append(fault(f"$.party[{number}]", "has a name that isn't one line"))
            if owners.setdefault(fold(name), number) != number:
                faults.append(fault(f"$.party[{number}]", f"has a name of another member: {name}"))
    for number, unit in enumerate(transcript["units"]):
        if unit["id"] in seen:
            faults.append(fault(f"$.units[{number}].id", f"is an id that stands before; {unit['id']} must be unique"))
        seen.add(unit["id"])
    if faults:
        raise InputError("transcript", faults[:MAX_INPUT_ERRORS])
    return transcript


@functools.cache
def transcript_validator():
    """jsonschema's validator of a transcript."""
    return make_validator(read_file(SCHEMAS, parse_json)["transcript"])


def whole_numbers(value):
    """The JSON value with 12.0 as 12: both are JSON's integers."""
    if isinstance(value, dict):
        return {key: whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def fold(text: str | None) -> str:
    """The text as names are compared: as the model reads it, case-folded, white space collapsed."""
    return " ".join(in_prompt(text or "").casefold().split())


def is_line(text: str) -> bool:
    """Whether the text is one line with something other than white space."""
    return bool(text.strip()) and len(f"{text}.".splitlines()) == 1


def parse_party(text: str) -> list:
    """`Mara (also: Mar), Tobin` as a transcript's party. Raises SettingError."""
    member = r"\s*([^(),]*[^(),\s])\s*(?:\(also:([^()]*)\)\s*)?"
    if not re.fullmatch(rf"(?:{member}(?:,{member})*)?", text):
        raise SettingError('--party must be like "Mara (also: Mar), Tobin"')
    return [
        {"name": name, "aliases": [alias.strip() for alias in also.split(",") if alias.strip()]}
        for name, also in re.findall(member, text)
    ]
