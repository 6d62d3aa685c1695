"""What the order of asking saves: the same questions with the section first and last, on the understudy's engine.

    python -m notary.benchmark [TRANSCRIPT] [--families N]

The engine keeps what it evaluated of the last prompt, as Ollama does, and evaluates what differs. Each order asks every
family about the first chunk, with answers of a few tokens; printed are the prompt tokens evaluated and the seconds.
"""

import argparse
import time
from pathlib import Path

import narrator_app
import understudy

from . import FAMILIES
from .prompts import cut_into_chunks, family_prompt, questions
from .transcripts import read_transcripts

ANSWER = {"num_predict": 8, "temperature": 0, "seed": 1}  # the prompt is what is measured


def section_first(family: str, chunk) -> list:
    """The question with all that changes from family to family in the system message."""
    return [{"role": "system", "content": family_prompt(family)}, {"role": "user", "content": chunk.text}]


def measure(order, families: list, chunk) -> tuple:
    """Prompt tokens evaluated, and seconds."""
    evaluated, started = 0, time.perf_counter()
    for family in families:
        body = {"model": understudy.MODEL, "messages": order(family, chunk), "options": ANSWER}
        answer = narrator_app.session().post(understudy.URL + "/api/chat", json=body, timeout=600)
        evaluated += answer.json()["prompt_eval_count"]
    return evaluated, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default=Path(__file__).with_name("example.vtt"), metavar="TRANSCRIPT")
    parser.add_argument("--families", type=int, default=len(FAMILIES), metavar="N")
    arguments = parser.parse_args()
    understudy.install(narrator_app.say)
    families = list(FAMILIES)[: arguments.families]
    chunk = cut_into_chunks(read_transcripts([Path(arguments.file)]).transcript)[0]
    narrator_app.session().mount(understudy.URL, understudy.Understudy(cache_prompt=True))
    results = {}
    for name, order in (("section first", section_first), ("section last", questions)):
        results[name] = measure(order, families, chunk)
        print(f"{name:14} {results[name][0]:7,} prompt tokens evaluated  {results[name][1]:6.1f} s", flush=True)
    (first, _), (last, _) = results.values()
    print(
        f"{first / last:.1f} times fewer in {len(families)} families, {len(chunk.text.encode()):,} bytes of transcript"
    )


if __name__ == "__main__":
    main()
