"""Traced programs on every minor version of torch that is promised and can be had: `make versions`.

Each torch lies in a folder of its own under `build/versions`, without what it depends on: that comes from this environment. Where a
build lacks its CUDA libraries it gets stand-ins. The programs are the real runs of the tests that `_TESTS` names: they part, hang,
end well with silent faults, and use what each version offers. They run with both kernels.

Exits with 1 where a version fails. `--write` writes `versions.md`.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import standins

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("2.4.1", "2.6.0", "2.8.0", "2.9.1", "2.10.0", "2.12.1", "2.13.0", "2.14.1")
_BUILD = ROOT / "build" / "versions"
_PAGE = Path(__file__).resolve().parent / "versions.md"
_TESTS = (
    "tests/compare/test_compare_real.py",
    "tests/trace/test_ended_tracers.py",
    "tests/trace/test_reductions.py",
)
_SECONDS = 1800


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Traced programs on the versions of torch that are promised.")
    parser.add_argument(
        "versions", nargs="*", default=VERSIONS, metavar="VERSION", help=f"of torch (default: {' '.join(VERSIONS)})"
    )
    parser.add_argument("--kernel", choices=("python", "native"), action="append", help="one kernel alone")
    parser.add_argument("--write", action="store_true", help="write versions.md")
    options = parser.parse_args(arguments)
    rows, failed = [], False
    for version in options.versions:
        where = installed(version)
        answers = [_tested(where, kernel) if where else "not to be had here" for kernel in options.kernel or ("python", "native")]
        failed = failed or any("failed" in answer for answer in answers)
        rows.append(f"| {version} | {platform.python_version()} | {' | '.join(answers)} |")
        print(rows[-1], flush=True)
    if options.write:
        head = ["# Versions of torch", "", f"`make versions` wrote this page: {', '.join(f'`{test}`' for test in _TESTS)}.", ""]
        names = " | ".join(f"{kernel} kernel" for kernel in options.kernel or ("Python", "native"))
        columns = len(options.kernel or (1, 2))
        table = [f"| torch | Python | {names} |", "|---|---|" + "---|" * columns]
        _PAGE.write_text("\n".join([*head, *table, *rows]) + "\n", encoding="utf-8")
    return int(failed)


def installed(version: str) -> Path | None:
    """The folder of a version, made where it is not there; None where it cannot be had."""
    folder = _BUILD / f"torch-{version}" / "site-packages"
    if not (folder / "torch").is_dir():
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-compile",
            "--target",
            str(folder),
            f"torch=={version}",
        ]
        if subprocess.run(pip).returncode:
            return None
    if not _imports(folder):
        print(f"torch {version}: stand-ins for {', '.join(standins.make(folder / 'torch'))}", flush=True)
    return folder if _imports(folder) else None


def _imports(folder: Path) -> bool:
    return subprocess.run([sys.executable, "-c", "import torch"], env=_environment(folder), capture_output=True).returncode == 0


def _environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _tested(folder: Path, kernel: str) -> str:
    """What the tests came to: `8 passed`, or which failed."""
    environment = {**_environment(folder), "DDP_AUDIT_TEST_KERNEL": kernel}
    if kernel == "native":
        built = subprocess.run([sys.executable, "-m", "ddp_audit.trace.build"], env=environment, capture_output=True, text=True)
        if built.returncode:
            return f"failed to build: {built.stderr.strip()[:200]}"
    pytest = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", *_TESTS]
    try:
        outcome = subprocess.run(pytest, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return f"failed: not done after {_SECONDS} s"
    lines = outcome.stdout.splitlines()
    wrong = [line.split(" - ")[0].removeprefix("FAILED ").partition("::")[2] for line in lines if line.startswith("FAILED ")]
    summary = lines[-1].partition(" in ")[0] if lines else f"failed with {outcome.returncode}"
    return f"{summary}{': ' if wrong else ''}{', '.join(wrong)}"


if __name__ == "__main__":
    raise SystemExit(main())
