"""Launches in docstrings, comments, shell and Markdown, with the sentences beside them."""

import textwrap

import pytest

from ddp_audit.launch import documented_launches
from ddp_audit.launch.prose import Unclear, claim_in, disagreement

SCRIPT = '''\
#!/usr/bin/env python
"""A small trainer.

Debugging on one GPU:
    python tiny.py --batch=2

On 2 GPUs of 1 node:
    $ torchrun --standalone --nproc_per_node=2 tiny.py

On 6 GPUs in 3 nodes, for instance:
- on the first one
  $ torchrun --nnodes=3 --node_rank=0 --nproc_per_node=4 tiny.py
- on the second one
  $ torchrun --nnodes=3 --node_rank=1 --nproc_per_node=4 tiny.py
"""
import torch  # torchrun is not started by this line

VALUE = """
torchrun --nproc_per_node=64 not_a_statement.py
"""


def main():
    # For 8 GPUs start it with
    #   torchrun --nproc_per_node=8 \\
    #       tiny.py --lr 3
    print("torchrun --nproc_per_node=9 tiny.py")
'''


def test_python_file() -> None:
    found = documented_launches(SCRIPT, "tiny.py")
    assert [(f.line, f.end_line, f.kind, f.world_size) for f in found] == [
        (5, 5, "python", 1),
        (8, 8, "torchrun", 2),
        (12, 12, "torchrun", 12),
        (14, 14, "torchrun", 12),
        (25, 26, "torchrun", 8),
    ]
    assert SCRIPT.splitlines()[11][found[2].column - 1 :].startswith("torchrun")
    assert found[4].script_args == ("--lr", "3")
    assert [f.prose and f.prose.line for f in found] == [4, 7, 10, 10, 24]
    assert [bool(disagreement(f)) for f in found] == [False, False, True, True, False]


def test_a_file_that_does_not_tokenize_is_read_as_far_as_it_does() -> None:
    found = documented_launches('"""\ntorchrun --nproc_per_node=2 a.py\n"""\nx = (\n', "a.py")
    assert [f.line for f in found] == [2]


def test_shell_script() -> None:
    text = textwrap.dedent("""\
        #!/bin/bash
        #SBATCH --nodes=2
        export NCCL_DEBUG=INFO
        # Run on 4 GPUs
        torchrun --nproc_per_node=8 \\
            --master_port 29500 \\
            main.py --lr 1

        CMD="torchrun --nproc_per_node=$N main.py"
        srun python main.py
        """)
    found = documented_launches(text, "run.sh")
    assert [(f.line, f.end_line, f.kind, f.world_size) for f in found] == [
        (5, 7, "torchrun", 8),
        (9, 9, "torchrun", None),
        (10, 10, "srun", 2),  # two nodes, and one task on each by default
    ]
    assert found[0].prose is not None and found[0].prose.gpus == 4
    assert disagreement(found[0])


def test_markdown() -> None:
    text = textwrap.dedent("""\
        # Training

        Trained on 64 GPUs for two days.

        To train on 8 GPUs, run:

        ```bash
        torchrun --nproc_per_node=8 train.py --config base.py
        ```

        A single node with 4 GPUs:
        ```
        NCCL_IB_DISABLE=1 accelerate launch --num_processes 2 train.py
        ```

        With SLURM, `srun -N 2 --ntasks-per-node 8 python train.py` does it.
        Use torchrun --nproc_per_node=2 quick.py to try it, then read on.
        Nothing is launched by torchrun itself, or with python in general.
        """)
    found = documented_launches(text, "README.md")
    assert [(f.line, f.kind, f.world_size, f.script) for f in found] == [
        (8, "torchrun", 8, "train.py"),
        (13, "accelerate", 2, "train.py"),
        (16, "srun", 16, "train.py"),
        (17, "torchrun", 2, "quick.py"),
    ]
    assert found[0].prose is not None and found[0].prose.line == 5
    assert [bool(disagreement(f)) for f in found] == [False, True, False, False]
    assert found[3].script_args == ()


CLAIMS = [
    ("To run on 4 GPUs on 1 node, example:", (4, 1)),
    ("run on 4 gpus across 2 nodes:", (4, 2)),
    ("On a single node with eight A100 80GB GPUs:", (8, 1)),
    ("Use 2 nodes with 8 GPUs each", (8, 2)),
    ("with 16 processes", (16, None)),
    ("a 4-GPU machine, as follows", (4, None)),
    ("For 2 machines run", (None, 2)),
    ("Trained on 64 GPUs. To run it on 8 GPUs:", (8, None)),
]
NO_CLAIMS = [
    "Run on up to 8 GPUs",
    "1-8 GPUs:",
    "on 4 or 8 GPUs",
    "The model was trained on 8 GPUs",
    "needs at least 2 GPUs",
    "If you have 8 GPUs:",
    "8 GPUs, and 4 GPUs for the small one",
    "It took 8 GPUs",
    "<= 8 GPUs",
]
SILENT = [
    "GPU 4 is used",
    "multi-GPU training",
    "batch size of 32 per GPU",
    "4 workers load data",
    "300 GPU hours",
    "v1.4 gpus.py",
]


@pytest.mark.parametrize(("text", "claim"), CLAIMS)
def test_claim(text: str, claim: tuple[int | None, int | None]) -> None:
    found = claim_in(text, 3)
    assert found is not None and not isinstance(found, Unclear)
    assert (found.gpus, found.nodes, found.line) == (*claim, 3)


@pytest.mark.parametrize("text", NO_CLAIMS)
def test_hedged_sentences_claim_nothing(text: str) -> None:
    assert isinstance(claim_in(text, 1), Unclear)


@pytest.mark.parametrize("text", SILENT)
def test_other_counts_are_not_spoken_of(text: str) -> None:
    assert claim_in(text, 1) is None


AGREEMENTS = [
    # sentence, options of torchrun, whether they disagree
    ("On 4 GPUs:", "--nproc_per_node=4", False),
    ("On 4 GPUs:", "--nproc_per_node=8", True),
    ("On 16 GPUs:", "--nnodes=2 --nproc_per_node=8", False),
    ("On 8 GPUs in 2 nodes:", "--nnodes=2 --nproc_per_node=8", False),
    ("On 8 GPUs in 2 nodes:", "--nnodes=2 --nproc_per_node=4", False),
    ("On 4 GPUs in 2 nodes:", "--nnodes=2 --nproc_per_node=8", True),
    ("On 2 nodes:", "--nnodes=4 --nproc_per_node=8", True),
    ("On 2 nodes:", "--nproc_per_node=8", False),
    ("On 4 GPUs:", "--nproc_per_node=gpu", False),
    ("On 4 GPUs:", "--nnodes=1:4 --nproc_per_node=8", False),
]


@pytest.mark.parametrize(("sentence", "options", "disagrees"), AGREEMENTS)
def test_disagreement(sentence: str, options: str, disagrees: bool) -> None:
    (launch,) = documented_launches(f"{sentence}\n\n    torchrun {options} run.py\n", "notes.md")
    assert launch.prose is not None
    assert bool(disagreement(launch)) is disagrees


def test_the_claim_of_another_command_is_not_taken() -> None:
    text = "On 4 GPUs:\ntorchrun --nproc_per_node=4 run.py\ntorchrun --nproc_per_node=8 run.py --big\n"
    assert [f.prose is not None for f in documented_launches(text, "notes.md")] == [True, False]


def test_a_plain_python_command_is_not_judged() -> None:
    (launch,) = documented_launches("On 4 GPUs:\n\n    python spawn.py\n", "notes.md")
    assert launch.prose is not None and disagreement(launch) is None
