"""Runs short programs on real DistributedDataParallel: gloo, one rank a thread, in a process that may hang or die.

A program is a list of operations of one rank (see `Executor`). `RealRanks.run` gives it to a session process, which is forked
from a server that has torch imported, so that a hang or an abort of gloo costs a tenth of a second and stops nothing else.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORLD_SIZE = 2
FAIL = ["fail"]  # given as the used parameters, makes the module raise


@dataclass
class Result:
    """What the ranks did.

    `kind` is completes, hangs or aborts; `positions` the operation in which each rank stopped, the constructor being number 0
    (the program's length and one where it finished); `steps` a rank and operation: error, events, gradients. An aborted run has
    no steps.
    """

    kind: str
    positions: list[int]
    steps: list[list[dict[str, Any]]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)  # the position of a rank that has finished
    pending: list[list[dict[str, Any]]] = field(default_factory=list)  # events of the operation in which a rank stopped


class RealRanks:
    """A server for real runs of `world_size` ranks. Use as a context manager.

    `timeout` is how long a rank may stand still, in seconds.
    """

    def __init__(self, timeout: float = 2.5, world_size: int = WORLD_SIZE) -> None:
        self.timeout = timeout
        self.world_size = world_size
        self.server: subprocess.Popen[str] | None = None

    def __enter__(self) -> RealRanks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.server is not None:
            assert self.server.stdin is not None
            self.server.stdin.close()
            self.server.wait(20)
            self.server = None

    def run(
        self,
        programs: list[list[list[Any]]],
        model: dict[str, Any],
        options: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Wraps `model` with `options` on every rank and runs the rank's program."""
        if self.server is None:
            env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL"}
            self.server = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), str(self.world_size)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if os.environ.get("REAL_RANKS_STDERR") else subprocess.DEVNULL,
                text=True,
                env=env,
            )
        assert self.server.stdin is not None and self.server.stdout is not None
        request = {"programs": programs, "model": model, "options": options or {}, "timeout": timeout or self.timeout}
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        line = self.server.stdout.readline()
        if not line:
            raise RuntimeError("the server of real ranks died")
        return Result(**json.loads(line), lengths=[len(program) + 1 for program in programs])


# The server: forks sessions, never touches a thread or a process group itself.


def serve(world_size: int) -> None:
    import torch._dynamo  # noqa: F401 - the constructor of DDP imports it; sessions forked from here start with it
    from torch.testing._internal.distributed import multi_threaded_pg  # noqa: F401

    recorder = Recorder()
    recorder.install()
    session: Session | None = None
    for line in sys.stdin:
        if session is None:
            session = Session(recorder, world_size)
        reply, alive = session.ask(line)
        if not alive:
            session.end()
            session = None
        sys.stdout.write(reply + "\n")
        sys.stdout.flush()
    if session is not None:
        session.end()


class Session:
    """One forked process with its ranks as threads; it serves requests until a program hangs or aborts."""

    def __init__(self, recorder: Recorder, world_size: int) -> None:
        self.world_size = world_size
        self.progress = mmap.mmap(-1, 4096)
        down_read, self.down = os.pipe()
        self.up, up_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.down)
            os.close(self.up)
            code = 1
            try:
                session_main(down_read, up_write, self.progress, recorder, world_size)
                code = 0
            finally:
                os._exit(code)
        os.close(down_read)
        os.close(up_write)

    def ask(self, line: str) -> tuple[str, bool]:
        request = json.loads(line)
        deadline = time.monotonic() + 60 + request["timeout"]
        os.write(self.down, line.encode())
        answer = b""
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self.up], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self.up, 1 << 20) if ready else b""
            if not chunk:
                kind = "aborts" if ready else "hangs"
                positions = list(struct.unpack(f"{self.world_size}q", self.progress[: 8 * self.world_size]))
                return json.dumps({"kind": kind, "positions": positions}), False
            answer += chunk
        text = answer.decode().strip()
        return text, json.loads(text)["kind"] == "completes"

    def end(self) -> None:
        os.close(self.down)
        os.close(self.up)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


# The session: real ranks.


def session_main(down: int, up: int, progress: mmap.mmap, recorder: Recorder, world_size: int) -> None:
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.multi_threaded_pg import _install_threaded_pg

    torch.set_num_threads(1)
    _install_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    store = dist.HashStore()
    inbox: list[dict[str, Any] | None] = [None]
    start = [threading.Event() for _ in range(world_size)]
    done = [threading.Event() for _ in range(world_size)]
    ranks: list[Rank] = [Rank(r, recorder, progress) for r in range(world_size)]

    def worker(rank: int) -> None:
        import datetime

        dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store, timeout=datetime.timedelta(seconds=600))
        while True:
            start[rank].wait()
            start[rank].clear()
            request = inbox[0]
            assert request is not None
            ranks[rank].run(request)
            done[rank].set()

    for r in range(world_size):
        threading.Thread(target=worker, args=(r,), daemon=True).start()
    with os.fdopen(down) as requests, os.fdopen(up, "w") as replies:
        for line in requests:
            request = json.loads(line)
            inbox[0] = request
            for rank in ranks:
                rank.reset()
            for event in start:
                event.set()
            kind = wait_for(done, ranks, request["timeout"])
            reply = {
                "kind": kind,
                "positions": [rank.position for rank in ranks],
                "steps": [rank.steps for rank in ranks],
                "pending": [recorder.events_of(rank.rank) for rank in ranks],
            }
            replies.write(json.dumps(reply) + "\n")
            replies.flush()
            if kind != "completes":
                time.sleep(5)  # the server ends this process
                return
            for event in done:
                event.clear()


def wait_for(done: list[threading.Event], ranks: list[Rank], timeout: float) -> str:
    """completes when all are done, hangs when nothing has moved for `timeout` seconds (ten times that in the constructor)."""
    seen, since = None, time.monotonic()
    while not all(event.wait(0.002) for event in done):
        now = (tuple(rank.position for rank in ranks), tuple(len(rank.steps) for rank in ranks))
        if now != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since > timeout * (10 if sum(now[0]) == 0 else 1):
            return "hangs"
    return "completes"


class Rank:
    """Executes programs on one rank."""

    def __init__(self, rank: int, recorder: Recorder, progress: mmap.mmap) -> None:
        self.rank = rank
        self.recorder = recorder
        self.progress = progress
        self.reset()

    def reset(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.move(0)

    def move(self, position: int) -> None:
        self.position = position
        struct.pack_into("q", self.progress, 8 * self.rank, position)

    def run(self, request: dict[str, Any]) -> None:
        self.recorder.begin(self.rank)
        executor = Executor(self.rank, request["model"], request["options"])
        program = request["programs"][self.rank]
        for position, operation in enumerate([["construct"], *program]):
            self.move(position)
            error = ""
            try:
                executor.execute(operation)
            except Exception as problem:  # the very thing under test
                error = f"{type(problem).__name__}: {problem}"
            self.steps.append({"error": error, "events": self.recorder.take(self.rank), "gradients": executor.gradients()})
            if executor.ddp is None:
                break
        self.move(len(program) + 1)
        executor.close()


class Executor:
    """One wrapper on one rank, and what a program may do to it."""

    def __init__(self, rank: int, model: dict[str, Any], options: dict[str, Any]) -> None:
        self.rank = rank
        self.model = model
        self.options = options
        self.ddp: Any = None
        self.outputs: list[Any] = []
        self.spoiled: set[int] = set()
        self.contexts: list[Any] = []
        self.used_by: dict[int, set[Any]] = {}  # parameters behind each output

    def usable(self, number: int) -> Any:
        """An output that has a graph and was in no failed backward, or None."""
        output = self.outputs[number]
        return output if output is not None and output.requires_grad and number not in self.spoiled else None

    def execute(self, operation: list[Any]) -> None:
        import torch
        import torch.distributed as dist

        name, *arguments = operation
        if name == "construct":
            import warnings

            module = build(self.model)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.ddp = torch.nn.parallel.DistributedDataParallel(module, **self.options)
        elif name in ("forward", "module"):
            mode, training, used = arguments
            target = self.ddp if name == "forward" else self.ddp.module
            self.ddp.train(training)
            context = {"grad": contextlib.nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode}[mode]
            self.outputs.append(None)
            with context():
                x = torch.full((), input_value(self.rank, len(self.outputs)))
                self.outputs[-1] = target(x, used)
            module = self.ddp.module
            params = [p for n, p in module.named_parameters() if p.requires_grad and (used is None or n in used)]
            self.used_by[len(self.outputs) - 1] = set(params)
        elif name == "backward":
            which, retain = arguments
            if any(self.outputs[i] is None or i in self.spoiled for i in which):
                return
            try:
                sum(self.outputs[i] for i in which).backward(retain_graph=retain)
            except Exception:
                self.spoiled.update(which)
                raise
        elif name == "fail":
            self.outputs.append(None)
            context = {"grad": contextlib.nullcontext, "no_grad": torch.no_grad}[arguments[0]]
            with context(), contextlib.suppress(KeyError):
                self.ddp(torch.zeros(()), FAIL)
        elif name == "extend":
            output, used = self.usable(arguments[0]), arguments[1]
            if output is not None:
                params = {n: p for n, p in self.ddp.module.named_parameters() if n in used}
                used = [n for n, p in params.items() if p not in self.used_by[arguments[0]]]
                self.used_by[arguments[0]].update(params[n] for n in used if params[n].requires_grad)
                x = torch.full((), input_value(self.rank, arguments[0] + 1))
                self.outputs[arguments[0]] = output + self.ddp.module(x, used)
        elif name == "autograd_grad":
            output = self.usable(arguments[0])
            if output is not None:
                params = [p for p in self.ddp.parameters() if p.requires_grad]
                torch.autograd.grad(output, params, retain_graph=True, allow_unused=True)
        elif name == "freeze":
            if self.ddp.module.has(arguments[0]):
                self.ddp.module.get_parameter(arguments[0]).requires_grad_(arguments[1])
        elif name == "replace":
            if self.ddp.module.has(arguments[0]):
                old = self.ddp.module.get_parameter(arguments[0])
                setattr(self.ddp.module, arguments[0], torch.nn.Parameter(old.detach().clone(), requires_grad=old.requires_grad))
        elif name == "flag":
            self.ddp.require_backward_grad_sync = arguments[0]
        elif name == "enter":
            self.contexts.append(self.ddp.no_sync())
            self.contexts[-1].__enter__()
        elif name == "exit":
            if self.contexts:
                self.contexts.pop().__exit__(None, None, None)
        elif name == "zero":
            self.ddp.zero_grad(set_to_none=arguments[0])
        elif name == "step":
            with torch.no_grad():
                for p in self.ddp.parameters():
                    if p.grad is not None:
                        p -= 0.125 * p.grad
        elif name == "all_reduce":
            dist.all_reduce(torch.zeros(arguments[0], dtype=getattr(torch, arguments[1])), op=getattr(dist.ReduceOp, arguments[2]))
        elif name == "broadcast":
            dist.broadcast(torch.zeros(arguments[0], dtype=getattr(torch, arguments[1])), src=arguments[2])
        elif name == "all_gather":
            tensor = torch.zeros(arguments[0], dtype=getattr(torch, arguments[1]))
            dist.all_gather([torch.zeros_like(tensor) for _ in range(dist.get_world_size())], tensor)
        elif name == "reduce":
            dist.reduce(torch.zeros(arguments[0], dtype=getattr(torch, arguments[1])), dst=arguments[2])
        elif name == "barrier":
            dist.barrier()
        elif name == "all_gather_object":
            dist.all_gather_object([None] * dist.get_world_size(), arguments[0])
        elif name == "broadcast_object_list":
            dist.broadcast_object_list(list(arguments[0]), src=arguments[1])
        elif name == "gather_object":
            dist.gather_object(
                arguments[0], [None] * dist.get_world_size() if self.rank == arguments[1] else None, dst=arguments[1]
            )
        else:
            raise ValueError(f"no operation {name}")

    def gradients(self) -> dict[str, float | str | None]:
        """The value that every element of a gradient has; None where it is missing; `mixed` where the elements differ."""
        if self.ddp is None:
            return {}
        out: dict[str, float | str | None] = {}
        for name, p in self.ddp.module.named_parameters():
            if p.grad is None:
                out[name] = None
            elif p.numel() and not bool((p.grad == p.grad.flatten()[0]).all()):
                out[name] = "mixed"
            else:
                out[name] = float(p.grad.flatten()[0]) if p.numel() else 0.0
        return out

    def close(self) -> None:
        self.ddp = None
        self.outputs = []


def input_value(rank: int, forward: int) -> float:
    """The input of a rank's forward number `forward`, from 1: ranks differ, and no sum of inputs equals another mean."""
    return float(3**forward % 509 + 512 * rank * (forward % 3 + 1))


def weight(position: int) -> float:
    """The gradient of the parameter at `position` is this times the input."""
    return float(position % 4 + 1)


def build(model: dict[str, Any]) -> Any:
    """A module with the given parameters and buffers, whose gradients do not depend on its parameters.

    Its output is a running sum over the parameters in registration order, so their gradients become ready in the reverse.
    """
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, shape, dtype, requires_grad in model["params"]:
                value = torch.ones(shape, dtype=getattr(torch, dtype))
                self.register_parameter(name, torch.nn.Parameter(value, requires_grad=requires_grad))
            for name, numel, dtype in model["buffers"]:
                self.register_buffer(name, torch.zeros(numel, dtype=getattr(torch, dtype)))

        def has(self, name: str) -> bool:
            return name in self._parameters

        def forward(self, x: Any, used: list[str] | None) -> Any:
            total = torch.zeros(())
            for position, (name, p) in enumerate(self.named_parameters()):
                if used is None or name in used:
                    total = total + (p * (x * weight(position)).to(p.dtype)).sum()
            if used is FAIL:
                raise KeyError("the module fails")
            if self.training:
                for buffer in self.buffers():
                    buffer += 1
            return total

    return Net()


# The recorder: kernels at the dispatcher key BackendSelect see every collective, those of the C++ reducer too.


class Recorder:
    """Records the c10d operations of every rank's thread, with the arguments that the machine predicts."""

    REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")

    def __init__(self) -> None:
        self.lists: dict[int, list[dict[str, Any]]] = {}
        self.ranks: dict[int, int] = {}

    def begin(self, rank: int) -> None:
        self.ranks[threading.get_ident()] = rank
        self.lists[rank] = []

    def take(self, rank: int) -> list[dict[str, Any]]:
        events, self.lists[rank] = self.lists[rank], []
        return events

    def events_of(self, rank: int) -> list[dict[str, Any]]:
        return list(self.lists.get(rank, ()))

    def install(self) -> None:
        import torch

        key = torch._C.DispatchKey.BackendSelect
        after = torch._C._dispatch_keyset_full_after(key)
        self.library = torch.library.Library("c10d", "IMPL")
        for schema in torch._C._jit_get_all_schemas():
            short = schema.name.removeprefix("c10d::")
            if short == schema.name or not any(a.name == "process_group" for a in schema.arguments):
                continue
            handle = getattr(torch.ops.c10d, short).default._handle
            names = [a.name for a in schema.arguments]

            def kernel(keys: Any, *arguments: Any, op: str = short, names: Any = names, handle: Any = handle) -> Any:
                self.record(op, dict(zip(names, arguments, strict=False)))
                return handle.redispatch_boxed(keys & after, *arguments)

            self.library.impl(short, kernel, "BackendSelect", with_keyset=True)

    def record(self, op: str, arguments: dict[str, Any]) -> None:
        rank = self.ranks.get(threading.get_ident())
        if rank is None:
            return
        tensors = arguments.get(
            "input_tensors", arguments.get("tensors", arguments.get("input_tensor", arguments.get("input", [])))
        )
        flat = flatten(tensors)
        name = {"allreduce_": "all_reduce", "allgather_": "all_gather"}.get(op, op.rstrip("_"))
        rooted = name in ("broadcast", "reduce", "gather", "scatter")
        reducing = name in ("all_reduce", "reduce")
        barrier = name == "barrier"
        self.lists[rank].append(
            {
                "op": name,
                "numel": None if barrier else sum(t.numel() for t in flat),
                "dtype": None if barrier or not flat else str(flat[0].dtype).removeprefix("torch."),
                "root": arguments.get("root_rank", 0) if rooted else None,
                "reduce_op": self.reduce_op(arguments.get("reduce_op")) if reducing else None,
                "origin": origin(flat),
            }
        )

    def reduce_op(self, value: Any) -> str:
        number = value.op() if value is not None and hasattr(value, "op") else 0
        return self.REDUCE_OPS[int(number)]


def flatten(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in flatten(v)]
    return [value]


def origin(tensors: list[Any]) -> str:
    """The origin of a collective, by the functions of torch that are on the stack."""
    frame = sys._getframe(2)
    names = set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    if "_engine_run_backward" in names:
        return "ddp-unused-map" if str(tensors[0].dtype) == "torch.int32" else "ddp-bucket"
    if names & {"_verify_param_shape_across_processes", "_sync_params_and_buffers"}:
        return "ddp-constructor"
    if "_distributed_broadcast_coalesced" in names:
        return "ddp-buffers"
    if "_pre_forward" in names:
        return "ddp-rebuild"
    if names & {"all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list"}:
        return "object"
    return "user"


if __name__ == "__main__":
    serve(int(sys.argv[1]))
    os._exit(0)  # without torch's own teardown, which takes seconds
