"""DDP502, DDP504, DDP505 and DDP506 on scripts of this file's own, and the notes of a named launch."""

import textwrap
from pathlib import Path

import pytest

from ddp_audit.audit import AuditResult, Options, audit
from ddp_audit.findings import Finding

SCRIPT = '''\
"""Fits a line.

On 3 GPUs:
  $ torchrun --standalone --nproc_per_node=3 fit.py
On 6 GPUs of 2 machines:
  $ torchrun --nnodes=2 --node_rank=0 --nproc_per_node=4 --master_addr=a fit.py
  $ torchrun --nnodes=2 --node_rank=1 --nproc_per_node=4 --master_addr=a fit.py
With another count:
  $ torchrun --standalone --nproc_per_node=8 fit.py --accum_steps=16
  $ torchrun --standalone --nproc_per_node=8 other.py
  $ torchrun --standalone --nproc_per_node=gpu fit.py
"""
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

accum_steps = 6 * 2
batch_size = 4
block_size = 32
exec(open("override.py").read())

world = int(os.environ.get("WORLD_SIZE", 1))
dist.init_process_group("gloo")
assert accum_steps % world == 0, "does not divide"
accum_steps //= world
model = DDP(torch.nn.Linear(block_size, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    for micro in range(accum_steps):
        (model(torch.randn(batch_size, block_size)).pow(2).mean() / accum_steps).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DDP_AUDIT_DEBUG", "1")
    (tmp_path / "fit.py").write_text(SCRIPT)
    (tmp_path / "other.py").write_text("")
    (tmp_path / "override.py").write_text("")
    (tmp_path / "big.py").write_text("accum_steps = 4 * 9\nbatch_size = 2\n")
    return tmp_path


def check(code: str, path: str = "fit.py", **options: object) -> AuditResult:
    result = audit([path], Options(select=[code], min_confidence="possible", **options))  # type: ignore[arg-type]
    assert not result.errors
    return result


def lines(found: list[Finding]) -> list[int]:
    return [finding.span.line for finding in found]


def test_the_documented_launches_that_do_not_divide(folder: Path) -> None:
    *found, at_check = check("DDP505").findings
    assert lines(found) == [6, 7]
    assert (at_check.span.line, at_check.severity) == (25, "warning")
    assert "only with 1, 2, 3, 4, 6, 12 processes" in at_check.message and "fit.py:6 and 1 more start 8" in at_check.message
    for finding in found:
        assert finding.severity == "error" and finding.confidence == "likely"
        assert "2 x 4 = 8 processes" in finding.message
        assert "accum_steps = 12 (fit.py:18, default)" in finding.message
        assert "8 or 16" in finding.fix.description and "fit.py:25" in finding.message
        assert {(r.role, r.line) for r in finding.related} == {("check", 25), ("value", 18), ("launch", finding.span.line)}
        assert "8 micro-batches instead of 12" in finding.explanation


def test_a_named_launch_is_judged_alone(folder: Path) -> None:
    assert check("DDP505", launch="torchrun --nproc_per_node=4 fit.py").findings == []
    (finding,) = check("DDP505", world_size=5).findings
    assert finding.span.line == 25 and "--world-size 5" in finding.message and "10 or 15" in finding.fix.description
    (finding,) = check("DDP505", launch="torchrun --nproc_per_node=8 fit.py big.py").findings
    assert "accum_steps = 36 (big.py:1)" in finding.message and "32 or 40" in finding.fix.description
    assert check("DDP505", launch="torchrun --nproc_per_node=8 fit.py big.py --accum_steps=40").findings == []
    assert check("DDP505", launch="torchrun --nproc_per_node=8 other.py").findings == []
    assert check("DDP505", launch="torchrun --nproc_per_node=gpu fit.py").findings == []


def test_a_setting_goes_before_the_default(folder: Path) -> None:
    assert check("DDP505", settings=["accum_steps=24"]).findings == []
    found = check("DDP505", settings=["accum_steps=7"]).findings
    assert lines(found) == [4, 6, 7, 9, 25] and "accum_steps = 7 (given by --set)" in found[0].message


def test_a_number_of_a_config_file_is_reported_there(folder: Path) -> None:
    (folder / "one.py").write_text("accum_steps = 1\n")
    (folder / "README.md").write_text("torchrun --nproc_per_node=8 fit.py big.py\npython fit.py one.py\n")
    found = {finding.span.path: finding for finding in check("DDP505").findings if finding.span.path != "fit.py"}
    assert sorted(found) == ["big.py", "one.py"]
    big, one = found["big.py"], found["one.py"]
    assert (big.severity, big.span.line) == ("error", 1) and "The launch of README.md:1 starts 8 processes" in big.message
    assert ("launch", "README.md", 1) in {(related.role, related.path, related.line) for related in big.related}
    assert (one.severity, one.span.line) == ("warning", 1) and "accum_steps = 1 allows only one process" in one.message
    (folder / "README.md").write_text("torchrun --nproc_per_node=6 fit.py big.py\npython fit.py big.py\n")
    (info,) = [finding for finding in check("DDP505").findings if finding.span.path != "fit.py"]
    assert (info.severity, info.span.path, info.span.line) == (
        "info",
        "big.py",
        1,
    )  # 36 holds on 6 processes and not on the 8 of others
    assert "not divisible by the 8 processes of fit.py:6" in info.message


def test_notes_of_a_named_launch(folder: Path) -> None:
    notes = "\n".join(check("DDP505", launch="torchrun --nproc_per_node=4 fit.py big.py --batch_size=3").notes)
    assert "W = 4 processes" in notes
    assert "a = 9 micro-batches" in notes and "accum_steps = 36 (big.py:1) / 4 (fit.py:26)" in notes
    assert "K = 3,456 tokens an update = W x a x B x T = 4 x 9 x 3 x 32" in notes
    assert "batch_size = 3 (--batch_size=3 of the named launch)" in notes and "block_size = 32 (fit.py:20, default)" in notes
    assert "gone.py of the launch is not there" in "\n".join(check("DDP505", launch="torchrun fit.py gone.py").notes)
    open_launch = check("DDP505", launch="torchrun --nproc_per_node=gpu fit.py")
    assert "an open number of processes (nproc_per_node=gpu)" in open_launch.notes[0]
    assert check("DDP505").notes == []


def test_launch_mismatch(folder: Path) -> None:
    (finding,) = check("DDP504").findings
    assert (finding.severity, finding.span.line, finding.span.end_line) == ("warning", 5, 7)
    assert "6 GPUs (6 in total or 12 as 6 on each of 2 nodes)" in finding.message
    assert "lines 6 and 7 start 2 x 4 = 8 processes" in finding.message
    assert [related.line for related in finding.related] == [6, 7]


@pytest.mark.parametrize(("start", "count"), [("train()", 1), ("torch.multiprocessing.spawn(train, nprocs=8)", 0)])
def test_a_launcher_of_one_process_a_node_may_not_start_all(folder: Path, start: str, count: int) -> None:
    script = "import torch\nimport torch.distributed as dist\n\n\ndef train(rank=0):\n    dist.init_process_group('gloo')\n\n\n"
    (folder / "spawning.py").write_text(f"{script}if __name__ == '__main__':\n    {start}\n")
    (folder / "README.md").write_text("We train on 2 nodes with 8 GPUs each:\n\n    mpirun -np 2 -npernode 1 python spawning.py\n")
    assert len(check("DDP504", "spawning.py").findings) == count


def test_guarded_division_is_quiet(folder: Path) -> None:
    assert check("DDP502").findings == []


HEAD = "import os\nimport torch\nimport torch.distributed as dist\nworld_size = int(os.environ['WORLD_SIZE'])\n"

DIVISIONS = [
    # program after HEAD, severity of the finding or None, part of the message
    ("accum = 6\naccum //= world_size\n", "warning", "accum = 6 (part.py:5)"),
    ("accum = 6\nper_rank = accum // dist.get_world_size()\n", "warning", "4 processes do 4 of 6"),
    ("global_batch_size = 100\nmicro = global_batch_size // world_size\n", "warning", "3 processes do 99 of 100"),
    ("global_batch = 512\nnum_devices = 8\nbatch_size = global_batch // num_devices\n", "warning", "512 // 8 has no remainder now"),
    ("accum = 6\naccum //= torch.cuda.device_count()\n", "warning", "accum = 6"),
    ("batch_size = 30\nbatch_size = batch_size // world_size\n", "info", "batch_size = 30"),
    ("accum = 6\nassert accum % world_size == 0\naccum //= world_size\n", None, ""),
    ("accum = 6\nif accum % world_size:\n    raise ValueError('no')\naccum //= world_size\n", None, ""),
    ("accum = 6\nif accum % world_size != 0:\n    print('rounding')\naccum //= world_size\n", None, ""),
    ("accum = 6\nper_rank = accum // world_size\nassert per_rank * world_size == accum\n", None, ""),
    ("accum = 6\naccum = (accum + world_size - 1) // world_size\n", None, ""),
    ("accum = 6 * world_size\naccum //= world_size\n", None, ""),
    ("num_samples = 103\nmine = num_samples // world_size\n", None, ""),
    ("eval_batch_size = 103\nmine = eval_batch_size // world_size\n", None, ""),
    ("max_steps = 100\nsteps = max_steps // world_size\n", None, ""),
    ("hidden = 64\nheads = hidden // 4\n", None, ""),
]


@pytest.mark.parametrize(("program", "severity", "part"), DIVISIONS)
def test_floor_divisions(folder: Path, program: str, severity: str | None, part: str) -> None:
    (folder / "part.py").write_text(HEAD + program + "dist.init_process_group('gloo')\n")
    found = check("DDP502", "part.py").findings
    assert [f.severity for f in found] == ([] if severity is None else [severity])
    assert all(part in f.message for f in found)


def test_a_named_launch_without_a_remainder_is_quiet(folder: Path) -> None:
    (folder / "part.py").write_text(HEAD + "accum = 6\naccum //= world_size\ndist.init_process_group('gloo')\n")
    assert check("DDP502", "part.py", world_size=3).findings == []
    (finding,) = check("DDP502", "part.py", world_size=4).findings
    assert "4 processes do 4 of 6" in finding.message


def test_total_batch_over_tokens_of_all_ranks(folder: Path) -> None:
    program = textwrap.dedent('''\
        """Run with 8 GPUs:
        torchrun --standalone --nproc_per_node=8 part.py
        torchrun --standalone --nproc_per_node=6 part.py
        """
        import os
        import torch.distributed as dist
        dist.init_process_group("gloo")
        world_size = int(os.environ["WORLD_SIZE"])
        total_batch_size = 65536
        B = 4
        T = 1024
        assert total_batch_size % (B * T * world_size) == 0
        grad_accum_steps = total_batch_size // (B * T * world_size)
        ''')
    (folder / "part.py").write_text(program)
    finding, at_check = check("DDP505", "part.py").findings
    assert (finding.span.line, at_check.span.line) == (3, 12)
    assert "only with 1, 2, 4, 8, 16 processes" in at_check.message
    assert "total_batch_size = 65,536 (part.py:9)" in finding.message
    assert "B * T * world_size = 24,576" in finding.message and "49,152 or 73,728" in finding.fix.description
    assert check("DDP502", "part.py").findings == []
    notes = "\n".join(check("DDP505", "part.py", world_size=8).notes)
    assert "a = 2 micro-batches" in notes and "total_batch_size = 65,536 (part.py:9) // 32,768 (part.py:13)" in notes


TRANSPORTS = [
    ('os.environ["NCCL_IB_DISABLE"] = "1"\n', 1),
    ('os.environ["NCCL_P2P_DISABLE"] = "1"\nos.environ["NCCL_SHM_DISABLE"] = "1"\n', 2),
    ('os.environ["NCCL_IB_DISABLE"] = "0"\n', 0),
    ('os.environ["NCCL_DEBUG"] = "1"\n', 0),
    ('os.environ["NCCL_P2P_DISABLE"] = "1"  # hangs on this board with the IOMMU on\n', 0),
    ("# Prepend NCCL_P2P_DISABLE=1 on your cluster\n", 1),
    ("# Do not set NCCL_P2P_DISABLE=1 on your cluster\n", 0),
    ("# If it hangs, find out with NCCL_P2P_DISABLE=1\n", 0),
    ("#   NCCL_IB_DISABLE=1 torchrun --nproc_per_node=2 part.py\n", 1),
    ('print("NCCL_IB_DISABLE=1")\n', 0),
    ("import sys\nif len(sys.argv) > 3:\n    os.environ['NCCL_IB_DISABLE'] = '1'\n", 0),
]


@pytest.mark.parametrize(("program", "count"), TRANSPORTS)
def test_transport_disabled(folder: Path, program: str, count: int) -> None:
    (folder / "part.py").write_text(HEAD + program + "dist.init_process_group('nccl')\n")
    found = check("DDP506", "part.py").findings
    assert len(found) == count
    assert all(f.severity == "info" and f.span.line >= 5 for f in found)
