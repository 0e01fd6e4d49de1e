"""A language model on random tokens.

On 8 GPUs of one node:
    torchrun --standalone --nproc_per_node=8 train.py config/large.py

On 8 GPUs of 2 nodes:
    torchrun --nnodes=2 --node_rank=0 --nproc_per_node=8 --master_addr=node0 --master_port=29500 train.py config/large.py
    torchrun --nnodes=2 --node_rank=1 --nproc_per_node=8 --master_addr=node0 --master_port=29501 train.py config/large.py
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

batch_size = 4
block_size = 256
gradient_accumulation_steps = 8
exec(open("configurator.py").read())

dist.init_process_group("nccl")
world_size = dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(1337 + dist.get_rank())
assert gradient_accumulation_steps % world_size == 0
gradient_accumulation_steps //= world_size

data = torch.randint(50_000, (1_000_000,))
model = DDP(torch.nn.Embedding(50_000, 64).cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
for step in range(100):
    for micro_step in range(gradient_accumulation_steps):
        starts = torch.randint(len(data) - block_size, (batch_size,))
        rows = torch.stack([data[start : start + block_size] for start in starts]).cuda()
        (model(rows).square().mean() / gradient_accumulation_steps).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
