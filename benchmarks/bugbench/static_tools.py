"""The static tools that are measured: what each reports of the programs, without running them.

The other tools lie in an environment of their own (../bench-requirements.txt). Semgrep's public rules are not in any package: they
are read from checkouts of their repositories, and where none is given Semgrep is not run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from intent import Intent

from ddp_audit import __version__
from ddp_audit.audit import Options, audit

REQUIREMENTS = Path(__file__).parents[1] / "bench-requirements.txt"


@dataclass(frozen=True, slots=True)
class Report:
    """One thing that a tool said of a program."""

    rule: str
    places: frozenset[tuple[Path, int]] = frozenset()  # files and lines; empty where the tool names none


@dataclass
class Tool:
    """A measured tool. `reports` of each program, by its entry file; `missing` says why it was not run."""

    name: str
    version: str = ""
    missing: str = ""
    reports: dict[Path, list[Report]] = field(default_factory=dict)


def this_tool(programs: Iterable[Intent]) -> Tool:
    """Errors and warnings of `ddp-audit check`, with the launch that the program names."""
    tool = Tool("ddp-audit check", __version__)
    before = Path.cwd()
    for program in programs:
        os.chdir(program.path.parent)
        try:
            result = audit([program.path.name], Options(launch=program.launch or None))
        finally:
            os.chdir(before)
        told = [finding for finding in result.findings if finding.severity in ("error", "warning")]
        tool.reports[program.path] = [
            Report(finding.code, frozenset({(program.path.parent / finding.span.path, finding.span.line)})) for finding in told
        ]
    return tool


def peers_in(environment: Path) -> dict[str, str]:
    """Installs the peers into an environment: the version of each, or after a `!` why there is none."""
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
    found = {}
    for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines():
        name, equals, version = line.partition("==")
        if not equals:
            continue
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", line]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found[name] = version if done.returncode == 0 else "!" + (done.stderr.strip().splitlines() or ["pip failed"])[-1][:100]
    return found


def peers(programs: Sequence[Intent], environment: Path, rules: Sequence[Path]) -> list[Tool]:
    """TorchFix, pylint and Semgrep. Each reads all files at once; what it says of a file counts for each program of that folder."""
    versions = peers_in(environment)
    files = sorted({path for program in programs for path in files_of(program)})
    tools = []
    for name, package, run in (
        ("flake8 with TorchFix (TOR)", "TorchFix", _torchfix),
        ("pylint (errors and warnings)", "pylint", _pylint),
        ("Semgrep, public rules", "semgrep", lambda binary, paths: _semgrep(binary, paths, rules)),
    ):
        tool = Tool(name, versions.get(package, ""))
        if tool.version.startswith("!"):
            tool.missing, tool.version = "not installed: " + tool.version[1:], ""
        elif package == "semgrep" and not rules:
            tool.missing = "no checkout of public rules was given"
        else:
            _share(tool, programs, run(environment / "bin", files))
        tools.append(tool)
    return tools


def files_of(program: Intent) -> list[Path]:
    """The files that a program consists of: its entry, and the modules beside it that are no entries themselves."""
    beside = {"blind", "reports"} & {program.part} or (program.part == "scripts" and program.path.name == "train.py")
    return sorted(program.path.parent.glob("*.py")) if beside else [program.path]


def _share(tool: Tool, programs: Sequence[Intent], said: list[Report]) -> None:
    by_file: dict[Path, list[Report]] = {}
    for report in said:
        for path, _ in report.places:
            by_file.setdefault(path.resolve(), []).append(report)
    for program in programs:
        tool.reports[program.path] = [report for path in files_of(program) for report in by_file.get(path.resolve(), [])]


def _torchfix(binary: Path, files: list[Path]) -> list[Report]:
    said = _output([str(binary / "flake8"), "--isolated", "--select", "TOR", "--format", "%(path)s\t%(row)d\t%(code)s"], files)
    rows = [line.split("\t") for line in said.splitlines() if line.count("\t") == 2]
    return [_report(code, path, int(row)) for path, row, code in rows]


def _pylint(binary: Path, files: list[Path]) -> list[Report]:
    command = [str(binary / "pylint"), "--rcfile", os.devnull, "--disable", "C,R,import-error", "--output-format", "json2"]
    said = json.loads(_output(command, files))
    return [_report(message["symbol"], message["absolutePath"], message["line"]) for message in said["messages"]]


def _semgrep(binary: Path, files: list[Path], rules: Sequence[Path]) -> list[Report]:
    command = [
        str(binary / "semgrep"),
        "scan",
        "--metrics",
        "off",
        "--disable-version-check",
        "--quiet",
        "--json",
        "--no-git-ignore",
    ]
    for folder in rules:
        command += ["--config", str(folder)]
    said = json.loads(_output(command, files))
    return [_report(found["check_id"].rpartition(".")[2], found["path"], found["start"]["line"]) for found in said["results"]]


def _report(rule: str, path: str, line: int) -> Report:
    return Report(rule, frozenset({(Path(path), line)}))


def _output(command: list[str], files: list[Path]) -> str:
    environment = os.environ | {"SEMGREP_SEND_METRICS": "off"}
    return subprocess.run(
        [*command, *map(str, files)], capture_output=True, text=True, env=environment, timeout=1800, check=False
    ).stdout


def rules_version(rules: Sequence[Path], describe: Callable[[list[str]], str] | None = None) -> str:
    """The commits of checkouts of rules, by the names of their folders."""
    ask = describe or (lambda command: subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip())
    return ", ".join(
        f"{folder.resolve().name} {ask(['git', '-C', str(folder), 'rev-parse', '--short', 'HEAD']) or '?'}" for folder in rules
    )


if __name__ == "__main__":
    sys.exit("benchmarks/bugbench/bugbench.py runs these")
