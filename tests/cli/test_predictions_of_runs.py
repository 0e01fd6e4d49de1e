"""What `trace` says of a prediction, on real runs of two CPU ranks that end in different ways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.traced

pytest.importorskip("torch")

HEAD = """\
import subprocess
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(2))
"""
END = "dist.destroy_process_group()\n"
PROGRAMS = {
    "completes": (f"dist.barrier()\n{END}", "agreed-to-end", "agree to the end: 2 collectives of each rank, then exit."),
    "hangs": (
        "if rank == 0:\n    dist.barrier()\nelse:\n    dist.all_reduce(torch.ones(3))\n",
        "agreed-to-end",
        "agree to the end: 2 collectives of each rank, then a hang.",
    ),
    "leaves": (
        "if rank == 1:\n    sys.exit(0)\ndist.barrier()\n",
        "agreed-to-end",
        "agree to the end: 1 to 2 collectives of each rank, then a hang.",
    ),
    "code": (f"{END}sys.exit(3)\n", "agreed-to-end", "agree to the end: 1 collective of each rank, then an exit code."),
    "raises": (
        "if rank == 1:\n    raise ValueError('bad')\ndist.barrier()\n",
        "agreed-to-end",
        "agree to the end: 1 to 2 collectives of each rank, then an exception.",
    ),
    "unfollowed": (
        f"n = int(subprocess.check_output(['echo', '5']))\nfor i in range(n):\n    dist.barrier()\n{END}",
        "agreed-until",
        "agree on 4 collectives of each rank, and no further is known: a loop of unknown length",
    ),
    "machine": (  # the torch and the files of the machine decide
        "import os\nimport torch.nn.functional as F\n"
        "if not hasattr(F, 'scaled_dot_product_attention'):\n    dist.all_reduce(torch.ones(3))\n"
        "if torch.__version__.startswith('1.'):\n    dist.all_reduce(torch.ones(4))\n"
        "if os.path.exists('data.txt'):\n    dist.all_reduce(torch.ones(5))\n"
        f"if os.path.isdir('no_such_folder') or os.path.isdir('data.txt'):\n    dist.all_reduce(torch.ones(6))\n{END}",
        "agreed-to-end",
        "agree to the end: 2 collectives of each rank, then exit.",
    ),
    "missing": (
        f"open('no_such_file').read()\ndist.barrier()\n{END}",
        "disagrees",
        "Ranks 0 and 1 failed: FileNotFoundError: [Errno 2] No such file or directory: 'no_such_file' (train.py:10), and were "
        "predicted to complete.",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_prediction_is_held_to_how_the_run_ended(name: str, tmp_path: Path) -> None:
    text, result, says = PROGRAMS[name]
    (tmp_path / "train.py").write_text(HEAD + text)
    (tmp_path / "data.txt").write_text("")
    os.utime(tmp_path / "data.txt", (1e9, 1e9))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    words = [sys.executable, "-m", "ddp_audit", "trace", "--stall-after", "3", "--on-stall", "kill", "--", *launch]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    told = done.stdout[done.stdout.index("Prediction and trace") :]
    assert says in " ".join(told.split()), done.stdout
    assert (" predicted " in told and " | " in told) is (result == "disagrees")
    if result == "agreed-to-end":
        assert len(told.splitlines()) == 1, told
    kept = json.loads((tmp_path / "ddp-trace" / "prediction.json").read_text())
    assert (kept["result"], kept["agrees"]) == (result, result != "disagrees")
    assert (kept["kind"] == "outcome") is (name == "missing")
    assert bool(kept["why"]) is (result != "agreed-to-end")
