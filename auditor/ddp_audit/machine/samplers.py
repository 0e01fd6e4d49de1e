"""Which samples a rank gets: the index arithmetic of torch's DistributedSampler, shuffling included.

Sources: torch/utils/data/distributed.py, and torch's `randperm` on CPU (a Fisher-Yates shuffle over a 32-bit Mersenne Twister).
"""

from __future__ import annotations

import random


def distributed_indices(
    length: int,
    world_size: int,
    rank: int,
    *,
    shuffle: bool = True,
    seed: int = 0,
    epoch: int = 0,
    drop_last: bool = False,
) -> list[int]:
    """The indices that `DistributedSampler` gives one rank of `world_size` for a data set of `length` samples.

    All ranks get equally many: the list is padded by repeating its head, or with `drop_last` cut. `epoch` is that of the last
    `set_epoch`, and counts only with `shuffle`, where the shuffle's seed is `seed + epoch`. Raises ValueError for a rank that
    does not exist.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not in a world of {world_size}")
    indices = randperm(length, seed + epoch) if shuffle else list(range(length))
    each = samples_per_rank(length, world_size, drop_last=drop_last)
    total = each * world_size
    if not drop_last and indices:
        indices = (indices * -(-total // len(indices)))[:total]
    return indices[rank:total:world_size]


def samples_per_rank(length: int, world_size: int, *, drop_last: bool = False) -> int:
    """How many indices `DistributedSampler` gives every rank."""
    return length // world_size if drop_last else -(-length // world_size)


def batches_per_rank(samples: int, batch_size: int, *, drop_last: bool = False) -> int:
    """How many batches a loader makes of the samples that its sampler gives."""
    return samples // batch_size if drop_last else -(-samples // batch_size)


def randperm(n: int, seed: int) -> list[int]:
    """`torch.randperm(n, generator=g)` for a CPU generator seeded with `seed`."""
    twister = random.Random()
    twister.setstate((3, (*_mersenne_state(seed & 0xFFFFFFFF), 624), None))
    result = list(range(n))
    for i in range(n - 1):
        other = i + twister.getrandbits(32) % (n - i)
        result[i], result[other] = result[other], result[i]
    return result


def _mersenne_state(seed: int) -> list[int]:
    """The 624 words that a Mersenne Twister makes of one 32-bit seed; Python's own seeding mixes differently."""
    state = [seed]
    for i in range(1, 624):
        previous = state[-1]
        state.append((1812433253 * (previous ^ (previous >> 30)) + i) & 0xFFFFFFFF)
    return state
