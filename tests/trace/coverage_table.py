"""The table of docs/coverage.md: what the tracer records of each way to communicate. `make coverage` writes it."""

from __future__ import annotations

import ast
import collections
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ddp_audit.compare.run import RecordedRun
from ddp_audit.events import COLLECTIVE
from ddp_audit.trace.store import load_run

CALLS = Path(__file__).with_name("coverage_calls.py")
PAGE = Path(__file__).parent.parent.parent / "docs" / "coverage.md"
HEAD = "| what a script does | recorded | by origin | line |\n|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Row:
    """What was recorded of one call, on both ranks together. `failed` is what it raised here."""

    name: str
    expected: str
    operations: tuple[str, ...]
    origins: tuple[str, ...]
    placed: bool  # every record has a line of the call's own function
    failed: str = ""

    def __str__(self) -> str:
        if self.failed:
            return f"| {self.name} | not run here ({self.failed}) | | |"
        line = "yes" if self.placed else "no"
        return f"| {self.name} | {', '.join(self.operations) or 'nothing'} | {', '.join(self.origins)} | {line} |"


def functions() -> dict[str, tuple[str, int, int]]:
    """Each call's expected operations and the lines of its function."""
    found = {}
    for node in ast.parse(CALLS.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            decorator = node.decorator_list[0]
            if isinstance(decorator, ast.Call):
                name, expected = (ast.literal_eval(argument) for argument in decorator.args)
                found[name] = (expected, node.lineno, node.end_lineno or node.lineno)
    return found


def trace_calls(folder: Path, kernel: str) -> tuple[RecordedRun, dict[str, str]]:
    """Runs every call under the tracer. Raises CalledProcessError."""
    command = [
        sys.executable, "-m", "ddp_audit", "trace", "--no-check", "--native", kernel, "--stall-after", "60", "--on-stall", "kill",
        "--dir", str(folder / "trace"), "--", sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(CALLS), str(folder),
    ]  # fmt: skip
    subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, capture_output=True, text=True, timeout=280)
    failed: dict[str, str] = json.loads((folder / "failed.0.json").read_text())
    return load_run(folder / "trace"), failed


def rows(run: RecordedRun, failed: dict[str, str]) -> list[Row]:
    """A row for each call, in the order of the file."""
    operations: dict[str, set[str]] = collections.defaultdict(set)
    origins: dict[str, set[str]] = collections.defaultdict(set)
    where = functions()
    for _, event in run.all_events():
        if event.kind != COLLECTIVE:
            continue
        lines = [site.line for site in (event.site, *event.stack) if site is not None and Path(site.path).name == CALLS.name]
        for name, (_, first, last) in where.items():
            if any(first <= line <= last for line in lines):
                operations[name].add(event.op)
                origins[name].add(event.origin)
    made = []
    for name, (expected, _, _) in where.items():
        seen = tuple(sorted(operations[name]))
        made.append(Row(name, expected, seen, tuple(sorted(origins[name])), bool(seen), failed.get(name, "")))
    return made


def page(table: list[Row], unplaced: int) -> str:
    """The page."""
    text = [
        "# What the tracer sees",
        "",
        "Made by a run of two ranks on gloo in which each row is one function (`make coverage`; `tests/trace/coverage_calls.py`), and compared with",
        "a run on each test. `line` says that the records carry lines of that function, also where the autograd engine or another thread issued",
        f"the collective. Collectives of that run without a line of a call: {unplaced}.",
        "",
        HEAD,
        *map(str, table),
        "",
        "Not seen: what passes torch by (MPI, a communication library of its own, a store used as a mailbox), and what a process does that was",
        "not started by the traced command.",
    ]
    return "\n".join(text) + "\n"


def unplaced(run: RecordedRun) -> int:
    """Collectives without any line of the calls' file."""
    return sum(
        event.kind == COLLECTIVE and not any(s is not None and Path(s.path).name == CALLS.name for s in (event.site, *event.stack))
        for _, event in run.all_events()
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run, failed = trace_calls(Path(folder), "off")
    PAGE.write_text(page(rows(run, failed), unplaced(run)), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
