# ends: completes
"""A ring: even ranks send first, odd ranks receive first, tokens as tensors."""

import torch
import torch.distributed as dist


def exchange(tensor, to, source):
    received = torch.empty_like(tensor)
    if dist.get_rank() % 2 == 0:
        dist.send(tensor, dst=to)
        dist.recv(received, src=source)
    else:
        dist.recv(received, src=source)
        dist.send(tensor, dst=to)
    return received


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    token = torch.tensor([float(rank)])
    total = token.clone()
    for _ in range(world - 1):
        token = exchange(token, (rank + 1) % world, (rank - 1) % world)
        total += token
    assert total.item() == sum(range(world))
    requests = [dist.isend(total, (rank + 1) % world), dist.irecv(torch.zeros(1), (rank - 1) % world)]
    for request in requests:
        request.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
