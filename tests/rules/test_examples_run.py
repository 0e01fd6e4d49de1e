"""The examples on the pages of these rules, run on two ranks: the bad one shows its fault, and the good one does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddp_audit.rule import load_rules

pytest.importorskip("torch")

CODES = ("DDP101", "DDP105", "DDP112", "DDP113", "DDP114", "DDP115", "DDP201", "DDP202", "DDP203")
GROUP_TIMEOUT = "4"  # seconds after which a rank in a collective without partners gives up


@dataclass
class Ended:
    """How one program ended on its two ranks. `reductions` counts the all-reduces of each rank."""

    codes: list[int]
    output: list[str]
    reductions: list[int]

    @property
    def checksums(self) -> list[str]:
        """What each rank printed as the checksum of its parameters."""
        return [line.split()[1] for text in self.output for line in text.splitlines() if line.startswith("checksum")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Every example by its rule's code and `bad` or `good`, run by one torchrun."""
    folder = tmp_path_factory.mktemp("examples")
    names = []
    for rule in load_rules():
        if rule.code in CODES:
            for which in ("bad", "good"):
                (folder / f"{rule.code}-{which}.py").write_text(getattr(rule, which))
                names.append(f"{rule.code}-{which}")
    (folder / "list.json").write_text(json.dumps(names))
    worker = Path(__file__).with_name("program_worker.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(worker), str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GROUP_TIMEOUT": GROUP_TIMEOUT}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    codes = [json.loads((folder / f"codes.{rank}.json").read_text()) for rank in (0, 1)]
    return {
        name: Ended(
            [codes[rank][name] for rank in (0, 1)],
            [(folder / f"{name}.{rank}.out").read_text() for rank in (0, 1)],
            [int(path.read_text()) if (path := folder / f"{name}.{rank}.count").exists() else -1 for rank in (0, 1)],
        )
        for name in names
    }


@pytest.mark.parametrize("code", ["DDP101", "DDP105", "DDP112"])
def test_replicas_drift_apart_in_silence(runs: dict[str, Ended], code: str) -> None:
    bad, good = runs[f"{code}-bad"], runs[f"{code}-good"]
    assert bad.codes == good.codes == [0, 0], (bad.output, good.output)
    assert len(bad.checksums) == len(good.checksums) == 2
    assert bad.checksums[0] != bad.checksums[1]
    assert good.checksums[0] == good.checksums[1]
    assert bad.reductions[0] < good.reductions[0] or code == "DDP112"


def test_bypassed_wrapper_reduces_nothing(runs: dict[str, Ended]) -> None:
    assert runs["DDP101-bad"].reductions == [0, 0]


def test_no_sync_around_backward_only_saves_nothing(runs: dict[str, Ended]) -> None:
    bad, good = runs["DDP113-bad"], runs["DDP113-good"]
    assert bad.codes == good.codes == [0, 0], (bad.output, good.output)
    assert len(set(bad.checksums)) == len(set(good.checksums)) == 1
    assert (bad.reductions, good.reductions) == ([8, 8], [4, 4])


def test_private_switch_is_right_today(runs: dict[str, Ended]) -> None:
    bad, good = runs["DDP114-bad"], runs["DDP114-good"]
    assert bad.codes == good.codes == [0, 0], (bad.output, good.output)
    assert len(bad.checksums) == 2 and len(set(bad.checksums + good.checksums)) == 1  # what no_sync() gives
    assert bad.reductions == good.reductions == [4, 4]


def test_wrapper_has_no_attribute_of_the_module(runs: dict[str, Ended]) -> None:
    bad, good = runs["DDP115-bad"], runs["DDP115-good"]
    assert bad.codes == [1, 1] and good.codes == [0, 0], (bad.output, good.output)
    assert all("AttributeError: 'DistributedDataParallel' object has no attribute 'scale'" in text for text in bad.output)


@pytest.mark.parametrize("code", ["DDP201", "DDP202", "DDP203"])
def test_ranks_wait_for_each_other(runs: dict[str, Ended], code: str) -> None:
    bad, good = runs[f"{code}-bad"], runs[f"{code}-good"]
    assert good.codes == [0, 0], good.output
    assert any(bad.codes) and any("imed out" in text or "closed" in text or "reset" in text for text in bad.output), bad.output
