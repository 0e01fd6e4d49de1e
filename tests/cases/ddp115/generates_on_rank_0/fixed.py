# expects: nothing
# outcome: clean
"""After an epoch rank 0 samples with a method of the inner module."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Language(torch.nn.Module):
    def __init__(self, words=8):
        super().__init__()
        self.embedding = torch.nn.Embedding(words, 4)
        self.head = torch.nn.Linear(4, words)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))

    @torch.no_grad()
    def generate(self, tokens, count):
        for _ in range(count):
            tokens = torch.cat([tokens, self(tokens)[:, -1:].argmax(-1)], dim=1)
        return tokens


def is_main_process():
    return not dist.is_initialized() or dist.get_rank() == 0


def sample(model):
    return model.generate(torch.zeros(1, 1, dtype=torch.long), 4).tolist()


def main():
    dist.init_process_group("gloo")
    model = DDP(Language())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for epoch in range(2):
        tokens = torch.randint(8, (4, 6))
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if is_main_process():
            print(sample(model.module))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
