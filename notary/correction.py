"""What the model is told of a rejected answer: one message for everything that is wrong."""

import itertools

from .prompts import MAX_CORRECTION

MAX_NAMED_RECORDS = 12  # in one correction


def correction(faults: list) -> str:
    """One message for everything that is wrong, at most MAX_CORRECTION bytes; names give way first, rules never do."""
    rules = {}
    for one in faults:
        rules.setdefault(one.model, []).append(one.record)
    named = {rule: [] for rule in rules}
    waiting = [
        (rule, record)
        for round_ in itertools.zip_longest(*(dict.fromkeys(r) for r in rules.values()))
        for rule, record in zip(rules, round_, strict=True)
        if record
    ]
    text, shown = _correction(rules, named), set()
    for rule, record in waiting:
        if len(shown | {record}) > MAX_NAMED_RECORDS:
            continue
        named[rule].append(record)
        longer = _correction(rules, named)
        if len(longer.encode("utf-8", "replace")) > MAX_CORRECTION:
            named[rule].pop()
            continue
        text = longer
        shown.add(record)
    return text


def _correction(rules: dict, named: dict) -> str:
    lines = []
    for rule, records in rules.items():
        others = " and others" if len(named[rule]) < len(set(filter(None, records))) else ""
        where = f" Wrong in: {'; '.join(named[rule])}{others}." if named[rule] else ""
        lines.append(
            f"- {rule[0].upper()}{rule[1:]}.{where}"
        )  # no sentence begins with a key, which has its own letters
    return "\n".join(
        [
            "Your answer was rejected. What is wrong:",
            *lines,
            'Answer again with one complete JSON object {"records": [...]} that replaces it. Keep every record that was'
            " right, mend what is named here, and add nothing that the transcript does not support.",
        ]
    )
