"""The trace folder between its launchers: nodes of one job share it, another run does not get in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddp_audit.compare.verdict import compare_run
from ddp_audit.trace import folder as folders
from ddp_audit.trace.folder import FolderError, TraceFolder
from ddp_audit.trace.launcher import LaunchError, run_traced
from ddp_audit.trace.store import load_run
from ddp_audit.trace.worker import layout
from ddp_audit.trace.worker.ring import Ring

ONE = ["torchrun", "--standalone", "--nproc-per-node", "2", "train.py"]


def node(rank: int, port: int = 29500) -> list[str]:
    """The command of one node of a job of two."""
    return f"torchrun --nnodes 2 --node-rank {rank} --nproc-per-node 8 --master-addr a --master-port {port} train.py".split()


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes this process one of another host."""
    return lambda host: monkeypatch.setattr(folders.socket, "gethostname", lambda: host)


def meta_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / layout.RUN_FILE).read_text())
    return found


def test_nodes_of_a_job_share_a_folder(tmp_path: Path, on: Callable[[str], None]) -> None:
    on("a")
    first = TraceFolder(tmp_path, node(0))
    assert not first.is_shared
    (tmp_path / "rank-00000.ddptrace").write_bytes(b"what node 0 has written")
    on("b")
    second = TraceFolder(tmp_path, node(1))
    assert second.run == first.run
    assert first.is_shared and second.is_shared
    assert (tmp_path / "rank-00000.ddptrace").exists()
    assert [first.errors.name, second.errors.name] == ["stderr.log", "stderr-1.log"]
    first.close(0, killed=None)
    assert "exit_code" not in meta_of(tmp_path)  # node 1 goes on
    second.close(3, killed=[2])
    meta = meta_of(tmp_path)
    assert (meta["exit_code"], meta["killed"], meta["killed_ranks"]) == (3, True, [2])


def test_ranks_of_folders_put_together_are_of_one_run(tmp_path: Path) -> None:
    assert TraceFolder(tmp_path / "a", node(0)).run == TraceFolder(tmp_path / "b", node(1)).run
    assert TraceFolder(tmp_path / "c", node(1, port=1)).run != TraceFolder(tmp_path / "d", node(1, port=2)).run
    assert TraceFolder(tmp_path / "e", ONE).run != TraceFolder(tmp_path / "f", ONE).run


@pytest.mark.parametrize("how", ["the same node again", "after its end", "long after", "another job"])
def test_another_attempt_begins_anew(tmp_path: Path, on: Callable[[str], None], how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on("a")
    TraceFolder(tmp_path, node(0)).close(1, killed=False) if how == "after its end" else TraceFolder(tmp_path, node(0))
    (tmp_path / "rank-00000.ddptrace").write_bytes(b"of the first attempt")
    on("b")
    if how == "long after":
        now = time.time()
        monkeypatch.setattr(folders.time, "time", lambda: now + 3600)
    TraceFolder(tmp_path, node(0 if how == "the same node again" else 1, port=1 if how == "another job" else 29500))
    assert not (tmp_path / "rank-00000.ddptrace").exists()
    assert len(meta_of(tmp_path)["nodes"]) == 1


def test_a_launcher_that_was_killed_leaves_the_folder_free(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from ddp_audit.trace.folder import TraceFolder; TraceFolder(Path({str(tmp_path)!r}), {ONE})"
    subprocess.run([sys.executable, "-c", code], check=True)
    TraceFolder(tmp_path, ONE)
    assert meta_of(tmp_path)["nodes"][0]["pid"] == os.getpid()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    TraceFolder(tmp_path, ONE)
    with pytest.raises(FolderError, match=rf"the trace of another run goes there \(pid {os.getpid()}\)"):
        TraceFolder(tmp_path, ONE)
    with pytest.raises(LaunchError, match="give another --dir"):
        run_traced(ONE, directory=tmp_path)


def test_ranks_whose_launcher_is_gone_keep_their_folder(tmp_path: Path) -> None:
    ring = Ring(str(tmp_path / layout.FILE_PATTERN.format(0)), 0, 1 << 21)
    ring.heartbeat(time.time())
    with pytest.raises(FolderError, match="a rank of another run still writes there"):
        TraceFolder(tmp_path, ONE)
    ring.heartbeat(time.time() - 60)
    TraceFolder(tmp_path, ONE)
    assert not list(tmp_path.glob("rank-*"))


SCRIPT = """
import torch, torch.distributed as dist
import torch.distributed.nn
dist.init_process_group("gloo")
for _ in range(3):
    dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
"""


@pytest.mark.traced
def test_two_launchers_of_one_job(tmp_path: Path) -> None:
    """Two torchruns, as on two nodes, into one folder: one run of two ranks, and each launcher sees both."""
    (tmp_path / "train.py").write_text(SCRIPT)
    with folders.socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    code = "import sys; from ddp_audit.cli import main; sys.exit(main())"
    rest = [
        "--no-check",
        "--dir",
        "trace",
        "--",
        "torchrun",
        "--nnodes",
        "2",
        "--master-addr",
        "127.0.0.1",
        "--master-port",
        str(port),
    ]
    nodes = [
        subprocess.Popen(
            [sys.executable, "-c", code, "trace", *rest, "--node-rank", str(rank), "train.py"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for one in nodes:
        told, _ = one.communicate(timeout=120)
        assert one.returncode == 0, told
        assert "The 2 ranks agree" in told
    run = load_run(tmp_path / "trace")
    assert sorted(run.ranks) == [0, 1] and run.complete
    assert compare_run(run).verdict == "agreed"
    assert [node["rank"] for node in sorted(meta_of(tmp_path / "trace")["nodes"], key=lambda node: node["rank"])] == [0, 1]


@pytest.mark.parametrize("name", ["run.lock", "run.json"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    if name == "run.json":
        assert TraceFolder(tmp_path, ONE).run == meta_of(tmp_path)["run"]
        return
    with pytest.raises(FolderError, match="cannot hold the trace"):
        TraceFolder(tmp_path, ONE)
