# expects: nothing
# outcome: clean
"""Each player's turn has forwards of its own before its backward."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def critic_turn(critic, generator, optimizer, judge):
    optimizer.zero_grad()
    judge(critic(torch.randn(8, 4) + 1), torch.ones(8, 1)).backward()
    made = generator(torch.randn(8, 2)).detach()
    judge(critic(made), torch.zeros(8, 1)).backward()
    optimizer.step()


def generator_turn(critic, generator, optimizer, judge):
    optimizer.zero_grad()
    judge(critic(generator(torch.randn(8, 2))), torch.ones(8, 1)).backward()
    optimizer.step()


dist.init_process_group("gloo")
generator, critic = DDP(torch.nn.Linear(2, 4)), DDP(torch.nn.Linear(4, 1))
for_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
for_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    critic_turn(critic, generator, for_critic, torch.nn.BCEWithLogitsLoss())
    generator_turn(critic, generator, for_generator, torch.nn.BCEWithLogitsLoss())
dist.destroy_process_group()
