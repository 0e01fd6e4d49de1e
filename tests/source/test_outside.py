"""What is reported of files that are imported: a script's project is, files outside of a given folder and frameworks' source are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddp_audit.cli import main
from ddp_audit.source.project import Project

HANG = "import torch.distributed as dist\n\n\ndef sync():\n    if dist.get_rank() == 0:\n        dist.barrier()\n"
SCRIPT = "import torch.distributed as dist\n{}\ndist.init_process_group('gloo')\nsync()\ndist.destroy_process_group()\n"


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()


def check(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    main(["check", "--format", "json", "--select", "DDP201,DDP9", *words])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def paths(document: dict[str, Any]) -> list[str]:
    return [finding["path"] for finding in document["findings"]]


# Files outside of what was given


def test_a_script_is_audited_with_its_project(capsys: pytest.CaptureFixture[str]) -> None:
    write({"engine.py": HANG, "lib/tools.py": HANG, "train.py": SCRIPT.format("from engine import sync")})
    write({"scripts/run.py": SCRIPT.format("from lib.tools import sync")})
    for words, expected in {("train.py",): ["engine.py"], ("scripts/run.py",): ["lib/tools.py"]}.items():
        for _ in range(2):  # the second time from the cache
            document = check(capsys, *words)
            assert paths(document) == expected and "notes" not in document


def test_of_a_folder_files_outside_are_left_out_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    write(
        {
            "lib/tools.py": HANG + "\n\ndef f():\n    pass  # ddp-audit: ignore\n",
            "scripts/run.py": SCRIPT.format("from lib.tools import sync"),
        }
    )
    note = "2 findings in imported files outside of the given paths left out (--show-imported shows them): lib/tools.py."
    for _ in range(2):
        document = check(capsys, "scripts")
        assert (paths(document), document["notes"]) == ([], [note])
    assert paths(check(capsys, "scripts", "--show-imported")) == ["lib/tools.py", "lib/tools.py"]
    for words in ((".",), ("scripts", "lib"), ("scripts", "scripts/run.py"), ("scripts", "lib/tools.py")):
        document = check(capsys, *words)
        assert (paths(document), "notes" in document) == (["lib/tools.py", "lib/tools.py"], False), words


def test_a_finding_inside_may_rest_on_files_outside(capsys: pytest.CaptureFixture[str]) -> None:
    write({"lib/tools.py": "import torch.distributed as dist\n\n\ndef sync():\n    dist.barrier()\n"})
    write(
        {
            "scripts/run.py": SCRIPT.format("from lib.tools import sync").replace(
                "sync()\n", "if dist.get_rank() == 0:\n    sync()\n"
            )
        }
    )
    (finding,) = check(capsys, "scripts")["findings"]
    assert finding["path"] == "scripts/run.py" and "lib/tools.py:5" in finding["message"]


def test_another_repository_is_not_the_script_s_project(capsys: pytest.CaptureFixture[str]) -> None:
    write({"one/train.py": SCRIPT.format("from other.tools import sync"), "other/tools.py": HANG})
    (Path("one") / ".git").mkdir()
    assert paths(check(capsys, "one/train.py")) == []
    assert paths(check(capsys, "one/train.py", "--show-imported")) == ["other/tools.py"]
    Path("one/ddp-audit.toml").write_text('roots = [".."]\n')
    assert paths(check(capsys, "one/train.py")) == ["other/tools.py"]


def test_what_a_baseline_knows_of_files_outside_is_not_gone(capsys: pytest.CaptureFixture[str]) -> None:
    write({"lib/tools.py": HANG, "scripts/run.py": SCRIPT.format("from lib.tools import sync")})
    assert main(["check", ".", "--select", "DDP201", "--write-baseline", "known.json"]) == 0
    capsys.readouterr()
    assert main(["check", "scripts", "--select", "DDP201", "--baseline", "known.json", "--format", "text"]) == 0
    assert "0 new, 0 known, 0 gone" in capsys.readouterr().out


def test_files_outside_are_not_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    tools = "import torch.distributed as dist\n\n\ndef sync(model, loss):\n    model.require_backward_grad_sync = False\n    loss.backward()\n"
    write({"lib/tools.py": tools})
    write(
        {
            "scripts/run.py": "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
            "from lib.tools import sync\ndist.init_process_group('gloo')\nmodel = DDP(torch.nn.Linear(2, 2))\nsync(model, model(torch.ones(2)).sum())\n"
        }
    )
    main(["check", "scripts", "--fix", "--unsafe-fixes", "--select", "DDP112"])
    assert Path("lib/tools.py").read_text() == tools


# Frameworks beside their examples

ACCELERATOR = """\
import torch
import torch.distributed as dist


class Accelerator:
    def __init__(self):
        self.is_main_process = dist.get_rank() == 0

    def prepare(self, *objects):
        return objects

    def gather(self, tensor):
        if tensor.numel() > 3 and torch.rand(1) > 0.5:
            dist.all_gather([tensor], tensor)
        return tensor
"""
EXAMPLE = """\
import torch
from accelerate import Accelerator

accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(2, 2), [torch.ones(2)])
for batch in loader:
    total = model(batch).sum()
    if accelerator.is_main_process:
        accelerator.gather(total)
"""


def clone(package: str = "src/accelerate") -> None:
    write({f"{package}/__init__.py": "from .accelerator import Accelerator\n", f"{package}/accelerator.py": ACCELERATOR})
    write({"setup.py": "from setuptools import setup\nsetup(name='accelerate')\n", "examples/nlp.py": EXAMPLE})


@pytest.mark.parametrize("package", ["src/accelerate", "accelerate"])
def test_a_contract_wins_over_the_source_of_a_framework(package: str, capsys: pytest.CaptureFixture[str]) -> None:
    write({"examples/nlp.py": EXAMPLE})
    main(["check", "--format", "json", "examples"])
    alone = json.loads(capsys.readouterr().out)
    assert [(f["code"], f["line"]) for f in alone["findings"] if f["severity"] == "error"] == [("DDP202", 9)]
    clone(package)
    for words in (["examples"], ["examples/nlp.py"], ["examples", "--show-imported"], ["examples", "--jobs", "2"]):
        main(["check", "--format", "json", *words])
        assert json.loads(capsys.readouterr().out) == alone, words
    assert {file.path for file in Project(["examples"]).files} == {"examples/nlp.py"}


def test_a_framework_that_is_named_is_audited(capsys: pytest.CaptureFixture[str]) -> None:
    clone()
    write({"src/accelerate/launch.py": "from accelerate.state import sync\nsync()\n", "src/accelerate/state.py": HANG})
    document = check(capsys, "src/accelerate/launch.py")
    assert document["files"] > 1 and paths(document) == ["src/accelerate/state.py"]
    assert paths(check(capsys, "src")) == ["src/accelerate/state.py"]


OWN = {
    "a module": {"examples/accelerate.py": HANG},
    "a package of the project": {"accelerate/__init__.py": HANG},
    "a package with modules": {"accelerate/__init__.py": "from .sync import sync\n", "accelerate/sync.py": HANG},
    "a package beside the script": {
        "examples/accelerate/__init__.py": "from accelerate.sync import sync\n",
        "examples/accelerate/sync.py": HANG,
    },
    "a package that cannot be parsed": {"accelerate/__init__.py": "Accelerator = (\n", "examples/accelerate.py": HANG},
}


@pytest.mark.parametrize("files", OWN.values(), ids=OWN.keys())
def test_an_own_package_with_the_name_of_a_framework_is_read(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    write({**files, "examples/run.py": SCRIPT.format("from accelerate import sync")})
    document = check(capsys, "examples/run.py")
    assert len(paths(document)) == 1 and "accelerate" in paths(document)[0]
