"""Programs whose predicted run is asked for, and what it came to."""

from __future__ import annotations

from pathlib import Path

from ddp_audit.audit import Options
from ddp_audit.explore.exact import Bounds, Run, predict
from ddp_audit.explore.proof import Predicted
from ddp_audit.predicted import job_of

HEAD = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
"""


def predicted(folder: Path, body: str, *settings: str, steps: int | None = None, both_ways: bool = False) -> Run:
    """The predicted run of a script with this text after the usual imports."""
    (folder / "script.py").write_text(HEAD + body)
    options = Options(settings=settings, defaults_hold=True)
    job = job_of([folder / "script.py"], options, bounds=Bounds(steps=steps, ticks=50_000))
    assert job is not None
    return predict(job, both_ways=both_ways)


def judged(run: Run) -> Predicted:
    """A run for a report, with nothing proven."""
    return Predicted(run, run.kind, run.why, None, ())


def sizes(run: Run, origin: str, rank: int = 0) -> list[tuple[int | None, str | None]]:
    """Sizes and types of a rank's collectives of one origin."""
    return [(e.numel, e.dtype) for e in run.collectives(rank) if e.origin == origin]


def constructed(folder: Path, module: str) -> list[tuple[int | None, str | None]]:
    """What DDP's constructor broadcasts for a module: number of shape entries, then parameters and buffers by dtype."""
    return sizes(predicted(folder, f"model = DDP({module})\n"), "ddp-constructor")[1:]
