# class: unmatched-collective
# outcome: not-run accelerate is not installed
# needs: accelerate
# where: train.py:52, train.py:53
import torch
from accelerate import Accelerator
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 2
GRADIENT_ACCUM_STEPS = 2
BATCH_SIZE = 16


class RunningAccuracy:
    def __init__(self):
        self.right = self.seen = 0

    def add_batch(self, predictions, references):
        self.right += (predictions == references).sum().item()
        self.seen += len(references)

    def compute(self):
        return self.right / max(1, self.seen)


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=GRADIENT_ACCUM_STEPS)
    torch.manual_seed(0)
    mini = BATCH_SIZE // GRADIENT_ACCUM_STEPS
    train = TensorDataset(torch.randn(256, 10), torch.randint(0, 3, (256,)))
    test = TensorDataset(torch.randn(100, 10), torch.randint(0, 3, (100,)))
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 3))
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    model, optimizer, trainloader, testloader = accelerator.prepare(
        model, optimizer, DataLoader(train, batch_size=mini, shuffle=True), DataLoader(test, batch_size=mini)
    )
    for epoch in range(EPOCHS):
        model.train()
        for x, y in trainloader:
            with accelerator.accumulate(model):
                loss = loss_fn(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        metric = RunningAccuracy()
        for x, y in testloader:
            with torch.no_grad():
                pred = model(x).argmax(-1)
            if accelerator.is_main_process:
                pred_all, y_all = accelerator.gather_for_metrics((pred, y))
                metric.add_batch(pred_all, y_all)
        accelerator.print(f"epoch {epoch}: {metric.compute():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
