"""The families' artifacts: each chunk asked about, the answer judged and, when it is wrong, corrected."""

import contextlib
import os

from narrator_app import ModelError, NarratorError, chat, logged_call, parse_json, role_model

from .correction import correction
from .joining import join_records
from .judging import Candidate
from .prompts import answer_schema, cut_into_chunks, family_prompt, fingerprint, question, questions

MAX_CORRECTIONS = 2  # how often a rejected answer is asked for anew


class RejectedError(ModelError):
    """The notary's answer was still wrong after the last correction; `issues` says what, for operators."""

    def __init__(self, family: str, issues: list):
        after = f"after {MAX_CORRECTIONS} corrections: {issues[0]}. A larger model keeps the rules better"
        super().__init__(f"the {family} records were still rejected {after}")
        self.issues = issues

    def detail(self) -> dict:
        return {**super().detail(), "issues": self.issues}


def notarize(families: list, transcript: dict, remembered=None, tell=lambda *progress: None) -> tuple:
    """The artifacts by family, and by family the error of each that failed, when only one chunk did.

    All families are asked about a chunk before the next one, so that a model reads it once. `remembered` are accepted
    answers by what was asked; `tell` hears what is asked next: how many were done, of how many, the family, and the
    prompt tokens that the model evaluated so far. Raises InputError, SettingError.
    """
    chunks, failed, records, spent = cut_into_chunks(transcript), {}, {family: [] for family in families}, []
    steps = [(chunk, family) for chunk in chunks for family in families]
    for done, (chunk, family) in enumerate(steps):
        if family in failed:
            continue
        tell(done, len(steps), family, sum(spent))
        try:
            records[family].append(chunk_records(family, chunk, remembered or {}, spent))
        except NarratorError as error:
            failed[family] = error
    sound = [family for family in families if family not in failed]
    return {family: artifact(family, records[family], chunks[0].source) for family in sound}, failed


def artifact(family: str, by_chunk: list, source) -> dict:
    """The records of all chunks, and what they came of."""
    about = {"artifact": family, "schema_version": 1, "source_id": source.id, "model": role_model("notary")}
    mark = fingerprint(family, family_prompt(family))
    return {**about, "fingerprint": mark, "records": join_records(family, by_chunk, source)}


def chunk_records(family: str, chunk, remembered: dict, spent: list) -> list:
    """The chunk's records, accepted: as remembered, where they still pass, else asked for.

    It asks at most 1 + MAX_CORRECTIONS times; a correction stands behind the whole question and the answer that was
    rejected. `spent` gets the prompt tokens of each call. Raises ModelError, RejectedError.
    """
    mark = fingerprint(family, family_prompt(family))
    if known := remembered.get(question(mark, chunk.text)):
        candidate = Candidate(family, chunk, *known)
        if not candidate.faults:
            return candidate.records
    messages = asked = questions(family, chunk)
    about = {"family": family, "source_id": chunk.source.id, "chunk": chunk.ends, "fingerprint": mark}
    for _ in range(1 + MAX_CORRECTIONS):
        with logged_call("notary", **about, accepted=False, issues=[]) as record:
            raw = chat("notary", messages, record, format=answer_schema(family), raw=True)
            spent.append(record.get("prompt_eval_count") or 0)
            candidate = Candidate(family, chunk, raw, record["done_reason"])
            record.update(accepted=not candidate.faults, issues=candidate.issues)
        if not candidate.faults:
            return candidate.records
        mended = {"role": "user", "content": correction(candidate.faults)}
        messages = [*asked, {"role": "assistant", "content": raw}, mended]
    raise RejectedError(family, candidate.issues)


def remembered_answers(path: str) -> dict:
    """The accepted answers of a call log, (text, done_reason) by question(); none where it is no file."""
    answers = {}
    with open(path, "rb") if os.path.isfile(path) else contextlib.nullcontext(()) as lines:
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
                record = parse_json(line.decode("utf-8-sig"))
                if record["role"] == "notary" and record["accepted"] is True:
                    key = question(record["fingerprint"], record["messages"][1]["content"])
                    answers[key] = record.get("raw", record["response"]) + "", record["done_reason"]
    return answers


def known_answers(families: list, transcript: dict, remembered: dict) -> int:
    """How many questions of a run have their answer already."""
    marks = [fingerprint(family, family_prompt(family)) for family in families]
    return sum(question(mark, chunk.text) in remembered for chunk in cut_into_chunks(transcript) for mark in marks)
