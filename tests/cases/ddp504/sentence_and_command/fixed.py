# expects: nothing
# outcome: clean
# launch: torchrun --standalone --nproc-per-node 2 fixed.py
"""Averages one number over all ranks.

Example usage:

To run on a machine with 8 GPUs:
$ torchrun --standalone --nproc_per_node=8 fixed.py
"""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    value = torch.ones(1)
    dist.all_reduce(value)
    print("world size", int(value.item()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
