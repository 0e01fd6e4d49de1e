"""The roll of the nodes over real sockets: who comes, who contradicts, who does not belong there."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any

import pytest

from ddp_audit.preflight.meeting import meeting_problems
from ddp_audit.preflight.rollcall import LOST, REFUSED, STRANGER, Meeting, Roll, call_roll


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def node(rank: int | None, least: int, most: int, **more: Any) -> dict[str, Any]:
    whole = {"run": f"run{rank}{more.get('host', 'h')}", "host": f"host{rank}", "rank": rank, "least": least, "most": most}
    return whole | {"processes": 2, "script": "train.py"} | more


class Nodes:
    """Nodes that call the roll at one port, each in a thread."""

    def __init__(self, port: int, wait: float) -> None:
        self.port = port
        self.wait = wait
        self.rolls: dict[str, Roll] = {}
        self.threads: list[threading.Thread] = []

    def start(self, me: dict[str, Any], rank: int | None = None) -> None:
        meeting = Meeting("127.0.0.1", self.port, me["least"], me["most"], me["rank"] if rank is None else rank)

        def run() -> None:
            self.rolls[me["run"]] = call_roll(meeting, me, self.wait, lambda: None)

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def join(self) -> list[Roll]:
        for thread in self.threads:
            thread.join(150)
        assert not any(thread.is_alive() for thread in self.threads), "a node still waits"
        return list(self.rolls.values())


def test_all_nodes_get_one_roll() -> None:
    nodes = Nodes(free_port(), 20)
    for rank in (2, 0, 1):
        nodes.start(node(rank, 3, 3))
    rolls = nodes.join()
    assert [roll.complete for roll in rolls] == [True] * 3
    assert all(sorted(one["rank"] for one in roll.nodes) == [0, 1, 2] for roll in rolls)
    assert [roll.is_host for roll in nodes.rolls.values()].count(True) == 1
    assert nodes.rolls["run0h"].reaches_itself
    assert all(abs(roll.offset) < 2 for roll in rolls if roll.offset is not None)


def test_without_ranks_the_first_node_hosts() -> None:
    nodes = Nodes(free_port(), 20)
    for name in ("a", "b"):
        nodes.start(node(None, 2, 2, host=name))
    rolls = nodes.join()
    assert [roll.complete for roll in rolls] == [True, True]
    assert sorted(roll.is_host for roll in rolls) == [False, True]


def test_a_range_of_nodes_takes_those_that_come_soon() -> None:
    nodes = Nodes(free_port(), 10_000)
    for name in ("a", "b"):
        nodes.start(node(None, 1, 4, host=name))
    rolls = nodes.join()
    assert [(roll.complete, len(roll.nodes)) for roll in rolls] == [(True, 2)] * 2


def test_what_does_not_belong_there_is_shown_out() -> None:
    port = free_port()
    nodes = Nodes(port, 20)
    nodes.start(node(0, 2, 2))
    hello = {"hello": "ddp-audit-preflight"}
    garbage = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\n",
        b"[" * 100_000 + b"\n",
        b"x" * (3 << 20),
        b'{"hello": "ddp-audit-preflight", "node": {"rank": "1"}}\n',
        json.dumps(hello | {"node": node(1, 2, 2) | {"least": "2"}}).encode() + b"\n",
        json.dumps(hello | {"node": node(1, 2, 2) | {"host": 7}}).encode() + b"\n",
        json.dumps({"hello": "another program", "node": node(1, 2, 2)}).encode() + b"\n",
        b'{"secret": "guess"}\n',
        b"",
    ]
    for data in garbage:
        for _ in range(100):
            try:
                with socket.create_connection(("127.0.0.1", port), 5) as connection:
                    connection.settimeout(5)
                    connection.sendall(data)
                    if data:
                        assert connection.recv(1) == b""
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
            except (ConnectionResetError, BrokenPipeError):
                break
    nodes.start(node(1, 2, 2))
    rolls = nodes.join()
    assert [(roll.complete, len(roll.nodes)) for roll in rolls] == [(True, 2)] * 2


def test_nobody_and_a_stranger_at_the_port() -> None:
    port = free_port()
    assert call_roll(Meeting("127.0.0.1", port, 2, 2, 1), node(1, 2, 2), 0.5, lambda: None).failure == REFUSED
    with socket.create_server(("127.0.0.1", port)):
        assert call_roll(Meeting("127.0.0.1", port, 2, 2, 1), node(1, 2, 2), 0.5, lambda: None).failure == STRANGER


def test_a_host_that_goes_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b'{"hello": "ddp-audit-preflight", "time": 0, "remaining": 5}\n')
            server.close()

        thread = threading.Thread(target=serve)
        thread.start()
        roll = call_roll(Meeting("127.0.0.1", port, 2, 2, 1), node(1, 2, 2), 0.1, lambda: None)
        thread.join()
    assert roll.failure == LOST


@pytest.mark.parametrize("mine, theirs", [((2, 2), (3, 3)), ((2, 4), (2, 2))])
def test_nodes_of_different_numbers_do_not_wait_for_more(mine: tuple[int, int], theirs: tuple[int, int]) -> None:
    nodes = Nodes(free_port(), 10_000)
    nodes.start(node(0, *mine))
    nodes.start(node(1, *theirs))
    for roll in nodes.join():
        kinds = [one.kind for one in meeting_problems(Meeting("127.0.0.1", 1, *mine, 0), roll, {}, [])]
        assert kinds == ["nodes-differ"]


def other(**changes: Any) -> dict[str, Any]:
    return node(1, 2, 2) | {"address": "a", "port": 7} | changes


def kinds(roll: Roll | None, *others: dict[str, Any]) -> list[str]:
    meeting = Meeting("a", 7, 2 if roll else 1, 2 if roll else 1, 0)
    me = other(rank=0, run="me", least=meeting.least, most=meeting.most)
    return [one.kind for one in meeting_problems(meeting, roll, me, list(others))]


def test_what_the_shared_folder_tells_of_nodes_that_have_not_come() -> None:
    alone = Roll(True, [other(rank=0, run="me") | {"after": 0.0}])
    assert kinds(alone) == ["node-missing"]
    assert kinds(alone, other(port=8)) == ["port-differs"]
    assert kinds(alone, other(address="b")) == ["address-differs"]
    assert kinds(alone, other(least=1, most=1)) == ["nodes-differ"]
    assert kinds(alone, other(rank=0)) == ["node-rank-repeated"]
    assert kinds(alone, other(port="8"), {"run": 3}) == ["node-missing"]  # no file of a launcher
    assert kinds(Roll(True, alone.nodes, complete=True), other(port=8)) == []


def test_a_job_of_one_node_beside_nodes_that_wait_for_it() -> None:
    assert kinds(None) == []
    assert kinds(None, other()) == ["nodes-differ"]
    assert kinds(None, other(port=8)) == []
    assert kinds(None, other(rank=0, least=1, most=1)) == []  # the same job on another machine


def test_unequal_numbers_of_processes() -> None:
    roll = Roll(True, [other(rank=0, run="me"), other(processes=4)], complete=True)
    assert kinds(roll) == ["processes-differ"]


def test_a_host_that_does_not_reach_itself() -> None:
    assert kinds(Roll(True, [other(rank=0, run="me")], reaches_itself=False)) == ["address-not-here"]
