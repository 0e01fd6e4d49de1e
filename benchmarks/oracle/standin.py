"""Run a program once per rank under CPython, with a pure-Python stand-in for torch that records what each rank issues.

The ranks are threads that meet in collectives as processes would: `run_ranks` returns the events of each, how it ended, and
whether the ranks parted. The stand-in holds what the grammar of `grammar.py` uses and nothing more; an attribute that it
lacks raises, so that a program can never pass for run when it was not.
"""

from __future__ import annotations

import builtins
import os
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PROGRAM = "program.py"
_MOST_LINES = 200_000  # lines a rank may run before the program counts as endless

COMPLETED = "completed"
RAISED = "raised"
EXITED = "exited"
WAITING = "waiting"


class _Parted(BaseException):
    """Ends a rank whose partners never come, or come with another collective."""


class Endless(RuntimeError):
    """A drawn program that does not end by itself."""


@dataclass(slots=True)
class RankRun:
    """What one rank did: events as (kind, what, line), in order, and how it ended (with the line of an exception)."""

    events: list[tuple[str, Any, int]] = field(default_factory=list)
    end: str = COMPLETED
    error: str = ""


@dataclass(slots=True)
class Execution:
    """The runs of all ranks. `parted` says that some rank waited for a partner that never came to the same collective."""

    ranks: dict[int, RankRun]
    parted: bool


class _Meeting:
    """Where ranks meet: a collective completes once every member of its group has come with the same operation."""

    def __init__(self, world_size: int) -> None:
        self.members: dict[str, tuple[int, ...]] = {"default": tuple(range(world_size))}
        self.parted = False
        self._condition = threading.Condition()
        self._waiting: dict[int, tuple[str, str, Any]] = {}
        self._results: dict[int, dict[int, Any]] = {}
        self._alive = set(range(world_size))

    def meet(self, rank: int, group: str, op: str, value: Any) -> dict[int, Any]:
        """Wait for the group, and return what each member brought. Raises _Parted where it never comes together."""
        with self._condition:
            self._waiting[rank] = (group, op, value)
            self._settle()
            while rank not in self._results and not self.parted:
                self._condition.wait()
            if rank not in self._results:
                raise _Parted
            return self._results.pop(rank)

    def leave(self, rank: int) -> None:
        """Take a rank that has ended out of the meeting."""
        with self._condition:
            self._alive.discard(rank)
            self._settle()

    def _settle(self) -> None:
        for name in {group for group, _, _ in self._waiting.values()}:
            members = self.members[name]
            come = [self._waiting.get(member) for member in members]
            if all(one is not None and one[0] == name for one in come) and len({one[1] for one in come if one is not None}) == 1:
                brought = {member: self._waiting[member][2] for member in members}
                for member in members:
                    del self._waiting[member]
                    self._results[member] = brought
                self._condition.notify_all()
                return
        busy = self._alive - self._waiting.keys() - self._results.keys()
        if self._waiting and not busy and not self._results.keys() & self._alive:
            self.parted = True
            self._condition.notify_all()


class _Rank:
    """The recorder of one rank, and the modules that its program imports."""

    def __init__(self, rank: int, world_size: int, meeting: _Meeting) -> None:
        self.rank, self.world_size, self.meeting = rank, world_size, meeting
        self.run = RankRun()
        self.groups = 0
        self.modules = _modules(self)

    def line(self) -> int:
        frame = sys._getframe(1)
        while frame.f_code.co_filename != PROGRAM:
            assert frame.f_back is not None
            frame = frame.f_back
        return frame.f_lineno

    def record(self, kind: str, what: Any) -> None:
        self.run.events.append((kind, what, self.line()))

    def collective(self, op: str, group: str, value: Any = None) -> dict[int, Any]:
        self.record("collective", op)
        return self.meeting.meet(self.rank, group, op, value)


class Tensor:
    """A list of numbers with the operations that the grammar uses."""

    def __init__(self, values: Sequence[float], model: Model | None = None) -> None:
        self.values, self.model = list(values), model

    def item(self) -> float:
        (value,) = self.values
        return value

    def numel(self) -> int:
        return len(self.values)

    def sum(self) -> Tensor:
        return Tensor([sum(self.values)], self.model)

    mean = sum

    def backward(self) -> None:
        assert self.model is not None
        self.model.rank.record("backward", "")
        if self.model.wrapped:
            self.model.rank.meeting.meet(self.model.rank.rank, "default", "gradients", None)


class Model:
    """A layer, or the wrapper around one."""

    def __init__(self, rank: _Rank, wrapped: bool = False) -> None:
        self.rank, self.wrapped = rank, wrapped

    def __call__(self, inputs: Tensor) -> Tensor:
        if self.wrapped:
            self.rank.record("forward", "")
        return Tensor([1.0], self)

    def parameters(self) -> list[Any]:
        return []


def _modules(rank: _Rank) -> dict[str, types.ModuleType]:
    """The stand-ins for os, torch and its parts, for one rank."""

    def module(name: str, **names: Any) -> types.ModuleType:
        made = types.ModuleType(name)
        made.__dict__.update(names)
        return made

    def wrap(model: Model, **_: Any) -> Model:
        rank.meeting.meet(rank.rank, "default", "wrap", None)
        return Model(rank, wrapped=True)

    def all_reduce(tensor: Tensor, group: str = "default") -> None:
        brought = rank.collective("all_reduce", group, tensor.values)
        tensor.values = [sum(parts) for parts in zip(*brought.values(), strict=True)]

    def broadcast(tensor: Tensor, src: int = 0, group: str = "default") -> None:
        tensor.values = list(rank.collective("broadcast", group, tensor.values)[src])

    def new_group(ranks: Sequence[int]) -> str:
        rank.groups += 1
        name = f"group {rank.groups}"
        rank.meeting.members[name] = tuple(ranks)
        return name

    class SGD:
        def __init__(self, parameters: Any, lr: float = 0.1) -> None:
            pass

        def step(self) -> None:
            rank.record("step", "")

        def zero_grad(self) -> None:
            pass

    distributed = module(
        "torch.distributed",
        init_process_group=lambda backend: None,
        destroy_process_group=lambda: None,
        get_rank=lambda: rank.rank,
        get_world_size=lambda: rank.world_size,
        is_initialized=lambda: True,
        barrier=lambda group="default": rank.collective("barrier", group),
        all_reduce=all_reduce,
        broadcast=broadcast,
        new_group=new_group,
    )
    parallel = module("torch.nn.parallel", DistributedDataParallel=wrap)
    nn = module("torch.nn", Linear=lambda inputs, outputs: Model(rank), parallel=parallel)
    optim = module("torch.optim", SGD=SGD)
    torch = module(
        "torch",
        distributed=distributed,
        nn=nn,
        optim=optim,
        manual_seed=lambda seed: rank.record("seed", seed),
        ones=lambda size, *more: Tensor([1.0] * size),
        tensor=lambda values: Tensor([float(value) for value in values]),
    )
    environ = {"RANK": str(rank.rank), "LOCAL_RANK": str(rank.rank), "WORLD_SIZE": str(rank.world_size)}
    system = module("os", environ=environ, getenv=environ.get, path=os.path)
    return {
        "os": system, "torch": torch, "torch.distributed": distributed, "torch.nn": nn, "torch.nn.parallel": parallel,
        "torch.optim": optim,
    }  # fmt: skip


def _importer(modules: Mapping[str, types.ModuleType]) -> Callable[..., Any]:
    def load(name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] = (), level: int = 0) -> Any:
        if name in modules:
            return modules[name if fromlist else name.split(".")[0]]
        return builtins.__import__(name, globals, locals, fromlist, level)

    return load


def run_ranks(source: str, world_size: int) -> Execution:
    """Run a program on every rank. Raises SyntaxError, or Endless where a rank runs or grows without an end."""
    code = compile(source, PROGRAM, "exec")
    meeting = _Meeting(world_size)
    ranks = [_Rank(number, world_size, meeting) for number in range(world_size)]
    endless: list[int] = []

    def go(rank: _Rank) -> None:
        lines = 0

        def trace(frame: types.FrameType, event: str, argument: object) -> Any:
            nonlocal lines
            if frame.f_code.co_filename != PROGRAM:
                return None
            lines += event == "line"
            if lines > _MOST_LINES:
                endless.append(rank.rank)
                raise _Parted
            return trace

        namespace = {
            "__name__": "__main__",
            "__builtins__": {**vars(builtins), "__import__": _importer(rank.modules), "print": _quiet},
        }
        sys.settrace(trace)
        try:
            exec(code, namespace)
        except SystemExit:
            rank.run.end = EXITED
        except _Parted:
            rank.run.end = WAITING
        except MemoryError:
            endless.append(rank.rank)
        except BaseException as error:
            rank.run.end, rank.run.error = RAISED, f"{type(error).__name__}: {error}"
        finally:
            sys.settrace(None)
            meeting.leave(rank.rank)

    threads = [threading.Thread(target=go, args=(rank,), daemon=True) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if endless:
        raise Endless(f"rank {endless[0]} runs, or grows, without an end")
    return Execution({rank.rank: rank.run for rank in ranks}, meeting.parted)


def _quiet(*_: Any, **__: Any) -> None:
    """Stand in for print."""
