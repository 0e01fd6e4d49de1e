# expects: nothing
# outcome: clean
"""A critic in the manner of WGAN-GP: the penalty of each batch is sent back with its scores."""

import torch
import torch.distributed as dist
from torch import autograd
from torch.nn.parallel import DistributedDataParallel as DDP


class Critic(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inner = torch.nn.Linear(4, width)
        self.outer = torch.nn.Linear(width, 1)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)))


def slope_penalty(critic, real, fake):
    share = torch.rand(len(real), 1)
    mixed = (share * real + (1 - share) * fake).requires_grad_(True)
    score = critic(mixed)
    slopes = autograd.grad(
        outputs=score,
        inputs=mixed,
        grad_outputs=torch.ones_like(score),
        create_graph=True,
        retain_graph=True,
    )[0]
    return ((slopes.norm(2, dim=1) - 1) ** 2).mean(), score


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1 + dist.get_rank())
    critic = DDP(Critic())
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(3):
        real, fake = torch.randn(8, 4), torch.randn(8, 4) + 2
        optimizer.zero_grad()
        (critic(fake).mean() - critic(real).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        penalty, score = slope_penalty(critic, real, fake)
        (10 * penalty + 0 * score.sum()).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
