"""Audits every Python file and notebook of some folders, each alone, and reports what no file may bring about.

    python benchmarks/hard.py FOLDER.. [--every N] [--project]

For each file holds what `tests/fuzz/contract.py` says: no exception, findings in order and inside the file, reports that are well
formed, fixes that leave a file which can be read, suppressions that suppress. A process does the work, so that a crash of the
interpreter is seen as well. A file is long where its audit makes more than MOST_CALLS calls of functions a line: the calls are
counted, not the seconds, once an audit took long enough to be worth it. Of every tenth file the report is compared with that of
a second process, in which sets have another order. `--project` lets a file import what lies beside it. Exit code 1 where
something was reported.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import json
import os
import select
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LONG_ENOUGH = 2.0  # CPU seconds of an audit from which its calls are counted
MOST_CALLS = 20_000  # a line
PATIENCE = 600  # CPU seconds without an answer; on the clock ten times that, as another process may have the machine
AGAIN = 10


def files_of(folders: list[str]) -> Iterator[Path]:
    """The files of folders, in order. Installed packages below a folder are not its own."""
    for folder in map(Path, folders):
        found = sorted(folder.rglob("*")) if folder.is_dir() else [folder]
        for path in found:
            below = path.relative_to(folder).parts
            if path.suffix in (".py", ".ipynb") and not {"site-packages", "__pycache__", ".git"}.intersection(below):
                yield path


class Worker:
    """A process that audits file by file; `ask` starts another one where it ended."""

    def __init__(self, hash_seed: int, project: bool) -> None:
        self.line = [sys.executable, __file__, "--worker", *(["--project"] if project else [])]
        self.environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, path: Path) -> dict[str, Any]:
        """What the audit of a file came to."""
        if self.process is None:
            self.process = subprocess.Popen(self.line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(os.fsencode(path).hex().encode() + b"\n")
        self.process.stdin.flush()
        ready = self._answers(self.process)
        answer = self.process.stdout.readline() if ready else b""
        if answer:
            return dict(json.loads(answer))
        self.process.kill()
        code = self.process.wait()
        self.process = None
        return {"fault": f"the process ended with {code}" if ready else f"no answer in {PATIENCE} CPU seconds"}

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        """Waits for an answer as long as there is patience."""
        began, used = time.monotonic(), _cpu_of(process.pid)
        while not select.select([process.stdout], [], [], 5)[0]:
            if _cpu_of(process.pid) - used > PATIENCE or time.monotonic() - began > 10 * PATIENCE:
                return False
        return True

    def end(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def _cpu_of(pid: int) -> float:
    """The CPU seconds of a process that runs or was not waited for, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def work(project: bool) -> None:
    """Answers paths on standard input, one JSON object each on standard output."""
    sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
    from contract import ALONE, audited, uphold

    for line in sys.stdin:
        file = os.fsdecode(bytes.fromhex(line.strip()))
        path = str(Path(file).absolute() if project else Path(ALONE, Path(file).name))
        data = Path(file).read_bytes()
        answer: dict[str, Any] = {"fault": None, "error": None, "calls": 0}
        began = time.process_time()
        try:
            result = uphold(data, path)
            answer["error"] = result.errors[0].message if result.errors else None
            answer["findings"] = len(result.findings)
            answer["read"] = sum(len(lines) for lines in result.sources.values())  # imported files too
            told = [finding.to_json() for finding in result.findings] + [str(error) for error in result.errors]
            answer["digest"] = hashlib.sha256(json.dumps([told, result.notes]).encode()).hexdigest()
            if time.process_time() - began > LONG_ENOUGH:
                profile = cProfile.Profile()
                profile.runcall(audited, path, {path: data})
                answer["calls"] = sum(entry.callcount for entry in profile.getstats())
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = next((frame for frame in reversed(frames) if "ddp_audit" in frame.filename), frames[-1])
            place = f"{os.path.relpath(own.filename, ROOT)}:{own.lineno}"
            answer["fault"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]} at {place}"
        answer["lines"] = data.count(b"\n") + 1
        answer["cpu"] = time.process_time() - began
        print(json.dumps(answer), flush=True)


def main() -> int:
    """Audits, and prints what was found."""
    parser = argparse.ArgumentParser(description="Audits every Python file of folders alone and reports crashes.")
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="only each Nth file")
    parser.add_argument("--project", action="store_true", help="follow imports into the file's project")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.project)
        return 0
    totals = Totals()
    try:
        audit_all(list(files_of(args.folders))[:: args.every], args.project, totals)
    except KeyboardInterrupt:
        print("interrupted; so far:")
    totals.show()
    return int(bool(totals.faults))


@dataclass
class Totals:
    """What was counted: files, lines and findings, the errors of reading by their text, and the faults as lines."""

    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def show(self) -> None:
        """Prints all of it."""
        print(", ".join(f"{name}: {count:,}" for name, count in self.counts.items()))
        for kind, count in self.kinds.most_common(15):
            print(f"  {count:5} {kind}")
        print(f"{len(self.faults)} faults")


def audit_all(files: list[Path], project: bool, totals: Totals) -> None:
    """Audits files and adds what came of it to the totals; prints faults as they come."""
    first, second = Worker(1, project), Worker(2, project)
    try:
        for number, path in enumerate(files):
            answer = first.ask(path)
            fault = answer["fault"]
            if fault is None and number % AGAIN == 0:
                again = second.ask(path)
                totals.counts["audited twice"] += 1
                same = again["fault"] is None and again["digest"] == answer["digest"]
                fault = again["fault"] or (None if same else "another report with another order of sets")
            lines = answer.get("lines", 1)
            read = answer.get("read") or lines
            if fault is None and answer["calls"] > MOST_CALLS * read:
                fault = f"long: {answer['calls']:,} calls for {read:,} lines"
            totals.counts["files"] += 1
            totals.counts["lines"] += lines
            totals.counts["findings"] += answer.get("findings", 0)
            if answer.get("error"):
                totals.counts["not readable, in one line"] += 1
                totals.kinds[answer["error"].split("(")[0][:60]] += 1
            if number % 500 == 499:
                print(f"{number + 1:,} files, at {path}", file=sys.stderr, flush=True)
            if fault is not None:
                totals.faults.append(f"{path}: {fault}")
                print(totals.faults[-1], flush=True)
    finally:
        first.end()
        second.end()


if __name__ == "__main__":
    sys.exit(main())
