# expects: nothing
# outcome: clean
"""Rank 0's order of a set of names is sent to all ranks, which go through the names in it; a set that is only counted has none."""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    totals = {name: torch.ones(1) for name in ("loss", "accuracy", "norm", "time")}
    wanted = {"norm", "loss", "accuracy"}
    order = [list(wanted & totals.keys())]
    dist.broadcast_object_list(order, src=0)
    for name in order[0]:
        dist.all_reduce(totals[name])
    count = torch.tensor(float(len(wanted)))
    dist.all_reduce(count)
    print(count.item(), sum(value.item() for value in totals.values()))
    dist.destroy_process_group()


main()
