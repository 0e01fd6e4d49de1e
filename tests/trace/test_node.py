"""The ranks of a host ask and are asked through one of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ddp_audit.trace.worker.node import Files, Node


class Counted(Files):
    """Counts what would go to the file server."""

    looks = 0
    questions = 0

    def shared_time(self) -> int:
        type(self).looks += 1
        return super().shared_time()

    def ask_all(self, text: str) -> None:
        type(self).questions += 1
        super().ask_all(text)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    Counted.looks = Counted.questions = 0
    return tmp_path / "dump-request"


def node(shared: Path, rank: int, host: str = "a") -> Node:
    return Node(Counted(str(shared), f"{host} {shared}"), rank)


def seen(nodes: list[Node], now: float) -> list[int]:
    return [one.latest(now) for one in nodes]


def closing(nodes: list[Node]) -> None:
    for one in nodes:
        one.close()


def test_one_rank_of_a_host_looks_for_all(shared: Path) -> None:
    now = 1000.0
    nodes = [node(shared, rank) for rank in range(8)]
    Counted.looks = 0
    for _ in range(10):
        now += 1.0
        assert seen(nodes, now) == [0] * 8
    assert Counted.looks == 10
    shared.write_text("launcher\n")
    now += 1.0
    assert set(seen(nodes, now)) == {shared.stat().st_mtime_ns}
    closing(nodes)


def test_a_host_asks_once(shared: Path) -> None:
    now = 1000.0
    nodes = [node(shared, rank) for rank in range(8)]
    seen(nodes, now)
    for one in nodes:
        one.ask(now)
    seen(nodes, now + 1.1)
    assert Counted.questions == 1 and shared.read_text().startswith("rank ")
    assert set(seen(nodes, now + 1.2)) == {shared.stat().st_mtime_ns}
    closing(nodes)


def test_another_hosts_question_stands_for_this_ones(shared: Path) -> None:
    now = 1000.0
    nodes = [node(shared, 0, "a"), node(shared, 8, "b")]
    seen(nodes, now)
    nodes[0].ask(now)
    nodes[1].ask(now + 0.3)
    assert Counted.questions == 1
    nodes[1].ask(now + 60)  # a later stall is asked about again
    assert Counted.questions == 2
    closing(nodes)


def test_another_rank_takes_over(shared: Path) -> None:
    now = 1000.0
    nodes = [node(shared, rank) for rank in range(3)]
    seen(nodes, now)
    nodes.pop(0).close()
    seen(nodes, now + 1.1)
    shared.write_text("launcher\n")
    assert set(seen(nodes, now + 2.2)) == {shared.stat().st_mtime_ns}
    closing(nodes)


def test_a_relay_that_is_stuck_is_passed_over(shared: Path) -> None:
    now = 1000.0
    stuck, other = (node(shared, rank) for rank in range(2))
    seen([stuck, other], now)
    shared.write_text("launcher\n")
    assert other.latest(now + 2) == 0
    assert other.latest(now + 7) == shared.stat().st_mtime_ns
    closing([stuck, other])


def test_folders_of_killed_runs_are_removed(shared: Path, tmp_path: Path) -> None:
    old, new = Files(str(shared), "old"), Files(str(shared), "new")
    for files, age in ((old, 7200), (new, 60)):
        assert files.take_over()
        files.show_life(time.time() - age)
    Files(str(shared), "next").close()
    assert not Path(old._folder).exists() and Path(new._folder).exists()
    new.close()


def test_a_folder_of_somebody_elses_is_not_used(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files(str(shared), "x")
    folder = Path(files._folder)
    folder.rmdir()
    folder.write_text("not a folder")
    with pytest.raises(OSError):
        Files(str(shared), "x")
    folder.unlink()
