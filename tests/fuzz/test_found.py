"""What the fuzz runs found, each as small as it became: once an exception, now held like any other file."""

from __future__ import annotations

import pytest
from contract import uphold

HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
"""


@pytest.mark.parametrize(
    "text",
    [
        "dist.new_group([0, None])\ndist.new_group([(0, 1), 1])\n",
        "for one in [[0, 'a'], [None]]:\n    if rank in one:\n        group = dist.new_group(one)\ndist.all_reduce(torch.ones(1), group=group)\n",
        "data = TensorDataset(torch.ones(8, 2))\nfor i in DistributedSampler(data, num_replicas=0):\n    dist.barrier()\n",
    ],
)
def test_a_program_that_was_an_exception_once(text: str) -> None:
    uphold((HEAD + text).encode())
