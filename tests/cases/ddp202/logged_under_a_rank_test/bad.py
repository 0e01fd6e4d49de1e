# expects: DDP202:18, DDP202:24
# outcome: hang all
# needs: lightning
"""A Lightning module logs with sync_dist=True on rank 0 alone: the reduction of the logged value waits for the others."""

import lightning as L
import torch


class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_index):
        loss = self.layer(batch).pow(2).mean()
        if self.global_rank == 0:
            self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_index):
        loss = self.layer(batch).pow(2).mean()
        if self.trainer.is_global_zero:
            self.log_dict({"validation": loss}, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    data = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=8, shuffle=True)
    L.Trainer(max_epochs=2, devices=2, strategy="ddp", accelerator="cpu", logger=False, enable_checkpointing=False).fit(
        Line(), data, data
    )
