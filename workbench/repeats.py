"""What a narration says again: runs of words that stood in one before."""

import re


def find_repeats(digest: str, prose: str, before) -> list:
    """The runs of six words or more that stand in a narration before, the digest's own aside; then it stands there too.

    `before` is a deque of the narrations before, which it keeps; empty when nothing is said again.
    """
    words, runs = _words_and_runs(prose)
    again = set().union(*(told.intersection(runs) for told in before))
    again.difference_update(_words_and_runs(digest)[1] if again else ())
    before.append(set(runs))
    found = []
    for start, run in enumerate(runs if again else ()):
        if run in again and start and runs[start - 1] in again:
            found[-1] += " " + words[start + 5]
        elif run in again:
            found.append(" ".join(words[start : start + 6]))
    return found


def _words_and_runs(text: str) -> tuple:
    words = re.findall(r"\w[\w'’-]*", text)
    lower = [word.lower() for word in words]  # one by one: İ grows
    return words, list(zip(*(lower[start:] for start in range(6)), strict=False))
