# expects: nothing
# outcome: clean
"""Averages one number over all ranks."""

# launch on 1 node with 4 GPUs:
#   torchrun --nnodes=1 --nproc_per_node=4 alike_comment_agrees.py
# launch on two nodes, four processes in all:
#   srun --nodes=2 --ntasks-per-node=2 python alike_comment_agrees.py
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
print("world size", int(value.item()), flush=True)
dist.destroy_process_group()
