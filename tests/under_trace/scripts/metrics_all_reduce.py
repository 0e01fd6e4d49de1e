# ends: completes
"""A meter that sums its counts over the ranks when it is asked, in the style of detection code."""

from collections import defaultdict, deque

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def is_dist_avail_and_initialized():
    if not dist.is_available():
        return False
    if not dist.is_initialized():
        return False
    return True


class SmoothedValue:
    def __init__(self, window_size=20, fmt=None):
        self.deque = deque(maxlen=window_size)
        self.total = 0.0
        self.count = 0
        self.fmt = fmt or "{median:.4f} ({global_avg:.4f})"

    def update(self, value, n=1):
        self.deque.append(value)
        self.count += n
        self.total += value * n

    def synchronize_between_processes(self):
        if not is_dist_avail_and_initialized():
            return
        t = torch.tensor([self.count, self.total], dtype=torch.float64)
        dist.barrier()
        dist.all_reduce(t)
        t = t.tolist()
        self.count = int(t[0])
        self.total = t[1]

    @property
    def median(self):
        return torch.tensor(list(self.deque)).median().item()

    @property
    def global_avg(self):
        return self.total / self.count

    def __str__(self):
        return self.fmt.format(median=self.median, global_avg=self.global_avg)


class MetricLogger:
    def __init__(self, delimiter="\t"):
        self.meters = defaultdict(SmoothedValue)
        self.delimiter = delimiter

    def update(self, **kwargs):
        for k, v in kwargs.items():
            if isinstance(v, torch.Tensor):
                v = v.item()
            assert isinstance(v, (float, int))
            self.meters[k].update(v)

    def __getattr__(self, attr):
        if attr in self.meters:
            return self.meters[attr]
        return object.__getattribute__(self, attr)

    def __str__(self):
        return self.delimiter.join(f"{name}: {meter}" for name, meter in self.meters.items())

    def synchronize_between_processes(self):
        for meter in self.meters.values():
            meter.synchronize_between_processes()

    def log_every(self, iterable, print_freq, header=""):
        for i, obj in enumerate(iterable):
            yield obj
            if i % print_freq == 0 and dist.get_rank() == 0:
                print(header, i, str(self))


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        metric_logger = MetricLogger(delimiter="  ")
        metric_logger.meters["lr"] = SmoothedValue(window_size=1, fmt="{global_avg:.3f}")
        for batch in metric_logger.log_every([torch.ones(3, 2)] * 4, 2, f"Epoch: [{epoch}]"):
            loss = model(batch).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metric_logger.update(loss=loss, lr=optimizer.param_groups[0]["lr"])
        metric_logger.synchronize_between_processes()
        print(metric_logger.loss.global_avg)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
