# expects: DDP101:31
# outcome: gradients-local; parameters-differ
"""The step calls the encoder and the decoder of the inner module, and never the wrapper."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Segmenter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(4, 8)
        self.decoder = torch.nn.Linear(8, 1)

    def forward(self, images):
        return self.decoder(self.encoder(images).relu())


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def epoch(self, steps):
        inner = self.model.module if dist.get_world_size() > 1 else self.model
        for _ in range(steps):
            embedding = inner.encoder(torch.randn(8, 4))
            loss = inner.decoder(embedding.relu()).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
Trainer(DDP(Segmenter())).epoch(3)
dist.destroy_process_group()
