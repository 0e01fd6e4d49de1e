"""Makes dumps as PyTorch's Flight Recorder writes them (versions 2.x of its documented format), for tests."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TORCH = "/opt/conda/lib/python3.11/site-packages/torch/"
START = 1_790_000_000_000_000_000
_INNER = {
    "user": ("distributed/distributed_c10d.py", "all_reduce"),
    "buffers": ("nn/parallel/distributed.py", "_distributed_broadcast_coalesced"),
    "bucket": ("autograd/graph.py", "_engine_run_backward"),
}


def frames(line: int, inner: str = "user", path: str = "/home/me/train.py") -> list[dict[str, Any]]:
    file, name = _INNER[inner]
    return [
        {"name": name, "filename": TORCH + file, "line": 1},
        {"name": "wrapper", "filename": TORCH + "distributed/c10d_logger.py", "line": 83},
        {"name": "train", "filename": path, "line": line},
        {"name": "<module>", "filename": path, "line": 900},
        {"name": "_run_code", "filename": "<frozen runpy>", "line": 88},
    ]


@dataclass
class Recorder:
    """The recorder of one rank. `groups`: name and description to global ranks; gloo knows none (`pg_config` is empty there)."""

    rank: int
    world: int
    backend: str = "nccl"
    version: str = "2.10"
    groups: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)
    _status: dict[str, dict[str, int]] = field(default_factory=dict)
    _messages: int = 0

    def add(
        self, op: str, *sizes: list[int], dtype: str = "Float", line: int = 1, inner: str = "user", done: bool = True,
        group: tuple[str, str] = ("0", "default_pg"), same_number: bool = False, no_frames: bool = False,
    ) -> None:  # fmt: skip
        seq = self._counts[group] = self._counts.get(group, 0) + (not same_number)
        number = len(self.entries)
        created = START + 1_000_000 * number + self.rank
        finished = done and self.backend == "nccl"
        self.entries.append(
            {
                "frames": [] if no_frames else frames(line, inner),
                "record_id": number,
                "pg_id": list(self._counts).index(group),
                "process_group": group,
                "collective_seq_id": seq,
                "p2p_seq_id": 0,
                "op_id": number + 1,
                "profiling_name": f"{self.backend}:{op}",
                "time_created_ns": created,
                "input_sizes": list(sizes),
                "input_dtypes": [dtype] * len(sizes),
                "output_sizes": list(sizes),
                "output_dtypes": [dtype] * len(sizes),
                "state": "completed" if finished else "started" if self.backend == "nccl" and not done else "scheduled",
                "time_discovered_started_ns": created + 10 if finished else None,
                "time_discovered_completed_ns": created + 500 if finished else None,
                "retired": done,
                "timeout_ms": 600000,
                "is_p2p": False,
            }
        )
        status = self._status.setdefault(str(self.entries[-1]["pg_id"]), {})
        status["last_enqueued_collective"] = seq
        status.setdefault("last_completed_collective", -1)
        if done:
            status["last_completed_collective"] = seq

    def message(self, call: str, size: list[int], line: int, done: bool = True, batch: bool = False) -> None:
        """A send or receive of torch's `send` and `recv`, or of a batch: those of a batch are scheduled for ever."""
        group = next(iter(self.groups))
        self.add(call, size, line=line, done=done and not batch, group=group, same_number=True)
        entry = self.entries[-1]
        entry["is_p2p"] = True
        entry["p2p_seq_id"] = self._messages = self._messages + (not batch)
        name = "batch_isend_irecv" if batch else call.split()[0]
        entry["frames"][0]["name"] = name
        entry["frames"].insert(0, {**entry["frames"][0], "name": f"i{call.split()[0]}"})
        if batch:
            entry["state"] = "scheduled"

    def end_batch(self, done: bool = True) -> None:
        """The entry of a batch itself, which alone knows whether it is done."""
        self.message("coalesced", [], line=1, done=done)
        self.entries[-1].update(p2p_seq_id=self._messages - 1, input_sizes=[], output_sizes=[])

    def dump(self, keep: int | None = None) -> dict[str, Any]:
        """The dump; of `keep` only the last entries, as when the ring was full."""
        known = {("0", "default_pg"): list(range(self.world)), **self.groups}
        config = {name: {"name": name, "desc": desc, "ranks": str(ranks)} for (name, desc), ranks in known.items()}
        if self.backend == "gloo":
            config = {"": {"name": "", "desc": "", "ranks": "[]"}}
        entries = self.entries if keep is None else self.entries[-keep:]
        return {"version": self.version, "pg_config": config, "pg_status": self._status, "entries": entries}


def write(folder: Path, recorders: list[Recorder], form: str = "pickle", names: str = "nccl_trace_rank_{}") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for one in recorders:
        dump = one.dump()
        path = folder / names.format(one.rank)
        if form == "json":
            bare = [{k: v for k, v in entry.items() if k != "frames"} for entry in dump["entries"]]
            path.write_text(json.dumps({**dump, "entries": bare}))
        else:
            path.write_bytes(pickle.dumps(dump, protocol=2))
    return folder


def steps(recorder: Recorder, count: int, numel: int = 64) -> None:
    """Training steps: a buffer broadcast and a bucket, which on a GPU has no frames."""
    side = int(math.sqrt(numel))
    for _ in range(count):
        recorder.add("broadcast", [side], line=20, inner="buffers")
        recorder.add("all_reduce", [numel], line=21, inner="bucket", no_frames=recorder.backend == "nccl")
