# expects: nothing
# outcome: clean
# needs: lightning
"""The trainer replaces the sampler of the loader and sets its epochs."""

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset


class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).pow(2).mean()

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    pl.Trainer(
        max_epochs=2,
        devices=2,
        strategy="ddp_find_unused_parameters_true",
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
    ).fit(Line())
