# class: unmatched-collective
# outcome: not-run ray is not installed
# needs: ray
# where: train.py:30, train.py:31, train.py:33
import os
import tempfile

import ray.train
import torch
from ray.train import Checkpoint, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train_fn(config):
    model = prepare_model(nn.Linear(10, 1))
    data = TensorDataset(torch.randn(256, 10), torch.randn(256, 1))
    loader = prepare_data_loader(DataLoader(data, batch_size=16, shuffle=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    rank = ray.train.get_context().get_world_rank()
    for epoch in range(config["epochs"]):
        if ray.train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            with tempfile.TemporaryDirectory() as folder:
                torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
                ray.train.report({"loss": loss.item()}, checkpoint=Checkpoint.from_directory(folder))


if __name__ == "__main__":
    trainer = TorchTrainer(
        train_fn,
        train_loop_config={"lr": 0.01, "epochs": 3},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
    )
    trainer.fit()
