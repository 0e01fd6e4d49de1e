"""Names that the wrapper ignores are never sent, those of the outermost module's own parameters excepted; delayed ones come first."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 2)
        self.norm = nn.BatchNorm1d(2)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.norm(self.b(self.a(x))) * self.scale.sum()


dist.init_process_group("gloo")
net = Net()
DDP._set_params_and_buffers_to_ignore_for_model(net, ["a.weight", "scale", "norm.running_mean"])
model = DDP(net)
for _ in range(3):
    model(torch.randn(4, 4)).mean().backward()
net = Net()
net._ddp_params_and_buffers_to_ignore = [name for name, _ in net.named_buffers()] + ["b.weight"]
model = DDP(net)
for _ in range(2):
    model(torch.randn(4, 4)).mean().backward()
net = Net()
later = [("a.weight", net.a.weight), ("a.bias", net.a.bias)]
model = DDP(net, delay_all_reduce_named_params=later, param_to_hook_all_reduce=net.b.weight, bucket_cap_mb=25)
for _ in range(3):
    model(torch.randn(4, 4)).mean().backward()
dist.destroy_process_group()
