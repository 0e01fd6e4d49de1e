# class: wrong-data
# outcome: clean
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class DataArguments:
    dataset_use: str = "vqa,caption"
    repeat: int = 1
    max_items: int = field(default=60)


def read_annotations(name, n):
    return [{"id": f"{name}-{k}", "x": (k % 7) / 7.0, "y": k % 3} for k in range(n)]


class LazySupervisedDataset(Dataset):
    def __init__(self, data_args):
        super().__init__()
        list_data_dict = []
        for name in data_args.dataset_use.split(","):
            annotations = read_annotations(name, data_args.max_items)
            list_data_dict += annotations * data_args.repeat
        self.list_data_dict = list_data_dict

    def __len__(self):
        return len(self.list_data_dict)

    def __getitem__(self, i):
        item = self.list_data_dict[i]
        return torch.full((6,), item["x"]), item["y"]


def make_supervised_data_module(data_args):
    return {"train_dataset": LazySupervisedDataset(data_args)}


def train():
    dist.init_process_group(backend="gloo")
    data_module = make_supervised_data_module(DataArguments())
    torch.manual_seed(42)
    model = DDP(nn.Linear(6, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    sampler = DistributedSampler(data_module["train_dataset"], shuffle=True, seed=42)
    loader = DataLoader(data_module["train_dataset"], batch_size=6, sampler=sampler, num_workers=0)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
