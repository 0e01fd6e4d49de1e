"""The nodes of a job meet at the job's own address and port, before torchrun would block there for minutes.

torchrun starts no worker before all nodes have come to its rendezvous, so only the launchers can report what is wrong with it. The
node that will host the rendezvous listens there, the others report to it, and each gets the roll of all that have come. The port
is free again when torchrun starts.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

_MOST_BYTES = 1 << 20
_CONNECT = 2.0  # seconds for one attempt to connect
_ANSWER = 3.0  # seconds for a listener to say who it is
_ELASTIC = 2.0  # seconds for more nodes than the least number of a range
_HELLO = "ddp-audit-preflight"

REFUSED, UNREACHABLE, UNKNOWN, STRANGER, IN_USE, LOST = "refused", "unreachable", "unknown", "stranger", "in-use", "lost"


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where nodes meet and how many: `least` to `most`. `rank` is this node's, None where the rendezvous deals ranks out."""

    address: str
    port: int
    least: int
    most: int
    rank: int | None

    @property
    def place(self) -> str:
        """`10.0.0.1:29500`."""
        return f"{self.address}:{self.port}"


@dataclass(slots=True)
class Roll:
    """Who came. `nodes` are what the launchers said of themselves, with `after`, the seconds until they came.

    `failure` is why this node did not reach the place, with `detail`; `offset` the clock of the host less this node's. A host
    that does not reach its own address has `reaches_itself` False.
    """

    is_host: bool
    nodes: list[dict[str, Any]] = field(default_factory=list)
    complete: bool = False
    waited: float = 0.0
    failure: str = ""
    detail: str = ""
    offset: float | None = None
    reaches_itself: bool = True


def call_roll(meeting: Meeting, me: dict[str, Any], wait: float, beat: Callable[[], None]) -> Roll:
    """Meets the other nodes, for at most `wait` seconds. `me` describes this node to the others.

    `beat` is called now and then meanwhile.
    """
    began = time.monotonic()
    if meeting.rank == 0 or (meeting.rank is None and _is_here(meeting.address)):
        try:
            server = _listen(meeting.port)
        except OSError as error:
            if meeting.rank == 0:
                return Roll(True, [me | {"after": 0.0}], failure=IN_USE, detail=error.strerror or str(error))
        else:
            with server:
                roll = _Host(server, meeting, me, wait).gather(beat)
            roll.waited = time.monotonic() - began
            return roll
    roll = _report(meeting, me, wait, beat)
    roll.waited = time.monotonic() - began
    return roll


def _listen(port: int) -> socket.socket:
    """A listener on all addresses, as torch's TCPStore has."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)


def _is_here(address: str) -> bool:
    """Whether an address is one of this machine's."""
    with suppress(OSError):
        for family, kind, protocol, _, place in socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM):
            with suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.bind(place)
                return True
    return False


class _Host:
    """The node at which the others report."""

    def __init__(self, server: socket.socket, meeting: Meeting, me: dict[str, Any], wait: float) -> None:
        self._server = server
        self._meeting = meeting
        self._began = time.monotonic()
        self._end = self._began + wait
        self._roll = Roll(True, [me | {"after": 0.0}], reaches_itself=False)
        self._secret = uuid.uuid4().hex
        self._buffers: dict[socket.socket, bytes] = {}
        self._members: list[socket.socket] = []
        self._last = self._began

    def gather(self, beat: Callable[[], None]) -> Roll:
        """Admits nodes until the job is whole, contradicts itself, or the time is over, and tells all that came."""
        self._server.setblocking(False)
        visit = threading.Thread(target=self._visit_myself, daemon=True)
        visit.start()
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            while time.monotonic() < self._end and not self._is_settled():
                beat()
                for key, _ in selector.select(0.1):
                    if key.fileobj is self._server:
                        self._accept(selector)
                    elif isinstance(key.fileobj, socket.socket):
                        self._read(selector, key.fileobj)
        self._roll.complete = self._is_complete()
        self._tell_all()
        return self._roll

    def _is_complete(self) -> bool:
        return len(self._roll.nodes) >= self._meeting.least and not self._contradicts_itself()

    def _contradicts_itself(self) -> bool:
        """Whether nodes that came cannot be those of one job."""
        nodes = self._roll.nodes
        ranks = [node["rank"] for node in nodes if node["rank"] is not None]
        return len({(node["least"], node["most"]) for node in nodes}) > 1 or len(set(ranks)) < len(ranks)

    def _is_settled(self) -> bool:
        """Whether no more nodes are to be waited for."""
        if not self._roll.reaches_itself and time.monotonic() < self._began + _CONNECT + _ANSWER:
            return False
        if len(self._roll.nodes) >= self._meeting.most or self._contradicts_itself():
            return True
        elastic = self._meeting.least < self._meeting.most and self._is_complete()
        return elastic and time.monotonic() > self._last + _ELASTIC

    def _accept(self, selector: selectors.BaseSelector) -> None:
        with suppress(OSError):
            connection, _ = self._server.accept()
            connection.setblocking(False)
            self._buffers[connection] = b""
            selector.register(connection, selectors.EVENT_READ)

    def _read(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        data = b""
        with suppress(OSError):
            data = connection.recv(65536)
        self._buffers[connection] += data
        buffer = self._buffers[connection]
        if data and b"\n" not in buffer and len(buffer) < _MOST_BYTES:
            return
        selector.unregister(connection)
        said = _decoded(buffer.partition(b"\n")[0]) if data else None
        if said is None or not self._admit(connection, said):
            connection.close()

    def _admit(self, connection: socket.socket, said: dict[str, Any]) -> bool:
        now = time.monotonic()
        if said.get("secret") == self._secret:
            self._roll.reaches_itself = True
            return False
        node = said.get("node")
        if said.get("hello") != _HELLO or not isinstance(node, dict) or not _is_node(node):
            return False
        self._roll.nodes = [one for one in self._roll.nodes if one["run"] != node["run"]]  # it has connected again
        self._roll.nodes.append(node | {"after": round(now - self._began, 3)})
        self._last = now
        self._members.append(connection)
        with suppress(OSError):
            connection.setblocking(True)
            connection.settimeout(_CONNECT)
            connection.sendall(_encoded({"hello": _HELLO, "time": time.time(), "remaining": max(0.0, self._end - now)}))
        return True

    def _tell_all(self) -> None:
        roll = _encoded({"nodes": self._roll.nodes, "complete": self._roll.complete})
        for connection in self._members:
            with suppress(OSError):
                connection.sendall(roll)
        for connection in self._buffers:
            connection.close()

    def _visit_myself(self) -> None:
        """Whether the job's own address leads here: a node that cannot say so is at another address."""
        with suppress(OSError), socket.create_connection((self._meeting.address, self._meeting.port), _CONNECT) as connection:
            connection.sendall(_encoded({"secret": self._secret}))
            connection.recv(1)


def _report(meeting: Meeting, me: dict[str, Any], wait: float, beat: Callable[[], None]) -> Roll:
    """Reports to the host, again and again until it is there."""
    end = time.monotonic() + wait
    roll = Roll(False, [me | {"after": 0.0}])
    while True:
        beat()
        try:
            _ask(meeting, me, roll)
            if not roll.failure:
                return roll
        except socket.gaierror as error:
            roll.failure, roll.detail = UNKNOWN, error.strerror or str(error)
        except ConnectionRefusedError:
            if roll.failure != LOST:
                roll.failure, roll.detail = REFUSED, "nobody listens there"
        except OSError as error:  # a timeout is one
            roll.failure, roll.detail = UNREACHABLE, error.strerror or str(error) or type(error).__name__
        if time.monotonic() >= end:
            return roll
        time.sleep(0.2)


def _ask(meeting: Meeting, me: dict[str, Any], roll: Roll) -> None:
    with socket.create_connection((meeting.address, meeting.port), _CONNECT) as connection:
        if connection.getsockname() == connection.getpeername():  # Linux may connect a socket to itself
            raise ConnectionRefusedError
        sent = time.time()
        connection.sendall(_encoded({"hello": _HELLO, "node": me}))
        reader = _Lines(connection)
        first = reader.line(_ANSWER)
        if first is None or first.get("hello") != _HELLO:
            roll.failure, roll.detail = STRANGER, "it does not answer as a preflight does"
            return
        roll.offset = _number(first.get("time")) - (sent + time.time()) / 2
        second = reader.line(min(_number(first.get("remaining")), 3600.0) + _ANSWER)
        if second is None or not isinstance(second.get("nodes"), list):
            roll.failure, roll.detail = LOST, "it went away before all nodes had come"
            return
        roll.failure = roll.detail = ""
        roll.nodes = [node for node in second["nodes"] if isinstance(node, dict) and _is_node(node)]
        roll.complete = second.get("complete") is True


class _Lines:
    """Lines of JSON from a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""

    def line(self, seconds: float) -> dict[str, Any] | None:
        """The next object; None where none comes in time, or something else does."""
        end = time.monotonic() + seconds
        while b"\n" not in self._buffer and len(self._buffer) < 64 * _MOST_BYTES:
            remaining = end - time.monotonic()
            if remaining <= 0:
                return None
            self._connection.settimeout(remaining)
            try:
                data = self._connection.recv(65536)
            except OSError:
                return None
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return _decoded(line)


def _encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_node(node: dict[str, Any]) -> bool:
    """Whether what came over the network has the fields that are read."""
    whole = all(type(node.get(name)) is int for name in ("least", "most"))
    return whole and type(node.get("rank")) in (int, type(None)) and all(isinstance(node.get(n), str) for n in ("run", "host"))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
