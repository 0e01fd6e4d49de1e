# class: unmatched-collective
# outcome: not-run lightning is not installed
# needs: lightning
# where: train.py:35, train.py:36, train.py:37, train.py:38, train.py:39
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ContrastiveModel(L.LightningModule):
    def __init__(self, dim=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, dim))
        self.centers = nn.Parameter(torch.randn(4, dim))
        self.validation_outputs = []
        self.validation_labels = []

    def _common_step(self, batch):
        x, y = batch
        z = self.encoder(x)
        return z, nn.functional.cross_entropy(z @ self.centers.t(), y)

    def training_step(self, batch, batch_idx):
        _, loss = self._common_step(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        z, _ = self._common_step(batch)
        self.validation_outputs.append(z)
        self.validation_labels.append(batch[1])

    def on_validation_epoch_end(self):
        if self.trainer.is_global_zero:
            preds = torch.cat(self.validation_outputs)
            labels = torch.cat(self.validation_labels)
            accuracy = (preds @ self.centers.t()).argmax(1).eq(labels).float().mean()
            self.log("val_acc", accuracy, on_epoch=True, prog_bar=True, sync_dist=True)
        self.validation_outputs.clear()
        self.validation_labels.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    L.seed_everything(7)
    data = TensorDataset(torch.randn(128, 12), torch.randint(0, 4, (128,)))
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(ContrastiveModel(), DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8))


if __name__ == "__main__":
    main()
