"""An answer judged: parsed, held to its schema, its evidence put in order, then refused or not. It repairs nothing."""

import functools
import itertools
import re
from typing import NamedTuple

from narrator_app import explain, in_prompt, parse_json, shorten, spoken

from .families import EVIDENCE_RULES, FAMILIES, HOLDERS, LINE_RULE, NOBODY_RULE, holder, names_of
from .prompts import MAX_RECORDS, Chunk, Source, record_fields, record_validator
from .shape import fold, is_line, whole_numbers

MAX_JUDGED = 1000  # of one answer that has too many
MAX_ISSUES = 60  # messages for operators of one rejected answer


def parse_answer(raw: str):
    """The JSON value, if need be without a think block and one code fence around it. Raises ValueError."""
    try:
        return parse_json(raw)
    except ValueError:  # a small model's representation, not its meaning
        text = spoken(raw).strip()
        fenced = re.fullmatch(r"(`{3,}|~{3,})[^\n{\[]*(.*?)\s*\1", text, re.S)
        if not fenced and text == raw:
            raise
        return parse_json(fenced[2] if fenced else text)


def order_endpoints(reference: dict, source: Source) -> dict:
    """The reference with its endpoints in transcript order, by position, never by number.

    Swapped exactly when it is of this source, both ids resolve and the start stands later; else it comes back as
    it is, for the validators to refuse. A swap loses nothing, so it says nothing.
    """
    start, end = source.positions(reference)
    if reference.get("source_id") != source.id or start is None or end is None or start <= end:
        return reference
    return {**reference, "start_unit_id": reference["end_unit_id"], "end_unit_id": reference["start_unit_id"]}


def adapt(record: dict, source: Source) -> dict:
    """A copy of the model's record: evidence of this source, endpoints ordered, ranges sorted and each once."""
    references = [order_endpoints({"source_id": source.id, **reference}, source) for reference in record["evidence"]]
    return {**record, "evidence": sorted_evidence(references, source)}


def sorted_evidence(references: list, source: Source) -> list:
    """The references in transcript order, each once; what doesn't resolve stands last."""

    def place(reference):
        return [len(source.units) if position is None else position for position in source.positions(reference)]

    return [reference for reference, _ in itertools.groupby(sorted(references, key=place))]


class Fault(NamedTuple):
    """One thing wrong with an answer: what the model is told, what operators are, and the record it is about."""

    model: str
    operator: str
    record: str = ""


class Candidate:
    """One answer, judged: `records` as adapted, `faults` with what is wrong. It repairs nothing but order."""

    def __init__(self, family: str, chunk: Chunk, raw: str, done_reason: str | None):
        self.family, self.chunk, self.source = family, chunk, chunk.source
        self.records, self.faults, self._holder_faults = [], [], {}
        written = self._parse(raw, done_reason)[:MAX_JUDGED]
        sound = [record for record in written if not self._misshapen(record)]
        self.records += [adapt(record, self.source) for record in sound]
        self._judge(sound)

    @property
    def issues(self) -> list:
        return [
            shorten(f"{one.record}: {one.operator}" if one.record else one.operator, 200)
            for one in self.faults[:MAX_ISSUES]
        ]

    def _parse(self, raw: str, done_reason: str | None) -> list:
        """The records as written, none when it isn't an answer at all."""
        whole = 'the answer is one JSON object {"records": [...]} with nothing before or after it'
        try:
            answer = whole_numbers(parse_answer(raw))
        except (ValueError, RecursionError) as error:
            self.faults.append(Fault(whole, f"no JSON: {error}"))
            if done_reason == "length":
                shorter = 'the list "records" was cut off at the limit: make it shorter, with fewer words in each text'
                self.faults.append(Fault(shorter, "cut off at num_predict"))
            return []
        records = answer.get("records") if isinstance(answer, dict) else None
        if not isinstance(records, list) or len(answer) > 1:
            self.faults.append(Fault(whole, 'not an object with a list of "records" and nothing else'))
        elif len(records) > MAX_RECORDS:
            self.faults.append(Fault(f'at most {MAX_RECORDS} records stand in "records"', f"{len(records)} records"))
        return records if isinstance(records, list) else []

    def _misshapen(self, record) -> bool:
        """Whether the record breaks its schema; each field that does is a fault."""
        errors = list(itertools.islice(record_validator(self.family).iter_errors(record), 50))
        fields = record_fields(self.family)
        for error in errors:
            name = next(iter(error.absolute_path), None)
            shape = field_shape(name, fields[name]) if name else f"a record has exactly the keys {quoted(fields)}"
            where = error.json_path[2:] or "record"
            self.faults.append(Fault(shape, f"{where} {explain(error)}", record_label(self.family, record)))
        return bool(errors)

    def _judge(self, written: list) -> None:
        """Hold each sound record to all rules; every single thing that one finds is a fault."""
        lines = LINE_RULE._replace(model=LINE_RULE.model.format(quoted(text_fields(self.family))))
        nobody = NOBODY_RULE._replace(model=NOBODY_RULE.model.format(quoted(nullable_names(self.family))))
        for record, as_written in zip(self.records, written, strict=True):
            for rule in (*EVIDENCE_RULES, lines, nobody, *FAMILIES[self.family]["rules"]):
                found = rule.broken(record, self)
                for one in found if isinstance(found, list) else [found] if found else ():
                    cited = one if isinstance(one, dict) else None  # a range: it is named by itself
                    words = _range(one) if cited else shorten(str(one), 60)
                    label = record_label(self.family, record if cited else as_written, cited)
                    self.faults.append(Fault(rule.model, rule.operator.format(words), label))

    # What the rules ask

    def unresolved(self, record: dict) -> list:
        return [
            reference
            for reference in record["evidence"]
            if reference["source_id"] != self.source.id or None in self.source.positions(reference)
        ]

    def outside(self, record: dict) -> list:
        shown = range(self.chunk.first, self.chunk.stop)
        return [
            reference
            for reference in record["evidence"]
            if any(end is not None and end not in shown for end in self.source.positions(reference))
        ]

    def backwards(self, record: dict) -> list:
        return [reference for reference, (start, end) in self._resolved(record) if start > end]

    def _resolved(self, record: dict) -> list:
        found = [(reference, self.source.positions(reference)) for reference in record["evidence"]]
        return [(reference, ends) for reference, ends in found if None not in ends]

    def ill_written(self, record: dict) -> list:
        nullable = nullable_names(self.family)
        texts = [
            (key, text)
            for key, value in record.items()
            if key != "evidence"
            for text in (value if isinstance(value, list) else [value])
            if isinstance(text, str)
        ]
        return [key for key, text in texts if not is_line(text) and (text.strip() or key not in nullable)]

    def null_in_words(self, record: dict) -> list:
        return [key for key in nullable_names(self.family) if record[key] is not None and holder(record, key) is None]

    def is_member(self, name: str | None) -> bool:
        return name is not None and fold(name) in self.source.member

    def are_one(self, name: str | None, other: str | None) -> bool:
        members = self.source.member
        return self.is_member(name) and self.is_member(other) and members[fold(name)] == members[fold(other)]

    def holder_faults(self, record: dict) -> dict:
        """holder_faults(), found once for all the rules that ask."""
        if id(record) not in self._holder_faults:
            self._holder_faults[id(record)] = holder_faults(record, self)
        return self._holder_faults[id(record)]

    def is_grounded(self, record: dict) -> bool:
        """Whether a name stands in a cited unit; also when nothing cited exists, which is another rule's."""
        cited = [self.source.folded[start : end + 1] for _, (start, end) in self._resolved(record)]
        names = [fold(name) for name in names_of(record)]
        return not cited or any(name in unit for units in cited for unit in units for name in names)

    @functools.cached_property
    def owners(self) -> dict:
        """For each name and alias, as folded, the numbers of the records that bear it."""
        owners = {}
        for number, record in enumerate(self.records):
            for name in names_of(record):
                owners.setdefault(fold(name), set()).add(number)
        return owners

    @functools.cached_property
    def circling(self) -> set:
        """The records, by id(), whose parents run in a circle of more than one place."""
        return {id(self.records[number]) for number in circling_parents(self.records)}


def circling_parents(records: list) -> set:
    """The numbers of the records that are their own ancestors, a place that names itself aside."""
    bearer = {}
    for number, record in enumerate(records):
        for name in names_of(record):
            bearer.setdefault(fold(name), number)
    parent = {number: bearer.get(fold(holder(record, "parent") or "")) for number, record in enumerate(records)}
    circling, state = set(), {}
    for number in parent:
        path = []
        while number is not None and number not in state:
            state[number] = "on the way"
            path.append(number)
            number = parent[number]
        if number is not None and state[number] == "on the way" and parent[number] != number:
            circling.update(path[path.index(number) :])
        state.update(dict.fromkeys(path, "done"))
    return circling


def holder_faults(record: dict, candidate: Candidate) -> dict:
    """What is wrong with the holders of an item occurrence: the faults of HOLDER_FAULTS, and where."""
    named = HOLDERS[record["kind"]][0]
    names = {side: holder(record, side) for side in ("from", "to")}
    extra = [side for side, name in names.items() if name and side not in named]
    missing = [side for side in named if not names[side]]
    if extra and missing:
        return {"misplaced": extra[0]}
    found = {"extra": " and ".join(extra), "missing": " and ".join(missing)}
    if len(named) == 2:
        found["outside"] = " and ".join(side for side, name in names.items() if name and not candidate.is_member(name))
        one, other = names.values()
        if one and other and (fold(one) == fold(other) or candidate.are_one(one, other)):
            found["equal"] = other
    return found


@functools.cache
def nullable_names(family: str) -> tuple:
    """The fields that are a Name or null."""
    name_or_null = {"type": ["string", "null"], "maxLength": 120}
    return tuple(key for key, field in record_fields(family).items() if field == name_or_null)


def text_fields(family: str) -> tuple:
    """The fields that are text in words of one's own, or a list of it."""
    return tuple(
        key for key, field in record_fields(family).items() if "maxLength" in {**field, **field.get("items", {})}
    )


def quoted(keys) -> str:
    """The keys as the schema has them, in a sentence."""
    return ", ".join(f'"{key}"' for key in keys)


def _range(reference: dict) -> str:
    """The unit range as it was written."""
    return "-".join(shorten(in_prompt(str(reference.get(end))), 20) for end in ("start_unit_id", "end_unit_id"))


def record_label(family: str, record, reference: dict | None = None) -> str:
    """The record as the model can find it in its own answer: name, kind, the (first) unit range as written."""
    if not isinstance(record, dict):
        return "something that is no record"
    row, parts = FAMILIES[family], []
    name, kind, evidence = record.get(row["name"]), record.get(row["kind"]), record.get("evidence")
    if isinstance(kind, str):
        parts.append(shorten(in_prompt(kind), 20))
    if reference or (isinstance(evidence, list) and evidence and isinstance(evidence[0], dict)):
        parts.append(f"units {_range(reference or evidence[0])}")
    label = f'"{shorten(in_prompt(name), 40)}"' if isinstance(name, str) else f"a record that names no {row['name']}"
    return f"{label} ({', '.join(parts)})" if parts else label


def field_shape(name: str, field: dict) -> str:
    """What a field must be, from its schema, as the model is told it."""
    if name == "evidence":
        return 'the list "evidence" has 1 to 6 {"start_unit_id": number, "end_unit_id": number}'
    kind = field["type"]
    nullable = isinstance(kind, list)
    kind = kind[0] if nullable else kind
    if "enum" in field:
        shape = f"one of {', '.join(field['enum'])}"
    elif kind == "array":
        shape = f"a list of at most {field['maxItems']} names"
    elif kind == "integer":
        low, high = field["minimum"], field.get("maximum")
        shape = f"a whole number from {low} to {high}" if high else f"a whole number of at least {low}"
    else:
        shape = "true or false" if kind == "boolean" else f"text of at most {field['maxLength']} characters"
    return f'the value of "{name}" is {shape}' + (" or null" if nullable else "")
