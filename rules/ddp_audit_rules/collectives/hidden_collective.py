"""DDP202: a call that is collective by contract, though its name does not say so, and that only some ranks make."""

from __future__ import annotations

from ddp_audit_rules.collectives.rank_guarded_collective import RankGuardedCollective


class HiddenCollective(RankGuardedCollective):
    code = "DDP202"
    name = "hidden-collective"
    level = "error"
    summary = (
        "A call that runs collectives by contract behind a condition that lets only some ranks through: consolidating a "
        "sharded optimizer, DTensor.full_tensor, the state of a sharded model, torch.distributed.checkpoint, MPI's bcast and its "
        "like, meters and metrics that gather; of frameworks: Accelerate's gather, gather_object and wait_for_everyone (and with "
        "DeepSpeed or FSDP save_state), Lightning's log with sync_dist=True, all_gather and save_checkpoint, Fabric's barrier and "
        "its like, DeepSpeed's save_checkpoint, Ray's report."
    )
    rationale = (
        "The call looks local and hangs: the ranks that make it wait for the others until the timeout of the group, often at "
        "the first save or resume, long after the start."
    )
    exceptions = (
        "Calls on all ranks with only the writing under the rank test, both branches making the call, plain DDP's state_dict, "
        "load_state_dict and optimizer.state_dict, which send nothing, metrics with sync_on_compute=False, and conditions that are "
        "equal on all ranks."
    )
    trace_evidence = "Collectives of the callee that appear on some ranks only."
    source = (
        "torch 2.13, distributed/optim/zero_redundancy_optimizer.py: consolidate_state_dict must be called on all ranks; "
        "distributed/tensor: full_tensor redistributes by a collective."
    )
    fix_hint = "make the call on all ranks and keep only the writing of its result under the rank test"
    of_sequences = True
    outcome = "hang all"
    bad = '''"""Rank 0 alone consolidates the sharded optimizer, to save it."""

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 1))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
torch.manual_seed(1 + rank)
for step in range(4):
    x = torch.randn(8, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if rank == 0:
    optimizer.consolidate_state_dict(to=0)
    print("entries", len(optimizer.state_dict()["state"]), flush=True)
dist.barrier()
dist.destroy_process_group()
'''
    good = bad.replace(
        "Rank 0 alone consolidates the sharded optimizer, to save it", "All ranks consolidate, rank 0 saves"
    ).replace(
        "if rank == 0:\n    optimizer.consolidate_state_dict(to=0)\n", "optimizer.consolidate_state_dict(to=0)\nif rank == 0:\n"
    )

    hidden = True
