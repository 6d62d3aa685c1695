"""Which model keeps the laws, at what price, and which feels alive: logs that were played, without a judge."""

import io
import json
import os
import re
from collections import Counter, deque

from rich.console import Console
from rich.table import Table

from laws import LAWS, find_broken_laws
from narrator_app import SettingError, one_line, say, shorten

from .verdicts import compare_blind, keep_verdict, rate

BEFORE = 5  # narrations of the same model in which a repeat is looked for
NOT_WHOLE = (LookupError, TypeError, AttributeError, ValueError, RecursionError)  # what reading a line may raise


def audit(paths: list, show=None) -> tuple:
    """The narrations' Tally by model and prompt, and the blind pairs of two such. Only verdicts are kept one by one."""
    alive, pairs, tallies, told = {}, set(), {}, {}
    for_each_line(paths, lambda line, where: keep_verdict(line, alive, pairs), verdicts=True)
    names = dict.fromkeys([*alive, *(call for _, *calls, _ in pairs for call in calls)])

    def count(record: dict, where: str) -> None:
        if record.get("role") != "narrator":
            return
        call, name = record.get("id"), f"{one_line(record['model'])}\n{record.get('prompt_sha256', '')[:8]}".strip()
        findings, tally, felt = find_all(record, told), tallies.get(name) or Tally(), alive.get(call)
        tally.add(record, findings, verdicts=bool(felt), alive=bool(felt and felt[1]))
        tallies[name] = tally
        names.update({call: name} if call in names else {})
        for finding in findings if show else ():
            show(f"{where}: {shorten(finding['law'], 40)}: {shorten(finding['text'], 120)}")

    for_each_line(paths, count)
    if unknown := [call for call, name in names.items() if not name]:
        say(f"{len(unknown)} judged calls stand in none of these logs, such as {shorten(unknown[0], 40)}")
    return tallies, compare_blind(pairs, names)


def for_each_line(paths: list, take, verdicts: bool = False) -> None:
    """Give `take` each call, or verdict, and where it stands; a line that can't be read is named and passed over."""
    for path in paths:
        if os.path.exists(path) and not os.path.isfile(path):
            raise SettingError(f"{path} must be a file: it is read twice")
        with open(path, "rb") as log:
            for number, line in enumerate(log, 1):
                try:
                    if line.strip() and verdicts == (b'"verdict"' in line and b'"messages"' not in line):
                        take(json.loads(line), f"{path} line {number}")
                except NOT_WHOLE as error:
                    say(f"{path} line {number} is passed over: {shorten(f'{type(error).__name__} {error}', 99)}")


class Tally:
    """What is counted of many calls. Latencies are kept to three digits, so that it stays small."""

    def __init__(self):
        self.count, self.latencies, self.broken = Counter(calls=0), Counter(), Counter()

    def add(self, record: dict, findings: list, **more) -> None:
        """Count a call, and more by name. What isn't a whole record raises before anything is counted."""
        seconds, ok, broken = record["latency_ms"] / 1000, record["ok"], {finding["law"] + "" for finding in findings}
        tokens, read = ((record.get(key) or 0) + 0 for key in ("eval_count", "prompt_eval_count"))
        self.count.update(calls=1, failures=not ok, cut_off=record.get("done_reason") == "length", read=read, **more)
        if ok:
            self.count.update(tokens=tokens, seconds=seconds, narrations=record["role"] == "narrator")
            self.latencies[float(f"{seconds:.3g}")] += 1
            self.broken.update(broken | ({"laws"} if broken - {"repeats"} else set()))

    def rows(self, calls: str) -> dict:
        """The measures by name, as text; `calls` is what the calls are named."""
        count, narrations = self.count, self.count["narrations"]
        return {
            calls: f"{count['calls']}",
            "same as before": f"{count.get('same', '-')}",
            "failures": f"{count['failures']}",
            "cut off": f"{count['cut_off']}",
            "latency, median s": self.latency(0.5),
            "latency, 95th s": self.latency(0.95),
            "tokens/s": figure(count["tokens"], count["seconds"]),
            "prompt tokens": f"{count['read']:,}",
            "laws broken, per 100": figure(100 * self.broken["laws"], narrations),
            **{f"  {law.name}": figure(100 * self.broken[law.name], narrations) for law in LAWS},
            "repeats, per 100": figure(100 * self.broken["repeats"], narrations),
            "verdicts": f"{count['verdicts'] or '-'}",
            "alive, per 100": rate(count["alive"], count["verdicts"]),
        }

    def latency(self, share: float) -> str:
        """The seconds that this share of the answered calls kept to."""
        ordered = sorted(self.latencies.elements())
        return figure(ordered[-1 - int((1 - share) * len(ordered))], 1) if ordered else "-"


def figure(count: float, of: float) -> str:
    return f"{count / of:.{1 if count / of < 100 else 0}f}" if of else "-"


def find_all(record: dict, told: dict) -> list:
    """What is wrong with a narration: laws that it broke, as logged or else found now, and what was `told` before."""
    if record["role"] != "narrator" or not record["ok"]:
        return []
    laws = record.get("laws")
    if laws is None:  # the line is older than the laws
        laws = find_broken_laws(record["canon_log"], record["response"], record.get("done_reason"))
    before = told.setdefault(record["model"], deque(maxlen=BEFORE))
    runs = find_repeats(record["messages"][1]["content"], record["response"], before)
    return [*laws, *({"law": "repeats", "text": run} for run in runs)]


def find_repeats(digest: str, prose: str, before: deque) -> list:
    """The runs of six words or more that stand in a prose `before` and not in the digest; `before` gets this prose."""
    words, runs = runs_of_six(prose)
    again = set().union(*before).intersection(runs)
    again.difference_update(runs_of_six(digest)[1] if again else ())
    before.append(set(runs))
    places = {start + place for start, run in enumerate(runs) if run in again for place in range(6)}
    said = " ".join(word if place in places else "|" for place, word in enumerate(words))
    return [run.strip() for run in said.split("|") if run.strip()]


def runs_of_six(text: str) -> tuple:
    """Its words, and any six that stand together, in small letters."""
    words = re.findall(r"\w[\w'’-]*", text)
    small = [word.lower() for word in words]  # one by one: İ becomes two
    return words, list(zip(*(small[start:] for start in range(6)), strict=False))


def table(columns: dict) -> str:
    """Columns of rows() side by side, as wide as they are; what none has, and laws that none broke, are left out."""
    grid, text = Table(box=None, pad_edge=False), io.StringIO()
    grid.add_column()
    for name in columns:
        grid.add_column(name, justify="right")
    for row in next(iter(columns.values()), ()):
        cells = [column[row] for column in columns.values()]
        if set(cells) - ({"-", "0.0"} if row[:2] == "  " else {"-"}):
            grid.add_row(row, *cells)
    Console(file=text, width=10_000, force_terminal=False, markup=False, emoji=False).print(grid)
    return text.getvalue().rstrip()
