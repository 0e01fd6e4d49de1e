# expects: DDP202:23, DDP202:24
# outcome: hang all
# needs: accelerate
"""The main process alone gathers the losses and waits for everyone."""

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
            loss = model(x).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.is_main_process:
            print(epoch, accelerator.gather(loss.detach()).mean().item())
            accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()
