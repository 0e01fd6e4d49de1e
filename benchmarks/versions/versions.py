"""Traced programs on every minor version of torch that is promised and can be had: `make versions`.

Each torch lies in a folder of its own, without what it depends on: that comes from the environment of its Python, which is this
one, or for another Python one that is made beside. Where a build lacks its CUDA libraries it gets stand-ins. The programs are the
real runs of the tests that `_TESTS` names: they part, hang, end well with silent faults, use what each version offers, and lose
their tracer. They run with both kernels.

    python benchmarks/versions/versions.py [VERSION ...] [--python EXECUTABLE] [--kernel KERNEL] [--all] [--drop] [--write]

What a run came to is kept in `versions.json` beside this file, an entry for each torch and Python; `--write` makes `versions.md`
of all entries. Exits with 1 where a version fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import standins

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
KERNELS = ("python", "native")
_PAGE = Path(__file__).resolve().with_suffix(".md")
_KEPT = _PAGE.with_suffix(".json")
_TESTS = (
    "tests/compare/test_compare_real.py",
    "tests/trace/test_ended_tracers.py",
    "tests/trace/test_reductions.py",
)
_MORE = (
    "tests/trace/test_trace_run.py",
    "tests/trace/test_safety.py",
    "tests/trace/test_evidence.py",
    "tests/trace/test_drift.py",
    "tests/trace/test_sharing.py",
    "tests/trace/test_native_kernel.py",
    "tests/trace/test_locked.py",
    "tests/trace/test_frames_of_libraries.py",
)
_SECONDS = 2400
# What torch needs, and what the tool and its tests need, for a Python that is not this one.
_NEEDED = ("filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "setuptools", "numpy")
_NEEDED += ("libcst", "pyyaml", "rich", "tomli", "pytest", "pytest-timeout", "hypothesis", "jsonschema")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Traced programs on the versions of torch that are promised.")
    parser.add_argument(
        "versions", nargs="*", default=VERSIONS, metavar="VERSION", help=f"of torch (default: {' '.join(VERSIONS)})"
    )
    parser.add_argument("--python", default=sys.executable, metavar="EXECUTABLE", help="another Python (default: this one)")
    parser.add_argument("--kernel", choices=KERNELS, action="append", help="one kernel alone")
    parser.add_argument("--all", action="store_true", help="more tests of the tracer, with the names in the page")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "versions", help="where the versions lie (2 GB each)")
    parser.add_argument("--drop", action="store_true", help="remove each version after its runs")
    parser.add_argument("--write", action="store_true", help="write versions.md")
    options = parser.parse_args(arguments)
    python = _environment_of(options.python, options.folder)
    number = _printed(python, "import platform; print(platform.python_version())")
    failed = False
    for version in options.versions:
        folder = options.folder / f"torch-{version}-{number}" / "site-packages"
        found = {}
        is_there = installed(python, version, folder)
        for kernel in options.kernel or KERNELS:
            tests = (*_TESTS, *_MORE) if options.all else _TESTS
            found[kernel] = _tested(python, folder, kernel, tests) if is_there else "not to be had here"
            failed = failed or "failed" in found[kernel]
            print(version, number, kernel, found[kernel], flush=True)
        if options.drop:
            shutil.rmtree(folder.parent, ignore_errors=True)
        _keep(version, number, found)
    if options.write:
        _PAGE.write_text(page(json.loads(_KEPT.read_text(encoding="utf-8"))), encoding="utf-8")
    return int(failed)


def page(kept: dict[str, dict[str, str]]) -> str:
    """The table of all runs that are kept."""
    text = [
        "# Versions of torch",
        "",
        "`make versions` wrote this page. Each cell is a run of the real runs in "
        + ", ".join(f"`{test}`" for test in _TESTS)
        + ";",
        "where more tests passed, those of `--all` ran. Each torch is the build of PyPI, with stand-ins for CUDA libraries.",
        "",
        "| torch | Python | Python kernel | native kernel |",
        "|---|---|---|---|",
    ]
    for name in sorted(kept, key=lambda name: [int(part) for word in name.split() for part in word.split(".")]):
        cells = [kept[name].get(kernel, "not run") for kernel in KERNELS]
        text.append(f"| {' | '.join([*name.split(), *cells])} |")
    return "\n".join(text) + "\n"


def _keep(version: str, number: str, found: dict[str, str]) -> None:
    kept = json.loads(_KEPT.read_text(encoding="utf-8")) if _KEPT.exists() else {}
    name = f"{version} {number}"
    kept[name] = {**kept.get(name, {}), **found}
    _KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _environment_of(python: str, folder: Path) -> str:
    """The Python in which tests run: this one, or that of an environment which has what they need."""
    if python == sys.executable:
        return python
    place = folder / f"python-{_printed(python, 'import platform; print(platform.python_version())')}"
    if not (place / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", str(place)], check=True)
    subprocess.run([str(place / "bin" / "python"), "-m", "pip", "install", "-q", *_NEEDED], check=True)
    return str(place / "bin" / "python")


def installed(python: str, version: str, folder: Path) -> bool:
    """Whether a version is there, after it was installed where it was not."""
    if not (folder / "torch").is_dir():
        pip = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target", str(folder), f"torch=={version}"]
        if subprocess.run(pip).returncode:
            return False
    if not _imports(python, folder):
        print(f"torch {version}: stand-ins for {', '.join(standins.make(folder / 'torch'))}", flush=True)
    return _imports(python, folder)


def _imports(python: str, folder: Path) -> bool:
    return subprocess.run([python, "-c", "import torch"], env=_variables(folder), capture_output=True).returncode == 0


def _variables(folder: Path) -> dict[str, str]:
    own = (ROOT / name for name in ("auditor", "rules", "trainer"))
    path = os.pathsep.join(filter(None, (str(folder), *map(str, own), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _printed(python: str, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _tested(python: str, folder: Path, kernel: str, tests: Sequence[str]) -> str:
    """What the tests came to: `8 passed`, or which failed."""
    environment = {**_variables(folder), "DDP_AUDIT_TEST_KERNEL": kernel}
    if kernel == "native":
        built = subprocess.run([python, "-m", "ddp_audit.trace.build"], env=environment, capture_output=True, text=True)
        if built.returncode:
            return f"failed to build: {built.stderr.strip()[:200]}"
    pytest = [python, "-m", "pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", *tests]
    began = time.monotonic()
    try:
        outcome = subprocess.run(pytest, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return f"failed: not done after {_SECONDS} s"
    log = folder.parent.parent / f"{folder.parent.name}-{kernel}.log"
    log.write_text(f"{outcome.stdout}\n{outcome.stderr}\n{time.monotonic() - began:.0f} s\n", encoding="utf-8")
    lines = outcome.stdout.splitlines()
    wrong = [line.split(" - ")[0].removeprefix("FAILED ").partition("::")[2] for line in lines if line.startswith("FAILED ")]
    summary = lines[-1].partition(" in ")[0] if lines else f"failed with {outcome.returncode}"
    return f"{summary}{': ' if wrong else ''}{', '.join(wrong)}"


if __name__ == "__main__":
    raise SystemExit(main())
