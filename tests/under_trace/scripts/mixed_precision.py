# ends: completes
"""Automatic mixed precision in bfloat16 on the CPU, with a GradScaler that is off."""

import torch
import torch.distributed as dist
from torch import nn
from torch.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import LambdaLR


def warmup(step, total=4):
    return min(1.0, (step + 1) / total)


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = LambdaLR(optimizer, lr_lambda=warmup)
    scaler = GradScaler("cpu", enabled=False)
    for step in range(5):
        x, y = torch.randn(4, 8), torch.randint(0, 4, (4,))
        optimizer.zero_grad()
        with autocast(device_type="cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        if not torch.isfinite(loss):
            raise RuntimeError("loss is not finite")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        lr = scheduler.get_last_lr()[0]
        if lr <= 0:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
