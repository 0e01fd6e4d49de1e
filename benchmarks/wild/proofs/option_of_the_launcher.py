# expects: nothing
# outcome: error all: SystemExit: 2
# launch: torchrun --standalone --nproc-per-node 2 option_of_the_launcher.py --local-rank=0
"""torch.distributed.launch hands its programs --local-rank, here on the command line, and the parser knows --local_rank alone."""

import argparse

import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
