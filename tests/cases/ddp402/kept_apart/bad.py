# expects: DDP402:18
# outcome: buffers-differ; shows the ranks measured one model: False
"""Trains without sending buffers, and evaluates the module on every rank."""

import torch
import torch.distributed as dist
from network import Network
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def prepared(net: Network) -> torch.nn.Module:
    return net.train()


def wrap(net: Network) -> DDP:
    net = prepared(net)
    return DDP(net, forward_sync_buffers=False)


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(128.0).reshape(32, 4) / 64)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
    model = wrap(Network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    net = model.module.eval()
    with torch.no_grad():
        measured = net(torch.ones(1, 4)).item()
    everywhere = [0.0] * dist.get_world_size()
    dist.all_gather_object(everywhere, measured)
    print(f"the ranks measured one model: {len(set(everywhere)) == 1}")
    dist.destroy_process_group()


main()
