"""The page of a replay: both texts side by side, what changed marked, and a way to judge them blind."""

import difflib
import re
import secrets
from pathlib import Path

import bottle

TEMPLATE = Path(__file__).with_name("page.html.tpl")
# Controls, and the marks that turn the direction of writing: with them a text could pose as what stands around it.
STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def write_page(path: Path, log: str, totals: str, turns: list) -> None:
    template = bottle.SimpleTemplate(TEMPLATE.read_text(encoding="utf-8"), escape_func=as_text)
    page = template.render(log=log, totals=totals, turns=turns, marked=marked, nonce=secrets.token_urlsafe())
    path.write_bytes(page.encode("utf-8", "backslashreplace"))


def as_text(text: str) -> str:
    """What the template's double braces give: text, never markup, and no sign that steers a reader."""
    return bottle.html_escape(STEERING.sub("\ufffd", text))


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
