"""What the tests of safety run: a short training of one rank whose numbers tell whether anything has touched them.

safe_worker.py KERNEL FOLDER PART..    trains without the tracer, with it, and with each of the parts broken; prints JSON
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
import time
import traceback
from pathlib import Path

import torch
import torch._dynamo  # DDP imports it, which takes seconds
import torch.distributed as dist
import torch.distributed.nn  # before the process group is made
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def train_bits(pause: float = 0.0) -> str:
    """Trains one rank for six steps with dropout; a hash of its losses, parameters, next random number and collectives."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(48, 8), torch.randint(0, 4, (48,)))
    digest = hashlib.sha256()
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        noisy = x + 0.1 * torch.randn(8, 8)
        loss = cross_entropy(model(noisy), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total)
        digest.update(total.numpy().tobytes())
        time.sleep(pause)
    for parameter in (*model.parameters(), torch.rand(3)):
        digest.update(parameter.detach().numpy().tobytes())
    collectives = issued()
    digest.update(repr(collectives).encode())
    return digest.hexdigest()


def issued() -> list[tuple[str, object]]:
    """The collectives of this process as torch's own Flight Recorder has them, which is on where torch is not told otherwise."""
    dump = getattr(torch._C._distributed_c10d, "_dump_fr_trace", None)
    entries = pickle.loads(dump()).get("entries", []) if dump is not None else []
    return [(entry["profiling_name"], entry["input_sizes"]) for entry in entries]


def forked(folder: Path, kernel: str, broken: str) -> dict[str, object]:
    """One training in a child: its exit code, its bits, and the lines that it wrote to standard error."""
    folder.mkdir()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.dup2(os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)
            train_traced(folder, kernel, broken)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    bits = folder / "bits"
    told = (folder / "stderr").read_text().splitlines()
    return {"code": code, "bits": bits.read_text() if bits.exists() else "", "stderr": told}


def train_traced(folder: Path, kernel: str, broken: str) -> None:
    """Trains with a part of the tracer broken; with "none" without the tracer, with "" with the whole of it."""
    if broken == "none":
        (folder / "bits").write_text(train_bits())
        return
    os.environ.update(RANK="0", WORLD_SIZE="1", DDP_AUDIT_TRACE_DIR=str(folder / "trace"), DDP_AUDIT_NATIVE=kernel)
    from ddp_audit.trace.worker import boot

    def breaks(*args: object, **kwargs: object) -> None:
        raise RuntimeError(f"{broken} is broken")

    boot.start()
    if broken:
        owner, name = boot.parts()[broken]
        setattr(owner, name, breaks)
    (folder / "bits").write_text(train_bits(0.05 if broken == "look for completion" else 0.0))
    boot._leave()


def main() -> None:
    kernel, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    results = {"none": forked(folder / "none", kernel, "none"), "whole": forked(folder / "whole", kernel, "")}
    for number, part in enumerate(sys.argv[3:]):
        results[part] = forked(folder / str(number), kernel, part)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
