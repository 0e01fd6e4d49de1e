"""The checks for a machine with one GPU; without a GPU, their CPU form.

    python benchmarks/gpu/check.py [--out DIR] [--only NAME,NAME] [--list] [--cpu] [--keep DIR]

Needs torch and the packages that ddp-audit needs, and no installation of ddp-audit: the packages of this checkout are taken. Each
check runs in processes of its own under a time-out of its own, and the failure of one does not stop the others. Writes
`result-gpu.json` and `result-gpu.md`, or `result-cpu.json` and `result-cpu.md`, beside this file (`--out` elsewhere; with `--only`
nothing is written unless `--out` is given). Exit code 1 where a check failed.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parents[1] / name) for name in ("auditor", "rules", "trainer"))]

from checks import Check, Place, all_checks, cleaned  # noqa: E402
from writer import CPU_FORM, FAILED, GPU_FORM, Result, as_object, exit_code, write  # noqa: E402

MOST_SECONDS = 360.0  # no check begins after so long, and the longest time-out is 150 s, that of the first


def machine(has_cuda: bool) -> dict[str, Any]:
    """Versions and device."""
    import torch

    import ddp_audit

    about: dict[str, Any] = {
        "ddp-audit": getattr(ddp_audit, "__version__", "unknown"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "CPUs": os.cpu_count(),
        "CUDA of torch": torch.version.cuda or "none",
        "device": "CPU",
    }
    if has_cuda:
        memory = torch.cuda.get_device_properties(0).total_memory / 2**30
        about["device"] = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}, {memory:.0f} GiB"
        about["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    return about


def perform(check: Check, place: Place, end: float) -> Result:
    """Runs one check. Whatever goes wrong in it is its result."""
    known = check.result(place)
    if known is not None:
        return known
    begin = time.monotonic()
    if begin > end:
        return Result(check.name, check.what, FAILED, "not begun: the time of the whole check was used up")
    try:
        status, said, details = check.perform(check, place)
    except Exception as error:
        traceback.print_exc()
        status, said, details = FAILED, f"the check itself failed: {type(error).__name__}: {error}", {}
    said = cleaned(said, place.folder)
    result = Result(check.name, check.what, status, said, time.monotonic() - begin, details)
    print(f"{result.status:<12} {check.name:<28} {result.seconds:>5.0f} s  {said}", flush=True)
    return result


def perform_all(checks: list[Check], place: Place, end: float) -> list[Result]:
    """Runs the checks, first those that want the machine to themselves; the results stand in the order of the list."""
    alone = {check.name: perform(check, place, end) for check in checks if not check.beside}
    workers = max(1, min(4, (os.cpu_count() or 1) // 4))
    with ThreadPoolExecutor(workers) as pool:
        beside = [check for check in checks if check.beside]
        done = dict(zip((check.name for check in beside), pool.map(lambda check: perform(check, place, end), beside), strict=True))
    return [{**alone, **done}[check.name] for check in checks]


def main() -> int:
    """Runs the checks, writes the result, tells the exit code."""
    parser = argparse.ArgumentParser(description="the checks for a machine with one GPU; without one, their CPU form")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the result goes (default: beside this file)")
    parser.add_argument("--only", metavar="NAMES", help="these checks, separated by commas")
    parser.add_argument("--list", action="store_true", help="list the checks")
    parser.add_argument("--cpu", action="store_true", help="the CPU form, also where there is a GPU")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the traces in DIR")
    options = parser.parse_args()
    checks = all_checks()
    if options.list:
        for check in checks:
            print(f"{check.name:<28} {check.seconds:>4.0f} s  {'CUDA  ' if check.needs_cuda else '      '}{check.what}")
        return 0
    if options.only:
        names = options.only.split(",")
        unknown = sorted(set(names) - {check.name for check in checks})
        if unknown:
            parser.error(f"no check is called {', '.join(unknown)} (--list names them)")
        checks = [check for check in checks if check.name in names]

    import torch

    begin = time.monotonic()
    has_cuda = torch.cuda.is_available() and not options.cpu
    form = GPU_FORM if has_cuda else CPU_FORM
    with tempfile.TemporaryDirectory(prefix="ddp-audit-gpu-") as scratch:
        place = Place(has_cuda, options.keep or Path(scratch))
        results = perform_all(checks, place, begin + MOST_SECONDS)
    document = as_object(form, machine(has_cuda), results, time.monotonic() - begin)
    counts = ", ".join(f"{count} {status}" for status, count in document["counts"].items() if count)
    print(f"{form.upper()} form: {counts}, in {document['seconds']:.0f} s")
    if options.out or not options.only:
        for path in write(document, options.out or HERE):
            print(f"wrote {path}")
    return exit_code(document)


if __name__ == "__main__":
    raise SystemExit(main())
