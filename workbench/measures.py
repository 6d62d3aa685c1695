"""What is counted of many calls: failures, laws, latency, verdicts, and how sure the verdicts are."""

import itertools
import json
import math
from collections import Counter
from statistics import NormalDist

from laws import LAWS, find_broken_laws
from narrator_app import SettingError, one_line, say, shorten, why

Z = NormalDist().inv_cdf(0.975)  # of an interval that holds the true rate 95 times of 100
NOT_WHOLE = (LookupError, TypeError, AttributeError, ValueError)  # what reading a record that isn't one raises
FEW = 10  # verdicts say nothing yet when they are fewer


def log_records(path: str, wanted=lambda line: True):
    """The numbers and records of a call log's lines; one that can't be read is named and passed over."""
    try:
        with open(path, "rb") as log:
            for number, line in enumerate(log, 1):
                try:
                    if not line.strip() or not wanted(line):
                        continue
                    record = json.loads(line.removeprefix(b"\xef\xbb\xbf"))
                    if not isinstance(record, dict):
                        raise ValueError("it is no JSON object")
                    yield number, record
                except (ValueError, RecursionError) as error:
                    say(f"line {number} can't be read and is passed over: {shorten(str(error), 100)}")
    except OSError as error:
        raise SettingError(f"can't read {path}: {why(error)}") from error


def is_verdict(line: bytes) -> bool:
    """Whether the line is what somebody said of a call: a quick look, which no call's line passes."""
    return b'"verdict"' in line and b'"messages"' not in line


def logged_laws(record: dict) -> list:
    """The findings of a narrator's record; made now where its line is older than the laws."""
    if not record["ok"]:
        return []
    if "laws" in record:
        return record["laws"]
    return find_broken_laws(record["canon_log"], record["response"], record.get("done_reason"))


def own_text(record: dict) -> str:
    """The model's own text."""
    return record.get("raw", record["response"])


def wilson(alive: int, count: int) -> tuple:
    """The 95 % interval of a rate (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927, p. 209), as two shares of 1."""
    share = alive / count
    middle, spread = share + Z * Z / (2 * count), 1 + Z * Z / count
    width = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    return max(0.0, (middle - width) / spread), min(1.0, (middle + width) / spread)


def rate(alive: int, count: int) -> str:
    """`62 (48–74)`: how many of 100, and the interval; the count alone while that says nothing."""
    if count < FEW:
        return f"too few ({count})" if count else "-"
    low, high = wilson(alive, count)
    return f"{100 * alive / count:.0f} ({100 * low:.0f}–{100 * high:.0f})"


class Tally:
    """What is counted of many calls. Latencies are kept to three digits, so that it stays small."""

    def __init__(self):
        self.calls = self.failures = self.cut_off = self.tokens = self.evaluated = self.same = self.judged = 0
        self.alive = self.verdicts = self.repeats = 0
        self.seconds, self.latencies, self.broken = 0.0, Counter(), Counter()

    def add(self, record: dict, laws: list, same: bool = False, repeats: bool = False) -> None:
        """Count a record. What isn't one raises before anything is counted."""
        latency, tokens = record["latency_ms"] / 1000, (record.get("eval_count") or 0) + 0
        evaluated = (record.get("prompt_eval_count") or 0) + 0
        broken = {finding["law"] + "" for finding in laws} | ({"any"} if laws else set())
        self.calls += 1
        self.failures += not record["ok"]
        self.cut_off += record.get("done_reason") == "length"
        self.same += same
        self.judged += bool(record["ok"] and record["role"] == "narrator")
        self.repeats += repeats
        self.evaluated += evaluated
        self.broken.update(broken)
        if record["ok"]:
            self.latencies[float(f"{latency:.3g}")] += 1
            self.tokens += tokens
            self.seconds += latency

    def percentile(self, share: float) -> float | None:
        """The latency in seconds that this share of the answered calls kept to."""
        wanted = share * sum(self.latencies.values())
        counts = itertools.accumulate(sorted(self.latencies.items()), lambda sum_, item: (item[0], sum_[1] + item[1]))
        return next((latency for latency, count in counts if count >= wanted), None)

    def rows(self) -> dict:
        """The measures by name, as text."""
        per_100 = {law: 100 * count / self.judged for law, count in self.broken.items()} if self.judged else {}
        none = 0.0 if self.judged else None
        return {
            "failures": str(self.failures),
            "cut off": str(self.cut_off),
            "latency, median s": figure(self.percentile(0.5)),
            "latency, 95th s": figure(self.percentile(0.95)),
            "tokens/s": figure(self.tokens / self.seconds if self.seconds else None),
            "prompt tokens": f"{self.evaluated:,}",
            "laws broken, per 100": figure(per_100.get("any", none)),
            **{f"  {law.name}": figure(per_100.get(law.name, none)) for law in LAWS},
            "repeats, per 100": figure(100 * self.repeats / self.judged if self.judged else None),
        }


def figure(number: float | None) -> str:
    return "-" if number is None else f"{number:.1f}" if number < 100 else f"{number:.0f}"


def shorten_middle(name: str) -> str:
    """A model's name as a column's: long ones differ in what stands last."""
    name = one_line(name).strip()
    return name if len(name) <= 48 else f"{name[:16]}…{name[-31:]}"


def table(columns: dict) -> str:
    """Columns of rows() side by side; a law that nobody broke is left out."""
    rows = {
        name: [column.get(name, "-") for column in columns.values()] for column in columns.values() for name in column
    }
    broken = {name: cells for name, cells in rows.items() if name[:2] != "  " or set(cells) - {"0.0", "-"}}
    lines = [["", *columns], *([name, *cells] for name, cells in broken.items())]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    texts = ([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])] for first, *others in lines)
    return "\n".join("  ".join(text).rstrip() for text in texts)
