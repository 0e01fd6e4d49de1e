# expects: nothing
# outcome: clean
# needs: accelerate
"""The folder of the run is named by the clock, and what the framework says of the step is not."""

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
    if accelerator.sync_gradients and step % 2 == 0:
        accelerator.wait_for_everyone()
accelerator.end_training()
