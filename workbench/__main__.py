"""The workbench: what a call log says.

python -m workbench audit calls.jsonl blind.jsonl       which laws were broken, how alive it felt, at what price
python -m workbench replay calls.jsonl --model llama3.2 -o report.html >again.jsonl
"""

import argparse
import contextlib
import itertools
import os
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from narrator_app import (
    NarratorError,
    SettingError,
    check_settings,
    parse_prompt,
    read_file,
    role_model,
    say,
    shorten,
    system_prompt,
    use_understudy,
    why,
)

from .audit import audit, columns, sentences
from .measures import Tally, shorten_middle, table
from .replay import replay, replayable
from .report import Report


def main(argv: list | None = None) -> int:
    """Do what the command line says; the exit status."""
    arguments = parse_arguments(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a replay as Ctrl-C does
    try:
        return arguments.run(arguments)
    except NarratorError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        return 130


def parse_arguments(argv: list | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m workbench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="audit|replay")
    auditor = commands.add_parser("audit", help="what logs say of each model and prompt")
    auditor.add_argument("files", nargs="+", metavar="LOG", help="call logs, and what people said of them")
    auditor.add_argument("--show", action="store_true", help="list what broke a law or was said again")
    auditor.set_defaults(run=run_audit)
    player = commands.add_parser(
        "replay", help="send a log's calls again; each answer is a log line on standard output"
    )
    player.add_argument("file", metavar="LOG", help="a call log")
    player.add_argument("--model", nargs="+", action="extend", metavar="MODEL", help="to whom (default: as logged)")
    player.add_argument("--render", action="store_true", help="make digest and prompt anew from the logged canon log")
    player.add_argument("--prompt", metavar="FILE", help="with this system prompt; implies --render")
    player.add_argument("--role", help="only this role's calls")
    player.add_argument("--limit", type=int, metavar="N", help="only the first N calls")
    player.add_argument("-o", "--output", metavar="FILE", help="a page with the old and the new answers side by side")
    player.add_argument("--understudy", action="store_true", help="answer with a small model inside this process")
    player.set_defaults(run=run_replay)
    return parser.parse_args(argv)


def run_audit(arguments: argparse.Namespace) -> int:
    """Print the measures of each model and prompt side by side, and what the verdicts say."""

    def show(number, law, text):
        if arguments.show:
            put(f"line {number}: {shorten(law, 40)}: {shorten(text, 120)}\n")

    tallies, verdicts = audit(arguments.files, show)
    if not tallies:
        raise SettingError(f"{', '.join(arguments.files)} has no narrations")
    put("\n".join([table(columns(tallies)), "", *sentences(tallies, verdicts)]).rstrip() + "\n")
    return 0


def put(text: str) -> None:
    """On standard output, as UTF-8 whatever the machine's locale is."""
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains again at its end
        raise SettingError(f"can't write standard output: {why(error)}") from error


def run_replay(arguments: argparse.Namespace) -> int:
    """Replay, then say how the models compare; 1 when a call failed, 130 when interrupted, with what was done."""
    if arguments.understudy:
        use_understudy()
    os.environ["CALL_LOG_PATH"] = ""  # the answers are lines on standard output
    check_settings()
    prompt = read_file(Path(arguments.prompt), parse_prompt) if arguments.prompt else None
    if arguments.render and not prompt:
        prompt = system_prompt("narrator")
    models = arguments.model or [role_model("narrator") if arguments.understudy else None]
    limit = count_calls(arguments, prompt)
    page = open_page(arguments.output) if arguments.output else contextlib.nullcontext()
    bar = Progress(console=Console(stderr=True), transient=True)
    with page as file, tempfile.TemporaryFile("w+", encoding="utf-8", errors="backslashreplace") as turns:
        comparison = Comparison(Report(Path(arguments.file).name, turns), bar, limit * len(models))
        with bar:
            try:
                replay(arguments.file, models, prompt, arguments.role, limit, comparison.add)
            except KeyboardInterrupt:
                comparison.status = 130  # what is done is shown
        comparison.finish(file)
    return comparison.status


def open_page(path: str):
    try:
        return open(path, "wb")
    except OSError as error:
        raise SettingError(f"can't write {path}: {why(error)}") from error


def count_calls(arguments: argparse.Namespace, prompt: str | None) -> int:
    """How many calls will be replayed. Raises SettingError when that is none, or can't be."""
    if not os.path.isfile(arguments.file):
        raise SettingError(f"can't read {arguments.file}: it must be a file, for it is read more than once")
    if arguments.output and os.path.realpath(arguments.output) == os.path.realpath(arguments.file):
        raise SettingError("the page can't be written over the log")
    limit = None if arguments.limit is None else max(arguments.limit, 0)
    calls = sum(1 for _ in itertools.islice(replayable(arguments.file, prompt, arguments.role), limit))
    if not calls:
        raise SettingError(f"{arguments.file} has no calls to replay")
    return calls


class Comparison:
    """What a replay adds up to, before and after, told while it goes on."""

    def __init__(self, report: Report, bar: Progress, total: int):
        self.report, self.bar, self.total, self.before, self.after, self.status = report, bar, total, {}, {}, 0
        self.task = bar.add_task("", total=total)

    def add(self, round_: int, turn) -> None:
        self.report.add(turn)
        role = "" if turn.new["role"] == "narrator" else f" ({turn.new['role']})"
        if round_ == 0:
            self.before.setdefault(f"before{role}", Tally()).add(turn.old, turn.old_laws, repeats=turn.repeats[0])
        name = shorten_middle(turn.new["model"]) + role
        self.after.setdefault(name, Tally()).add(turn.new, turn.new_laws, turn.same, turn.repeats[1])
        self.bar.update(self.task, advance=1, description=turn.new["model"])
        if not self.bar.console.is_terminal:
            say(f"{turn.new['model']} ({self.report.counts['all']} of {self.total})")
        if not turn.new["ok"] and not self.status:
            say(f"the first failure: {turn.new['error']}")
            self.status = 1

    def finish(self, page) -> None:
        tallies = {**self.before, **self.after}
        same = {name: str(tally.same) if name in self.after else "-" for name, tally in tallies.items()}
        totals = table(
            {
                name: {"calls": str(tally.calls), "same as before": same[name], **tally.rows()}
                for name, tally in tallies.items()
            }
        )
        say(f"replayed\n{totals}")
        if page:
            self.report.write(page, totals)


if __name__ == "__main__":
    sys.exit(main())
