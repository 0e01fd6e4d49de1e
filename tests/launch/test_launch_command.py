"""Launch commands of every launcher, in the spellings that people use."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_audit.launch import LaunchError, documented_launches, read_command, world_launch

# command, kind, nodes, processes a node, world size, script
COMMANDS = [
    ("torchrun --standalone --nproc_per_node=4 train.py", "torchrun", 1, 4, 4, "train.py"),
    ("torchrun --standalone --nproc-per-node 4 train.py", "torchrun", 1, 4, 4, "train.py"),
    ("$ torchrun --nnodes=2 --nproc_per_node=8 --node_rank=1 --master_addr=h0 a.py", "torchrun", 2, 8, 16, "a.py"),
    ("torchrun --nnodes 2:2 --nproc-per-node 3 run.py", "torchrun", 2, 3, 6, "run.py"),
    ("torchrun --nnodes=1:4 --nproc-per-node=8 run.py", "torchrun", "1:4", 8, None, "run.py"),
    ("torchrun --nproc-per-node=gpu run.py", "torchrun", 1, "gpu", None, "run.py"),
    ("torchrun --nproc_per_node=${GPUS:-8} --nnodes $NNODES run.py", "torchrun", "$NNODES", "${GPUS:-8}", None, "run.py"),
    ("torchrun --nproc_per_node=$(nvidia-smi -L | wc -l) run.py", "torchrun", 1, "$(nvidia-smi -L | wc -l)", None, "run.py"),
    ("torchrun $DIST_ARGS run.py --lr 3", "torchrun", "$DIST_ARGS", "$DIST_ARGS", None, "run.py"),
    ("torchrun run.py", "torchrun", 1, 1, 1, "run.py"),
    ("torchrun --nproc-per-node 2 -m pkg.train --steps 4", "torchrun", 1, 2, 2, "pkg.train"),
    ("torchrun \\\n  --nproc_per_node 2 \\\n  run.py \\\n  --lr 1e-3", "torchrun", 1, 2, 2, "run.py"),
    ("python -m torch.distributed.run --nproc_per_node=2 run.py", "torch.distributed.run", 1, 2, 2, "run.py"),
    ("python3 -u -m torch.distributed.launch --nproc_per_node 8 --use_env a.py", "torch.distributed.launch", 1, 8, 8, "a.py"),
    ("NCCL_DEBUG=INFO OMP_NUM_THREADS=1 torchrun --nproc_per_node=2 run.py", "torchrun", 1, 2, 2, "run.py"),
    ("uv run torchrun --nproc_per_node=2 run.py", "torchrun", 1, 2, 2, "run.py"),
    ("conda run -n ml torchrun --nproc_per_node=2 run.py", "torchrun", 1, 2, 2, "run.py"),
    ("cd work && nohup torchrun --nproc_per_node=2 run.py > log.txt 2>&1 &", "torchrun", 1, 2, 2, "run.py"),
    ("accelerate launch --multi_gpu --num_processes 8 --num_machines 2 run.py --a", "accelerate", 2, 4, 8, "run.py"),
    ("accelerate launch --config_file ds.yaml run.py", "accelerate", 1, "unstated", None, "run.py"),
    ("deepspeed --num_gpus=4 --num_nodes 2 run.py --deepspeed", "deepspeed", 2, 4, 8, "run.py"),
    ("deepspeed --include localhost:1,3 run.py", "deepspeed", 1, 2, 2, "run.py"),
    ("deepspeed run.py", "deepspeed", 1, "unstated", None, "run.py"),
    ("srun -N2 --ntasks-per-node=4 python run.py", "srun", 2, 4, 8, "run.py"),
    ("srun --nodes 2 --ntasks=8 --gres=gpu:4 python -u run.py --lr 1", "srun", 2, 4, 8, "run.py"),
    ("srun python run.py", "srun", "unstated", "unstated", None, "run.py"),
    ("srun --ntasks=2 torchrun --nnodes=2 --nproc_per_node=4 run.py", "torchrun", 2, 4, 8, "run.py"),
    ("mpirun -np 4 python run.py", "mpirun", 1, 4, 4, "run.py"),
    ("mpirun -np 8 -H a:4,b:4 -x NCCL_DEBUG=INFO -bind-to none -mca pml ob1 python run.py", "mpirun", 2, 4, 8, "run.py"),
    ("python run.py --lr 3", "python", 1, 1, 1, "run.py"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "nnodes", "nproc", "world", "script"), COMMANDS)
def test_command(text: str, kind: str, nnodes: object, nproc: object, world: object, script: str) -> None:
    launch = read_command(text)
    assert (launch.kind, launch.nnodes, launch.nproc_per_node, launch.world_size, launch.script) == (
        kind,
        nnodes,
        nproc,
        world,
        script,
    )
    assert (launch.world_size is None) == bool(launch.symbolic)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "make coffee",
        "torchrun",
        "torchrun --nproc_per_node=4",
        "torchrun --nproc_per_node=0 run.py",
        "torchrun --nproc_per_node=-2 run.py",
        "torchrun --nproc_per_node=banana run.py",
        "torchrun --nnodes=4:1 run.py",
        "torchrun --nnodes=a:b run.py",
        "torchrun 'run.py",
        "torchrun --nproc_per_node=$(nvidia-smi run.py",
        "python -c 'print(1)'",
        "python -m",
        "accelerate config",
        "accelerate launch --num_processes 1 --num_machines 2 run.py",
        "srun",
        "srun hostname",
        "mpirun -np 4",
        "NAME=value",
        "torchrun --nproc_per_node",
        "\x00",
        "&& ;",
    ],
)
def test_nonsense_is_one_line(text: str) -> None:
    with pytest.raises(LaunchError) as caught:
        read_command(text)
    message = str(caught.value)
    assert message and "\n" not in message


def test_details() -> None:
    launch = read_command(
        "NCCL_IB_DISABLE=1 torchrun --nnodes=2 --nproc-per-node=8 --node-rank=1 --rdzv-endpoint=host0:29400"
        " -m pkg.train a.py --x=1 -- y",
        "notes.md",
        7,
    )
    assert launch.env == {"NCCL_IB_DISABLE": "1"}
    assert (launch.node_rank, launch.master_addr, launch.master_port) == (1, "host0", 29400)
    assert launch.is_module and launch.script_args == ("a.py", "--x=1", "--", "y")
    assert (launch.path, launch.line, launch.end_line) == ("notes.md", 7, 7)
    assert launch.describe_world() == "2 x 8 = 16 processes"


def test_exported_variables_belong_to_the_launch() -> None:
    launch = read_command("export NCCL_P2P_DISABLE=1; A=2 torchrun --nproc_per_node=2 run.py")
    assert launch.env == {"NCCL_P2P_DISABLE": "1", "A": "2"}


def test_words_are_taken_as_they_are() -> None:
    launch = read_command(["torchrun", "--nproc-per-node", "2", "my run.py", "--text", "a; b"])
    assert launch.script == "my run.py" and launch.script_args == ("--text", "a; b")


def test_options_of_the_script_are_not_those_of_the_launcher() -> None:
    assert read_command("torchrun --nproc_per_node=2 run.py --nproc_per_node=8").world_size == 2


def test_unknown_options_do_not_hide_the_script() -> None:
    launch = read_command("torchrun --nproc_per_node=2 --brand-new 3 --newer run.py --lr 1")
    assert (launch.script, launch.script_args) == ("run.py", ("--lr", "1"))


def test_options_of_torch_itself_are_known() -> None:
    run = pytest.importorskip("torch.distributed.run")
    from ddp_audit.launch import launchers

    for action in run.get_args_parser()._actions:
        for option in action.option_strings:
            name = option.lstrip("-").replace("_", "-")
            if option.startswith("--"):
                known = launchers._TORCHRUN.flags if action.nargs == 0 else launchers._TORCHRUN.values
                assert name in known, option
            else:
                assert name in launchers._TORCHRUN.short, option


def test_world_launch() -> None:
    launch = world_launch(16)
    assert (launch.world_size, launch.named, launch.where()) == (16, True, "--world-size 16")
    with pytest.raises(LaunchError):
        world_launch(0)


WORDS = """
torchrun python -m accelerate launch deepspeed srun mpirun -np --nnodes --nproc_per_node=2 -N2 = -- - run.py $A ${ $( ` ' " && ;
> < \\ # 1:2 env A=1 -H a:1,b
"""
PIECES = st.lists(st.sampled_from([*WORDS.split(), "\n"]))


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.text(), PIECES.map(" ".join), PIECES.map("".join)))
def test_any_text_is_a_launch_or_a_launch_error(text: str) -> None:
    try:
        launch = read_command(text)
    except LaunchError as error:
        assert "\n" not in str(error)
    else:
        assert launch.script and (launch.world_size is None or launch.world_size >= 1)
    for path in ("a.py", "a.md", "a.sh"):
        for found in documented_launches(f"# {text}\n{text}\ntorchrun", path):
            assert found.line is not None and found.column is not None and found.column >= 1


def test_lightning() -> None:
    launch = read_command("lightning run model --node-rank=1 --main-address=10.0.0.1 --devices=8 --num-nodes=2 a/b.py --devices 8")
    assert (launch.kind, launch.world_size, launch.node_rank, launch.master_addr) == ("lightning run", 16, 1, "10.0.0.1")
    assert (launch.script, launch.script_args) == ("a/b.py", ("--devices", "8"))
    assert read_command("fabric run --devices 0,2,3 a.py").world_size == 3
    assert read_command("fabric run --devices=-1 a.py").world_size is None
    assert read_command("fabric run model a.py").world_size == 1
