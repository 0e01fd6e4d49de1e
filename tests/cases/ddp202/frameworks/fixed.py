# expects: nothing
# outcome: clean
# needs: accelerate
"""All processes gather the losses and wait for everyone; the main one prints."""

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
        mean = accelerator.gather(loss.detach()).mean()
        if accelerator.is_main_process:
            print(epoch, mean.item())
        accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()
