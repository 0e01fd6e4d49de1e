# ends: completes
"""An exponential moving average beside the model, evaluated on all ranks."""

import copy
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def update_ema(ema_model, model, decay=0.9):
    ema_params = OrderedDict(ema_model.named_parameters())
    model_params = OrderedDict(model.named_parameters())
    for name, param in model_params.items():
        ema_params[name].mul_(decay).add_(param.data, alpha=1 - decay)


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)
    model = nn.Sequential(OrderedDict([("inner", nn.Linear(4, 4)), ("act", nn.Tanh()), ("out", nn.Linear(4, 4))]))
    ema = copy.deepcopy(model)
    requires_grad(ema, False)
    model = DDP(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
    update_ema(ema, model.module, decay=0)
    model.train()
    ema.eval()
    running_loss, log_steps = 0, 0
    for step in range(6):
        x = torch.randn(8, 4)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_ema(ema, model.module)
        running_loss += loss.item()
        log_steps += 1
        if (step + 1) % 3 == 0:
            avg_loss = torch.tensor(running_loss / log_steps)
            dist.all_reduce(avg_loss, op=dist.ReduceOp.SUM)
            running_loss, log_steps = 0, 0
    value = ema(torch.ones(1, 4)).sum()
    dist.all_reduce(value)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
