"""How long the prediction of a script takes: `python benchmarks/exploration.py SCRIPT [NAME=VALUE ..]`.

Prints CPU milliseconds for all followed ranks, on the first four optimizer steps as `--explain-run` has them, without reading
and parsing the files (they are read before).
"""

from __future__ import annotations

import sys
import time

from ddp_audit.audit import Options
from ddp_audit.explore.exact import Bounds, predict
from ddp_audit.predicted import job_of

TIMES = 5


def main() -> int:
    """Measures one script."""
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    job = job_of([sys.argv[1]], Options(settings=sys.argv[2:]), bounds=Bounds(steps=4, ticks=100_000))
    if job is None:
        print(f"{sys.argv[1]} cannot be read")
        return 2
    run = predict(job)
    measured = []
    for _ in range(TIMES):
        start = time.process_time()
        predict(job)
        measured.append((time.process_time() - start) * 1000)
    read = sum(len(file.lines) for file in job.project.files)
    events = max(len(found) for found in run.sequences.values())
    print(f"{min(measured):.0f} ms for {len(run.sequences)} ranks, {read} lines read, {events} events of a rank, {run.kind}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
