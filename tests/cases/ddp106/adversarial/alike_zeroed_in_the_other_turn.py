# expects: nothing
# outcome: clean
"""The generator's loss leaves local gradients in the critic; they are zeroed before the critic steps."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
generator, critic = DDP(torch.nn.Linear(2, 4)), DDP(torch.nn.Linear(4, 1))
for_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
for_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
judge = torch.nn.BCEWithLogitsLoss()
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    made = generator(torch.randn(8, 2))
    on_made, on_real, on_detached = critic(made), critic(torch.randn(8, 4) + 1), critic(made.detach())
    loss_critic = judge(on_real, torch.ones(8, 1)) + judge(on_detached, torch.zeros(8, 1))
    loss_generator = judge(on_made, torch.ones(8, 1))
    for_critic.zero_grad()
    loss_critic.backward()
    kept = [p.grad.clone() for p in critic.parameters()]
    for_generator.zero_grad()
    for_critic.zero_grad()
    loss_generator.backward()
    for_generator.step()
    for_critic.zero_grad()
    for p, gradient in zip(critic.parameters(), kept, strict=True):
        p.grad = gradient
    for_critic.step()
dist.destroy_process_group()
