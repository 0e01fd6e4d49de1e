"""The loop of the denoiser."""

import torch
from torch import nn


class Trainer:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        self.losses = []

    def add_noise(self, clips):
        times = torch.rand(len(clips), 1)
        noise = torch.randn_like(clips)
        return (1 - times) * clips + times * noise, times, noise - clips

    def epoch(self, loader):
        self.losses.clear()
        for (clips,) in loader:
            noisy, times, target = self.add_noise(clips)
            loss = nn.functional.mse_loss(self.model(noisy, times), target)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())

    def mean_loss(self):
        return sum(self.losses) / max(len(self.losses), 1)
