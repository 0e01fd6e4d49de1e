# expects: DDP102:14
# outcome: gradients-local; parameters-differ
"""An encoder and a head with one optimizer; the trainer wraps the encoder and forgets the head."""

import torch
import torch.distributed as dist
from model import Encoder, Head, distribute


class Trainer:
    def __init__(self, wrap_head: bool) -> None:
        torch.manual_seed(0)
        self.encoder = distribute(Encoder())
        self.head = Head()
        if wrap_head:
            self.head = distribute(self.head)
        groups = [{"params": self.encoder.parameters()}, {"params": self.head.parameters(), "lr": 0.2}]
        self.optimizer = torch.optim.SGD(groups, lr=0.1)

    def step(self, x: torch.Tensor) -> None:
        loss = self.head(self.encoder(x)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


dist.init_process_group("gloo")
trainer = Trainer(wrap_head=False)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    trainer.step(torch.randn(8, 4))
dist.destroy_process_group()
