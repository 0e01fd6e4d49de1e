"""The benchmark of bugs in distributed training: runs the tools over the programs and writes one table, bugbench.md.

    make bugbench                                  the static tools on all programs, the others on the sample; a quarter of an hour
    make bugbench ARGS='--rules DIR [DIR ..]'      with checkouts of public Semgrep rules
    python benchmarks/bugbench/bugbench.py [--static-only] [--sample PART ..] [--peers PART ..] [--rules DIR ..] [--write]

README.md says what the measures are. Runs of programs under a tool are kept in results.json; with --static-only those of the
dynamic tools are taken from there.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import suite
from dynamic_tools import LIMIT, STALL, dynamic_tools
from intent import CLASSES, ROOT, Intent
from static_tools import Report, Tool, peers, rules_version, this_tool

HERE = Path(__file__).parent
TABLE, RESULTS = HERE / "bugbench.md", HERE / "results.json"


@dataclass(slots=True)
class Score:
    """How a tool did on some programs."""

    bugs: int = 0
    found: int = 0
    stated: int = 0  # bugs that were found and whose places are stated
    at_line: int = 0
    clean: int = 0
    flagged: int = 0  # clean programs with a report
    reports: int = 0
    noise: int = 0  # reports on clean programs, and on bugs those that name no place of it

    @property
    def recall(self) -> float | None:
        return self.found / self.bugs if self.bugs else None

    @property
    def precision(self) -> float | None:
        told = self.found + self.flagged
        return self.found / told if told else None

    @property
    def line_precision(self) -> float | None:
        return self.at_line / self.stated if self.stated else None

    @property
    def noise_a_program(self) -> float | None:
        programs = self.bugs + self.clean
        return self.noise / programs if programs else None


def own_reports(program: Intent, reports: Sequence[Report], twin: Sequence[Report]) -> list[Report]:
    """Those of a bug that its twin does not get too: of each rule the twin may have as many."""
    left = [report.rule for report in twin]
    found = []
    for report in reports:
        if report.rule in left:
            left.remove(report.rule)
        else:
            found.append(report)
    return found


def names_it(program: Intent, report: Report) -> bool:
    """Whether a report stands at a place that the program states."""
    return any({("", line), (path.name, line)} & program.where for path, line in report.places)


def score(tool: Tool, programs: Iterable[Intent]) -> Score:
    """A tool's score on the programs that it was given."""
    given = [program for program in programs if program.path in tool.reports]
    twins = {(program.part, program.pair): program for program in given if program.kind == "twin"}
    result = Score()
    for program in given:
        reports = tool.reports[program.path]
        result.reports += len(reports)
        if program.kind != "bug":
            result.clean += 1
            result.flagged += bool(reports)
            result.noise += len(reports)
            continue
        result.bugs += 1
        twin = twins.get((program.part, program.pair))
        own = own_reports(program, reports, tool.reports[twin.path] if twin else [])
        result.noise += sum(not names_it(program, report) for report in reports) if program.where else 0
        if own:
            result.found += 1
            if program.where:
                result.stated += 1
                result.at_line += any(names_it(program, report) for report in own)
    return result


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def row(name: str, result: Score) -> str:
    """A line of a table."""
    noise = "" if result.noise_a_program is None else f"{result.noise_a_program:.2f}"
    cells = [
        name, f"{result.found} of {result.bugs}", percent(result.recall), f"{result.flagged} of {result.clean}",
        percent(result.precision), percent(result.line_precision), noise,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


HEAD = "| {} | bugs found | recall | clean programs flagged | precision | line precision | noise |\n|---|---|---|---|---|---|---|"


def page(programs: Sequence[Intent], static: Sequence[Tool], dynamic: Sequence[Tool], sample: Sequence[str], rules: str) -> str:
    """The table with what was measured and how."""
    kept = {program.path: program for program in programs}
    ran = [program for program in programs if any(program.path in tool.reports for tool in dynamic)]
    lines = [
        "# Bugs in distributed training, and which tools find them", "",
        f"Made by `make bugbench`; [README.md](README.md) says what the measures are. Python {platform.python_version()}.", "",
        *(f"- {tool.name}: {tool.version or tool.missing}{'; ' + tool.missing if tool.version and tool.missing else ''}"
          for tool in [*static, *dynamic]),
        *([f"- Semgrep's rules: {rules}"] if rules else []), "",
        "## The blind part", "",
        f"{suite.PARTS['blind'].capitalize()}. The dynamic tools ran on the part `{'`, `'.join(sample)}` (two ranks, gloo on",
        f"the CPU, `OMP_NUM_THREADS=1`, a run that stands still for {STALL} seconds is ended, {LIMIT} seconds in all).", "",
        HEAD.format("tool"),
    ]  # fmt: skip
    blind = [program for program in programs if program.part == "blind"]
    lines += [row(tool.name, score(tool, blind)) for tool in [*static, *dynamic] if tool.reports]
    lines += ["", "Which tool finds which (**at line**: at a stated place; found: elsewhere or without a place):", ""]
    shown = [tool for tool in [*static, *dynamic] if tool.reports]
    lines += [f"| bug | effect | {' | '.join(tool.name for tool in shown)} |", "|---" * (2 + len(shown)) + "|"]
    lines += [_bug_row(program, shown, blind) for program in blind if program.kind == "bug"]
    lines += ["", "## Everything", ""]
    for part, text in suite.PARTS.items():
        here = [program for program in programs if program.part == part]
        counts = {kind: sum(program.kind == kind for program in here) for kind in ("bug", "twin", "alike")}
        lines += [
            f"### {part}",
            "",
            f"{text.capitalize()}: {counts['bug']} bugs, {counts['twin']} twins, {counts['alike']} look-alikes.",
            "",
        ]
        measured = [tool for tool in shown if any(kept[path].part == part for path in tool.reports if path in kept)]
        lines += [HEAD.format("tool"), *(row(tool.name, score(tool, here)) for tool in measured), ""]
    lines += ["## By effect and class", "", "All parts; recall of each tool on the programs that it was given.", ""]
    lines += [f"| bugs | {' | '.join(tool.name for tool in shown)} |", "|---" * (1 + len(shown)) + "|"]
    for name, some in _groups(programs):
        cells = [f"{result.found} of {result.bugs}" for tool in shown for result in [score(tool, some)]]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"The dynamic tools ran {len(ran)} programs each.", ""])


def _bug_row(program: Intent, tools: Sequence[Tool], programs: Sequence[Intent]) -> str:
    cells = []
    for tool in tools:
        pair = [other for other in programs if other.pair == program.pair]
        result = score(tool, pair)
        cells.append("not run" if not result.bugs else "**at line**" if result.at_line else "found" if result.found else "no")
    report = f"[{program.pair}]({program.source})" if program.source else program.pair
    return f"| {report} | {program.effect} | {' | '.join(cells)} |"


def _groups(programs: Sequence[Intent]) -> list[tuple[str, list[Intent]]]:
    bugs = [program for program in programs if program.kind == "bug"]
    pairs = {(p.part, p.pair) for p in bugs}
    twins = [p for p in programs if p.kind == "twin" and (p.part, p.pair) in pairs]
    groups = [(effect, [p for p in bugs if p.effect == effect]) for effect in ("hang", "abort", "silent")]
    groups += [(f"class {name}", [p for p in bugs if p.group == name]) for name in CLASSES]
    return [(name, [*some, *twins]) for name, some in groups if some]


def kept_reports(tools: Sequence[Tool]) -> list[dict[str, object]]:
    """The reports of tools as plain data, with paths from the root of this repository."""
    return [
        {
            "tool": tool.name, "version": tool.version, "missing": tool.missing,
            "reports": {
                str(path.relative_to(ROOT)): [
                    [r.rule, [[str(p.resolve().relative_to(ROOT)), n] for p, n in sorted(r.places)]] for r in reports
                ]
                for path, reports in tool.reports.items()
            },
        }
        for tool in tools
    ]  # fmt: skip


def read_kept() -> list[Tool]:
    """The dynamic tools of the last measurement that was written."""
    tools = []
    for entry in json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []:
        reports = {
            ROOT / path: [Report(rule, frozenset((ROOT / file, line) for file, line in places)) for rule, places in said]
            for path, said in entry["reports"].items()
        }
        tools.append(Tool(entry["tool"], entry["version"], entry["missing"], reports))
    return tools


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--static-only", action="store_true", help="run no program; the other tools' results are those that are kept"
    )
    parser.add_argument("--sample", nargs="+", default=["blind"], choices=list(suite.PARTS), help="parts for the dynamic tools")
    parser.add_argument("--rules", nargs="*", type=Path, default=[], metavar="DIR", help="checkouts of Semgrep rules")
    parser.add_argument(
        "--peers", nargs="+", default=list(suite.PARTS), choices=list(suite.PARTS), help="parts for the other linters"
    )
    parser.add_argument("--environment", type=Path, metavar="DIR", help="where the peers are installed (default: a new folder)")
    parser.add_argument("--write", action="store_true", help="write bugbench.md and results.json")
    args = parser.parse_args()
    programs = suite.every_program()
    sample = [program for program in programs if program.part in args.sample and not program.hindrance]
    dynamic = read_kept() if args.static_only else dynamic_tools(sample)
    if args.write and not args.static_only:
        RESULTS.write_text(json.dumps(kept_reports(dynamic), indent=1) + "\n", encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        given = [program for program in programs if program.part in args.peers]
        static = [this_tool(programs), *peers(given, args.environment or Path(folder), args.rules)]
    text = page(programs, static, dynamic, args.sample, rules_version(args.rules))
    print(text)
    if args.write:
        TABLE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
