"""What code adds to accepted records: the chunks made one, ids, and the order of the transcript."""

import hashlib
import itertools
import json

from narrator_app import one_line

from .families import FAMILIES, names_of
from .judging import circling_parents, sorted_evidence
from .prompts import Source
from .shape import fold


def join_records(family: str, by_chunk: list, source: Source) -> list:
    """The records of all chunks as one list: merged where they are one, with ids, in transcript order."""
    row = FAMILIES[family]
    if counter := row.get("counter"):
        by_chunk = continued(by_chunk, counter)
    records = sorted(itertools.chain(*by_chunk), key=lambda record: earliest(record, source))
    if row.get("registry"):
        records = merged(records, source)
    by_id = {}
    for record in records:
        key = record_id(family, record, source)
        if key in by_id:
            by_id[key]["evidence"] = sorted_evidence([*by_id[key]["evidence"], *record["evidence"]], source)
        else:
            first = source.units[earliest(record, source)]["id"]
            by_id[key] = {"id": key, **record, "earliest_unit_id": first}
    return sorted(by_id.values(), key=lambda record: (earliest(record, source), record["id"]))


def earliest(record: dict, source: Source) -> int:
    """The position of the record's first cited unit."""
    return source.positions(record["evidence"][0])[0]


def record_id(family: str, record: dict, source: Source) -> str:
    """The family and a short hash: the same record of the same source has the same id."""

    def normal(value):
        return (
            [normal(item) for item in value]
            if isinstance(value, list)
            else (one_line(value).strip() if isinstance(value, str) else value)
        )

    fields = {key: normal(value) for key, value in record.items() if key != "evidence"}
    parts = [source.id, fields, earliest(record, source)]
    return f"{family}-{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]}"


def continued(by_chunk: list, counter: str) -> list:
    """The chunks' records with a number that each chunk counts from 1, counted on from chunk to chunk."""
    highest, joined = 0, []
    for records in by_chunk:
        joined.append([{**record, counter: record[counter] + highest} for record in records])
        highest = max([highest, *(record[counter] for record in joined[-1])])
    return joined


def merged(records: list, source: Source) -> list:
    """Registry records with those of a common name or alias made one, transitively; the first one's name stays."""
    places = [_one_record(group, source) for group in united(records)]
    for number in circling_parents(places) if places and "parent" in places[0] else ():
        places[number]["parent"] = None
    for place in places:
        if fold(place.get("parent")) in map(fold, names_of(place)):
            place["parent"] = None
    return places


def united(records: list) -> list:
    """Registry records as lists of those of one thing: they share a name or an alias, also by way of others."""
    home = {}
    for number, record in enumerate(records):
        names = {fold(name) for name in names_of(record)}
        group, *others = [*{id(home[name]): home[name] for name in names if name in home}.values()] or [[]]
        group.append(number)
        for other in others:
            group += other
            names |= {fold(name) for one in other for name in names_of(records[one])}
        home.update(dict.fromkeys(names, group))
    groups = sorted(sorted(group) for group in {id(group): group for group in home.values()}.values())
    return [[records[number] for number in group] for group in groups]


def _one_record(group: list, source: Source) -> dict:
    """Records of one thing as one: evidence united, of every other field the first value that isn't null."""
    one = {key: next((record[key] for record in group if record[key] is not None), None) for key in group[0]}
    one["name"], one["aliases"], seen = group[0]["name"], [], {fold(group[0]["name"])}
    for name in (name for record in group for name in names_of(record)):
        if fold(name) not in seen:
            seen.add(fold(name))
            one["aliases"].append(name)
    one["evidence"] = sorted_evidence([reference for record in group for reference in record["evidence"]], source)
    return one
