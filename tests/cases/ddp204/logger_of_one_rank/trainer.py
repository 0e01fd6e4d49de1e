"""A trainer with hooks, as frameworks have it."""

import torch
import torch.distributed as dist


class Log:
    """Keeps what it is told."""

    def __init__(self):
        self.rows = []

    def row(self, **values):
        """Keeps one row."""
        self.rows.append(values)


class Trainer:
    """Calls its hooks around the steps."""

    def __init__(self, model, steps):
        self.model = model
        self.steps = steps
        self.rank = dist.get_rank()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(self):
        """Trains for some steps."""
        self.before_train()
        for step in range(self.steps):
            self.optimizer.zero_grad()
            loss = self.model(torch.randn(8, 4)).pow(2).mean()
            loss.backward()
            self.optimizer.step()
            self.after_step(step, loss.item())
        dist.barrier()

    def before_train(self):
        """Runs once, before the first step."""

    def after_step(self, step, loss):
        """Runs after each step."""
