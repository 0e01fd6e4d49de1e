# expects: DDP603:39
# outcome: shows rank 1 restores on cuda:0
# devices: 2
"""A trainer resumes from its own checkpoint without a word on where to; the file says cuda:0.

Nothing can be put on a device here, so the storages are tagged with the current one and their return to it is told.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def tag(storage):
    return f"cuda:{torch.cuda.current_device()}"


def restore(storage, location):
    if location.startswith("cuda"):
        print(f"rank {dist.get_rank()} restores on {location}", flush=True)
        return storage
    return None


class Trainer:
    def __init__(self, path):
        self.path = path
        self.model = DDP(torch.nn.Linear(4, 1).cuda())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def save(self):
        if dist.get_rank() == 0:
            torch.save({"model": self.model.module.state_dict(), "epoch": 1}, self.path)
        dist.barrier()

    def resume(self):
        checkpoint = torch.load(self.path, weights_only=True)
        self.model.module.load_state_dict(checkpoint["model"])
        return checkpoint["epoch"]


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
torch.serialization.register_package(1, tag, restore)
trainer = Trainer(os.path.join(os.environ["CASE_FOLDER"], "last.pt"))
trainer.save()
trainer.resume()
trainer.model(torch.ones(2, 4)).sum().backward()
trainer.optimizer.step()
dist.destroy_process_group()
