"""The notary: a session's transcript in, records with evidence out.

Importing it gives the service a second role and the route POST /notary/<family>:

    python -m notary session.vtt --party "Mara, Tobin" -o records.json --page session.html
    python -m notary serve            the narrator and the notary on one port
    gunicorn notary:app               the same under another server

A file for each job, in the order an answer travels: transcripts, prompts, loop, judging, correction, joining.
"""

from pathlib import Path

from narrator_app import ROLES, RequestError, app, read_body, read_input

from .families import FAMILIES
from .loop import notarize
from .prompts import check_prompts
from .shape import check_transcript, transcript_validator

MAX_TRANSCRIPT = 16 * 2**20  # bytes of one posted transcript

ROLES["notary"] = {
    "prompt": str(Path(__file__).with_name("notary.md")),
    "model": None,  # the narrator's
    "options": {"temperature": 0, "num_predict": 4096, "num_ctx": 16384},
    "think": False,
    "keep_alive": "30m",
    "timeout": ("OLLAMA_NOTARY_TIMEOUT_SECONDS", 300),
    "check": check_prompts,
}


@app.post("/notary/<family>")
def post_notary(family):
    if family not in FAMILIES:
        raise RequestError(404, f"there is no such family; the families are {', '.join(FAMILIES)}")
    transcript = check_transcript(read_input(read_body(MAX_TRANSCRIPT), transcript_validator(), "transcript"))
    artifacts, failed = notarize([family], transcript)
    if failed:
        raise failed[family]
    return artifacts[family]
