"""Launches in shell and batch scripts, Makefiles, manifests and editors' files; the documents beside a script."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ddp_audit.launch import Launch, documented_launches
from ddp_audit.launch.beside import documents_beside
from ddp_audit.launch.shell import batch_job, gpus_in


def read(text: str, path: str) -> list[Launch]:
    return documented_launches(textwrap.dedent(text), path)


def test_variables_of_the_same_script() -> None:
    first, second, third, fourth, fifth = read(
        """\
        GPUS=${GPUS:-8}
        export NODES=2
        ALL=$((NODES * GPUS))
        WHERE="--nnodes $NODES --nproc_per_node $GPUS \\
          --node_rank $RANK --master_port 29500"
        OPTIONS=(
          --lr 3   # the rate
          --batch-size $ALL
        )
        torchrun $WHERE fit.py "${OPTIONS[@]}"
        if [ -n "$DEBUG" ]; then
          GPUS=2
          torchrun --nproc_per_node=$GPUS fit.py
        fi
        torchrun --nproc_per_node=$GPUS fit.py
        for n in 1 2; do
          torchrun --nproc_per_node=$n fit.py
        done
        torchrun --nproc_per_node=$1 fit.py
        """,
        "run.sh",
    )
    assert first.world_size == 16 and first.script_args == ("--lr", "3", "--batch-size", "16")
    assert first.node_rank == "$RANK"
    assert first.origin("nproc_per_node") == "--nproc_per_node 8, with GPUS=8 (run.sh:1) in WHERE (run.sh:4)"
    assert first.origin("nnodes") == "--nnodes 2, with NODES=2 (run.sh:2) in WHERE (run.sh:4)"
    assert second.world_size == 2
    assert third.symbolic == ["nproc_per_node=$GPUS"]  # the branch may have set it
    assert fourth.symbolic == ["nproc_per_node=$n"]
    assert fifth.symbolic == ["nproc_per_node=$1"]
    assert third.origin("nnodes") == "default of torchrun"


def test_a_command_kept_in_a_variable_is_one_launch() -> None:
    (one,) = read('N=4\nCMD="torchrun --nproc_per_node=$N fit.py"\nsrun --nodes=2 --ntasks-per-node=1 bash -c "$CMD"\n', "run.sh")
    assert (one.line, one.through, one.nproc_per_node, one.tasks, one.tasks_per_node) == (3, "srun", 4, 2, 1)


def test_batch_script() -> None:
    ranks, launcher = read(
        """\
        #!/bin/bash
        #SBATCH -N 2
        #SBATCH --ntasks-per-node=4
        #SBATCH --gres=gpu:a100:4
        srun python fit.py
        srun --ntasks-per-node=1 torchrun --nnodes=$SLURM_NNODES --nproc_per_node=$SLURM_GPUS_ON_NODE --node_rank=$SLURM_NODEID fit.py
        """,
        "job.slurm",
    )
    assert (ranks.kind, ranks.world_size, ranks.given_gpus) == ("srun", 8, 4)
    assert ranks.origin("nnodes") == "#SBATCH -N 2 (job.slurm:2)"
    assert ranks.origin("nproc_per_node") == "#SBATCH --ntasks-per-node=4 (job.slurm:3)"
    assert (launcher.kind, launcher.world_size, launcher.tasks_per_node, launcher.given_nodes) == ("torchrun", 8, 1, 2)
    assert "SLURM_NNODES=2 (#SBATCH -N 2 (job.slurm:2))" in launcher.origin("nnodes")


@pytest.mark.parametrize(
    ("text", "count"),
    [("gpu:4", 4), ("gpu:a100:8", 8), ("a100:2", 2), ("4", 4), ("craynetwork:1,gpu:3", 3), ("", None), ("gpu", None)],
)
def test_numbers_of_gpus(text: str, count: int | None) -> None:
    assert gpus_in(text) == count


def test_directives_that_are_no_numbers_say_nothing() -> None:
    job = batch_job(["#SBATCH --nodes=2-4", "#SBATCH --ntasks=$N", "echo", "#SBATCHX --nodes=3"], "job.sh")
    assert (job.nodes, job.tasks, job.tasks_per_node) == (None, None, None)


def test_makefile() -> None:
    first, second = read(
        "NPROC ?= 4\nARGS = --lr 3 \\\n  --seed 1\n.PHONY: train\ntrain: data\n\t@echo go; torchrun --nproc_per_node=$(NPROC) fit.py $(ARGS)\n"
        "two:\n\ttorchrun --nnodes 2 \\\n\t  --nproc_per_node=$$N fit.py\n",
        "Makefile",
    )
    assert (first.line, first.world_size, first.script_args) == (6, 4, ("--lr", "3", "--seed", "1"))
    assert first.origin("nproc_per_node") == "--nproc_per_node=4, with NPROC=4 (Makefile:1)"
    assert (second.line, second.end_line, second.nnodes, second.symbolic) == (8, 9, 2, ["nproc_per_node=$N"])


JOB = """\
kind: PyTorchJob
spec:
  nprocPerNode: "4"
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers:
            - command: [torchrun, fit.py]
              args: ["--lr", "3"]
              resources: {limits: {nvidia.com/gpu: 2}}
    Worker:
      replicas: 3
      template:
        spec:
          containers:
            - env: [{name: NP, value: "8"}]
              command:
                - bash
                - -c
                - |
                  echo ready
                  torchrun --nnodes=2 --nproc_per_node=$(NP) fit.py
"""


def test_kubernetes_job() -> None:
    master, worker = documented_launches(JOB, "job.yaml")
    assert (master.nnodes, master.nproc_per_node, master.world_size, master.line) == (4, 4, 16, 10)
    assert master.origin("nnodes") == "replicas: Master 1 + Worker 3 (job.yaml:6)"
    assert master.origin("nproc_per_node") == "nprocPerNode: 4 (job.yaml:3)"
    assert (master.given_gpus, master.script_args) == (2, ("--lr", "3"))
    assert (worker.nnodes, worker.nproc_per_node, worker.given_nodes, worker.line) == (2, 8, 4, 24)
    (rank,) = [
        one for one in documented_launches(JOB.replace("[torchrun, fit.py]", "[python, fit.py]"), "job.yaml") if one.line == 10
    ]
    assert (rank.kind, rank.world_size) == ("PyTorchJob", 4)


def test_compose() -> None:
    first, second = read(
        """\
        services:
          a:
            command: torchrun --nnodes=2 --node_rank=0 --nproc_per_node=4 --master_addr=a --master_port=29500 fit.py
          b:
            environment:
              MY_RANK: "1"
            command: ["torchrun", "--nnodes=2", "--node_rank=${MY_RANK}", "--nproc_per_node=4", "fit.py"]
        """,
        "docker-compose.yml",
    )
    assert [(one.world_size, one.node_rank, one.line) for one in (first, second)] == [(8, 0, 3), (8, 1, 7)]


def test_editor_launch_file() -> None:
    text = """\
    {
    \t// how it is debugged
    \t"configurations": [
    \t\t{
    \t\t\t"name": "two", /* ranks */
    \t\t\t"module": "torch.distributed.run",
    \t\t\t"args": ["--nproc_per_node", "2", "${workspaceFolder}/fit.py", "--url", "http://a/b",],
    \t\t\t"env": {"CUDA_VISIBLE_DEVICES": "0"},
    \t\t},
    \t\t{"name": "one", "program": "${workspaceFolder}/fit.py"},
    \t],
    }
    """
    two, one = read(text, ".vscode/launch.json")
    assert (two.line, two.world_size, two.script, two.given_gpus) == (4, 2, "fit.py", 1)
    assert two.script_args == ("--url", "http://a/b")
    assert (one.line, one.kind, one.script) == (10, "python", "fit.py")


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
@pytest.mark.parametrize("text", ["{{ torchrun", "a: [torchrun x.py", "- torchrun\n\t- x", "torchrun: &a *a"])
def test_broken_manifests_say_nothing(name: str, text: str) -> None:
    assert documented_launches(text, name) == []


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("fit.py", "other/fit.py", "tools/sub/eval.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def beside(project: Path, script: str) -> list[tuple[str | None, int | None, int | None]]:
    return [(one.path, one.line, one.world_size) for one in documents_beside(str(project / script)).launches]


def test_documents_beside_a_script(project: Path) -> None:
    (project / "README.md").write_text(
        "Start it:\n\n```sh\ntorchrun --nproc_per_node=4 fit.py\ncd other && torchrun --nproc_per_node=2 fit.py\n```\n"
    )
    (project / "scripts").mkdir()
    (project / "scripts/run.sh").write_text("torchrun --nproc_per_node=8 fit.py\ntorchrun --nproc_per_node=3 tools/sub/eval.py\n")
    (project / "notes.txt").write_text("fit.py is a script\n")
    assert beside(project, "fit.py") == [("README.md", 4, 4), ("scripts/run.sh", 1, 8)]
    assert beside(project, "other/fit.py") == [("README.md", 5, 2)]
    assert beside(project, "tools/sub/eval.py") == [("scripts/run.sh", 2, 3)]
    assert list(documents_beside(str(project / "fit.py")).texts) == ["README.md", "scripts/run.sh"]


def test_accelerate_with_its_config_file(project: Path) -> None:
    (project / "acc.yaml").write_text(
        "num_machines: 2\nnum_processes: 16\nmachine_rank: 1\nmain_process_port: 29511\ngpu_ids: 0,1\n"
    )
    (project / "run.sh").write_text("accelerate launch --config_file acc.yaml --machine_rank 0 fit.py\naccelerate launch fit.py\n")
    given, own = documents_beside(str(project / "fit.py")).launches
    assert (given.world_size, given.nnodes, given.nproc_per_node, given.node_rank, given.master_port) == (16, 2, 8, 0, 29511)
    assert given.origin("nproc_per_node") == "num_processes: 16 (acc.yaml:2)"
    assert given.given_gpus == 2
    assert own.world_size is None and own.origin("nproc_per_node") == "accelerate's own configuration"


def test_yaml_is_read_only_where_a_manifest_starts_the_script(project: Path) -> None:
    (project / "README.md").write_text("torchrun --nproc_per_node=4 fit.py\n")
    (project / "data.yaml").write_text("a: 1\n")
    probe = "import sys; from ddp_audit.cli import main; main(['fit.py', '--no-cache', '--format', 'json']); print('yaml' in sys.modules)"
    (project / "fit.py").write_text("import torch.distributed as dist\ndist.init_process_group('gloo')\n")

    def last_line() -> str:
        done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.splitlines()[-1]

    assert last_line() == "False"
    (project / "job.yaml").write_text("run: torchrun --nproc_per_node=4 fit.py\n")
    assert last_line() == "True"


COMMAND = "torchrun --nnodes 2 --node-rank 0 --master-addr localhost --nproc-per-node 2 train.py"
OWN_LOGS = {
    "trace": f"ddp-audit: audit of train.py\ntrain.py: W = 2 x 2 = 4 processes, from {COMMAND}\nNo hazards found in 1 file.\n\n"
    f"ddp-audit: {COMMAND} (trace in ddp-trace)\n",
    "check": f"train.py: W = 2 x 2 = 4 processes, from {COMMAND}\nNo hazards found in 1 file.\n",
    "finding": f"README.md:3:1: DDP504 warning launch-mismatch [likely] The job has 2 nodes.\n    launch: README.md:3: {COMMAND}\n",
}
RUN_JSON = '{"version": 1, "run": "1", "tool": {"name": "ddp-audit", "version": "0.1.0"}, "command": ["torchrun"]}'


@pytest.mark.parametrize("name", ["run.txt", "run.sh", "train.job", "out.yaml"])
@pytest.mark.parametrize("kind", OWN_LOGS)
def test_a_log_of_the_tools_own_is_no_document(project: Path, kind: str, name: str) -> None:
    (project / "train.py").write_text("")
    (project / name).write_text(OWN_LOGS[kind])
    assert beside(project, "train.py") == []


@pytest.mark.parametrize("text", [f"$ ddp-audit trace -- {COMMAND}\n", f"How ddp-audit: helps\n\n{COMMAND}\n"])
def test_a_text_that_tells_how_to_call_the_tool_is_one(project: Path, text: str) -> None:
    (project / "train.py").write_text("")
    (project / "run.txt").write_text(text)
    assert len(beside(project, "train.py")) == 1


def test_a_readme_that_shows_what_the_tool_prints_is_still_read(project: Path) -> None:
    (project / "train.py").write_text("")
    (project / "README.md").write_text(f"```bash\n{COMMAND}\n```\n\n```text\nddp-audit: audit of train.py\n```\n")
    assert len(beside(project, "train.py")) == 1


@pytest.mark.parametrize(
    ("described", "read"),
    [(RUN_JSON, 0), (RUN_JSON.replace("ddp-audit", "another tool"), 1), ("[" * 100_000, 1), ("{", 1), ('{"tool": 3}', 1), ("", 1)],
)
def test_what_lies_in_a_trace_folder_is_no_document(project: Path, described: str, read: int) -> None:
    (project / "train.py").write_text("")
    (project / "runs").mkdir()
    (project / "runs" / "job.sh").write_text(f"{COMMAND}\n")
    (project / "runs" / "run.json").write_text(described)
    assert len(beside(project, "train.py")) == read


def test_a_project_that_holds_its_trace_is_still_read(project: Path) -> None:
    (project / "train.py").write_text("")
    (project / "run.json").write_text(RUN_JSON)
    (project / "job.sh").write_text(f"{COMMAND}\n")
    assert len(beside(project, "train.py")) == 1
