"""Runs training scripts under `ddp-audit trace` and says how far the prediction of each agrees with its record.

    python tests/under_trace/under_trace.py [NAME ...] [--corpus DIR] [--keep DIR] [--write]

The scripts are those of scripts/, and with --corpus the public ones of public.tsv. One line a script: it agrees to the end, it ended
early and says why, or it disagrees. Exit code 1 where a script did worse than standing.tsv says, or ended otherwise than its header.
--keep keeps the records: another run with the same folder predicts again and starts nothing. --write writes standing.tsv.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
PUBLIC = HERE / "public.tsv"
STANDING = HERE / "standing.tsv"
LAUNCH = "torchrun --standalone --nproc-per-node 2"
SECONDS = 240  # for one script, most of it the start of processes on a busy machine
AGREES, EARLY, DISAGREES, NOT_RUN = "agrees", "ended early", "disagrees", "not run"
WORDS = {"agreed-to-end": AGREES, "agreed-until": EARLY, "disagrees": DISAGREES}
COLUMNS = ("repository", "commit", "path", "arguments", "launch", "ends")
_HEADER = re.compile(r"# (ends|launch): (.+)")


class AgreementError(Exception):
    """A header or a table that cannot be read, or a name of no script."""


@dataclass(frozen=True, slots=True)
class Script:
    """A training script, how it is started, and how its run ends: `completes`, `hangs`, or `raises TEXT`. Empty: not known."""

    path: Path
    name: str
    launch: str
    ends: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one script. `why` says what was not followed, or what differs; `wrong` how the run ended otherwise than said."""

    name: str
    result: str
    why: str = ""
    wrong: str = ""


def own_scripts() -> Iterator[Script]:
    """The scripts of this folder: files, and `train.py` of folders."""
    for path in sorted([*SCRIPTS.glob("*.py"), *SCRIPTS.glob("*/train.py")]):
        yield read_script(path)


def read_script(path: Path) -> Script:
    """The script in a file, from the comment lines at its head. Raises AgreementError."""
    lines = path.read_text(encoding="utf-8").splitlines()[:2]
    header = dict(match.groups() for line in lines if (match := _HEADER.fullmatch(line)))
    if not re.fullmatch(r"completes|hangs|raises .+", header.get("ends", "")):
        raise AgreementError(f"{path} says not how it ends")
    name = str(path.relative_to(SCRIPTS).with_suffix(""))
    return Script(path, name, header.get("launch", f"{LAUNCH} {path.name}"), header["ends"])


def public_scripts(corpus: Path) -> list[Script]:
    """The public scripts whose checkout is in a folder; one line names the rest. Raises AgreementError, also where it has none."""
    found: list[Script] = []
    missing: list[str] = []
    for row in _public_rows():
        path = corpus / row["repository"].replace("/", "__") / row["path"]
        name = f"{row['repository']}/{row['path']}"
        if path.is_file():
            words = row["launch"] or f"{LAUNCH} {path.name} {row['arguments']}"
            found.append(Script(path, name, words.strip(), row["ends"]))
        else:
            missing.append(name)
    if not found:
        raise AgreementError(f"{corpus} has no script of {PUBLIC.name}, which are looked for in owner__name/path")
    if missing:
        print(f"left out, not in {corpus}: {', '.join(missing)}", file=sys.stderr)
    return found


def _public_rows() -> list[dict[str, str]]:
    try:
        text = PUBLIC.read_text(encoding="utf-8")
    except OSError as error:
        raise AgreementError(f"{PUBLIC} cannot be read: {error.strerror}") from None
    table = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    rows = list(table)
    if tuple(table.fieldnames or ()) != COLUMNS or any(None in row or None in row.values() for row in rows):
        raise AgreementError(f"{PUBLIC} does not have the columns {', '.join(COLUMNS)} in each line")
    return rows


def trace(script: Script, folder: Path) -> Outcome:
    """Runs a script traced and reads what the report says; where the folder holds its record already, only predicts again."""
    report = folder / "report.json"
    if report.is_file():
        found = json.loads(report.read_text(encoding="utf-8"))
        found["prediction"] = _predicted_again(script, folder)
    else:
        found = _run(script, folder)
    if not isinstance(found.get("prediction"), dict):
        return Outcome(script.name, NOT_RUN, str(found.get("why", "nothing was predicted")))
    prediction = found["prediction"]
    result = WORDS[prediction["result"]]
    difference = prediction.get("where") or prediction.get("why") or ""
    return Outcome(script.name, result, "" if result == AGREES else difference, _ended_otherwise(script, found))


def _words(script: Script) -> list[str]:
    words = script.launch.split()
    return [sys.executable, *(["-m", "torch.distributed.run"] if words[0] == "torchrun" else []), *words[1:]]


def _run(script: Script, folder: Path) -> dict[str, Any]:
    record = folder / "record"
    shutil.rmtree(record, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "ddp_audit", "trace", "--format", "json", "--stall-after", "0", "--dir", str(record.resolve())]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        run = subprocess.run(
            [*command, "--", *_words(script)],
            cwd=script.path.parent, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(run.stdout)
    except subprocess.TimeoutExpired:
        return {"why": f"it did not end in {SECONDS} seconds"}
    except ValueError:
        return {"why": " ".join((run.stderr or run.stdout).split())[-200:]}
    (folder / "report.json").write_text(json.dumps({key: found.get(key) for key in ("ranks", "prediction", "complete")}))
    return found


def _predicted_again(script: Script, folder: Path) -> dict[str, Any] | None:
    words = ["-m", "ddp_audit", "trace", "--", *_words(script)][4:]
    code = (
        "import json, sys\n"
        "from ddp_audit.cli.prediction_check import as_object, check_prediction\n"
        "from ddp_audit.cli.recorded import compared_trace\n"
        "run, _ = compared_trace(sys.argv[1])\n"
        "run.make_events()\n"
        "found = check_prediction(sys.argv[2:], run)\n"
        "print(json.dumps(None if found is None else as_object(found)))\n"
    )
    again = subprocess.run(
        [sys.executable, "-c", code, str((folder / "record").resolve()), *words],
        cwd=script.path.parent, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    if again.returncode:
        raise AgreementError(f"{script.name} could not be predicted again: {again.stderr[-2000:]}")
    found: dict[str, Any] | None = json.loads(again.stdout)
    return found


def _ended_otherwise(script: Script, found: dict[str, Any]) -> str:
    """How a run ended, where its header says something else."""
    ranks = found.get("ranks") or {}
    errors = [f"{rank.get('error') or ''} {rank.get('last') or ''}" for rank in ranks.values()]
    codes = [rank.get("code") for rank in ranks.values()]
    if script.ends == "completes":
        as_said = codes and not any(codes) and all(rank["state"] == "exited" for rank in ranks.values())
    elif script.ends == "hangs":
        as_said = any("Timed out" in error or "closed by peer" in error or "timeout" in error.lower() for error in errors)
    else:
        as_said = not script.ends or any(script.ends.removeprefix("raises ") in error for error in errors)
    return "" if as_said else f"{script.ends}, and ended so: {'; '.join(error.strip() for error in errors)[:200]} {codes}"


def run_all(scripts: Sequence[Script], keep: Path, jobs: int = 2) -> list[Outcome]:
    """Runs scripts, two at a time. What came of each, in their order."""
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda script: trace(script, keep / script.name.replace("/", "__")), scripts))


def standing() -> dict[str, str]:
    """What came of each script when the table was written."""
    with STANDING.open(encoding="utf-8", newline="") as lines:
        return {row["script"]: row["result"] for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)}


def worse(outcome: Outcome, before: dict[str, str]) -> bool:
    """Whether a script did worse than the table says."""
    order = [AGREES, EARLY, DISAGREES, NOT_RUN]
    return outcome.name in before and order.index(outcome.result) > order.index(before[outcome.name])


def write(outcomes: Sequence[Outcome], before: dict[str, str]) -> None:
    """Writes the table; scripts that did not take part keep their row."""
    rows = before | {outcome.name: outcome.result for outcome in outcomes}
    lines = ["script\tresult", *(f"{name}\t{result}" for name, result in sorted(rows.items()))]
    STANDING.write_text("\n".join(lines) + "\n", encoding="utf-8")


def report(outcomes: Sequence[Outcome], before: dict[str, str]) -> int:
    """Prints a line a script and the counts; the number of those that did worse or ended otherwise."""
    failed = 0
    for outcome in outcomes:
        fell = worse(outcome, before)
        failed += fell or bool(outcome.wrong)
        notes = [*([f"was: {before[outcome.name]}"] if fell else []), *([f"says it {outcome.wrong}"] if outcome.wrong else [])]
        print(f"{outcome.result:12} {outcome.name}{': ' if outcome.why else ''}{outcome.why}", *notes, sep="\n    ")
    counts = Counter(outcome.result for outcome in outcomes)
    print(f"{len(outcomes)} scripts: " + ", ".join(f"{counts[word]} {word}" for word in (AGREES, EARLY, DISAGREES, NOT_RUN)))
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="a folder of checkouts, owner__name each")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where records are kept, and found again")
    parser.add_argument("--write", action="store_true", help="write standing.tsv")
    args = parser.parse_args(arguments)
    own = list(own_scripts())
    try:
        public = public_scripts(args.corpus) if args.corpus else []
    except AgreementError as error:
        print(error, file=sys.stderr)
        return 2
    unknown = set(args.names) - {script.name for script in [*own, *public]}
    if unknown:
        print(f"no script is called {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if args.names:
        own, public = ([script for script in scripts if script.name in args.names] for scripts in (own, public))
    before = standing()
    with tempfile.TemporaryDirectory() as temporary:
        keep = args.keep or Path(temporary)
        outcomes = [*run_all(own, keep), *run_all(public, keep, jobs=1)]  # public ones share the port of the tutorials
    failed = report(outcomes, before)
    if args.write:
        write(outcomes, before)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
