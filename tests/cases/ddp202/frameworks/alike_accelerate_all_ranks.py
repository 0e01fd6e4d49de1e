# expects: nothing
# outcome: clean
# needs: accelerate
"""All ranks wait and gather; what the main process does alone is local."""

import os

import torch
from accelerate import Accelerator


def main():
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(2):
        for x in loader:
            with accelerator.accumulate(model):
                loss = model(x).pow(2).mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        mean = accelerator.gather_for_metrics(loss.detach()).mean()
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            print(epoch, mean.item())
            torch.save(accelerator.unwrap_model(model).state_dict(), os.path.join(os.environ["CASE_FOLDER"], "net.pt"))


if __name__ == "__main__":
    main()
