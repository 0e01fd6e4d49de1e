# ends: completes
"""A GAN: two wrappers, two optimizers, alternating steps, requires_grad toggled."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

Z = 6


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(Z, 16), nn.ReLU(True), nn.Linear(16, 10), nn.Tanh())

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(10, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def forward(self, x):
        return self.main(x).view(-1)


def toggle(model, on):
    for parameter in model.parameters():
        parameter.requires_grad_(on)


def main():
    dist.init_process_group("gloo")
    netG, netD = DDP(Generator(), broadcast_buffers=False), DDP(Discriminator(), broadcast_buffers=False)
    optG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for i in range(4):
        real = torch.randn(5, 10)
        noise = torch.randn(5, Z)
        toggle(netD, True)
        with torch.no_grad():
            fake = netG(noise)
        d_loss = F.softplus(-netD(torch.cat([real, fake]))[:5]).mean() + F.softplus(netD(fake)).mean()
        optD.zero_grad()
        d_loss.backward()
        optD.step()
        if i % 2 == 0:
            toggle(netD, False)
            fake = netG(noise)
            g_loss = F.softplus(-netD(fake)).mean()
            optG.zero_grad()
            g_loss.backward()
            optG.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
