# expects: DDP307:18
# outcome: shows 10 predictions for 9 rows, in order: False
"""Gathers the predictions of all ranks as they come."""

import torch
import torch.distributed as dist
from predicting import Rows, gathered, predict
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class Evaluation:
    def __init__(self, model: DDP, rows: Rows) -> None:
        self.model = model
        self.rows = rows

    def loader(self) -> DataLoader:
        sampler = DistributedSampler(self.rows, shuffle=False)
        return DataLoader(self.rows, batch_size=3, sampler=sampler)

    def run(self) -> None:
        predictions = gathered(predict(self.model, self.loader()))
        numbers = [number for number, _ in predictions]
        print(f"{len(numbers)} predictions for {len(self.rows)} rows, in order: {numbers == sorted(numbers)}")


dist.init_process_group("gloo")
Evaluation(DDP(torch.nn.Linear(1, 1)), Rows(9)).run()
dist.destroy_process_group()
