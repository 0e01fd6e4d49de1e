# expects: nothing
# outcome: clean; reductions 8
"""A generator's step runs in no_sync() of the discriminator, whose forward stands inside, too: only the generator is reduced."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
generator = DDP(torch.nn.Linear(2, 4))
discriminator = DDP(torch.nn.Linear(4, 1))
of_generator = torch.optim.SGD(generator.parameters(), lr=0.05)
of_discriminator = torch.optim.SGD(discriminator.parameters(), lr=0.05)
torch.manual_seed(dist.get_rank())
for step in range(4):
    of_discriminator.zero_grad()
    fake = generator(torch.randn(8, 2))
    pair = torch.cat([torch.randn(8, 4), fake.detach()])
    (discriminator(pair) * torch.tensor([1.0] * 8 + [-1.0] * 8)[:, None]).mean().backward()
    of_discriminator.step()
    of_generator.zero_grad()
    with discriminator.no_sync():
        (-discriminator(generator(torch.randn(8, 2))).mean() + fake.pow(2).mean()).backward()
    of_generator.step()
dist.destroy_process_group()
