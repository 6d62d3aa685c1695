"""Which model keeps the laws, at what price, and which feels alive: a log that was played, without a judge.

It reads the logs twice, the verdicts first, and keeps of them no more than what they say of which call.
"""

import itertools
import math
from collections import Counter, deque

from narrator_app import say

from .measures import (
    FEW,
    NOT_WHOLE,
    Tally,
    Z,
    is_verdict,
    log_records,
    logged_laws,
    own_text,
    rate,
    shorten_middle,
    wilson,
)
from .repeats import find_repeats

BEFORE = 5  # narrations of the same model in which a repeat is looked for


class Verdicts:
    """What people said: of a call, that it felt alive or not; of two, which is better."""

    def __init__(self):
        self.said, self.better, self.even, self.name = {}, [], [], {}  # name: of each call that somebody judged

    def add(self, verdict: dict, ts: str) -> None:
        """Keep it; of two on one call the later one. What isn't one raises."""
        if "better" in verdict:
            self.better.append((verdict["better"] + "", verdict["worse"] + ""))
        elif "even" in verdict:
            one, other = verdict["even"]
            self.even.append((one + "", other + ""))
        elif isinstance(verdict["alive"], bool) and ts >= self.said.get(verdict["call"] + "", ("",))[0]:
            self.said[verdict["call"]] = ts, verdict["alive"]


def audit(paths: list, show=lambda number, law, text: None) -> tuple:
    """The Tally of the narrations by model and prompt, and the Verdicts; `show` hears of each finding.

    Any log this product ever wrote will do: laws that a line hasn't got are found now.
    """
    verdicts, tallies, told = read_verdicts(paths), {}, {}
    for path in paths:
        for number, record in log_records(path, lambda line: not is_verdict(line)):
            if record.get("role") != "narrator":
                continue
            try:
                name = shorten_middle(record["model"]) + " " + record.get("prompt_sha256", "")[:8]
                laws = logged_laws(record)
                repeats = []
                if record["ok"]:
                    before = told.setdefault(record["model"], deque(maxlen=BEFORE))
                    repeats = find_repeats(record["messages"][1]["content"], own_text(record), before)
                tallies.setdefault(name, Tally()).add(record, laws, repeats=bool(repeats))
            except NOT_WHOLE as error:
                say(f"line {number} isn't a whole record and is passed over: {type(error).__name__} {error}")
                continue
            if record.get("id") in verdicts.name:
                verdicts.name[record["id"]] = name
            for law, text in [*((one["law"], one["text"]) for one in laws), *(("repeats", text) for text in repeats)]:
                show(number, law, text)
    for call, (_, alive) in verdicts.said.items():
        if tally := tallies.get(verdicts.name[call]):
            tally.alive, tally.verdicts = tally.alive + alive, tally.verdicts + 1
    if unknown := sum(name is None for name in verdicts.name.values()):
        say(f"{unknown} calls that somebody judged stand in none of these logs")
    return {name: tally for name, tally in tallies.items() if tally.calls}, verdicts


def read_verdicts(paths: list) -> Verdicts:
    verdicts = Verdicts()
    for path in paths:
        for number, record in log_records(path, is_verdict):
            try:
                verdicts.add(record["verdict"], record.get("ts") or "")
            except NOT_WHOLE:
                say(f"line {number} is no verdict and is passed over")
    verdicts.name = dict.fromkeys([*verdicts.said, *itertools.chain(*verdicts.better, *verdicts.even)])
    return verdicts


def columns(tallies: dict) -> dict:
    """The measures of each model and prompt, by their names."""
    return {
        name: {
            "narrations": str(tally.calls),
            **tally.rows(),
            "verdicts": str(tally.verdicts),
            "alive, per 100": rate(tally.alive, tally.verdicts),
        }
        for name, tally in tallies.items()
    }


def sentences(tallies: dict, verdicts: Verdicts) -> list:
    """What the verdicts say in words: each rate, whether two of them differ, and the blind pairs."""
    judged = {name: tally for name, tally in tallies.items() if tally.verdicts >= FEW}
    said = [
        f"{name}: alive {rate(tally.alive, tally.verdicts).replace(' ', ' of 100 ', 1)}, {tally.verdicts} verdicts"
        for name, tally in judged.items()
    ]
    for (name, one), (other_name, other) in itertools.combinations(judged.items(), 2):
        said.append(f"{name} and {other_name} {difference(one, other)}")
    won, played = Counter(), Counter()
    for pair in verdicts.better:
        better, worse = (verdicts.name[call] for call in pair)
        if better and worse and better != worse:
            won[better] += 1
            played.update([better, worse])
    said += [
        f"{name}: better in {rate(won[name], count)} of 100 blind pairs, {count} decided"
        for name, count in played.items()
    ]
    return said + ([f"{len(verdicts.even)} blind pairs were even"] if verdicts.even else [])


def difference(one: Tally, other: Tally) -> str:
    """Whether two rates differ, or how many more verdicts on each would part their intervals, if they stay as they are.

    Two intervals p ± z √(p(1 − p)/n) part when n = (z (√(p(1 − p)) + √(q(1 − q))) / (p − q))².
    """
    (low, high), (other_low, other_high) = wilson(one.alive, one.verdicts), wilson(other.alive, other.verdicts)
    if low > other_high or other_low > high:
        return "differ"
    p, q = one.alive / one.verdicts, other.alive / other.verdicts
    if p == q:
        return "don't differ: their rates are the same"
    wanted = (Z * (math.sqrt(p * (1 - p)) + math.sqrt(q * (1 - q))) / (p - q)) ** 2
    more = max(FEW, math.ceil(wanted) - min(one.verdicts, other.verdicts))
    return f"don't differ yet: about {more} more verdicts on each would tell, if they stay as they are"
