"""The question "where do you stand?" in a job of many hosts, simulated: who looks at the file server, and how soon all answer.

    python benchmarks/stall_watch.py [--hosts 1250] [--ranks 8] [--service 0.3]

Both ways run on one virtual clock against one file server that serves one request after the other. `relay` runs the tracer's own
`trace.worker.node.Node` with its files replaced; `direct` is every rank looking at and asking in the shared file itself.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ddp_audit.trace.worker.node import LOOK_EVERY, Node

BEAT = 0.1  # seconds from one look of a rank's watch at its host's folder to the next
HANG = 100.0  # when the ranks hang
SPREAD = 2.0  # seconds from the first rank that hangs to the last
STALL = 30.0
END = HANG + SPREAD + STALL + 60.0


@dataclass
class Server:
    """The file server: requests wait for those before them."""

    service: float
    free: float = 0.0
    asked: int = 0  # the modification time of the shared file
    looks: int = 0
    questions: int = 0
    longest: float = 0.0
    busy: float = 0.0

    def serve(self, now: float) -> float:
        """When a request that comes now is answered."""
        self.free = max(self.free, now) + self.service
        self.busy += self.service
        self.longest = max(self.longest, self.free - now)
        return self.free


@dataclass
class Host:
    """What the ranks of a host share in memory."""

    request: int = 0
    asks: int = 0
    relay: int | None = None
    life: float = 0.0


@dataclass
class SimFiles:
    """The files of `Node`, on the virtual clock. A request to the server keeps the rank until it is answered."""

    server: Server
    host: Host
    rank: int
    now: float = 0.0

    def shared_time(self) -> int:
        self.server.looks += 1
        self.now = self.server.serve(self.now)
        return self.server.asked

    def ask_all(self, text: str) -> None:
        self.server.questions += 1
        self.now = self.server.serve(self.now)
        self.server.asked = int(self.now * 1e9)

    def local_time(self) -> int:
        return self.host.request

    def pass_on(self, value: int) -> None:
        self.host.request = value

    def ask_relay(self) -> None:
        self.host.asks += 1

    def asks(self) -> int:
        return self.host.asks

    def take_over(self) -> bool:
        if self.host.relay is None:
            self.host.relay = self.rank
        return self.host.relay == self.rank

    def show_life(self, now: float) -> None:
        self.host.life = now

    def last_life(self) -> float:
        return self.host.life

    def close(self) -> None:
        return None


@dataclass
class Outcome:
    server: Server
    answers: dict[int, list[float]] = field(default_factory=dict)


def simulate(hosts: int, ranks: int, service: float, relayed: bool, seed: int = 1) -> Outcome:
    chance = random.Random(seed)
    server = Server(service)
    out = Outcome(server)
    queue: list[tuple[float, int]] = []
    watches: list[Callable[[float], float]] = []
    for _ in range(hosts):
        host = Host()
        for _ in range(ranks):
            rank = len(watches)
            hangs = HANG + chance.random() * SPREAD
            make = _relayed if relayed else _direct
            watches.append(make(out, SimFiles(server, host, rank), rank, hangs))
            heapq.heappush(queue, (chance.random() * LOOK_EVERY, rank))
    server.looks = 0
    server.free = server.busy = server.longest = 0.0
    while queue:
        now, rank = heapq.heappop(queue)
        following = watches[rank](now)
        if following < END:
            heapq.heappush(queue, (following, rank))
    return out


def _relayed(out: Outcome, files: SimFiles, rank: int, hangs: float) -> Callable[[float], float]:
    node = Node(files, rank)  # type: ignore[arg-type]
    state = {"seen": 0, "asked": 0}

    def watch(now: float) -> float:
        files.now = now
        latest = node.latest(now)
        if latest > state["seen"]:
            state["seen"] = latest
            out.answers.setdefault(rank, []).append(files.now)
        if not state["asked"] and files.now >= hangs + STALL:
            state["asked"] = 1
            node.ask(files.now)
        return max(files.now, now) + BEAT

    return watch


def _direct(out: Outcome, files: SimFiles, rank: int, hangs: float) -> Callable[[float], float]:
    state = {"seen": 0, "asked": 0}

    def watch(now: float) -> float:
        files.now = now
        latest = files.shared_time()
        if latest > state["seen"]:
            state["seen"] = latest
            out.answers.setdefault(rank, []).append(files.now)
        if not state["asked"] and files.now >= hangs + STALL:
            state["asked"] = 1
            files.ask_all("")
        return max(files.now, now) + LOOK_EVERY

    return watch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1250)
    parser.add_argument("--ranks", type=int, default=8, help="of a host")
    parser.add_argument("--service", type=float, default=0.3, help="milliseconds that the file server takes for a request")
    args = parser.parse_args()
    print(f"{args.hosts * args.ranks:,} ranks on {args.hosts:,} hosts, {args.service} ms a request")
    print("| way | looks a second | server busy | longest wait s | questions | answers a rank | all answered after s |")
    print("|---|---|---|---|---|---|---|")
    for relayed in (True, False):
        out = simulate(args.hosts, args.ranks, args.service / 1e3, relayed)
        server, first = out.server, HANG + STALL
        answered = [times[0] for times in out.answers.values()]
        whole = f"{max(answered) - first:.1f}" if len(answered) == args.hosts * args.ranks else "never"
        mean = sum(map(len, out.answers.values())) / max(1, len(out.answers))
        print(
            f"| {'relay' if relayed else 'direct'} | {server.looks / END:,.0f} | {server.busy / END:.0%} | {server.longest:.2f} "
            f"| {server.questions:,} | {mean:.1f} | {whole} |"
        )


if __name__ == "__main__":
    main()
