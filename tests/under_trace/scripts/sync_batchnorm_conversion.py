# ends: completes
"""BatchNorm converted for the group (SyncBatchNorm needs a GPU to run, so only where there is one), buffers checked by hand."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ConvNet(nn.Module):
    def __init__(self, channels=(3, 4, 8)):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))
            for a, b in zip(channels, channels[1:])
        )
        self.fc = nn.Linear(channels[-1] * 16, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.fc(x.flatten(1))


def main():
    dist.init_process_group("gloo")
    model = ConvNet()
    if torch.cuda.is_available():
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda()
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, nesterov=True, momentum=0.9)
    for _ in range(3):
        loss = nn.functional.nll_loss(model(torch.rand(2, 3, 16, 16)).log_softmax(dim=1), torch.tensor([1, 2]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name, buffer in model.module.named_buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= dist.get_world_size()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
