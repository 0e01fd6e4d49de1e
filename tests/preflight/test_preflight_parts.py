"""The parts of a preflight that need no run: the command with the probe, what states and measurements mean, hashes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from ddp_audit.launch import LaunchError
from ddp_audit.preflight.command import read_launch, with_probe
from ddp_audit.preflight.environment import find_place
from ddp_audit.preflight.job import read_job
from ddp_audit.preflight.launcher import meeting_of
from ddp_audit.preflight.measured import measured_problems
from ddp_audit.preflight.problems import Problem, fails, in_order, rank_list
from ddp_audit.preflight.sameness import data_facts, source_hashes
from ddp_audit.preflight.settings import Settings, decode, encode
from ddp_audit.preflight.verdicts import known_of, rank_problems

IMPORTS = "import torch\nimport torch.distributed as dist\n"
BRANCHES = (
    IMPORTS
    + """import os
backend = "nccl"
ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    dist.init_process_group(backend=backend)
else:
    dist.init_process_group("gloo", rank=0, world_size=1)
"""
)
OPTION = (
    IMPORTS
    + """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="nccl")
args = parser.parse_args()
dist.init_process_group(args.backend)
"""
)
FUNCTION = (
    IMPORTS
    + """def setup(name="nccl"):
    dist.init_process_group(name, init_method="env://")
setup()
"""
)

# -- the command --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("torchrun --nproc-per-node 2 train.py --lr 1", "torchrun --nproc-per-node 2 PROBE.py S --lr 1"),
        ("torchrun -m pkg.train a b", "torchrun -m ddp_audit_probe S a b"),
        ("python -m torch.distributed.run --nnodes 2 train.py", "python -m torch.distributed.run --nnodes 2 PROBE.py S"),
        ("python -u -m torch.distributed.launch --use-env train.py", "python -u -m torch.distributed.launch --use-env PROBE.py S"),
        ("srun -N 2 --ntasks-per-node 2 python -u train.py x=1", "srun -N 2 --ntasks-per-node 2 python -u PROBE.py S x=1"),
        ("mpirun -np 4 ./train.py", "mpirun -np 4 PYTHON PROBE.py S"),
        ("accelerate launch --num_processes 2 train.py", "accelerate launch --num_processes 2 PROBE.py S"),
        ("deepspeed --num_gpus 2 train.py --deepspeed ds.json", "deepspeed --num_gpus 2 PROBE.py S --deepspeed ds.json"),
        ("torchrun --no-python ./run.sh train.py", "torchrun --no-python PYTHON PROBE.py S train.py"),
        ("uv run torchrun train.py train.py", "uv run torchrun PROBE.py S train.py"),
        ("python train.py", "python PROBE.py S"),
        ("./train.py 1", "PYTHON PROBE.py S 1"),
        ("srun torchrun --nnodes 2 train.py", "srun torchrun --nnodes 2 PROBE.py S"),
    ],
)
def test_the_probe_stands_in_place_of_the_script(command: str, expected: str) -> None:
    import sys

    words = shlex.split(command)
    probed = with_probe(words, read_launch(words), "S")
    shown = ["PROBE.py" if word.endswith("ddp_audit_probe.py") else "PYTHON" if word == sys.executable else word for word in probed]
    assert shlex.join(shown) == expected
    assert not any(word == "train.py" for word in probed[: probed.index("S")])


@pytest.mark.parametrize("command", ["bash -c 'torchrun train.py'", "ls", "torchrun"])
def test_a_command_without_a_script_of_its_own_is_refused(command: str) -> None:
    with pytest.raises(LaunchError):
        with_probe(shlex.split(command), read_launch(shlex.split(command)), "S")


def test_settings_survive_a_command_line() -> None:
    settings = Settings("a b'", "1f", 3.5, True, "nccl", "dir/train.py", ("r",), ('d"', "$HOME"), ("s",))
    assert decode(["--local-rank=1", encode(settings), "x"]) == (settings, ["--local-rank=1", "x"])


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("torchrun --nnodes 2 --node-rank 1 --master-addr a --master-port 7 t.py", ("a", 7, 2, 2, 1)),
        ("torchrun --nnodes 2 t.py", ("127.0.0.1", 29500, 2, 2, 0)),
        ("torchrun --nnodes 2:4 --rdzv-backend c10d --rdzv-endpoint h:99 t.py", ("h", 99, 2, 4, None)),
        ("torchrun --nnodes 2 --rdzv-backend=c10d --rdzv-endpoint h t.py", ("h", 29400, 2, 2, None)),
        ("accelerate launch --num_machines 2 --num_processes 4 --machine_rank 1 --main_process_ip a t.py", ("a", 29500, 2, 2, 1)),
        ("torchrun --standalone --nproc-per-node 2 t.py", None),
        ("torchrun --nnodes 2 --rdzv-backend etcd-v2 --rdzv-endpoint h:99 t.py", None),
        ("srun -N 2 torchrun --nnodes 2 t.py", None),
        ("deepspeed --num_nodes 2 t.py", None),
    ],
)
def test_where_nodes_meet(command: str, expected: tuple[object, ...] | None) -> None:
    meeting = meeting_of(read_launch(shlex.split(command)))
    found = None if meeting is None else (meeting.address, meeting.port, meeting.least, meeting.most, meeting.rank)
    assert found == expected


def test_torchrun_variables_of_the_environment_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_NNODES", "3")
    monkeypatch.setenv("PET_NODE_RANK", "2")
    meeting = meeting_of(read_launch(["torchrun", "t.py"]))
    assert meeting is not None and (meeting.most, meeting.rank) == (3, 2)


def test_the_place_of_a_rank() -> None:
    torch = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1", "SLURM_PROCID": "1"}
    place = find_place(torch, [])
    assert (place.rank, place.world, place.local_rank, place.node, place.leads) == (5, 8, 1, "node 1", False)
    slurm = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_NODEID": "1"}
    assert (find_place(slurm, []).rank, find_place(slurm, []).node, find_place(slurm, []).leads) == (2, "node 1", True)
    mpi = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "3"}
    assert (find_place(mpi, []).rank, find_place(mpi, []).local_rank) == (3, 3)
    assert find_place({"RANK": "1", "WORLD_SIZE": "2"}, ["--local_rank=1"]).local_rank == 1
    assert find_place({}, []).world == 1


# -- what states mean ---------------------------------------------------------------------------------------------------


def state(rank: int, **changes: Any) -> dict[str, Any]:
    """A rank of nodes with two GPUs each, in which all is well."""
    device = {"count": 2, "index": rank % 2, "error": None, "name": "GPU", "uuid": f"u{rank}", "free": 70, "total": 80}
    facts = {
        "world_size": 4,
        "local_rank": rank % 2,
        "host": f"gpu{rank // 2}",
        "device": device | changes.pop("device", {}),
        "memory": {},
        "versions": {"python": "3.11", "torch": "2.13", "nccl": "2.27", "driver": "570", "cuda": "12.8"}
        | changes.pop("versions", {}),
        "variables": changes.pop("variables", {}),
    } | changes.pop("facts", {})
    whole = {
        "rank": rank,
        "node": f"node {rank // 2}",
        "leads": rank % 2 == 0,
        "facts": facts,
        "arguments": [],
        "phase": "the end",
        "step": 9,
    }
    whole |= {"at": 1.0, "ended": True, "error": None}
    return whole | ({"files": {"train.py": "a"}} if rank % 2 == 0 else {}) | changes


def found(*states: dict[str, Any], plan: dict[str, Any] | None = None, came: dict[int, float] | None = None) -> list[Problem]:
    whole = {"world": 4, "missing": [], "waited": 3.0, "backend": "nccl", "wanted": "nccl"} | (plan or {})
    job = {"ranks": {str(one["rank"]): one for one in states}, "plan": whole, "came": came or {}}
    return list(rank_problems(known_of(job, {})))


FINE = [state(rank) for rank in range(4)]


def changed(rank: int, **changes: Any) -> list[dict[str, Any]]:
    return [*FINE[:rank], state(rank, **changes), *FINE[rank + 1 :]]


def test_ranks_in_which_all_is_well() -> None:
    assert found(*FINE) == []


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"device": {"index": None, "count": 1}}, "device-missing", "LOCAL_RANK 1, and its node (node 1 (gpu1)) shows 1 GPUs"),
        ({"device": {"error": "CUDA error: busy"}}, "device-fails", "CUDA error: busy"),
        ({"device": {"uuid": "u2"}}, "device-shared", "Ranks 2-3 have one GPU of gpu1"),
        ({"device": {"index": 0, "count": 1}}, "device-index", "number 0 there"),
        ({"device": {"free": 10}}, "memory-taken", "0.0 GiB of 0.0 GiB"),
        ({"versions": {"nccl": "2.26"}}, "version-differs", "nccl differs: 2.27 on ranks 0-2, 2.26 on rank 3"),
        ({"variables": {"NCCL_IB_HCA": "mlx5_1"}}, "variable-differs", "not set on ranks 0-2, mlx5_1 on rank 3"),
        ({"arguments": ["--seed", "3"]}, "arguments-differ", "none on ranks 0-2, --seed 3 on rank 3"),
        ({"ended": False, "phase": "the ring"}, "rank-stopped", "did not come out of the ring"),
        ({"error": "ValueError: x"}, "rank-failed", "Rank 3 failed in the end: ValueError: x"),
    ],
)
def test_one_rank_that_is_not_as_the_others(changes: dict[str, Any], kind: str, words: str) -> None:
    (problem,) = found(*changed(3, **changes))
    assert problem.kind == kind
    assert words in problem.what
    assert problem.ranks in ((3,), (2, 3))
    assert problem.fix.endswith(".")


def test_arguments_that_say_a_ranks_own_place_do_not_differ() -> None:
    def with_arguments(words: list[list[str]]) -> list[str]:
        return [one.kind for one in found(*(state(rank, arguments=words[rank]) for rank in range(4)))]

    assert with_arguments([["--rank", str(rank), f"--node-rank={rank // 2}", "--lr", "1"] for rank in range(4)]) == []
    assert with_arguments([["--host", f"gpu{rank // 2}", f"--local={rank % 2}"] for rank in range(4)]) == []
    assert with_arguments([["--seed", str(rank + 1)] for rank in range(4)]) == ["arguments-differ"]
    assert with_arguments([[f"--{'ab'[rank % 2]}={rank}"] for rank in range(4)]) == ["arguments-differ"]
    assert with_arguments([["--rank", "0"], ["--rank", "1"], ["--rank", "2"], ["--rank", "2"]]) == ["arguments-differ"]


def test_the_facts_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from ddp_audit.preflight.environment import Place, describe

    def properties(index: int) -> Any:
        return type("Properties", (), {"name": f"GPU-{index}", "uuid": "1234"})()

    def failing(index: int) -> Any:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy\nmore")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (30, 80))
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    device = describe(Place(3, 4, 1, 2, "node 1", "RANK"))["device"]
    assert (device["index"], device["name"], device["uuid"], device["free"], device["total"]) == (1, "GPU-1", "1234", 30, 80)
    assert describe(Place(4, 8, 2, 4, "node 1", "RANK"))["device"]["index"] is None
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert describe(Place(3, 4, 1, 2, "node 1", "RANK"))["device"]["index"] == 0
    monkeypatch.setattr(torch.cuda, "mem_get_info", failing)
    assert describe(Place(0, 4, 0, 2, "node 0", "RANK"))["device"]["error"] == "CUDA error: all CUDA-capable devices are busy more"


def test_no_gpu_where_the_script_asks_for_nccl() -> None:
    states = [state(rank, device={"count": 0, "index": None}) for rank in range(4)]
    (problem,) = found(*states, plan={"backend": "gloo"})
    assert (problem.kind, problem.ranks) == ("backend-unavailable", (0, 1, 2, 3))
    for wanted in ("gloo", "cpu:gloo,cuda:nccl", None):
        assert found(*states, plan={"backend": "gloo", "wanted": wanted}) == []
    (unknown,) = found(*states, plan={"backend": "gloo", "wanted": "hccl"})
    assert (unknown.kind, unknown.severity) == ("backend-unknown", "info")


def test_the_backend_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    dist = pytest.importorskip("torch.distributed")
    from ddp_audit.preflight.group import choose_backend

    gpus, none = [{"index": 0, "error": None}] * 2, [{"index": 0, "error": None}, {"index": None, "error": None}]
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    assert [choose_backend(wanted, gpus) for wanted in ("nccl", "cpu:gloo,cuda:nccl", None, "gloo")] == [*["nccl"] * 3, "gloo"]
    assert [choose_backend(wanted, none) for wanted in ("nccl", "cpu:gloo,cuda:nccl", None, "gloo")] == ["gloo"] * 4


def test_missing_and_late_ranks() -> None:
    problems = found(*FINE[:3], plan={"missing": [3]})
    assert [(one.kind, one.ranks) for one in problems] == [("rank-missing", (3,))]
    (late,) = found(*FINE, came={0: 0.0, 1: 0.2, 2: 9.0, 3: 9.1})
    assert (late.kind, late.ranks, late.severity) == ("rank-late", (2, 3), "info")
    assert not fails([late])


def test_errors_that_follow_from_a_rank_that_stopped_are_no_problem_of_their_own() -> None:
    stopped = state(1, ended=False, phase="the ring", step=9)
    others = [state(rank, error="RuntimeError: Timed out", phase="the ring") for rank in (0, 2, 3)]
    problems = in_order(found(others[0], stopped, *others[1:]))
    assert [(one.kind, one.severity, one.ranks) for one in problems] == [
        ("rank-stopped", "error", (1,)),
        ("rank-failed", "info", (0, 2, 3)),
    ]


def test_the_rank_that_came_least_far_is_the_cause() -> None:
    waiting = [state(rank, ended=False, phase="the ring") for rank in (0, 2, 3)]
    cause = state(1, ended=False, phase="the clocks", step=7)
    problems = found(waiting[0], cause, *waiting[1:])
    assert [(one.ranks, one.severity) for one in problems] == [((0,), "info"), ((1,), "error"), ((2,), "info"), ((3,), "info")]
    late = [state(rank, error="RuntimeError: Timed out", phase="the first all-reduce") for rank in (0, 2, 3)]
    early = state(1, error="DistStoreError: wait timeout", phase="the process group", step=6)
    problems = found(late[0], early, *late[1:])
    assert [(one.ranks, one.severity) for one in problems] == [((0, 2, 3), "info"), ((1,), "error")]
    assert "firewall" in problems[1].fix
    waited = [state(rank, error="DistStoreError: wait timeout", phase="the process group", timed_out=True) for rank in (0, 2, 3)]
    own = state(1, error="RuntimeError: Unable to find address for: ib0", phase="the process group")
    problems = found(waited[0], own, *waited[1:])
    assert [(one.ranks, one.severity) for one in problems] == [((0, 2, 3), "info"), ((1,), "error")]


def test_a_newer_state_of_this_node_counts() -> None:
    job = {"ranks": {"0": state(0), "1": state(1, ended=False, at=1.0)}, "plan": {"missing": []}, "came": {}}
    assert [one.kind for one in rank_problems(known_of(job, {}))] == ["rank-stopped"]
    assert list(rank_problems(known_of(job, {1: state(1, at=2.0)}))) == []


# -- what measurements mean ---------------------------------------------------------------------------------------------


def measured(**changes: Any) -> list[Problem]:
    pairs = [{"ranks": [a, b], "latency": 1e-5, "busbw": 1e10} for a in range(4) for b in range(a + 1, 4)]
    whole = {
        "all_reduce": [{"elements": 1, "wrong": []}],
        "ring": {"wrong": []},
        "pairs": pairs,
        "compute": dict.fromkeys(range(4), 0.01),
        "clock": dict.fromkeys(range(4), 0.0),
    }
    job = {"ranks": {str(one["rank"]): one for one in FINE}, "plan": {"world": 4}, "came": {}}
    return list(measured_problems(known_of(job, {}), whole | changes))


def with_speeds(**speeds: float) -> list[dict[str, Any]]:
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    return [{"ranks": [a, b], "latency": 1e-5, "busbw": speeds.get(f"p{a}{b}", 1e10)} for a, b in pairs]


def test_measurements_in_which_all_is_well() -> None:
    assert measured() == []
    assert measured(compute={0: 0.01, 1: 0.03, 2: 0.01, 3: 0.02}, pairs=with_speeds(p01=0.5e10)) == []


def test_what_stands_out_of_the_measurements() -> None:
    (wrong,) = measured(all_reduce=[{"elements": 1024, "wrong": [2]}])
    assert (wrong.kind, wrong.ranks, wrong.severity) == ("wrong-sum", (2,), "error")
    (message,) = measured(ring={"wrong": [[3, 0]]})
    assert (message.kind, message.ranks) == ("wrong-message", (3, 0))
    (slow,) = measured(compute={0: 0.01, 1: 0.01, 2: 0.05, 3: 0.01})
    assert (slow.kind, slow.ranks) == ("slow-rank", (2,))
    (link,) = measured(pairs=with_speeds(p13=1e9))
    assert (link.kind, link.ranks) == ("slow-link", (1, 3))
    (adapter,) = measured(pairs=with_speeds(p02=1e9, p12=1.1e9))
    assert adapter.ranks == (2,) and "All slow links lead to rank 2" in adapter.what
    (clock,) = measured(clock={0: 0.0, 1: 0.0, 2: -4.0, 3: -4.0})
    assert (clock.kind, clock.ranks) == ("clock-offset", (2,)) and "4.0 s behind" in clock.what


def test_every_pair_is_measured_once_and_none_twice_at_a_time() -> None:
    pytest.importorskip("torch")
    from ddp_audit.preflight.communication import rounds

    for count in range(1, 10):
        found = rounds(range(count))
        assert sorted(pair for one in found for pair in one) == [(a, b) for a in range(count) for b in range(a + 1, count)]
        assert all(len({rank for pair in one for rank in pair}) == 2 * len(one) for one in found)


def test_wrong_sums_are_seen() -> None:
    torch = pytest.importorskip("torch")
    from ddp_audit.preflight.communication import _differing, _fill

    for size in (1, 1024, 2**20):
        tensor = torch.empty(size)
        _fill(tensor, 3)
        assert _differing(tensor, 3) == 0
        tensor[size // 2] += 1
        assert _differing(tensor, 3) == 1


@pytest.mark.parametrize("script", [BRANCHES, OPTION, FUNCTION])
def test_the_backend_is_read_from_the_script(tmp_path: Path, script: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(script)
    assert read_job(read_launch(["torchrun", "--nproc-per-node", "2", "train.py"]), path).backend == "nccl"


def test_a_backend_that_depends_on_the_machine_is_open(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(IMPORTS + "dist.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')\n")
    assert read_job(read_launch(["torchrun", "train.py"]), path).backend is None


def test_findings_are_those_of_this_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        IMPORTS
        + "accumulation_steps = 6\ndist.init_process_group('gloo')\nassert accumulation_steps % dist.get_world_size() == 0\n"
    )
    path = tmp_path / "train.py"
    path.write_text('"""On 8 GPUs:\n\n    torchrun --standalone --nproc-per-node 5 train.py\n"""\n' + text)
    assert read_job(read_launch(["torchrun", "--nproc-per-node", "3", "train.py"]), path).problems == []
    (problem,) = read_job(read_launch(["torchrun", "--nproc-per-node", "4", "train.py"]), path).problems
    assert (problem.kind, problem.severity) == ("DDP505", "error")
    assert "4 processes" in problem.what


# -- hashes -------------------------------------------------------------------------------------------------------------


def test_sources_are_those_that_the_script_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "train.py": "import a\nraise SystemExit(3)",
        "a.py": "from pkg import b",
        "other.py": "",
        "c.yaml": "x: 1",
    }.items():
        Path(name).write_text(text)
    Path("pkg").mkdir()
    Path("pkg/__init__.py").write_text("")
    Path("pkg/b.py").write_text("import broken, os")
    Path("broken.py").write_text("def f(:")
    hashes = source_hashes(Settings(script="train.py"), ["--config=c.yaml", "c.yaml", "missing.yaml"])
    assert set(hashes) == {"train.py", "a.py", "pkg/__init__.py", "pkg/b.py", "broken.py", "c.yaml"}
    before = dict(hashes)
    Path("broken.py").write_text("def g(:")
    after = source_hashes(Settings(script="train.py"), ["--config=c.yaml"])
    assert [name for name in before if before[name] != after[name]] == ["broken.py"]


def test_data_are_sampled(tmp_path: Path) -> None:
    size = 8 * 2**20
    path = tmp_path / "data.bin"
    whole = bytearray(size)

    def facts() -> dict[str, Any]:
        path.write_bytes(whole)
        return data_facts(str(path))

    before = facts()
    for place, field in ((5, "head"), (size - 5, "tail"), ((size - 2**16) * 8 // 17, "samples")):
        whole[place] = 1
        after = facts()
        assert after[field] != before[field]
        before = after
    folder = data_facts(str(tmp_path))
    assert (folder["kind"], folder["files"], folder["size"]) == ("folder", 1, size)
    (tmp_path / "more").write_text("")
    assert data_facts(str(tmp_path))["names"] != folder["names"]
    assert data_facts(str(tmp_path / "none")) == {"error": "No such file or directory"}


def test_lists_of_ranks() -> None:
    assert rank_list([3]) == "rank 3"
    assert rank_list([0, 1, 2, 5, 7, 8]) == "ranks 0-2, 5 and 7-8"
