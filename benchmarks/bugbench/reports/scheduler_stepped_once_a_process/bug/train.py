# class: wrong-value
# outcome: not-run accelerate is not installed
# needs: accelerate
# where: train.py:41, train.py:42, train.py:53
import argparse
import math

import torch
from accelerate import Accelerator
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset


def cosine_with_warmup(optimizer, num_warmup_steps, num_training_steps):
    def factor(step):
        if step < num_warmup_steps:
            return step / max(1, num_warmup_steps)
        progress = (step - num_warmup_steps) / max(1, num_training_steps - num_warmup_steps)
        return max(0.0, 0.5 * (1.0 + math.cos(2 * math.pi * 0.5 * progress)))

    return LambdaLR(optimizer, factor)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_train_steps", type=int, default=40)
    parser.add_argument("--lr_warmup_steps", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    return parser.parse_args()


def main():
    args = parse()
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(512, 8), torch.randn(512, 1))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    loader = DataLoader(data, batch_size=4, shuffle=True)
    scheduler = cosine_with_warmup(optimizer, args.lr_warmup_steps, args.max_train_steps)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    step = 0
    while step < args.max_train_steps:
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            step += 1
            if step % 5 == 0:
                accelerator.print(step, scheduler.get_last_lr())
            if step >= args.max_train_steps:
                break
    accelerator.end_training()


if __name__ == "__main__":
    main()
