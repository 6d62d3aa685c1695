"""The page of a replay: both texts side by side, what changed marked, and a way to judge them blind."""

import difflib
import re
from collections import Counter
from pathlib import Path
from typing import BinaryIO, TextIO

import bottle

from .replay import Turn

TEMPLATE = Path(__file__).with_name("report.html.tpl")


class Report:
    """A page of Turns; `turns` is a file that keeps them until the totals, which stand on top, are known."""

    def __init__(self, name: str, turns: TextIO):
        self.name, self.turns = name, turns
        head, self.article, self.foot = TEMPLATE.read_text(encoding="utf-8").split("%# -----\n")
        self.head, self.counts = head, Counter(all=0, different=0, worse=0, failed=0)

    def add(self, turn: Turn) -> None:
        is_so = {"different": not turn.same, "worse": turn.worse, "failed": not turn.new["ok"]}
        kinds = [kind for kind, is_it in is_so.items() if is_it]
        self.counts.update(["all", *kinds])
        old, new = marked(told(turn.old), told(turn.new))
        asks = turn.old["ok"] and turn.new["ok"] and turn.change is None and not turn.same
        self.turns.write(
            bottle.template(
                self.article,
                kinds=kinds,
                turn=turn,
                old=old,
                new=new,
                asks=asks,
                tag={"old": "del", "new": "ins"},
                laws={"old": turn.old_laws, "new": turn.new_laws},
                facts={"old": price(turn.old, None), "new": price(turn.new, turn.change)},
            )
        )

    def write(self, page: BinaryIO, totals: str) -> None:
        def put(text):
            page.write(text.encode("utf-8", "backslashreplace"))

        put(bottle.template(self.head, name=self.name, totals=totals, counts=self.counts))
        self.turns.seek(0)
        for text in iter(lambda: self.turns.read(2**16), ""):
            put(text)
        put(self.foot)


def told(record: dict) -> str:
    text = record["response"] if record["ok"] else f"({record.get('error', 'failed')})"
    steering = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
    return re.sub(steering, "\ufffd", text)  # or a text would turn the page around


def price(record: dict, change: dict | None) -> str:
    """What stands below a text: model, latency, and of records what changed."""
    changes = [f"{kind}: {', '.join(names)}" for kind, names in (change or {}).items() if names]
    return " · ".join([record["model"], f"{record['latency_ms'] / 1000:.1f} s", *changes])


def marked(old: str, new: str) -> tuple:
    """Both texts as (marked, text) pieces: marked is what the other one hasn't got, word by word."""
    one, other, pieces = re.findall(r"\s+|\S+", old), re.findall(r"\s+|\S+", new), ([], [])
    if max(len(one), len(other)) > 5000:  # comparing takes the square of it
        return [(old != new, old)], [(old != new, new)]
    for kind, i, j, k, m in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        for side, words in ((0, one[i:j]), (1, other[k:m])):
            if words:
                pieces[side].append((kind != "equal", "".join(words)))
    return pieces
