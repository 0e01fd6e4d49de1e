"""Runs case programs, and the examples of the rules' pages, on real ranks and compares what they show with what they say.

    python tests/cases/run.py [NAME ...] [--keep FOLDER]

A NAME is a code (`DDP401`), the path of a case or of a program; without one all are run. One line a program, exit code 1 where
one showed something else. Programs with the same launch share one torchrun; see worker.py.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from case import CaseError, Program, Started, programs, read_outcomes
from judge import Shown, holds, load_shown

from ddp_audit.rule import load_rules


def page_programs(folder: Path) -> list[Program]:
    """The bad and good examples of the rules' pages, written to files."""
    found = []
    for rule in load_rules():
        for kind, text, outcome in (("bad", rule.bad, rule.outcome), ("good", rule.good, "clean")):
            path = folder / "page" / rule.code.lower() / f"{kind}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            outcomes = read_outcomes(rule.outcome if rule.outcome.startswith("not-run") else outcome, rule.code)
            found.append(Program(path, f"page-{kind}", rule.code, outcomes=outcomes))
    return found


def chosen(every: Iterable[Program], names: Sequence[str]) -> list[Program]:
    """The programs that some names stand for; all without names. Raises CaseError for a name of none."""
    every = list(every)
    taken: dict[Path, Program] = {}
    for name in names:
        path = Path(name).resolve()
        hits = [p for p in every if p.code == name.upper() or path == p.path.resolve() or path in p.path.resolve().parents]
        if not hits:
            raise CaseError(f"no case is called '{name}'")
        taken |= {program.path: program for program in hits}
    return list(taken.values()) if names else every


def run_all(every: Sequence[Program], folder: Path) -> dict[Path, Shown]:
    """Runs programs, those of one launch together. What each showed, by its path."""
    shown: dict[Path, Shown] = {}
    steps = [program for program in every if program.runs]
    steps += [replace(p, path=r, outcomes=(), started=Started(nproc=1)) for p, r in _references(steps).items()]
    for number, program in enumerate(p for p in steps if not p.started.torchrun):
        shown[program.path] = _run_plain(program, folder / f"plain-{number}")
    jobs = itertools.groupby(sorted((p for p in steps if p.started.torchrun), key=_job), key=_job)
    for number, ((nnodes, nproc), group) in enumerate(jobs):
        together = list(group)
        here = folder / f"job-{number}"
        here.mkdir()
        _start(together, here, nnodes, nproc)
        for place, program in enumerate(together):
            shown[program.path] = load_shown(here, f"{place:03}", nnodes * nproc)
            gradient = here / f"{place:03}.0.gradient"
            if gradient.exists():
                gradient.rename(folder / f"{abs(hash(program.path))}.gradient")
    for program, reference in _references(steps).items():
        shown[program.path].factor = _factor(*(folder / f"{abs(hash(p))}.gradient" for p in (program.path, reference)))
    return shown


def _job(program: Program) -> tuple[int, int]:
    return program.started.nnodes, program.started.nproc


def _references(every: Iterable[Program]) -> dict[Program, Path]:
    return {p: r for p in every if (r := p.path.with_name("reference.py")).exists() and p.path != r}


def _factor(gradient: Path, reference: Path) -> float:
    """By what the first gradient is greater than the reference; nan where they are not proportional."""
    if not gradient.exists() or not reference.exists():
        return float("nan")
    ours, theirs = torch.load(gradient), torch.load(reference)
    factor = float(ours @ theirs / (theirs @ theirs))
    return factor if torch.allclose(ours, factor * theirs, rtol=1e-3, atol=1e-5) else float("nan")


def _start(together: Sequence[Program], folder: Path, nnodes: int, nproc: int) -> None:
    """One torchrun, or one a node, over some programs."""
    plan = []
    for number, program in enumerate(together):
        scratch = folder / f"scratch-{number:03}"
        scratch.mkdir()
        plan.append({
            "name": f"{number:03}", "path": str(program.path.resolve()), "arguments": program.started.arguments, "folder": str(scratch),
            "environment": dict(program.started.environment), "devices": program.devices,
            "count": any(outcome.word == "reductions" for outcome in program.outcomes),
        })  # fmt: skip
    (folder / "plan.json").write_text(json.dumps(plan))
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    worker = [str(Path(__file__).with_name("worker.py").resolve()), str(folder.resolve())]
    agents = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nnodes}", f"--nproc-per-node={nproc}", f"--node-rank={node}",
             "--master-addr=127.0.0.1", f"--master-port={port}", *worker],
            env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for node in range(nnodes)
    ]  # fmt: skip
    said = [agent.communicate(timeout=60 + 25 * len(plan))[0] for agent in agents]
    if any(agent.returncode for agent in agents):
        raise CaseError(f"the run of {len(plan)} programs failed: {said[0][-2000:]}")


def _run_plain(program: Program, folder: Path) -> Shown:
    """Runs a program that spawns its ranks itself. How a single rank ended is not known, only how the whole did."""
    folder.mkdir()
    environment = os.environ | dict(program.started.environment) | {"OMP_NUM_THREADS": "1", "CASE_FOLDER": str(folder)}
    environment |= {"CASE_RECORD": str(folder / "rank"), "CASE_DEVICES": str(program.devices)}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).with_name("spawned").resolve()), environment.get("PYTHONPATH", "")]
    )
    command = [sys.executable, program.path.name, *program.started.arguments]
    where = program.path.parent
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=120, check=False)
    ranks = [json.loads(path.read_text()) for path in sorted(folder.glob("rank.*.json"))]
    error = done.stderr.strip().splitlines()[-1] if done.returncode and done.stderr.strip() else ""
    ends = {"code": done.returncode, "error": error}
    return Shown([facts | ends for facts in ranks] or [ends], [done.stdout + done.stderr])


def judgement(program: Program, shown: dict[Path, Shown], bad: Program | None) -> str:
    """Empty where a program showed what it says; else what is wrong."""
    seen = shown[program.path]
    missing = [f"{o.word} {o.text}".strip() for o in program.outcomes if not holds(o, seen)]
    if missing:
        return f"says {'; '.join(missing)}, showed {seen.summary()}"
    still = [o.word for o in bad.outcomes if o.word != "clean" and holds(o, seen)] if bad is not None else []
    return f"is to mend {', '.join(still)}, and shows it" if still else ""


def report(every: Sequence[Program], folder: Path) -> int:
    """Runs programs and prints a line for each; the number of those that showed something else."""
    shown = run_all(every, folder)
    bads = {p.path.parent: p for p in every if p.kind in ("bad", "page-bad")}
    wrong = 0
    for program in every:
        if not program.runs:
            print(f"not run  {program.name}: {program.hindrance}")
            continue
        bad = bads.get(program.path.parent) if program.kind in ("fixed", "page-good") else None
        difference = judgement(program, shown, bad)
        wrong += bool(difference)
        print(f"{'WRONG' if difference else 'ok'}  {program.name}: {difference or shown[program.path].summary()}")
    runs = sum(program.runs for program in every)
    print(f"{runs - wrong} of {runs} programs showed what they say; {len(every) - runs} cannot run here")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="an empty folder for the records and outputs of the ranks")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return int(report(chosen([*programs(), *page_programs(folder)], args.names), folder) > 0)
        except CaseError as error:
            print(error, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
