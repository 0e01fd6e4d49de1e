"""`ddp-audit preflight` on real launches: two torchruns on this machine, right ones and ones with a wrong setting each.

Each way to launch, to meet, to compare and to fail has one run that is not `nightly`; those that are repeat one of these with another
setting, or with what `test_preflight_parts.py` and `test_rollcall.py` show without ranks.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.traced

pytest.importorskip("torch")

SCRIPT = """\
import helper
import torch
import torch.distributed as dist

open("imported", "w").close()
gradient_accumulation_steps = 8
batch_size = 4
block_size = 64
dist.init_process_group("BACKEND")
gradient_accumulation_steps //= dist.get_world_size()
"""


class Job:
    """Two folders, one of each node, with the same script in them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port = free_port()
        for name in ("node0", "node1"):
            (root / name).mkdir()
            self.write(name, "train.py", SCRIPT.replace("BACKEND", "gloo"))
            self.write(name, "helper.py", "value = 1\n")

    def write(self, node: str, name: str, text: str) -> None:
        (self.root / node / name).write_text(text)

    def start(
        self, node: int, *options: str, env: dict[str, str] | None = None, arguments: tuple[str, ...] = (), **launch: object
    ) -> subprocess.Popen[str]:
        """One node's preflight. `launch` are options of torchrun by name, over those of a right launch."""
        given = {"nnodes": 2, "node_rank": node, "master_addr": "127.0.0.1", "master_port": self.port, "nproc_per_node": 1}
        words = [word for name, value in (given | launch).items() for word in (f"--{name.replace('_', '-')}", str(value))]
        state = ("--dir", str(self.root / "state"), "--format", "json", "--quick")
        command = (sys.executable, "-m", "torch.distributed.run", *words, "train.py", *arguments)
        return subprocess.Popen(
            [sys.executable, "-m", "ddp_audit", "preflight", *state, *options, "--", *command],
            cwd=self.root / f"node{node}",
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_rank(self, rank: int, world: int, timeout: str) -> subprocess.Popen[str]:
        """One rank that something else starts, with the variables of torch in its environment."""
        place = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(world)}
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), "OMP_NUM_THREADS": "1"}
        state = ("--dir", f"state{rank}", "--format", "json", "--quick", "--timeout", timeout)
        return subprocess.Popen(
            [sys.executable, "-m", "ddp_audit", "preflight", *state, "--", sys.executable, "train.py"],
            cwd=self.root / f"node{rank}",
            env={**os.environ, **place, **where},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def both(
        self, *options: str, first: dict[str, Any] | None = None, second: dict[str, Any] | None = None
    ) -> list[tuple[int, dict[str, Any]]]:
        """Exit code and report of both nodes; `first` and `second` are keywords of `start`."""
        started = [self.start(0, *options, **(first or {})), self.start(1, *options, **(second or {}))]
        return [ended(process) for process in started]


def ended(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any]]:
    out, err = process.communicate(timeout=180)
    assert process.returncode in (0, 1), out + err
    return process.returncode, json.loads(out)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def problems(report: dict[str, Any], *severities: str) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in report["problems"] if one["severity"] in (severities or ("error", "warning"))}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_a_right_job_of_two_nodes(job: Job) -> None:
    (job.root / "shared").mkdir()
    for node in ("node0", "node1"):
        job.write(node, "data.bin", "tokens" * 1000)
        job.write(node, "config.py", "batch_size = 2\n")
    options = ("--data", "data.bin", "--shared", str(job.root / "shared"))
    right = {"nproc_per_node": 2, "arguments": ("config.py",)}
    (code, report), (other_code, other) = job.both(*options, first=right, second=right)
    told = {problem["kind"] for problem in (*report["problems"], *other["problems"])}
    assert told <= {"slow-rank"}, (report["problems"], other["problems"])  # on a busy machine
    assert told or (code, other_code) == (0, 0)
    assert report["version"] == 1
    assert report["whole"] is True and other["whole"] is False
    assert list(report["ranks"]) == ["0", "1", "2", "3"] and list(other["ranks"]) == ["2", "3"]
    assert [rank["node"] for rank in report["ranks"].values()] == ["node 0", "node 0", "node 1", "node 1"]
    assert [rank["local_rank"] for rank in report["ranks"].values()] == [0, 1, 0, 1]
    assert report["backend"] == {"wanted": "gloo", "used": "gloo"}
    assert [node["rank"] for node in report["meeting"]["nodes"]] == [0, 1]
    communication = report["communication"]
    assert [row["elements"] for row in communication["all_reduce"]] == [1, 2**10, 2**20]
    for row in communication["all_reduce"]:
        assert row["wrong"] == []
        assert row["algbw"] == pytest.approx(row["elements"] * 4 / row["seconds"])
        assert row["busbw"] == pytest.approx(row["algbw"] * 2 * 3 / 4)
    assert [pair["ranks"] for pair in communication["pairs"]] == [[0, 2]]
    assert communication["ring"]["wrong"] == []
    assert set(report["files"]["node 0 (" + socket.gethostname() + ")"]) == {"train.py", "helper.py", "config.py"}
    assert {look["path"] for looks in report["shared"].values() for look in looks} == {str(job.root / "shared")}
    assert list((job.root / "shared").iterdir()) == []
    update = report["job"]["update"]
    assert (update["world_size"], update["a"], update["B"], update["T"], update["tokens_per_update"]) == (4, 2, 2, 64, 1024)
    assert not (job.root / "node0" / "imported").exists() and not (job.root / "node1" / "imported").exists()


# -- the nodes do not meet ----------------------------------------------------------------------------------------------


def test_a_wrong_port(job: Job) -> None:
    (code, report), (other_code, other) = job.both("--wait", "5", second={"master_port": free_port()})
    assert (code, other_code) == (1, 1)
    assert "port-differs" in problems(report) and "port-differs" in problems(other)
    assert str(job.port) in problems(other)["port-differs"]["what"]
    assert report["ranks"] == other["ranks"] == {}


@pytest.mark.nightly
def test_a_wrong_port_without_a_common_folder(job: Job) -> None:
    (_, report), (_, other) = job.both("--wait", "4", "--dir", "state", second={"master_port": free_port()})
    assert problems(report)["node-missing"]["nodes"] == ["node 1"]
    assert "nobody listens" in problems(other)["port-refused"]["what"]
    assert other["meeting"]["failure"] == "refused"


@pytest.mark.nightly
@pytest.mark.parametrize("first, second", [(2, 3), (3, 2), (1, 2)])
def test_a_wrong_number_of_nodes(job: Job, first: int, second: int) -> None:
    (_, report), (other_code, other) = job.both("--wait", "6", first={"nnodes": first}, second={"nnodes": second})
    assert other_code == 1
    said = problems(other)["nodes-differ"]["what"]
    assert f"--nnodes {first}" in said and f"--nnodes {second}" in said
    if first > 1:
        assert "nodes-differ" in problems(report)


def test_a_node_that_does_not_come(job: Job) -> None:
    code, report = ended(job.start(0, "--wait", "2"))
    assert code == 1
    missing = problems(report)["node-missing"]
    assert missing["nodes"] == ["node 1"]
    assert "after 2 s" in missing["what"] and "1 of 2 are there" in missing["what"]
    code, report = ended(job.start(1, "--wait", "2"))
    assert code == 1
    assert "port-refused" in problems(report)


@pytest.mark.nightly
def test_two_nodes_with_one_rank(job: Job) -> None:
    host = job.start(0, "--wait", "6", nnodes=3)
    twins = [job.start(1, "--wait", "6", nnodes=3) for _ in range(2)]
    reports = [ended(process)[1] for process in (host, *twins)]
    assert "2 nodes say that they are node 1" in problems(reports[0])["node-rank-repeated"]["what"]
    assert any("node-rank-repeated" in problems(one) for one in reports[1:])


def test_another_program_at_the_port(job: Job) -> None:
    with socket.create_server(("127.0.0.1", job.port)) as server:
        server.listen()
        (_, report), (_, other) = job.both("--wait", "2")
    assert "port-in-use" in problems(report)
    assert "stranger-at-port" in problems(other)


def test_an_address_that_is_no_machine(job: Job) -> None:
    code, report = ended(job.start(1, "--wait", "1", master_addr="no-such-node.invalid"))
    assert code == 1
    assert "no-such-node.invalid" in problems(report)["address-unknown"]["what"]


# -- the ranks are not alike --------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_variable_that_differs(job: Job) -> None:
    (code, report), _ = job.both(second={"env": {"NCCL_P2P_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo"}})
    assert code == 1
    assert list(problems(report)) == ["variable-differs"]
    assert problems(report)["variable-differs"]["ranks"] == [1]
    assert "NCCL_P2P_DISABLE differs: not set on rank 0, 1 on rank 1." in problems(report)["variable-differs"]["what"]
    assert "NCCL_SOCKET_IFNAME" in problems(report, "info")["variable-differs"]["what"]


def test_a_script_file_and_arguments_that_differ(job: Job) -> None:
    job.write("node1", "helper.py", "value = 2\n")
    job.write("node1", "train.py", (job.root / "node1/train.py").read_text().replace("import helper\n", "import helper, more\n"))
    job.write("node1", "more.py", "")
    (code, report), _ = job.both(second={"arguments": ("--lr", "0.1")})
    assert code == 1
    found = problems(report)
    # A busy machine may make a rank slow, which is the matter of another test.
    assert sorted(found.keys() - {"slow-rank"}) == ["arguments-differ", "file-differs", "file-missing"]
    assert "has another helper.py and train.py." in found["file-differs"]["what"]
    assert found["file-differs"]["ranks"] == [1] and found["file-missing"]["ranks"] == [0]
    assert "more.py" in found["file-missing"]["what"]
    assert "--lr 0.1 on rank 1" in found["arguments-differ"]["what"]


def test_data_that_differ(job: Job) -> None:
    tokens = bytearray(5 * 2**20)
    (job.root / "node0/tokens.bin").write_bytes(tokens)
    tokens[-1] = 1
    (job.root / "node1/tokens.bin").write_bytes(tokens)
    job.write("node0", "val.bin", "12345")
    job.write("node1", "val.bin", "1234")
    job.write("node0", "only.bin", "1")
    (code, report), _ = job.both("--data", "tokens.bin", "--data", "val.bin", "--data", "only.bin")
    assert code == 1
    said = [one["what"] for one in report["problems"]]
    assert any("tokens.bin of node 1" in one and "the last MiB, and not in size" in one for one in said)
    assert any("val.bin of node 1" in one and "size: 5 on rank 0, 4 on rank 1" in one for one in said)
    assert any("does not have the data only.bin: No such file" in one for one in said)
    assert {one["kind"] for one in report["problems"]} == {"data-differs", "data-missing"}


@pytest.mark.nightly
def test_a_folder_that_is_not_shared(job: Job) -> None:
    (job.root / "node0/out").mkdir()
    (job.root / "node1/out").mkdir()
    (code, report), (other_code, other) = job.both("--shared", "out")
    assert (code, other_code) == (1, 1)
    assert set(problems(report)) == {"not-shared"} == set(problems(other))
    assert "every node sees its own file alone" in problems(report)["not-shared"]["what"]
    assert list((job.root / "node0/out").iterdir()) == [] == list((job.root / "node1/out").iterdir())


def test_a_folder_that_one_node_alone_has(job: Job) -> None:
    (job.root / "node0/out").mkdir()
    (code, report), _ = job.both("--shared", "out")
    assert code == 1
    assert set(problems(report)) == {"not-shared", "not-writable"}
    assert problems(report)["not-writable"]["ranks"] == [1]
    assert "rank 1 (node 1" in problems(report)["not-shared"]["what"]


@pytest.mark.nightly
def test_a_backend_that_cannot_be_had(job: Job) -> None:
    for node in ("node0", "node1"):
        job.write(node, "train.py", SCRIPT.replace("BACKEND", "nccl"))
    hidden = {"env": {"CUDA_VISIBLE_DEVICES": ""}}
    (code, report), _ = job.both(first=hidden, second=hidden)
    assert code == 1
    assert list(problems(report)) == ["backend-unavailable"]
    assert problems(report)["backend-unavailable"]["ranks"] == [0, 1]
    assert report["backend"] == {"wanted": "nccl", "used": "gloo"}
    assert report["communication"]["all_reduce"][-1]["wrong"] == []


# -- ranks that stop, fail or are slow ----------------------------------------------------------------------------------


def when_there(job: Job, rank: int, act: Callable[[int], None]) -> threading.Thread:
    """Calls `act` with the pid of a rank as soon as it has written its facts."""

    def wait() -> None:
        end = time.monotonic() + 90
        while time.monotonic() < end:
            for path in (job.root / "state").glob(f"preflight-*-rank-{rank:05}.json"):
                pid = json.loads(path.read_text()).get("facts", {}).get("pid")
                if pid:
                    act(pid)
                    return
            time.sleep(0.002)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize("number", [signal.SIGSTOP, pytest.param(signal.SIGKILL, marks=pytest.mark.nightly)], ids=["stops", "dies"])
def test_a_rank_that_stops_or_dies(job: Job, number: signal.Signals) -> None:
    thread = when_there(job, 1, lambda pid: os.kill(pid, number))
    (code, report), (other_code, other) = job.both("--timeout", "12")
    thread.join()
    assert (code, other_code) == (1, 1)
    blamed = [one for one in report["problems"] if one["severity"] == "error"]
    assert {one["kind"] for one in blamed} <= {"rank-stopped", "rank-missing"}
    assert [one["ranks"] for one in blamed] == [[1]]
    assert any(one["ranks"] == [1] for one in other["problems"])
    assert report["ranks"]["0"]["host"] == socket.gethostname()


def test_a_node_whose_command_fails(job: Job) -> None:
    (job.root / "broken").mkdir()
    (job.root / "broken" / "torch.py").write_text("raise ImportError('this torch is broken')\n")
    (code, report), (other_code, other) = job.both(second={"env": {"PYTHONPATH": str(job.root / "broken")}})
    assert (code, other_code) == (1, 1)
    assert "this torch is broken" in problems(other)["no-rank"]["what"]
    assert "node 1" in problems(report)["node-failed"]["what"]


@pytest.mark.nightly
def test_ranks_that_reach_the_store_and_not_each_other(job: Job) -> None:
    (code, report), _ = job.both("--timeout", "10", second={"env": {"GLOO_SOCKET_IFNAME": "nosuch0"}})
    assert code == 1
    failed = problems(report)["rank-failed"]
    assert failed["ranks"] == [1]
    assert "nosuch0" in failed["what"] and "GLOO_SOCKET_IFNAME" in failed["fix"]
    assert problems(report, "info")["rank-failed"]["ranks"] == [0]


@pytest.mark.nightly
def test_a_slow_rank(job: Job) -> None:
    """Rank 1 gets the processor for a few milliseconds out of every four hundred while the ranks compute."""
    over = threading.Event()

    def throttle(pid: int) -> None:
        state = next((job.root / "state").glob("preflight-*-rank-00001.json"))
        try:
            while not over.is_set():
                if "speed" in json.loads(state.read_text())["phase"]:
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(0.4)
                    os.kill(pid, signal.SIGCONT)
                time.sleep(0.003)
        except ProcessLookupError:
            return

    thread = when_there(job, 1, throttle)
    (code, report), _ = job.both("--timeout", "60")
    over.set()
    thread.join()
    compute = report["communication"]["compute"]
    assert compute["1"] > 4 * compute["0"]
    assert code == 1
    assert problems(report)["slow-rank"]["ranks"] == [1]


# -- other launches -----------------------------------------------------------------------------------------------------


def alone(job: Job, *words: str) -> dict[str, Any]:
    """The report of a command of `python -m ..` in the first node's folder, in which all is well but for a rank that a busy
    machine makes slow."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=job.root / "node0",
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    wrong = [problem["kind"] for problem in report["problems"] if problem["severity"] != "info"]
    assert done.returncode == int(bool(wrong)) and set(wrong) <= {"slow-rank"}, done.stdout + done.stderr
    return report


def test_within_torchrun(job: Job) -> None:
    options = ("--quick", "--format", "json", "--dir", "state")
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    report = alone(job, *launcher, "-m", "ddp_audit.preflight", *options, "train.py", "--lr", "1")
    assert report["whole"] and list(report["ranks"]) == ["0", "1"]
    assert report["ranks"]["1"]["arguments"] == ["--lr", "1"]
    assert report["job"]["update"]["tokens_per_update"] == 2048
    assert not (job.root / "node0" / "imported").exists()


PREFLIGHT = ("ddp_audit", "preflight", "--quick", "--format", "json")
SRUN = """\
#!/bin/sh
# What srun does for two nodes of one task each, on this machine.
while [ "${1#-}" != "$1" ]; do shift; done
for node in 0 1; do
    SLURM_PROCID=$node SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_NODEID=$node MASTER_ADDR=127.0.0.1 MASTER_PORT=PORT "$@" &
done
wait
"""


def test_a_launcher_that_starts_all_nodes(job: Job) -> None:
    srun = job.root / "srun"
    srun.write_text(SRUN.replace("PORT", str(job.port)))
    srun.chmod(0o755)
    task = (sys.executable, "train.py", "--lr", "1")
    report = alone(job, *PREFLIGHT, "--", str(srun), "-N2", "--ntasks-per-node=1", *task)
    assert report["meeting"] is None and report["whole"]
    assert [rank["node"] for rank in report["ranks"].values()] == ["node 0", "node 1"]
    assert report["job"]["update"]["world_size"] == 2
    assert report["ranks"]["1"]["arguments"] == ["--lr", "1"]


@pytest.mark.parametrize(("nnodes", "codes"), [(2, (0,)), (3, (1,))])
def test_a_launcher_that_is_started_on_each_node(job: Job, nnodes: int, codes: tuple[int, ...]) -> None:
    srun = job.root / "srun"
    srun.write_text(
        SRUN.replace("PORT", str(job.port)).replace(
            "\nwait\n", "\ncode=0\nfor job in 1 2; do wait %$job || code=1; done\nexit $code\n"
        )
    )
    srun.chmod(0o755)
    meet = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{job.port}", "--nproc-per-node", "1")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nnodes", str(nnodes), *meet, "train.py")
    done = subprocess.run(
        [sys.executable, "-m", *PREFLIGHT, "--wait", "5", "--", str(srun), "-N2", "--ntasks-per-node=1", *torchrun],
        cwd=job.root / "node0",
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    report = json.loads(done.stdout)
    assert done.returncode in codes or set(problems(report)) == {"slow-rank"}, done.stdout + done.stderr
    assert len(report["meeting"]["nodes"]) == 2
    assert ("node-missing" in problems(report)) is (nnodes == 3)
    assert report["whole"] is (nnodes == 2)


def test_a_script_that_starts_its_own_processes(job: Job) -> None:
    script = """\
import torch.distributed as dist
import torch.multiprocessing as mp

def train(rank, world):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500", rank=rank, world_size=world)

if __name__ == "__main__":
    mp.spawn(train, args=(2,), nprocs=2)
"""
    job.write("node0", "train.py", script)
    report = alone(job, *PREFLIGHT, "--", sys.executable, "train.py")
    assert list(report["ranks"]) == ["0", "1"]
    assert report["communication"]["ring"]["wrong"] == []


@pytest.mark.nightly
def test_a_rank_that_does_not_come(job: Job) -> None:
    code, report = ended(job.start_rank(0, 2, "12"))
    assert code == 1
    missing = problems(report)["rank-missing"]
    assert missing["ranks"] == [1]
    assert "has not come to the store after" in missing["what"]
    assert report["ranks"]["0"]["error"] is None
    code, report = ended(job.start_rank(1, 2, "12"))
    assert code == 1
    assert list(problems(report)) in (["rank-stopped"], ["rank-failed"])
    assert f"127.0.0.1:{job.port}" in report["problems"][0]["what"]


@pytest.mark.nightly
def test_ranks_that_something_else_starts(job: Job) -> None:
    started = [job.start_rank(rank, 2, "60") for rank in range(2)]
    (code, report), (other_code, _) = [ended(process) for process in started]
    assert (code, other_code) == (0, 0), report["problems"]
    assert list(report["ranks"]) == ["0", "1"]
    assert report["job"]["update"]["world_size"] == 2
