"""Who a process is."""

import torch.distributed as dist


def is_master() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0
