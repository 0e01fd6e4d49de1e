# expects: nothing
# outcome: clean
"""A GAN switches the whole critic off while the generator learns, and on again for the critic's own turn."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def set_requires_grad(net: torch.nn.Module, on: bool) -> None:
    for parameter in net.parameters():
        parameter.requires_grad = on


dist.init_process_group("gloo")
generator, critic = DDP(torch.nn.Linear(2, 4)), DDP(torch.nn.Linear(4, 1))
for_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
for_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
judge = torch.nn.BCEWithLogitsLoss()
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    made = generator(torch.randn(8, 2))
    set_requires_grad(critic, False)
    for_generator.zero_grad()
    judge(critic(made), torch.ones(8, 1)).backward()
    for_generator.step()
    set_requires_grad(critic, True)
    for_critic.zero_grad()
    on_made, on_real = critic(made.detach()), critic(torch.randn(8, 4) + 1)
    (judge(on_made, torch.zeros(8, 1)) + judge(on_real, torch.ones(8, 1))).backward()
    for_critic.step()
dist.destroy_process_group()
