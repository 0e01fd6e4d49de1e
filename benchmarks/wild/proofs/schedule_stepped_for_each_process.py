# expects: nothing
# outcome: shows the warm-up of 8 steps ends after 4
# needs: accelerate
"""Accelerate steps a prepared scheduler once for each process, and the warm-up is given in the steps of one."""

import torch
from accelerate import Accelerator

WARM_UP = 8

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / WARM_UP))
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
ended = 0
for step in range(1, WARM_UP + 1):
    accelerator.backward(model(torch.randn(8, 4)).pow(2).mean())
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if not ended and scheduler.get_last_lr()[0] == 0.1:
        ended = step
accelerator.print(f"the warm-up of {WARM_UP} steps ends after {ended}")
accelerator.end_training()
