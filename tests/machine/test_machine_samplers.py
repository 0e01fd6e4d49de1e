"""The arithmetic of samplers against torch's own."""

from __future__ import annotations

import itertools

import pytest

from ddp_audit.machine.samplers import batches_per_rank, distributed_indices, randperm, samples_per_rank

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("n", [0, 1, 2, 7, 1000])
@pytest.mark.parametrize("seed", [0, 1, 42, 2**31, 2**33 + 5])
def test_randperm(n: int, seed: int) -> None:
    generator = torch.Generator()
    generator.manual_seed(seed)
    assert randperm(n, seed) == torch.randperm(n, generator=generator).tolist()


def test_distributed_sampler() -> None:
    from torch.utils.data import DataLoader
    from torch.utils.data.distributed import DistributedSampler

    for length, world, shuffle, drop_last, epoch in itertools.product(
        (1, 2, 7, 8, 33), (1, 2, 3, 8), (True, False), (True, False), (0, 3)
    ):
        for rank in range(world):
            data = list(range(length))
            sampler: DistributedSampler[int] = DistributedSampler(
                data,  # type: ignore[arg-type]
                num_replicas=world,
                rank=rank,
                shuffle=shuffle,
                seed=5,
                drop_last=drop_last,
            )
            sampler.set_epoch(epoch)
            ours = distributed_indices(length, world, rank, shuffle=shuffle, seed=5, epoch=epoch, drop_last=drop_last)
            assert ours == list(sampler), (length, world, rank, shuffle, drop_last, epoch)
            assert len(ours) == samples_per_rank(length, world, drop_last=drop_last)
            for batch, last in ((1, False), (3, True), (3, False)):
                if ours:
                    loader = DataLoader(data, batch_size=batch, sampler=sampler, drop_last=last)  # type: ignore[arg-type]
                    assert len(loader) == batches_per_rank(len(ours), batch, drop_last=last)


def test_a_rank_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="rank 2 is not in a world of 2"):
        distributed_indices(4, 2, 2)
