# expects: nothing
# outcome: clean
# launch: torchrun --standalone --nproc-per-node 2 alike_other_readings.py
"""Averages one number over all ranks.

On 2 nodes with 8 GPUs each (16 in all):
$ torchrun --nnodes=2 --nproc_per_node=8 --node_rank=0 --master_addr=10.0.0.1 alike_other_readings.py

On up to 8 GPUs of one machine:
$ torchrun --standalone --nproc_per_node=$N alike_other_readings.py

The paper used 32 GPUs; this is enough for a try:
$ torchrun --standalone --nproc_per_node=gpu alike_other_readings.py

With 4 workers for each of 2 processes:
$ torchrun --standalone --nproc_per_node=2 alike_other_readings.py --workers 4
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
