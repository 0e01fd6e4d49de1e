"""Small helpers around the wrapper."""

from torch.nn.parallel import DistributedDataParallel


def core_of(network):
    """The module inside, whether wrapped or not."""
    return network.module if isinstance(network, DistributedDataParallel) else network
