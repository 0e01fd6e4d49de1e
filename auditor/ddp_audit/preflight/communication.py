"""The smallest communication that a job needs, checked and timed: all-reduce, pairs, a ring, the clocks and the speed of each rank.

Bandwidths are nccl-tests': algbw is bytes by time, and busbw of an all-reduce over n ranks is algbw x 2(n - 1) / n, which
compares with the speed of a link whatever n is; of a message between two ranks both are the same. Sizes are elements of float32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

SIZES = (1, 2**10, 2**20, 2**26)
QUICK_SIZES = SIZES[:3]
_SMALL = 2**20  # elements up to which an all-reduce is always made
_ELEMENT = 4
_PATTERN = 1024  # elements after which the contents repeat
_MOST_ROUNDS = 31  # of pairs: all pairs of up to 32 nodes
_COMPUTE = 0.5  # seconds of matrix products
_PING = 2**20  # elements of the message that measures a pair's bandwidth


class Communication:
    """The measurements of one rank; all ranks call the same methods in the same order.

    `enter` is called with the name of what begins, so that a rank that does not come back from it is known to be there.
    """

    def __init__(self, rank: int, world: int, backend: str, index: int | None, enter: Callable[[str], None]) -> None:
        self._rank = rank
        self._world = world
        self._enter = enter
        self._device = torch.device("cuda", index) if backend == "nccl" and index is not None else torch.device("cpu")

    def run(self, sizes: Sequence[int], leaders: Sequence[int], time_left: Callable[[], float]) -> dict[str, Any]:
        """All measurements. `leaders` are the ranks between which pairs are measured."""
        self._enter("the first all-reduce")
        began = time.monotonic()
        self._first()
        found: dict[str, Any] = {"first": time.monotonic() - began}
        self._enter("the clocks")
        found["clock"] = self._clock()
        self._enter("the speed of each rank")
        found["compute"] = self._compute()
        found["all_reduce"] = self._all_reduces(sizes, time_left)
        if self._world > 1:
            self._enter("the ring")
            found["ring"] = self._ring()
            self._enter("the pairs")
            found["pairs"] = self._pairs(leaders, time_left)
        self._enter("the last barrier")
        self._barrier()
        return found

    def _sync(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _barrier(self) -> None:
        dist.all_reduce(torch.zeros(1, device=self._device))
        self._sync()

    def _first(self) -> None:
        """The first collective makes the connections, which takes longer than any later one."""
        self._barrier()

    def _largest(self, value: float) -> float:
        """The largest value of any rank, on all ranks."""
        tensor = torch.tensor([value], device=self._device)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return float(tensor.item())

    def _clock(self) -> list[float]:
        """This rank's clock at the ends of some barriers, which all ranks leave at about the same time."""
        times = []
        for _ in range(9):
            self._barrier()
            times.append(time.time())
        return times

    def _compute(self) -> float:
        """Seconds for one product of matrices, as the mean of half a second.

        In that time ranks that share a loaded machine get equal parts of it, in much less they do not.
        """
        size = 4096 if self._device.type == "cuda" else 512
        matrix = torch.ones(size, size, device=self._device)
        torch.mm(matrix, matrix)  # loads the library
        self._barrier()
        began = now = time.perf_counter()
        made = 0
        while now < began + _COMPUTE or made < 2:
            torch.mm(matrix, matrix)
            self._sync()
            made, now = made + 1, time.perf_counter()
        return (now - began) / made

    # -- all-reduce -----------------------------------------------------------------------------------------------------

    def _all_reduces(self, sizes: Sequence[int], time_left: Callable[[], float]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for size in sizes:
            before = rows[-1]["seconds"] if rows else 0.0
            # Four passes, by the time of the size before where that shows the bandwidth. All ranks must come to one answer.
            expected = 4 * before * (size / rows[-1]["elements"] if size > _SMALL else 1)
            if self._largest(float(expected > time_left() / 3)) > 0:
                rows.append({"elements": size, "skipped": f"about {expected:.0f} s"})
                break
            self._enter(f"the all-reduce of {size:,} elements")
            rows.append(self._all_reduce(size))
        return rows

    def _all_reduce(self, size: int) -> dict[str, Any]:
        tensor = torch.empty(size, device=self._device)
        _fill(tensor, self._rank % 128 + 1)
        expected = sum(rank % 128 + 1 for rank in range(self._world))
        dist.all_reduce(tensor)
        self._sync()
        wrong = _differing(tensor, expected)
        tensor.zero_()  # sums of zeros stay finite, however often they are taken
        repeats = 20 if size <= 2**10 else 5 if size <= _SMALL else 2
        self._barrier()
        began = time.perf_counter()
        for _ in range(repeats):
            dist.all_reduce(tensor)
        self._sync()
        own = (time.perf_counter() - began) / repeats
        seconds = self._largest(own)
        algbw = size * _ELEMENT / seconds
        busbw = algbw * 2 * (self._world - 1) / self._world
        return {"elements": size, "seconds": seconds, "algbw": algbw, "busbw": busbw, "wrong": wrong}

    # -- messages -------------------------------------------------------------------------------------------------------

    def _ring(self) -> dict[str, Any]:
        """Each rank sends to the next one and receives from the one before it."""
        following, before = (self._rank + 1) % self._world, (self._rank - 1) % self._world
        sent = torch.empty(2**16, device=self._device)
        _fill(sent, self._rank % 128 + 1)
        received = torch.zeros_like(sent)
        seconds = 0.0
        for _ in range(2):  # the first one makes the connections
            self._barrier()
            began = time.perf_counter()
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, following), dist.P2POp(dist.irecv, received, before)]):
                work.wait()
            self._sync()
            seconds = time.perf_counter() - began
        return {"from": before, "seconds": seconds, "wrong": _differing(received, before % 128 + 1)}

    def _pairs(self, leaders: Sequence[int], time_left: Callable[[], float]) -> list[dict[str, Any]]:
        """Latency and bandwidth of each pair that this rank is the first of. In each round every leader is in one pair."""
        found = []
        for number, pairs in enumerate(rounds(leaders)[:_MOST_ROUNDS]):
            if self._largest(float(number > 0 and time_left() < 3)) > 0:
                break
            mine = next((pair for pair in pairs if self._rank in pair), None)
            if mine is not None:
                row = self._pair(*mine)
                if row is not None:
                    found.append(row)
        return found

    def _pair(self, first: int, second: int) -> dict[str, Any] | None:
        small, large = torch.ones(1, device=self._device), torch.ones(_PING, device=self._device)
        other = second if self._rank == first else first
        timed = []
        for tensor, repeats in ((small, 20), (large, 3)):
            least = float("inf")
            for _ in range(1 + repeats):  # the first one makes the connection
                began = time.perf_counter()
                for sends in (self._rank == first, self._rank != first):
                    if sends:
                        dist.send(tensor, other)
                    else:
                        dist.recv(tensor, other)
                self._sync()
                least = min(least, (time.perf_counter() - began) / 2)
            timed.append(least)
        if self._rank != first:
            return None
        return {"ranks": [first, second], "latency": timed[0], "busbw": _PING * _ELEMENT / timed[1]}


def rounds(members: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Every pair of some members once, in rounds; no member is in two pairs of a round (the circle method)."""
    places: list[int | None] = [*members, *([None] if len(members) % 2 else [])]
    found = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        both = zip(places[:half], reversed(places[half:]), strict=True)
        found.append([(min(a, b), max(a, b)) for a, b in both if a is not None and b is not None])
        places = [places[0], places[-1], *places[1:-1]]
    return found


def _fill(tensor: torch.Tensor, factor: int) -> None:
    """Fills a tensor with numbers that differ along it, and whose sums are exact in float32."""
    pattern = (torch.arange(min(_PATTERN, tensor.numel()), device=tensor.device) % 7 + 1) * float(factor)
    tensor.view(-1, pattern.numel()).copy_(pattern.expand(tensor.numel() // pattern.numel(), -1))


def _differing(tensor: torch.Tensor, factor: int) -> int:
    """How many elements are not those of `_fill` with a factor. Looks at parts, for the memory that a comparison takes."""
    width = min(_PATTERN, tensor.numel())
    pattern = (torch.arange(width, device=tensor.device) % 7 + 1) * float(factor)
    parts = tensor.view(-1, width).split(4096)
    return sum(int((part != pattern).sum().item()) for part in parts)
