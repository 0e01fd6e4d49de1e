"""Suppression comments in documents, each in the comment syntax of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddp_audit.cli import main
from ddp_audit.source.suppress_documents import document_suppressions

SCRIPT = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(2, 2))
"""
README = "# Training\n\nTrain on two GPUs:\n\n```bash\ntorchrun --nproc_per_node 4 train.py\n```\n"
JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:2\nsrun torchrun --nnodes 2 --nproc_per_node 4 \\\n  train.py\n"
SHELL = "export NCCL_P2P_DISABLE=1\ntorchrun --nproc_per_node 4 train.py\n"
MAKE = "train:\n\tNCCL_P2P_DISABLE=1 torchrun --nproc_per_node 4 train.py\n"
MARK = "ddp-audit: ignore"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def report(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[tuple[str, str, int]], int]:
    """Code, path and line of each finding outside of the script, and how many were suppressed."""
    main([*(words or (".",)), "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert not document["errors"]
    return [(f["code"], f["path"], f["line"]) for f in document["findings"] if f["path"] != "train.py"], document["suppressed"]


@pytest.mark.parametrize(
    ("name", "text", "code", "line", "suppressed"),
    [
        ("README.md", README, "DDP504", 3, README.replace("train.py\n", f"train.py  # {MARK}[DDP504] node of four\n")),
        ("README.md", README, "DDP504", 3, README.replace("```bash", f"<!-- {MARK}[DDP504] node of four -->\n\n```bash")),
        ("README.md", README, "DDP504", 3, README.replace("Train on", f"<!-- {MARK}[launch-mismatch] -->\nTrain on")),
        ("README.md", README, "DDP504", 3, f"<!-- {MARK}-file[DDP504] -->\n" + README),
        ("job.slurm", JOB, "DDP504", 4, JOB.replace("srun", f"# {MARK}[DDP504]\nsrun")),
        ("job.slurm", JOB, "DDP504", 4, JOB.replace("train.py\n", f"train.py  # {MARK}[DDP504]\n")),
        ("run.sh", SHELL, "DDP506", 1, SHELL.replace("=1\n", f"=1  # {MARK}[DDP506] no peer access here\n")),
        ("Makefile", MAKE, "DDP506", 2, MAKE.replace("train.py", f"train.py # {MARK}[DDP506]")),
    ],
)
def test_a_comment_keeps_a_finding_of_a_document_quiet(
    name: str, text: str, code: str, line: int, suppressed: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_text(text)
    assert report(capsys) == ([(code, name, line)], 0)
    (folder / name).write_text(suppressed)
    assert report(capsys) == ([], 1)
    (folder / name).write_text(suppressed.replace(code, "DDP501").replace("launch-mismatch", "DDP501"))
    found, number = report(capsys)
    assert number == 0 and sorted(place[0] for place in found) == [code, "DDP903"]


def test_what_is_wrong_with_a_comment_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"# {MARK}", f"# {MARK}[DDP999]", f"# {MARK}[DDP504]", "torchrun --nproc_per_node 2 train.py"]
    (folder / "run.sh").write_text("\n".join(lines) + "\n")
    assert report(capsys) == ([("DDP901", "run.sh", 1), ("DDP902", "run.sh", 2), ("DDP903", "run.sh", 3)], 0)
    # The document may start other scripts as well: of what is of no use here nothing is known.
    assert report(capsys, "train.py") == ([("DDP901", "run.sh", 1), ("DDP902", "run.sh", 2)], 0)


def test_a_text_about_comments_is_no_comment(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = f"Write `# {MARK}[DDP504]`:\n\n```python\ndist.barrier()  # {MARK}[DDP201] on purpose\n```\n"
    (folder / "README.md").write_text("Start it:\n\n    torchrun --nproc_per_node 2 train.py\n\n" + told)
    assert report(capsys) == ([], 0)


def test_a_baseline_knows_findings_of_documents(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def note(*words: str) -> str:
        main([*words, "--strict", "--baseline", "known.json", "--format", "text"])
        return capsys.readouterr().out.splitlines()[-2]

    (folder / "README.md").write_text(README)
    (folder / "run.sh").write_text(SHELL)
    main([".", "--write-baseline", "known.json"])
    texts = {e["path"]: e["text"] for e in json.loads((folder / "known.json").read_text())["findings"]}
    assert (texts["README.md"], texts["run.sh"]) == ("Train on two GPUs:", "export NCCL_P2P_DISABLE=1")
    (folder / "README.md").write_text("# A title\n\n" + README)
    assert note(".") == "0 new, 2 known, 0 gone (baseline known.json)"
    (folder / "README.md").write_text(README.replace("two", "four"))
    assert note(".") == "0 new, 1 known, 1 gone (baseline known.json)"
    assert note("train.py") == "0 new, 1 known, 0 gone (baseline known.json)"
    (folder / "README.md").unlink()
    assert note(".") == "0 new, 1 known, 1 gone (baseline known.json)"


@pytest.mark.parametrize(
    ("path", "text", "held"),
    [
        ("a.sh", f"a \\\n  b  # {MARK}[x]\nc\n", [1, 2]),
        ("a.sh", f"# {MARK}[x]\na \\\n  b\nc\n", [2, 3]),
        ("a.sh", f"# {MARK}[x]\n\na\n", []),
        ("a.yaml", f"# {MARK}[x]\nargs:\n- torchrun\n- a\n\nb: 1\n", [2, 3, 4]),
        ("a.yaml", f"spec:\n  # {MARK}[x]\n  args:\n    - torchrun\n  b: 1\n", [3, 4]),
        ("a.yaml", f"args:\n  - torchrun  # {MARK}[x]\n  - a\n", [2]),
        ("a.rst", f".. {MARK}[x]\n\n.. code-block:: bash\n\n   torchrun a\n\nText\n", [3, 4, 5]),
        ("a.md", f"<!-- {MARK}[x] -->\nOne\ntwo\n\nthree\n", [2, 3]),
        ("a.md", f"<!-- {MARK}[x] -->\n\n~~~\na\n\nb\n~~~\nc\n", [3, 4, 5, 6, 7]),
        ("launch.json", f'{{\n  // {MARK}[x]\n  "args": []\n}}\n', [3]),
    ],
)
def test_lines_that_a_comment_holds_for(path: str, text: str, held: list[int]) -> None:
    (comment,) = document_suppressions(text, path)
    assert list(comment.lines) == held and comment.names == ("x",)
