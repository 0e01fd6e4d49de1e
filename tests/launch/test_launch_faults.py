"""DDP504: what does not fit within a launch, between the commands of a job's nodes, and between a launch and its script."""

import textwrap
from pathlib import Path

import pytest

from ddp_audit.audit import Options, audit
from ddp_audit.findings import Finding

SCRIPT = 'import os\nimport torch.distributed as dist\ndist.init_process_group("nccl")\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DDP_AUDIT_DEBUG", "1")
    (tmp_path / "fit.py").write_text(SCRIPT)
    return tmp_path


def check(text: str | None = None, name: str = "run.sh", launch: str | None = None) -> list[Finding]:
    if text is not None:
        Path(name).write_text(textwrap.dedent(text))
    result = audit(["fit.py"], Options(select=["DDP504"], launch=launch))
    assert not result.errors
    return result.findings


NODE = "torchrun --nnodes={n} --node_rank={r} --nproc_per_node=4 --master_addr={a} --master_port={p} {s}\n"


def nodes(*ranks: int, n: int = 2, a: str = "10.0.0.1", p: int = 29500, s: str = "fit.py") -> str:
    return "".join(NODE.format(n=n, r=rank, a=a, p=p, s=s) for rank in ranks)


SHELL = [
    # text of run.sh, parts of the messages of the findings
    (nodes(0, 1), []),
    (nodes(0), []),  # one node as an example
    (nodes(0, 1, n=3), ["start the nodes 0 and 1; node 2 is started by none"]),
    (nodes(0, 1, n=4) + "# ... and so on\n", []),
    (nodes(0, 1, n=4) + "# the same on the other nodes\n", []),
    (nodes(0) + "# and on the second node\n" + nodes(0), ["both say that they are node 0"]),
    (nodes(0) + "# with another seed\n" + nodes(0, s="fit.py --seed 3"), []),
    (nodes(0) + nodes(2), ["node has rank 2 in a job of 2 nodes"]),
    (nodes(0) + nodes(1, a="10.0.0.2"), ["different rendezvous addresses: 10.0.0.1 (line 1) and 10.0.0.2 (line 2)"]),
    (nodes(0) + nodes(1, p=29501), ["different rendezvous ports: 29500 (line 1) and 29501 (line 2)"]),
    (nodes(0) + nodes(1, a="$HEAD"), []),
    (nodes(0) + nodes(1, s="eval.py"), ["fit.py (line 1) on one node and eval.py (line 2) on another"]),
    (nodes(0, s="fit.py a.yaml") + nodes(1, s="fit.py b.yaml"), ["different settings on its nodes: a.yaml (line 1) and b.yaml (line 2)"]),
    (nodes(0, s="fit.py --lr 1") + nodes(1, s="fit.py --lr=2"), ["--lr 1 (line 1) and --lr 2 (line 2)"]),
    (nodes(0, s="fit.py --log_dir a") + nodes(1, s="fit.py --log_dir b"), []),
    (nodes(0, 1, p=80000), ["port is 80000, and a port is at most 65535"]),
    (nodes(0, 1, p=0), ["port is 0 for 2 nodes"]),
    ("torchrun --rdzv_endpoint=localhost:0 --nproc_per_node=4 fit.py\n", []),
    (nodes(0, 1, a="123.456.7.8"), ["456 > 255"]),
    (nodes(0, 1, a="10.0.0.1.2"), ["5 numbers instead of 4"]),
    (nodes(0, 1, a="localhost"), ["which on every node is that node itself"]),
    ("# two nodes simulated on one machine\n" + nodes(0, 1, a="localhost"), []),
    ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=4 fit.py\n", ["4 processes start on each node, which has 2 GPUs"]),
    ("export CUDA_VISIBLE_DEVICES=0,1,2,3\ntorchrun --nproc_per_node=4 fit.py\n", []),
    ("CUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node=4 fit.py --device cpu\n", []),
    ("CUDA_VISIBLE_DEVICES=$IDS torchrun --nproc_per_node=4 fit.py\n", []),
    ("torchrun --node_rank=1 --nproc_per_node=4 fit.py\n", ["node has rank 1 in a job of 1 node"]),
    ("srun --nodes=2 --ntasks-per-node=4 torchrun --nnodes=2 --nproc_per_node=4 fit.py\n", ["srun starts the launcher 8 times, 4 on each node,"]),
    ("srun --nodes=2 --ntasks-per-node=1 torchrun --nnodes=2 --nproc_per_node=4 fit.py\n", []),
    ("srun --nodes=2 --ntasks-per-node=1 torchrun --nproc_per_node=4 fit.py\n", ["so 2 jobs of 4 processes start at the same time"]),
    ("#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\nsrun torchrun --nnodes=4 --nproc_per_node=4 fit.py\n", ["so 2 of the 4 nodes never come"]),
    ("#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\nsrun torchrun --nnodes=2 --nproc_per_node=8 fit.py\n", ["8 processes start on each node, which has 4 GPUs"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "parts"), SHELL)
def test_shell_scripts(folder: Path, text: str, parts: list[str]) -> None:
    found = check(text)
    assert len(found) == len(parts), [finding.message for finding in found]
    assert all(part in finding.message for part, finding in zip(parts, found, strict=True))
    assert all(finding.span.path == "run.sh" and finding.severity == "warning" for finding in found)


def test_an_impossible_address_of_an_example_is_an_info(folder: Path) -> None:
    (finding,) = check("# with the example IP 123.456.7.8:\n" + nodes(0, 1, a="123.456.7.8"))
    assert (finding.severity, finding.span.line) == ("info", 2)
    assert [related.line for related in finding.related] == [3]


def test_a_job_of_kubernetes(folder: Path) -> None:
    container = "{command: [torchrun, --nnodes=2, --nproc_per_node=8, fit.py], resources: {limits: {nvidia.com/gpu: 4}}}"
    replicas = f"{{replicas: 3, template: {{spec: {{containers: [{container}]}}}}}}"
    job = f"kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      {replicas}\n"
    messages = [finding.message for finding in check(job, "job.yaml")]
    assert len(messages) == 2
    assert any("expects 2 nodes, and there are 3 (replicas: Worker 3 (job.yaml:5))" in message for message in messages)
    assert any("8 processes start on each node, which has 4 GPUs (GPUs: 4 (job.yaml:5))" in message for message in messages)


def test_nodes_of_compose(folder: Path) -> None:
    text = "services:\n  a:\n    command: " + nodes(0) + "  b:\n    command: " + nodes(1, p=29501)
    (finding,) = check(text, "docker-compose.yml")
    assert finding.span.line == 3 and "29500 (line 3) and 29501 (line 5)" in finding.message


def test_the_named_launch_is_looked_at_too(folder: Path) -> None:
    (finding,) = check(launch="torchrun --nnodes=2 --node_rank=0 --master_addr=127.0.0.1 --nproc_per_node=2 fit.py")
    assert finding.span.path == "fit.py" and "127.0.0.1" in finding.message
    assert check(launch="torchrun --nnodes=2 --node_rank=0 --master_addr=127.0.0.1 --nproc_per_node=2 other.py") == []


PARSERS = [
    ('parser.add_argument("--local_rank", type=int)\nparser.parse_args()', "torch.distributed.launch", "knows only --local_rank"),
    ('parser.add_argument("--lr", type=int)\nparser.parse_args()', "torch.distributed.launch", "knows no such option"),
    ('parser.add_argument("--local-rank", "--local_rank", type=int)\nparser.parse_args()', "torch.distributed.launch", None),
    ('parser.add_argument("--lr", type=int)\nparser.parse_known_args()', "torch.distributed.launch", None),
    ('parser.add_argument("--lr", type=int)\nparser.parse_args()', "torch.distributed.launch --use_env", None),
    ('parser.add_argument("--lr", type=int)\nparser.parse_args()', "torch.distributed.run", None),
]


@pytest.mark.parametrize(("program", "module", "part"), PARSERS)
def test_a_local_rank_that_the_parser_refuses(folder: Path, program: str, module: str, part: str | None) -> None:
    (folder / "fit.py").write_text("import argparse\nparser = argparse.ArgumentParser()\n" + program + "\n" + SCRIPT)
    found = check(f"python -m {module} --nproc_per_node=2 fit.py\n")
    assert [(part or "") in finding.message for finding in found] == ([] if part is None else [True])
    assert all(related.path == "fit.py" and related.line == 4 for finding in found for related in finding.related)


CODE = [
    ('os.environ["MASTER_PORT"] = "80000"\n', "warning", "MASTER_PORT is set to 80000"),
    ('os.environ["MASTER_PORT"] = "29500"\n', None, ""),
    ('os.environ["MASTER_ADDR"] = "10.1.2.3"\n', "info", "fixed to 10.1.2.3"),
    ('os.environ["MASTER_ADDR"] = "10.1.2.300"\n', "warning", "no machine can have"),
    ('os.environ["MASTER_ADDR"] = "127.0.0.1"\n', None, ""),
    ('os.environ.setdefault("MASTER_ADDR", "10.1.2.3")\n', None, ""),
]


@pytest.mark.parametrize(("line", "severity", "part"), CODE)
def test_what_the_code_sets(folder: Path, line: str, severity: str | None, part: str) -> None:
    (folder / "fit.py").write_text(SCRIPT.replace("dist.init", line + "dist.init"))
    found = check()
    assert [finding.severity for finding in found] == ([] if severity is None else [severity])
    assert all(part in finding.message and finding.span.line == 3 for finding in found)


@pytest.mark.parametrize("inside", [True, False])
def test_a_port_that_every_process_draws(folder: Path, inside: bool) -> None:
    port = 'os.environ["MASTER_PORT"] = str(random.randint(20000, 60000))'
    (folder / "fit.py").write_text(
        "import os\nimport random\nimport torch.distributed as dist\nimport torch.multiprocessing as mp\n"
        f"def work(rank):\n    {port if inside else 'pass'}\n    dist.init_process_group('nccl', rank=rank, world_size=2)\n"
        f"if __name__ == '__main__':\n    {'pass' if inside else port}\n    mp.spawn(work, nprocs=2)\n"
    )
    assert ["sets a MASTER_PORT of its own" in finding.message for finding in check()] == ([True] if inside else [])


RANKED = SCRIPT.replace('"nccl"', '"nccl", rank={rank}, world_size=8')
TWO_NODES = "torchrun --nnodes 2 --nproc-per-node 4 fit.py"


def test_local_ranks_repeat_on_every_node(folder: Path) -> None:
    (folder / "fit.py").write_text(RANKED.format(rank='int(os.environ["LOCAL_RANK"])'))
    (finding,) = check(launch=TWO_NODES)
    assert (finding.severity, finding.span.line) == ("warning", 3)
    assert "gives 2 processes the rank 0, and no process has ranks 4 to 7" in finding.message
    assert "the launch of run.sh:1" in check(TWO_NODES)[0].message


@pytest.mark.parametrize(
    ("rank", "launch"),
    [
        ('int(os.environ["LOCAL_RANK"])', "torchrun --nproc-per-node 8 fit.py"),
        ('int(os.environ["LOCAL_RANK"])', "torchrun --nnodes $N --nproc-per-node 4 fit.py"),
        ('int(os.environ["LOCAL_RANK"])', "torchrun --nnodes 2 --nproc-per-node 4 other.py"),
        ('int(os.environ["LOCAL_RANK"])', None),
        ('int(os.environ["RANK"])', TWO_NODES),
        ('4 * int(os.environ["GROUP_RANK"]) + int(os.environ["LOCAL_RANK"])', TWO_NODES),
        ("own.rank()", TWO_NODES),
        ("-1", TWO_NODES),
    ],
)
def test_ranks_that_differ_or_are_not_known(folder: Path, rank: str, launch: str | None) -> None:
    (folder / "fit.py").write_text(RANKED.format(rank=rank))
    assert check(launch=launch) == []
