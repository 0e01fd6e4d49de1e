# expects: DDP202:26
# outcome: hang 0
# needs: accelerate
"""The ranks wait for each other where the clock of each says so."""

import os
import tempfile
import time

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

folder = os.path.join(tempfile.gettempdir(), str(time.time()))
accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(project_dir=folder))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
last = time.time()
for step in range(4):
    with accelerator.accumulate(model):
        accelerator.backward(model(torch.randn(8, 4)).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
    if time.time() - last > 0.5 * accelerator.process_index:
        accelerator.wait_for_everyone()
accelerator.end_training()
