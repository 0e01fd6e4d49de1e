"""Rings of imports: those of networkx on drawn graphs, and what an audit loads for them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import networkx
import pytest

from ddp_audit.cli import main
from ddp_audit.graphs import parts_of, shortest_cycle


@pytest.mark.parametrize("seed", range(60))
def test_parts_and_what_leads_to_them_are_those_of_networkx(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [f"n{number}" for number in range(chance.randint(1, 12))]
    graph = {node: {other for other in nodes if chance.random() < 1.5 / len(nodes)} for node in nodes if chance.random() < 0.9}
    drawn = networkx.DiGraph([(source, target) for source, targets in graph.items() for target in targets])
    drawn.add_nodes_from(graph)
    parts = networkx.condensation(drawn)
    expected = {frozenset(members): parts.in_degree(part) > 0 for part, members in parts.nodes(data="members")}
    assert {frozenset(members): leads for members, leads in parts_of(graph)} == expected


def test_a_long_chain_is_no_matter() -> None:
    graph = {str(number): {str(number + 1)} for number in range(5_000)}
    found = list(parts_of(graph))
    assert len(found) == 5_001
    assert [members for members, leads in found if not leads] == [{"0"}]


def test_a_shortest_cycle_of_waits() -> None:
    assert sorted(shortest_cycle(0, {0: [1, 3], 1: [2], 2: [0], 3: [0]})) == [0, 3]
    assert shortest_cycle(0, {0: [1], 1: [2]}) == [] and shortest_cycle(5, {0: [1]}) == []


LOADED = """\
import json, sys
from ddp_audit.cli import main
main(["check", "--no-cache", "--jobs", "1", "--format", "json", "."])
print(json.dumps("networkx" in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize(("line", "is_loaded"), [("", False), ("import train\n", True)])
def test_networkx_is_loaded_for_a_ring_of_imports_alone(tmp_path: Path, line: str, is_loaded: bool) -> None:
    (tmp_path / "train.py").write_text("import torch.distributed as dist\nimport helper\nhelper.start()\n")
    (tmp_path / "helper.py").write_text(f"import torch.distributed as dist\n{line}def start():\n    dist.init_process_group()\n")
    run = subprocess.run([sys.executable, "-c", LOADED], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(run.stderr.strip().split("\n")[-1]) is is_loaded


def test_debug_shows_the_graphs_of_imports_and_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import torch.distributed as dist\nimport helper\n"
        "def main():\n    helper.start()\n    dist.barrier()\n    helper.start()\nmain()\n"
    )
    Path("helper.py").write_text("import torch.distributed as dist\nimport train\ndef start():\n    dist.init_process_group()\n")
    assert main(["debug", "--graph", "imports", "train.py"]) == 0
    shown = capsys.readouterr().out.split("\n")
    assert shown == ["helper.py", "  -> train.py", "train.py", "  -> helper.py", "ring: helper.py, train.py", ""]
    assert main(["debug", "--graph", "calls", "train.py"]) == 0
    shown = capsys.readouterr().out.split("\n")
    assert shown[:4] == ["<module>", "  -> main (train.py:7)", "main", "  -> start (train.py:4, train.py:6)"]
