"""`torchrun .. -m ddp_audit.preflight [options] SCRIPT ARGS`: the same checks where the launcher cannot be wrapped.

The ranks meet at the job's own address; rank 0 prints the report. The launchers of several nodes do not meet here: torchrun itself
waits for its nodes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from ddp_audit.launch import world_launch
from ddp_audit.preflight.job import read_job
from ddp_audit.preflight.launcher import Preflight
from ddp_audit.preflight.probe import run_rank
from ddp_audit.preflight.report import as_object, lines, report_of
from ddp_audit.preflight.settings import DEFAULT_DIRECTORY, DEFAULT_TIMEOUT, Settings, seconds

_USAGE = (
    "usage: torchrun ... -m ddp_audit.preflight [--dir DIR] [--timeout SECONDS] [--quick] [--backend NAME] [--data PATH] "
    "[--shared PATH] [--format text|json] SCRIPT [ARGS ...]"
)


def main() -> None:
    """Rank 0 exits with 1 where a problem was found; every rank with 2 where the words cannot be followed."""
    words = sys.argv[1:]
    if words[:1] in (["-h"], ["--help"]):
        print(_USAGE)
        return
    given: dict[str, list[str]] = {}
    quick = False
    while words and words[0].startswith("--"):
        option, equals, value = words.pop(0).partition("=")
        if option == "--quick":
            quick = True
            continue
        if option not in ("--dir", "--timeout", "--backend", "--data", "--shared", "--format") or not (equals or words):
            _refuse(_USAGE)
        given.setdefault(option, []).append(value if equals else words.pop(0))
    if not words or not Path(words[0]).is_file():
        _refuse(f"ddp-audit: {words[0]}: no such file" if words else _USAGE)
    last = {option: values[-1] for option, values in given.items()}
    try:
        timeout = seconds(last.get("--timeout", str(DEFAULT_TIMEOUT)))
    except ValueError:
        _refuse(f"ddp-audit: --timeout takes a number of seconds, not '{last['--timeout']}'")
    settings = Settings(
        directory=last.get("--dir", DEFAULT_DIRECTORY),
        run=os.environ.get("TORCHELASTIC_RUN_ID", "0").encode().hex()[:12],
        timeout=timeout,
        quick=quick,
        script=words[0],
        backend=last.get("--backend"),
        data=tuple(given.get("--data", ())),
        shared=tuple(given.get("--shared", ())),
    )
    Path(settings.directory).mkdir(parents=True, exist_ok=True)
    if os.environ.get("RANK", "0") != "0":
        run_rank(settings, words[1:])
        return
    sys.exit(_whole(settings, words, last.get("--format", "text")))


def _whole(settings: Settings, words: list[str], form: str) -> int:
    """Rank 0: the checks, and the report on all ranks."""
    began = time.monotonic()
    world = os.environ.get("WORLD_SIZE", "1")
    launch = replace(world_launch(int(world) if world.isdecimal() else 1), script=words[0], script_args=tuple(words[1:]))
    reading = read_job(launch, Path(words[0]))
    settings = replace(settings, backend=settings.backend or reading.backend, roots=reading.roots)
    job = run_rank(settings, words[1:])
    flight = Preflight(words, launch, settings, reading=reading, started=True)
    flight.job = None if job is None else json.loads(json.dumps(job))
    flight.seconds = time.monotonic() - began
    report = report_of(flight)
    print(json.dumps(as_object(report), indent=2, ensure_ascii=False) if form == "json" else "\n".join(lines(report)), flush=True)
    return report.exit_code


def _refuse(text: str) -> NoReturn:
    print(text, file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
