"""The workbench: what a call log says.

python -m workbench audit calls.jsonl blind.jsonl        which laws were broken, how alive it felt, at what price
python -m workbench replay calls.jsonl --model llama3.2 -o page.html >again.jsonl
"""

import argparse
import os
import signal
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

import narrator_app
from narrator_app import NarratorError, SettingError, say, shorten

from .audit import audit, table
from .page import write_page
from .replay import replay, replayable, totals
from .verdicts import sentences


def main(argv: list | None = None) -> int:
    """Do what the command line says; the exit status."""
    arguments = parse_arguments(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a replay as Ctrl-C does
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # whatever the machine's own is
    try:
        return arguments.run(arguments)
    except NarratorError as error:
        say(str(error))
    except OSError as error:
        if not error.filename:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains again at its end
        say(f"can't read or write {error.filename or 'standard output'}: {error.strerror}")
    except KeyboardInterrupt:
        return 130
    return 2


def parse_arguments(argv: list | None) -> argparse.Namespace:
    whole = argparse.RawDescriptionHelpFormatter  # the docstring as it stands
    parser = argparse.ArgumentParser("python -m workbench", description=__doc__, formatter_class=whole)
    commands = parser.add_subparsers(required=True, metavar="audit|replay")
    auditor = commands.add_parser("audit", help="what call logs say of each model and prompt")
    auditor.add_argument("logs", nargs="+", metavar="LOG", help="call logs, and verdicts that a page saved")
    auditor.add_argument("--show", action="store_true", help="list what broke a law or was said again")
    auditor.set_defaults(run=run_audit)
    player = commands.add_parser("replay", help="send a log's calls again; answers are log lines on standard output")
    player.add_argument("log", metavar="LOG", help="a call log")
    player.add_argument("--model", nargs="+", action="extend", metavar="MODEL", help="to whom (default: as logged)")
    player.add_argument("--render", action="store_true", help="make digest and prompt anew from the logged canon log")
    player.add_argument("--prompt", metavar="FILE", help="with this system prompt; implies --render")
    player.add_argument("--role", help="only this role's calls")
    player.add_argument("--limit", type=int, default=10**9, metavar="N", help="only the first N calls")
    player.add_argument("-o", "--output", metavar="PAGE", help="a page with the old and the new answers side by side")
    player.add_argument("--understudy", action="store_true", help="answer with a small model inside this process")
    player.set_defaults(run=run_replay)
    return parser.parse_args(argv)


def run_audit(arguments: argparse.Namespace) -> int:
    """Print the measures of each model and prompt side by side, and what the verdicts say."""
    tallies, blind = audit(arguments.logs, print if arguments.show else None)
    if not tallies:
        raise SettingError(f"{', '.join(arguments.logs)}: no narrations to count")
    columns = {name: tally.rows("narrations") for name, tally in tallies.items()}
    print(table(columns), *sentences(tallies, blind), sep="\n", flush=True)
    return 0


def run_replay(arguments: argparse.Namespace) -> int:
    """Replay, then say how the models compare, also when it is broken off; 1 when a call failed."""
    if arguments.understudy:
        narrator_app.stand_in("understudy")
    os.environ["CALL_LOG_PATH"] = ""  # the answers are lines on standard output
    narrator_app.check_settings()
    prompt = narrator_app.system_prompt("narrator") if arguments.render else None
    if arguments.prompt:
        prompt = narrator_app.read_file(Path(arguments.prompt), narrator_app.parse_prompt)
    calls = replayable(arguments.log, arguments.role, prompt is not None)[: max(arguments.limit, 0)]
    if not calls:
        raise SettingError(f"{arguments.log}: no calls to replay")
    if arguments.output and os.path.realpath(arguments.output) == os.path.realpath(arguments.log):
        raise SettingError("the page can't be written over the log")
    open(arguments.output or os.devnull, "ab").close()  # raises before the work, not after it
    models = arguments.model or [narrator_app.role_model("narrator") if arguments.understudy else None]
    turns = []
    try:
        follow(replay(calls, models, prompt), turns, len(calls) * len(models))
    finally:  # also after Ctrl-C, or when standard output is full
        comparison = table(totals(turns))
        say(f"replayed\n{comparison}")
        if arguments.output:
            write_page(Path(arguments.output), Path(arguments.log).name, comparison, turns)
    return int(any(not turn.new["ok"] for turn in turns))


def follow(replayed, turns: list, total: int) -> None:
    """Add each Turn to `turns`; how far it is, with the time left, stands on standard error."""
    live = sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=not live, speed_estimate_period=86400) as bar:
        task = bar.add_task("replay", total=total)
        for turn in replayed:
            turns.append(turn)
            bar.advance(task)
            if not live:
                model, left = shorten(turn.new["model"], 60), bar.tasks[0].time_remaining
                say(f"{len(turns)} of {total}, {model}" + (f", about {left:.0f} s left" if left else ""))
            if not turn.new["ok"] and all(one.new["ok"] for one in turns[:-1]):
                say(f"the first failure: {turn.new['error']}")


if __name__ == "__main__":
    sys.exit(main())
