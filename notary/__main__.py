"""The notary: what happened at the table, as records with evidence.

    python -m notary session.vtt --party "Mara (also: Mar), Tobin" -o records.json --page session.html
    python -m notary serve                            the narrator and the notary over HTTP, with the narrator's flags
    python -m notary canon records.json --player Mara -o canon.json

The transcript may be what a recorder, a chat or a spreadsheet gave; several files or a folder are one session's tracks.
"""

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TimeRemainingColumn

import narrator_app
from narrator_app import InputError, NarratorError, SettingError, check_settings, say, setting, stand_in, why

from . import FAMILIES, notarize
from .loop import known_answers, remembered_answers
from .transcripts import Reading, parse_party, read_transcripts, summary


def main(argv: list) -> int:
    """Do what the command line says; the exit status."""
    if argv[:1] == ["serve"]:
        return narrator_app.main(argv[1:])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a run as Ctrl-C does
    try:
        return run_canon(canon_arguments(argv[1:])) if argv[:1] == ["canon"] else run_notary(notary_arguments(argv))
    except NarratorError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        return 130


def notary_arguments(argv: list) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m notary", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a transcript, or the tracks of one session")
    parser.add_argument("--party", help='whose names are the players\': "Mara (also: Mar), Tobin"')
    parser.add_argument("--speaker", help="who speaks where the file doesn't say")
    parser.add_argument(
        "--family", nargs="+", action="extend", choices=FAMILIES, metavar="FAMILY", help="which records"
    )
    parser.add_argument("--dry-run", action="store_true", help="only read it, and print it as JSON to be corrected")
    parser.add_argument("-o", "--output", help="the file to write the records to (default: standard output)")
    parser.add_argument("--page", help="a web page to write for the people at the table")
    parser.add_argument("--understudy", action="store_true", help="answer with a small model inside this process")
    return parser.parse_args(argv)


def run_notary(arguments: argparse.Namespace) -> int:
    """Write the artifacts of a transcript; 1 when a family failed."""
    reading = read_transcripts([Path(file) for file in arguments.files], arguments.party, arguments.speaker)
    say(summary(reading))
    if arguments.dry_run:
        write_text(arguments.output, as_json(reading.transcript))
        return 0
    if arguments.understudy:
        stand_in("understudy")
    log = choose_log(arguments.files[0], arguments.output)
    check_writable(log, arguments.files)
    check_settings()
    for path in filter(None, (arguments.output, arguments.page)):
        check_writable(path, [*arguments.files, log])
    families = [family for family in FAMILIES if family in (arguments.family or FAMILIES)]
    artifacts, refused = ask(families, reading, log)
    write_text(arguments.output, as_json(artifacts))
    if arguments.page:
        from .page import page

        write_text(arguments.page, page(artifacts, reading.transcript, refused))
    return 1 if refused else 0


def ask(families: list, reading: Reading, log: str) -> tuple:
    """All artifacts of the session, and what was refused, in operators' words. Says how far it is."""
    from .custody import custody

    transcript, remembered = reading.transcript, remembered_answers(log)
    with Meter() as meter:
        try:
            known = known_answers(families, transcript, remembered)
            say(f"{known} answers are in {log} already" if known else f"answers are kept in {log}")
            found, failed = notarize(families, transcript, remembered, meter.tell)
        except InputError as error:
            raise by_line(error, reading.places) from error
        except KeyboardInterrupt:
            say(f"interrupted; what was accepted is in {log}, and the same command goes on from there")
            raise
    refused = [
        f"{family}: {line}" for family, error in failed.items() for line in (error, *getattr(error, "issues", ()))
    ]
    for line in refused:
        say(line)
    artifacts = list(found.values())
    if "item-occurrences" in found:
        artifacts.append(custody(artifacts, transcript["party"]))
    session = {"artifact": "session", "schema_version": 1, "source_id": transcript["source_id"]}
    return [*artifacts, {**session, "party": transcript["party"], "units": len(transcript["units"])}], refused


class Meter:
    """How far a run is, on standard error: a bar with the time left in a terminal, else a line a question."""

    def __enter__(self):
        console = Console(stderr=True)
        self.bar = Progress(
            *Progress.get_default_columns()[:-1],
            TimeRemainingColumn(),
            console=console,
            transient=True,
            speed_estimate_period=86400,
        )
        self.task, self.live = self.bar.add_task("", total=None), console.is_terminal
        if self.live:
            self.bar.start()
        return self

    def tell(self, done: int, total: int, family: str, evaluated: int) -> None:
        text = f"{family}, question {done + 1} of {total}, {evaluated:,} prompt tokens evaluated"
        self.bar.update(self.task, completed=done, total=total, description=text)
        if not self.live:
            say(text)

    def __exit__(self, *_):
        self.bar.stop()


def choose_log(first: str, output: str | None) -> str:
    """The call log's path: CALL_LOG_PATH, else a file beside the output or the input, else in this folder."""
    if not setting("CALL_LOG_PATH"):
        name = f"{Path(first).resolve().stem}.calls.jsonl"
        folders = [Path(output or first).resolve().parent, Path.cwd()]
        os.environ["CALL_LOG_PATH"] = str(
            next((f / name for f in folders if os.access(f, os.W_OK)), folders[-1] / name)
        )
    return setting("CALL_LOG_PATH")


def by_line(error: InputError, places: list | None) -> InputError:
    """The error with the lines of a plain text in place of its units."""
    for fault in error.errors if places else ():
        start, _, number = fault["path"].rstrip("]").partition("$.units[")
        if not start and number.isdigit():
            fault["path"] = f"line {places[int(number)]}"
    return InputError(error.key, error.errors)


def as_json(value) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def check_writable(path: str, read: list) -> None:
    """Say before the work that its fruit can't be kept, or would replace what is read. Raises SettingError."""
    if Path(path).resolve() in [Path(file).resolve() for file in read]:
        raise SettingError(f"can't write {path}: it is read by this run, so choose another name")
    if Path(path).is_dir() or not os.access(path if os.path.exists(path) else Path(path).resolve().parent, os.W_OK):
        raise SettingError(f"can't write {path}: it must be a file in a folder that can be written to")


def write_text(path: str | None, text: str) -> None:
    """The text into a file that is there once it is whole, or on standard output. Raises SettingError."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        if path is None and sys.stdout is None:
            raise OSError(0, "it is closed")
        if path is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        elif os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device stays what it is
            Path(path).write_bytes(data)
        else:
            target = Path(path).resolve()
            part = target.with_name(f".{target.name}.{os.getpid()}.part")
            part.write_bytes(data)
            os.replace(part, target)
    except OSError as error:
        raise SettingError(f"can't write {path or 'standard output'}: {why(error)}") from error


def canon_arguments(argv: list) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m notary canon", description="Draft a canon log from records.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="what the notary wrote, in the order of the sessions")
    parser.add_argument("--player", help="which of the party the player is")
    parser.add_argument("--party", help="the party, when it isn't the session's: \"Mara (also: Mar), Tobin\"")
    parser.add_argument("-o", "--output", help="the file to write the canon log to (default: standard output)")
    return parser.parse_args(argv)


def run_canon(arguments: argparse.Namespace) -> int:
    """Write a canon log that the narrator takes; what didn't get in is named."""
    from .canon import draft, read_artifacts

    artifacts = [artifact for file in arguments.files for artifact in read_artifacts(Path(file))]
    party = parse_party(arguments.party) if arguments.party is not None else None
    canon_log, left_out = draft(artifacts, arguments.player, party)
    for line in left_out:
        say(line)
    write_text(arguments.output, as_json(canon_log))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
