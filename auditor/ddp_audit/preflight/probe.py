"""What each rank does in place of the user's script: looks around, meets the others, makes the group, measures, and writes it down.

A rank writes its state when it begins something, to the folder of its node and to the store. Rank 0 puts the states of all ranks
into `job`, from which its launcher makes the report. A rank that does not end in time says where it is, and leaves.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ddp_audit.preflight.environment import Place, find_place
from ddp_audit.preflight.folder import JOB, StateFolder
from ddp_audit.preflight.problems import plain
from ddp_audit.preflight.sameness import SharedFolder, data_facts, source_hashes
from ddp_audit.preflight.settings import Settings, decode

_LOOK = 0.5  # seconds between two looks of rank 0 at the states
_SEEN_WITHIN = 5.0  # seconds for a file to be seen on a file system that remembers what a folder held


def main(words: Sequence[str]) -> None:
    """The entrance of the file that a launcher starts."""
    settings, arguments = decode(words)
    run_rank(settings, arguments)


def run_rank(settings: Settings, arguments: list[str]) -> dict[str, Any] | None:
    """The checks of this rank. Rank 0 returns what is known of all ranks, as it wrote it to the folder."""
    place = find_place(os.environ, arguments)
    rank = _Rank(settings, place, [word for word in arguments if not word.startswith(("--local-rank=", "--local_rank="))])
    rank.watch()
    try:
        rank.check()
    except Exception as error:  # a rank tells what went wrong, whatever it was
        rank.fail(error)
    return rank.finish()


class _Rank:
    def __init__(self, settings: Settings, place: Place, arguments: list[str]) -> None:
        self._settings = settings
        self._place = place
        self._began = time.monotonic()
        self._end = self._began + settings.timeout
        self._folder = StateFolder(settings.directory, settings.run)
        self._lock = threading.Lock()
        self._board: Any = None
        self._plan: dict[str, Any] = {}
        self._came: dict[int, float] = {}
        self._done = threading.Event()
        self.state: dict[str, Any] = {
            "rank": place.rank,
            "node": place.node,
            "leads": place.leads,
            "arguments": arguments,
            "executable": sys.executable,
            "phase": "the start",
            "step": 0,
            "at": 0.0,
            "ended": False,
            "error": None,
        }
        self._write()

    # -- telling --------------------------------------------------------------------------------------------------------

    def enter(self, phase: str) -> None:
        """Says what begins now."""
        with self._lock:
            self.state.update(phase=phase, step=self.state["step"] + 1, at=self._elapsed())
        self._write()

    def fail(self, error: BaseException) -> None:
        """Says what ended this rank's checks."""
        text = str(error).split("Exception raised from")[0]
        text = re.sub(r"^\[\S+:\d+\] ", "", text)  # gloo begins with the line of its own source
        self.state["error"] = plain(f"{type(error).__name__}: {text}", 600)
        # gloo and the store say it in their text alone; who waited in vain is not who failed.
        self.state["timed_out"] = isinstance(error, TimeoutError) or any(word in text.lower() for word in ("timeout", "timed out"))
        traceback.print_exc()

    def _elapsed(self) -> float:
        return round(time.monotonic() - self._began, 3)

    def _left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def _write(self) -> None:
        with self._lock:
            state = dict(self.state)
        with suppress(OSError):
            self._folder.write(f"rank-{self._place.rank:05}", state)
        if self._board is not None:
            with suppress(Exception):  # the store may have gone with its host
                self._board.post(f"state/{self._place.rank}", state)

    def watch(self) -> None:
        """Ends this process some time after its seconds are over: a collective may never return.

        Rank 0 leaves last, and keeps what is known of all ranks on disk meanwhile: torchrun ends it when another rank dies.
        """

        def wait() -> None:
            board = None
            end = self._end + (2.0 if self._place.rank == 0 else 0.0)
            while time.monotonic() < end:
                if self._done.wait(min(_LOOK, max(0.0, end - time.monotonic()))):
                    return
                if self._place.rank == 0 and self._plan:
                    with suppress(Exception):
                        board = board or self._board.again(self._place, 2.0)
                        self._keep(self._gathered(board))
            self.state["stuck"] = True
            if self._place.rank == 0:
                with suppress(Exception):
                    self._keep(self._gathered(board) | {"final": True})
            with suppress(OSError):
                self._folder.write(f"rank-{self._place.rank:05}", self.state)
            os._exit(0)

        threading.Thread(target=wait, daemon=True).start()

    # -- the checks -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        place, settings = self._place, self._settings
        import torch.distributed as dist  # a torch that cannot be imported is a fact to report

        from ddp_audit.preflight import group
        from ddp_audit.preflight.communication import QUICK_SIZES, SIZES, Communication
        from ddp_audit.preflight.environment import describe

        self.enter("its own facts")
        self.state["facts"] = describe(place)
        if place.leads:
            self.enter("the files")
            self.state["files"] = source_hashes(settings, self.state["arguments"])
            self.state["data"] = {path: data_facts(path) for path in settings.data}
        address, port, _ = group.meeting_address(place)
        self.enter(f"the connection to the store at {address}:{port}")
        self._board = group.Board(place, self._left() / 2)
        self.state["address_named"] = self._board.is_named
        self.enter("the roll")
        if place.rank == 0:
            self._board.post("plan", self._call_roll(group.choose_backend, QUICK_SIZES if settings.quick else SIZES))
        plan = self._board.wait("plan", self._left())
        if plan is None:
            raise TimeoutError("rank 0 did not say how to go on")
        self._plan = plan
        if plan["missing"]:
            return
        if settings.shared:
            self.enter("the shared folder")
            self.state["shared"] = [self._look_at(path, plan) for path in settings.shared]
        self.enter("the process group")
        index = self.state["facts"]["device"]["index"]
        began = time.monotonic()
        group.make_group(plan["backend"], self._board, place, index, min(20.0, self._left() / 2))
        self.state["group_seconds"] = time.monotonic() - began
        communication = Communication(place.rank, place.world, plan["backend"], index, self.enter)
        self.state["measured"] = communication.run(plan["sizes"], plan["leaders"], self._left)
        self.enter("the end of the process group")
        dist.destroy_process_group()

    def _call_roll(self, choose: Callable[..., str], sizes: Sequence[int]) -> dict[str, Any]:
        """Waits for all ranks, and decides for all of them how to go on."""
        place = self._place
        end = time.monotonic() + self._left() / 2
        states: dict[int, dict[str, Any]] = {}
        began = time.monotonic()
        while len(states) < place.world and time.monotonic() < end:
            for rank in range(place.world):
                if rank not in states and (state := self._board.read(f"state/{rank}")) is not None:
                    states[rank] = state
                    self._came[rank] = round(time.monotonic() - began, 3)
            time.sleep(0.02)
        missing = [rank for rank in range(place.world) if rank not in states]
        facts = [state["facts"] for state in states.values()]
        leaders = [rank for rank, state in sorted(states.items()) if state["leads"]]
        backend = choose(self._settings.backend, [one["device"] for one in facts])
        return {
            "job": uuid.uuid4().hex[:12],
            "world": place.world,
            "missing": missing,
            "waited": round(time.monotonic() - began, 3),
            "backend": backend,
            "wanted": self._settings.backend,
            "sizes": [size for size in sizes if size * 4 <= _room(facts, backend)],
            # Within one node, its ranks are the pairs.
            "leaders": leaders if len(leaders) > 1 else sorted(states),
            "nodes": leaders,
        }

    def _look_at(self, path: str, plan: dict[str, Any]) -> dict[str, Any]:
        """Rank 0 and the first rank of each node write a file, and every rank says whose files it sees."""
        rank, board = self._place.rank, self._board
        folder = SharedFolder(path, plan["job"])
        writers = sorted({0, *plan["nodes"]})
        number = self._settings.shared.index(path)
        if rank in writers:
            board.post(f"wrote/{number}/{rank}", {"error": folder.write(rank)})
        end = time.monotonic() + min(_SEEN_WITHIN, self._left() / 3)
        wrote = {writer: board.wait(f"wrote/{number}/{writer}", end - time.monotonic()) for writer in writers}
        errors = {writer: answer["error"] for writer, answer in wrote.items() if answer is not None and answer["error"]}
        expected = [writer for writer in writers if wrote[writer] is not None and writer not in errors]
        while (seen := folder.sees(expected)) != expected and time.monotonic() < end:
            time.sleep(0.1)
        board.count(f"looked/{number}", 1)
        if rank in writers:
            while board.count(f"looked/{number}") < self._place.world and time.monotonic() < end + 1:
                time.sleep(0.05)
            folder.remove(rank)
        return {
            "path": path,
            "absolute": str(Path(path).absolute()),
            "seen": seen,
            "expected": expected,
            "error": errors.get(rank, ""),
        }

    # -- the end --------------------------------------------------------------------------------------------------------

    def finish(self) -> dict[str, Any] | None:
        """Says that this rank has ended; rank 0 waits for the others and writes down what is known of all."""
        with self._lock:
            self.state.update(ended=True, at=self._elapsed())
        self._write()
        if self._place.rank != 0:
            if self._board is not None and self.state["error"] is None:
                self._board.wait("end", self._left())
            self._done.set()
            return None
        job = self._gathered(self._board)
        while not job["complete"] and self._board is not None and self._left():
            time.sleep(_LOOK / 5)
            job = self._gathered(self._board)
        job["final"] = True
        self._done.set()
        self._keep(job)
        if self._board is not None:
            with suppress(Exception):
                self._board.post("end", {})
        return job

    def _gathered(self, board: Any) -> dict[str, Any]:
        """What is known of all ranks."""
        states: dict[int, dict[str, Any]] = {0: self.state}
        if board is not None:
            for rank in range(1, self._place.world):
                with suppress(Exception):
                    if (state := board.read(f"state/{rank}")) is not None:
                        states[rank] = state
        missing = self._plan.get("missing", [])
        ended = all(states.get(rank, {}).get("ended") for rank in range(self._place.world) if rank not in missing)
        return {"plan": self._plan, "came": self._came, "ranks": states, "complete": ended, "seconds": self._elapsed()}

    def _keep(self, job: dict[str, Any]) -> None:
        try:
            self._folder.write(JOB, job)
        except OSError as error:
            sys.stderr.write(f"ddp-audit: {self._folder.path}: {error.strerror or error}\n")


def _room(facts: Sequence[dict[str, Any]], backend: str) -> float:
    """Bytes of a tensor that every rank has room for: a quarter of what is free, which the ranks of a host share."""
    rooms = []
    for one in facts:
        if backend == "nccl" and one["device"].get("free"):
            rooms.append(one["device"]["free"] / 4)
        elif one["memory"].get("free"):
            rooms.append(one["memory"]["free"] / 4 / sum(other["host"] == one["host"] for other in facts))
    return min(rooms, default=2**32)
