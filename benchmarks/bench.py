"""What an audit costs beside other tools, cold and warm, on a script and on trees: writes benchmarks/bench.md and bench.json.

    make bench                 a script, a generated training repository, trees of about 50,000, 500,000 and 2 million lines
    make bench TREE=DIR        your folder in place of the two trees
    python benchmarks/bench.py [--tree DIR] [--limit SECONDS] [--runs N] [--write]

The tools (bench-requirements.txt) are installed into an environment of their own; one that cannot be installed, or that cannot run
here, is reported as such. All commands of a subject take turns in one run, so that a machine that changes its speed changes it for
all of them; the least CPU time (user and system, children included) of the runs counts. A command that takes more CPU time than the
limit is stopped and told as "over". Everything runs with one process (`--jobs 1`, where a tool has such an option).

The script is the reference trainer's style at 300 lines; the generated repository has many scripts that import shared modules. The
trees are the standard library (to 50,000 lines) and torch with it (to 500,000), whose files hardly name distributed training in the
former and often in the latter, and copies of the standard library (to 2 million), no two files of which are equal: a tool that
keeps what it knows of a content would read one copy only. Sizes stand in the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "bench-requirements.txt"
OVER = -1000
LONG = 4.0  # CPU seconds from which on a command is run once on a subject; the first, short one is for the bytecode too
RULE = """\
rules:
  - id: guarded-collective
    languages: [python]
    severity: WARNING
    message: a collective under a test of the rank
    pattern: |
      if $RANK == 0:
          ...
          $DIST.barrier()
          ...
"""
SCRIPT = """\
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
{imports}

{blocks}

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = [(torch.randn(4), torch.randn(1)) for _ in range(64)]
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(Net0(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        if rank == 0:
            torch.save(model.module.state_dict(), "last.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
BLOCK = """\
class Net{number}(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = torch.nn.Linear(width, width)
        self.second = torch.nn.Linear(width, 1)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def prepare{number}(values, scale=1.0):
    total = 0.0
    for index, value in enumerate(values):
        if index % 2:
            total += value * scale
        else:
            total -= value
    return total


"""


@dataclass
class Subject:
    """Something to read: a file or a folder, of so many files and lines."""

    name: str
    path: Path
    files: int = 0
    lines: int = 0
    changed: Path | None = None  # a file that may be changed
    like: str = ""  # the subject whose CPU seconds a line tell what this one would take; the slowest one where there is none


@dataclass
class Measure:
    """CPU and wall seconds of one tool on one subject, the least of the runs; `note` where there is none."""

    tool: str
    subject: str
    state: str  # cold, warm, one file changed
    cpu: float | None = None
    wall: float | None = None
    runs: int = 0
    note: str = ""


@dataclass
class Tool:
    """How a tool reads a path. `cache` is the folder that makes it warm, `codes` with which exit codes it did its work."""

    name: str
    command: Callable[[Path], list[str]]
    missing: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    cache: Path | None = None
    codes: tuple[int, ...] = (0, 1)


def run(command: list[str], limit: float, environment: dict[str, str], folder: Path) -> tuple[float, float, int]:
    """CPU seconds, wall seconds and the exit code, OVER where the limit of CPU seconds was passed."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))

    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=nowhere, stderr=nowhere, preexec_fn=bounded, start_new_session=True
        )
        try:
            code = process.wait(timeout=limit * 30)  # of a machine that others use
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = -signal.SIGXCPU
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.monotonic() - began, OVER if code in (-signal.SIGXCPU, -signal.SIGKILL) or cpu > limit else code


def tools_in(environment: Path, caches: Path) -> list[Tool]:
    """The audit and the others, those that could not be installed with the reason."""
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
    missing: dict[str, str] = {}
    for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines():
        if "==" in line:
            command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", line]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                missing[line.split("==")[0]] = (done.stderr.strip().splitlines() or ["pip failed"])[-1][:100]
    rule = caches / "rule.yaml"
    rule.write_text(RULE)
    binary = environment / "bin"
    own = {"DDP_AUDIT_CACHE": str(caches / "ddp-audit")}
    others = {
        "ruff": Tool(
            "Ruff (--select F)",
            lambda path: [str(binary / "ruff"), "check", "--isolated", "--select", "F", "--no-fix", str(path)],
            environment={"RUFF_CACHE_DIR": str(caches / "ruff"), "RAYON_NUM_THREADS": "1"},
            cache=caches / "ruff",
        ),
        "ruff with nothing to say": Tool(
            "Ruff (--select E902, which finds nothing)",
            lambda path: [str(binary / "ruff"), "check", "--isolated", "--select", "E902", "--no-fix", str(path)],
            environment={"RUFF_CACHE_DIR": str(caches / "ruff-quiet"), "RAYON_NUM_THREADS": "1"},
            cache=caches / "ruff-quiet",
        ),
        "semgrep": Tool(
            "Semgrep (one local rule)",
            lambda path: [
                *(str(binary / "semgrep"), "scan", "--config", str(rule), "--metrics", "off", "--disable-version-check"),
                *("--quiet", "--jobs", "1", "--no-git-ignore", str(path)),
            ],
            environment={"SEMGREP_SEND_METRICS": "off", "HOME": str(caches)},
        ),
        "pylint": Tool(
            "pylint (--errors-only)",
            lambda path: [
                str(binary / "pylint"),
                "--rcfile",
                os.devnull,
                "--errors-only",
                "--recursive",
                "y",
                "--jobs",
                "1",
                str(path),
            ],
            environment={"PYLINTHOME": str(caches / "pylint")},
            codes=tuple(range(32)),
        ),
        "TorchFix": Tool(
            "flake8 with TorchFix",
            lambda path: [str(binary / "flake8"), "--isolated", "--jobs", "1", str(path)],
        ),
    }
    for name, tool in others.items():
        tool.missing = missing.get(name.split()[0], "")
    audit = Tool(
        "ddp-audit",
        lambda path: [sys.executable, "-m", "ddp_audit", "check", str(path), "--jobs", "1", "--format", "json"],
        environment=own,
        cache=caches / "ddp-audit",
        codes=(0, 1, 2),
    )
    return [audit, *others.values()]


def measured(
    tools: list[Tool], subject: Subject, limit: float, runs: int, caches: Path, expected: dict[str, float]
) -> list[Measure]:
    """Each tool in turns: cold, and where it has a cache warm, and after a change of one file of a subject that may be changed.

    `expected` has the CPU seconds that a tool would take by what it took a line before: far beyond the limit it is not run.
    """
    found: dict[tuple[str, str], Measure] = {}
    base = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    base["PYTHONPYCACHEPREFIX"] = str(caches / "bytecode")  # bytecode is kept, as it is where tools are installed
    ended: set[str] = set()
    for turn in range(runs + 1):  # the first one fills the file cache, and the bytecode
        for tool in tools:
            states = ["cold", "warm", *(["one file changed"] if subject.changed else [])] if tool.cache else ["cold"]
            for state in states:
                measure = found.setdefault((tool.name, state), Measure(tool.name, subject.name, state))
                if tool.missing:
                    measure.note = f"not installed: {tool.missing}"
                elif expected.get(tool.name, 0) > 1.5 * limit:
                    measure.note = f"not run, about {expected[tool.name]:,.0f} by the lines before"
                    ended.add(tool.name)
                if tool.missing or tool.name in ended:
                    continue
                if state == "cold" and tool.cache is not None:
                    shutil.rmtree(tool.cache, ignore_errors=True)
                if state == "one file changed" and subject.changed is not None:
                    with subject.changed.open("a", encoding="utf-8") as stream:
                        stream.write("# changed\n")
                cpu, wall, code = run(tool.command(subject.path), limit, {**base, **tool.environment}, subject.path.parent)
                is_long = (cpu > LONG and subject.lines > 1_000) or (
                    state != "cold" and measure.runs < found[tool.name, "cold"].runs
                )
                if code == OVER or code not in tool.codes:
                    measure.note = f"over {limit:.0f} s" if code == OVER else f"does not run here (exit code {code})"
                    ended.add(tool.name)
                elif turn or is_long:
                    measure.cpu = min(cpu, measure.cpu or cpu)
                    measure.wall = min(wall, measure.wall or wall)
                    measure.runs += 1
            if tool.name not in ended and (first := found[tool.name, "cold"].cpu) is not None and first > LONG:
                ended.add(tool.name)
    return list(found.values())


# Subjects


def script(folder: Path) -> Path:
    """A training script of about 300 lines."""
    folder.mkdir(parents=True)
    path = folder / "train.py"
    path.write_text(SCRIPT.format(imports="", blocks="".join(BLOCK.format(number=number) for number in range(13))))
    return path


def repository(folder: Path, scripts: int) -> Path:
    """A repository with scripts of 150 lines, each of which imports three of the shared modules."""
    shared = folder / "common"
    shared.mkdir(parents=True)
    (shared / "__init__.py").write_text("")
    for number in range(30):
        text = "import torch\n\n\n" + "".join(BLOCK.format(number=f"{number}{part}") for part in range(8))
        (shared / f"part{number}.py").write_text(text)
    for number in range(scripts):
        names = [(number + step) % 30 for step in (0, 7, 13)]
        imports = "\n".join(f"from common.part{name} import Net{name}0, prepare{name}0" for name in names)
        blocks = "".join(BLOCK.format(number=part) for part in range(5))
        (folder / f"train{number}.py").write_text(SCRIPT.format(imports=imports, blocks=blocks))
    return folder


def tree(folder: Path, sources: list[Path], lines: int) -> Path:
    """Copies of packages' Python files, up to about so many lines."""
    left = lines
    for source in sources:
        for path in sorted(source.rglob("*.py")):
            inner = path.relative_to(source.parent)
            if left <= 0 or {"site-packages", "test", "tests", "lib2to3", "idlelib"} & set(inner.parts):
                continue
            data = path.read_bytes()
            target = folder / inner
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            left -= data.count(b"\n")
    return folder


def copies(folder: Path, source: Path, lines: int) -> Path:
    """Whole copies of a package's Python files, as many as have so many lines, each file with a line that tells its copy."""
    number = left = 0
    while left < lines:
        part = tree(folder / f"copy{number}", [source], lines)
        for path in part.rglob("*.py"):
            with path.open("ab") as stream:
                stream.write(f"\n# copy {number}\n".encode())
        left += sum(path.read_bytes().count(b"\n") for path in part.rglob("*.py"))
        number += 1
    return folder


def sized(name: str, path: Path) -> Subject:
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return Subject(name, path, len(files), sum(file.read_bytes().count(b"\n") for file in files), files[len(files) // 2])


def subjects(work: Path, given: Path | None) -> list[Subject]:
    found = [sized("a script", script(work / "script")), sized("a training repository", repository(work / "repository", 60))]
    if given is not None:
        return [*found, replace(sized(str(given), given.resolve()), changed=None)]
    standard = Path(sysconfig.get_path("stdlib"))
    spec = find_spec("torch")
    sources = [standard] if spec is None or spec.origin is None else [Path(spec.origin).parent, standard]
    part = sized("the standard library, a part", tree(work / "tree50", [standard], 50_000))
    found.append(part)
    found.append(sized("torch" if len(sources) > 1 else "the standard library", tree(work / "tree500", sources, 500_000)))
    many = sized("the standard library, several times", copies(work / "tree2000", standard, 2_000_000))
    found.append(replace(many, like=part.name))
    return found


# The table


def table(subjects: list[Subject], measures: list[Measure], limit: float) -> str:
    """The Markdown page."""
    names = list(dict.fromkeys((measure.tool, measure.state) for measure in measures))
    by_place = {(measure.tool, measure.state, measure.subject): measure for measure in measures}
    head = [f"{subject.name}: {subject.files:,} files, {subject.lines:,} lines" for subject in subjects]
    lines = [
        "# What an audit costs beside other tools",
        "",
        f"CPU seconds (user and system; wall seconds in brackets), least of the runs, one process each, in turns on one machine. "
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.0f}: ratios count. `over` is a tool "
        f"that was stopped after {limit:.0f} CPU seconds. Made by `make bench`.",
        "",
        "| tool | " + " | ".join(head) + " |",
        "|---|" + "---|" * len(subjects),
    ]
    for tool, state in names:
        cells = []
        for subject in subjects:
            measure = by_place[tool, state, subject.name]
            cells.append(measure.note if measure.cpu is None else f"{measure.cpu:.2f} ({measure.wall:.1f})")
        lines.append(f"| {tool}, {state} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, help="a folder to read in place of the trees")
    parser.add_argument("--limit", type=float, default=60, help="CPU seconds that a command may take")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--environment", type=Path, default=HERE.parent / ".venv-bench", help="where the tools are installed")
    parser.add_argument("--write", action="store_true", help="write benchmarks/bench.md and bench.json")
    options = parser.parse_args()
    if options.tree is not None and not options.tree.is_dir():
        print(f"{options.tree} is no folder", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        work, caches = Path(name), Path(name, "caches")
        caches.mkdir()
        tools = tools_in(options.environment.resolve(), caches)
        chosen = subjects(work / "subjects", options.tree)
        measures: list[Measure] = []
        by_line: dict[str, dict[str, float]] = {}  # CPU seconds a line of each tool by subject
        done: list[Subject] = []
        for subject in chosen:
            print(f"{subject.name}: {subject.files:,} files, {subject.lines:,} lines", file=sys.stderr)
            runs = options.runs if subject.lines < 100_000 else 1
            expected = {
                tool: rates.get(subject.like, max(rates.values())) * subject.lines
                for tool, rates in by_line.items()
                if subject.lines > 10_000
            }
            for measure in measured(tools, subject, options.limit, runs, caches, expected):
                measures.append(measure)
                if measure.cpu is not None and measure.state == "cold" and subject.lines > 10_000:
                    by_line.setdefault(measure.tool, {})[subject.name] = measure.cpu / subject.lines
                print(f"  {measure.tool}, {measure.state}: {measure.note or f'{measure.cpu:.2f}'}", file=sys.stderr)
            done.append(subject)
            page = table(done, measures, options.limit)
            if options.write:  # after each subject: what was measured stays when the rest is broken off
                write(page, done, measures, options.limit)
    print(page)
    return 0


def write(page: str, subjects: list[Subject], measures: list[Measure], limit: float) -> None:
    (HERE / "bench.md").write_text(page, encoding="utf-8")
    document = {
        "python": platform.python_version(),
        "limit": limit,
        "subjects": [{"name": s.name, "files": s.files, "lines": s.lines} for s in subjects],
        "measures": [asdict(measure) for measure in measures],
    }
    (HERE / "bench.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
