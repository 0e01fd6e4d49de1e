"""Count what the readings of public training scripts do not know and had to know.

    python benchmarks/ledger/ledger.py --corpus DIR

The scripts are those of scripts.tsv whose checkout lies in DIR/owner__name; those of the part `counted` are counted apart, and
nobody looks at them. Prints the tables; --write puts them into ledger.md, --examples N shows more places, --only TEXT all places of
a cause.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

SCRIPTS = Path(__file__).with_name("scripts.tsv")
PAGE = Path(__file__).with_name("ledger.md")
READ, COUNTED = "read", "counted"
CPU_SECONDS = 120  # for one script
_MOST_ROWS = 40


@dataclass(slots=True)
class Entry:
    """What came of one script. `ends` is how its predicted run ends, `reached` how far it came."""

    repository: str
    path: str
    part: str
    ends: str = "not read"
    reached: list[str] = field(default_factory=list)
    losses: dict[str, list[dict[str, str]]] = field(default_factory=dict)  # of each engine
    failure: str = ""
    seconds: float = 0.0


def one(path: str) -> dict[str, Any]:
    """The losses of the script at a path, read from the current folder, for the process that is started for it."""
    from ddp_audit.audit import Options, project_of
    from ddp_audit.entries import Job, context_of
    from ddp_audit.explore.exact import predict
    from ddp_audit.explore.main_line import main_line
    from ddp_audit.explore.proof import CHECKED, job_of_script
    from ledger.matters import Reach
    from ledger.programs import losses_of
    from ledger.runs import watched

    project = project_of([path], Options())
    if not project.entries:
        return {"failure": "no entry"}
    entry = project.entries[0]
    context = context_of(Job(project, ()), entry, [])
    job, _ = main_line(job_of_script(project, entry, None, {}, CHECKED))
    with watched() as seen:
        run = predict(job)
    reach = Reach((source.path, source.tree) for source in project.files)
    found = {(loss.what, loss.place): loss for watch in seen.values() for loss in watch.losses.values()}
    losses = [loss for loss in found.values() if loss.what == "call" or reach.decides(loss.place)]
    ends = [{"what": "end", "cause": f"cut: {why}", "place": ""} for why in list(dict.fromkeys(run.cut.values()))[:1]]
    events = [event for sequence in run.sequences.values() for event in sequence]
    reached = [word for word, there in (
        ("group", run.why != "no process group is made"), ("wrapper", any(event.origin == "ddp-constructor" for event in events)),
        ("step", any(event.kind == "step" for event in events)),
    ) if there]  # fmt: skip
    program = [] if context is None else [asdict(loss) for loss in losses_of(context.program)]
    return {"ends": run.kind, "reached": reached, "losses": {"run": [*map(asdict, losses), *ends], "program": program}}


def ask(row: dict[str, str], corpus: Path) -> Entry:
    """Reads one script in a process of its own."""
    entry = Entry(row["repository"], row["path"], row["part"])
    folder = corpus / row["repository"].replace("/", "__")
    if not (folder / row["path"]).is_file():
        entry.failure = "absent"
        return entry
    command = [sys.executable, str(Path(__file__).resolve()), "--one", row["path"]]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    try:
        run = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=20 * CPU_SECONDS, check=False, env=environment,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS)),
        )  # fmt: skip
        for key, value in json.loads(run.stdout.splitlines()[-1]).items():
            setattr(entry, key, value)
    except subprocess.TimeoutExpired:
        entry.failure = "time"
    except (ValueError, IndexError):
        entry.failure = " ".join(run.stderr.split())[-200:] or f"exit {run.returncode}"
    return entry


def table(entries: Sequence[Entry], engine: str, examples: int, rows: int = _MOST_ROWS) -> list[str]:
    """Deciding unknowns of one engine by their first cause, the most frequent first."""
    numbers: Counter[tuple[str, str]] = Counter()
    scripts: dict[tuple[str, str], set[str]] = defaultdict(set)
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in entries:
        for loss in entry.losses.get(engine, ()):
            key = loss["cause"], loss["what"]
            numbers[key] += 1
            scripts[key].add(f"{entry.repository}/{entry.path}")
            places[key].append(f"{entry.repository} {loss['place']}")
    lines = [
        "| first cause | decides | unknowns | scripts |" + (" examples |" if examples else ""),
        "|---|---|---|---|" + ("---|" if examples else ""),
    ]
    for key, number in sorted(numbers.items(), key=lambda pair: (-len(scripts[pair[0]]), -pair[1], pair[0]))[:rows]:
        shown = f" {'; '.join(dict.fromkeys(places[key][:examples]))} |" if examples else ""
        lines.append(f"| {key[0].replace('|', '/')} | {key[1]} | {number} | {len(scripts[key])} |{shown}")
    lines.append(
        f"| all | | {sum(numbers.values())} | {len({f'{e.repository}/{e.path}' for e in entries if e.losses.get(engine)})} |"
        + (" |" if examples else "")
    )
    return lines


def page(entries: Sequence[Entry], examples: int) -> str:
    """Both parts, with examples for the one that may be read."""
    lines = [
        "# Ledger of losses",
        "",
        "Unknown values that decide a branch, loop or call which matters, by their first cause. See ledger.py.",
    ]
    for part in (READ, COUNTED):
        mine = [entry for entry in entries if entry.part == part and entry.failure != "absent"]
        if not mine:
            continue
        ends = Counter(entry.ends for entry in mine)
        reached = Counter(word for entry in mine for word in entry.reached)
        failed = sum(bool(entry.failure) for entry in mine)
        lines += ["", f"## {'Scripts that are read' if part == READ else 'Scripts that are only counted'}: {len(mine)}", ""]
        lines.append(
            "Predicted runs: "
            + ", ".join(f"{number} {kind}" for kind, number in ends.most_common())
            + f"; without an answer {failed}."
        )
        lines.append("Reached: " + ", ".join(f"{word} {reached[word]}" for word in ("group", "wrapper", "step")) + ".")
        for engine in ("run", "program"):
            lines += ["", f"### {'The predicted run' if engine == 'run' else 'The program that the rules ask'}", ""]
            lines += table(mine, engine, examples if part == READ else 0)
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="a folder of checkouts, owner__name each")
    parser.add_argument("--part", choices=(READ, COUNTED), help="only this part")
    parser.add_argument("--examples", type=int, default=2, metavar="N", help="places shown of each cause")
    parser.add_argument("--only", metavar="TEXT", help="all places of causes with this text")
    parser.add_argument("--raw", type=Path, metavar="FILE", help="where the answers are kept; read again where they are there")
    parser.add_argument("--write", action="store_true", help="write ledger.md")
    parser.add_argument("--one", metavar="PATH", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.one:
        print(json.dumps(one(args.one)))
        return 0
    if args.raw is not None and args.raw.is_file():
        entries = [Entry(**row) for row in json.loads(args.raw.read_text(encoding="utf-8"))]
    elif args.corpus is None or not args.corpus.is_dir():
        parser.error("--corpus needs a folder")
    else:
        with SCRIPTS.open(encoding="utf-8", newline="") as lines:
            rows = [row for row in csv.DictReader(lines, delimiter="\t") if args.part in (None, row["part"])]
        with ThreadPoolExecutor(2) as pool:
            entries = list(pool.map(lambda row: ask(row, args.corpus), rows))
        if args.raw is not None:
            args.raw.write_text(json.dumps([asdict(entry) for entry in entries]), encoding="utf-8")
    if args.only:
        for entry in entries:
            for engine, losses in entry.losses.items() if entry.part == READ else ():
                for loss in losses:
                    if args.only in loss["cause"]:
                        where = f"{entry.repository} {entry.path} {loss['place']} {loss.get('origin', '')}"
                        print(f"{engine:8} {loss['what']:7} {where}: {loss['cause']}")
        return 0
    text = page(entries, args.examples)
    print(text)
    if args.write:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
