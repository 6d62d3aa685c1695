"""What people said of narrations, alive or not, better or worse; and how sure that is."""

import itertools
import math
from collections import Counter
from statistics import NormalDist

FEW = 10  # verdicts say nothing yet when they are fewer
Z = NormalDist().inv_cdf(0.975)  # of an interval that holds the true rate 95 times of 100


def keep_verdict(record: dict, alive: dict, pairs: set) -> None:
    """Into `alive`, by call, what was said last: when, whether alive. Into `pairs` its id, both calls, if decided."""
    verdict, said = record["verdict"], record.get("ts", "") + ""
    if "call" in verdict:
        if not isinstance(verdict["alive"], bool):
            raise TypeError("alive is neither true nor false")
        if said >= alive.get(verdict["call"] + "", (said,))[0]:
            alive[verdict["call"]] = said, verdict["alive"]
    else:
        one, other = verdict["even"] if "even" in verdict else (verdict["better"], verdict["worse"])
        pairs.add((record.get("id"), one + "", other + "", "better" in verdict))  # a file may be saved twice


def compare_blind(pairs: set, names: dict) -> dict:
    """By two names, Counters of how often each was better, and "even"; what isn't known or is one is left out."""
    found = {}
    for _, *calls, decided in pairs:
        one, other = (names[call] for call in calls)
        if one and other and one != other:
            found.setdefault(tuple(sorted((one, other))), Counter())[one if decided else "even"] += 1
    return found


def sentences(tallies: dict, blind: dict) -> list:
    """What was said, in words: each two models or prompts beside each other, and the blind pairs."""
    felt = [(name, one.count["alive"], one.count["verdicts"]) for name, one in tallies.items()]
    felt = [one for one in felt if one[2] >= FEW]
    said = [contrast("alive", *sides) for sides in list(itertools.combinations(felt, 2)) or zip(felt)]
    for (one, other), count in blind.items():
        sides = [(name, count[name], count[one] + count[other]) for name in (one, other)]
        said.append(f"Blind, {sides[0][2]} pairs decided and {count['even']} even: {contrast('better', *sides)}")
    return said


def contrast(word: str, *sides) -> str:
    """`A: alive 62 of 100 (52–71); B: alive 31 of 100 (23–41); they differ.`, each as (name, how many, of how many)."""
    said = [f"{name}: {word} {rate(*counts, ' of 100')}".replace("\n", " with prompt ") for name, *counts in sides]
    if len(sides) == 2:
        said.append(difference(*(counts for _, *counts in sides)))
    return "; ".join(said) + "."


def rate(count: int, of: int, words: str = "") -> str:
    """`62 (48–74)`: how many of 100, and the interval; the number of verdicts alone while they say nothing."""
    if of < FEW:
        return f"too few ({of})" if of else "-"
    low, high = wilson(count, of)
    return f"{100 * count / of:.0f}{words} ({100 * low:.0f}–{100 * high:.0f})"


def wilson(count: float, of: float) -> tuple:
    """The 95 % interval of a rate (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927, p. 209), as two shares of 1."""
    share, spread = count / of, 1 + Z * Z / of
    middle = share + Z * Z / (2 * of)
    width = Z * math.sqrt(share * (1 - share) / of + Z * Z / (4 * of * of))
    return max(0.0, (middle - width) / spread), min(1.0, (middle + width) / spread)


def difference(one: tuple, other: tuple) -> str:
    """Whether two rates, each (how many, of how many), differ; else how many more verdicts would tell."""
    if min(one[1], other[1]) < FEW:
        return "too few to tell"
    if one[0] * other[1] == other[0] * one[1]:
        return "they don't differ, their rates are the same"
    more = 0
    while not apart(one, other, more):
        more = math.ceil(more * 1.05 + 1)
    if not more:
        return "they differ"
    return f"they don't differ yet: about {float(f'{more:.2g}'):,.0f} more on each would tell, if the rates stay"


def apart(one: tuple, other: tuple, more: int) -> bool:
    """Whether the two intervals lie apart, once both rates have stood through `more` verdicts."""
    ends = [wilson(count * (1 + more / of), of + more) for count, of in (one, other)]
    return max(low for low, _ in ends) > min(high for _, high in ends)
