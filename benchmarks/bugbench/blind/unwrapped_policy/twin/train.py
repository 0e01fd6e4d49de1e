# class: unsynchronised
# source: https://github.com/jingyaogong/minimind/issues/853
# outcome: clean
"""Policy gradient on a toy generation task: sample sequences, reward them, raise the likelihood of the better ones."""

import argparse
import os

import torch
import torch.distributed as dist
from rollout import advantages, plain, sample
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Policy(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.mixer = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        hidden, _ = self.mixer(self.embedding(tokens))
        return self.head(hidden)


def log_likelihood(logits, tokens):
    return logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def reward(tokens):
    """The more even tokens, the better."""
    return (tokens % 2 == 0).float().mean(1)


def setup():
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if distributed:
        dist.init_process_group("gloo")
    return distributed, dist.get_rank() if distributed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--length", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=12)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    distributed, rank = setup()
    torch.manual_seed(5)
    policy = Policy(args.vocabulary, args.width)
    if distributed:
        policy = DistributedDataParallel(policy)
    optimizer = torch.optim.Adam(policy.parameters(), lr=args.lr)

    draws = torch.Generator().manual_seed(100 + rank)
    for step in range(args.steps):
        prompts = torch.randint(args.vocabulary, (args.prompts, 2), generator=draws)
        tokens = sample(plain(policy), prompts, args.length, draws)
        gained = advantages(reward(tokens))

        logits = policy(tokens[:, :-1])
        likelihood = log_likelihood(logits, tokens[:, 1:]).mean(1)
        loss = -(gained * likelihood).mean()

        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), args.clip)
        optimizer.step()
        if rank == 0:
            print(f"step {step}: reward {reward(tokens).mean():.3f}, loss {loss.item():.3f}")

    if distributed:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
