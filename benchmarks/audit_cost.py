"""What an audit costs as a whole process, side by side with `python -c 'import libcst'` in the same run.

    python benchmarks/audit_cost.py SCRIPT [--runs N]

SCRIPT is audited from its own folder. Prints CPU seconds (user and system) of each command: minimum, median and maximum, and the
ratios of the minima. The commands take turns, so that a machine that changes its speed changes it for all. Bytecode is kept,
as it is where a package is installed: with PYTHONDONTWRITEBYTECODE in the environment, which the measurement takes out, half of
an audit is the compilation of its own modules. The cache is one of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def cpu_seconds(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """CPU seconds, user and system, that one run of a command and its children took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("script", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    folder, name = options.script.resolve().parent, options.script.name
    python = sys.executable
    audit = [python, "-m", "ddp_audit", "check", "--no-cache", name]
    commands = {
        "python -c 'import libcst'": [python, "-c", "import libcst"],
        "python -c pass": [python, "-c", "pass"],
        "ddp-audit check (text)": [*audit, "--format", "text"],
        "ddp-audit check (json)": [*audit, "--format", "json"],
        "ddp-audit check (terminal)": [*audit, "--format", "terminal"],
        "ddp-audit check, cached": [python, "-m", "ddp_audit", "check", name, "--format", "json"],
    }
    seen: dict[str, list[float]] = {label: [] for label in commands}
    with tempfile.TemporaryDirectory() as kept:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPYCACHEPREFIX": f"{kept}/bytecode", "DDP_AUDIT_CACHE": f"{kept}/cache"}
        for command in commands.values():
            cpu_seconds(command, folder, environment)  # fills the file cache and the bytecode
        for _ in range(options.runs):
            for label, command in commands.items():
                seen[label].append(cpu_seconds(command, folder, environment))
    base = min(seen["python -c 'import libcst'"])
    print(f"{options.script}, {options.runs} runs each, {os.cpu_count()} CPUs, Python {sys.version.split()[0]}")
    print(f"{'command':30} {'min':>8} {'median':>8} {'max':>8} {'/ libcst':>9}")
    for label, times in seen.items():
        print(f"{label:30} {min(times):8.3f} {statistics.median(times):8.3f} {max(times):8.3f} {min(times) / base:9.2f}")


if __name__ == "__main__":
    main()
