"""What a program may do to a wrapper and to process groups, on one real rank."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

FAIL = ["fail"]  # given as the used parameters, makes the module raise
KEPT: list[Any] = []
FAILED = "the backward pass fails"


class Executor:
    """One wrapper on one rank. An operation is a list: the name of a method without `op_`, then its arguments."""

    def __init__(self, rank: int, model: dict[str, Any], options: dict[str, Any]) -> None:
        self.rank = rank
        self.model = model
        self.options = options
        self.ddp: Any = None
        self.outputs: list[Any] = []
        self.spoiled: set[int] = set()
        self.contexts: list[Any] = []
        self.groups: list[Any] = []
        self.group: Any = None
        self.works: list[Any] = []
        self.is_async = False
        self.used_by: dict[int, set[Any]] = {}  # parameters behind each output

    def execute(self, operation: list[Any]) -> None:
        getattr(self, f"op_{operation[0]}")(*operation[1:])

    def op_construct(self) -> None:
        import torch

        module = build(self.model)
        options = dict(self.options)
        if "ignored" in options:
            module._ddp_params_and_buffers_to_ignore = options.pop("ignored")
        if options.pop("own_group", False):
            self.op_new_group(None, False)
            options["process_group"] = self.groups[0]
        if "delay_all_reduce_named_params" in options:
            params = dict(module.named_parameters())
            options["delay_all_reduce_named_params"] = [(n, params[n]) for n in options["delay_all_reduce_named_params"]]
            options["param_to_hook_all_reduce"] = params[options["param_to_hook_all_reduce"]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.ddp = torch.nn.parallel.DistributedDataParallel(module, **options)

    # Forward and backward.

    def op_forward(self, mode: str, training: bool, used: list[str] | None) -> None:
        self.call(self.ddp, mode, training, used)

    def op_module(self, mode: str, training: bool, used: list[str] | None) -> None:
        self.call(self.ddp.module, mode, training, used)

    def call(self, target: Any, mode: str, training: bool, used: list[str] | None) -> None:
        import torch

        self.ddp.train(training)
        context = {"grad": contextlib.nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode}[mode]
        self.outputs.append(None)
        with context():
            x = torch.full((), input_value(self.rank, len(self.outputs)))
            self.outputs[-1] = target(x, used)
        params = [p for n, p in self.ddp.module.named_parameters() if p.requires_grad and (used is None or n in used)]
        self.used_by[len(self.outputs) - 1] = set(params)

    def op_fail(self, mode: str) -> None:
        import torch

        self.outputs.append(None)
        context = {"grad": contextlib.nullcontext, "no_grad": torch.no_grad}[mode]
        with context(), contextlib.suppress(KeyError):
            self.ddp(torch.zeros(()), FAIL)

    def op_backward(self, which: list[int], retain: bool, fails_at: str | None = None) -> None:
        if any(self.outputs[i] is None or i in self.spoiled for i in which):
            return
        hook: Any = contextlib.nullcontext()
        if fails_at is not None and self.ddp.module.has(fails_at) and self.parameter(fails_at).requires_grad:
            hook = contextlib.closing(FailingHook(self.parameter(fails_at)))
        try:
            with hook:
                sum(self.outputs[i] for i in which).backward(retain_graph=retain)
        except Exception:
            self.spoiled.update(which)
            raise

    def op_extend(self, which: int, used: list[str]) -> None:
        import torch

        output = self.usable(which)
        if output is not None:
            params = {n: p for n, p in self.ddp.module.named_parameters() if n in used}
            used = [n for n, p in params.items() if p not in self.used_by[which]]
            self.used_by[which].update(params[n] for n in used if params[n].requires_grad)
            x = torch.full((), input_value(self.rank, which + 1))
            self.outputs[which] = output + self.ddp.module(x, used)

    def op_autograd_grad(self, which: int) -> None:
        import torch

        output = self.usable(which)
        if output is not None:
            params = [p for p in self.ddp.parameters() if p.requires_grad]
            torch.autograd.grad(output, params, retain_graph=True, allow_unused=True)

    def usable(self, number: int) -> Any:
        """An output that has a graph and was in no failed backward, or None."""
        output = self.outputs[number]
        return output if output is not None and output.requires_grad and number not in self.spoiled else None

    # Between the passes.

    def op_flag(self, value: bool) -> None:
        self.ddp.require_backward_grad_sync = value

    def op_enter(self) -> None:
        self.contexts.append(self.ddp.no_sync())
        self.contexts[-1].__enter__()

    def op_exit(self) -> None:
        if self.contexts:
            self.contexts.pop().__exit__(None, None, None)

    def op_zero(self, set_to_none: bool) -> None:
        self.ddp.zero_grad(set_to_none=set_to_none)

    def op_edit(self) -> None:
        import torch

        with torch.no_grad():
            for p in self.ddp.module.parameters():
                if p.grad is not None:
                    p.grad *= edit_factor(self.rank)

    def op_step(self) -> None:
        import torch

        with torch.no_grad():
            for p in self.ddp.parameters():
                if p.grad is not None:
                    p -= 0.125 * p.grad

    def op_join(self, initial: bool, throw: bool) -> None:
        self.contexts.append(self.ddp.join(divide_by_initial_world_size=initial, throw_on_early_termination=throw))
        self.contexts[-1].__enter__()

    def op_leave(self) -> None:
        self.contexts.pop().__exit__(None, None, None)

    def op_skip(self, number: int) -> None:
        """Forwards that only the other rank has done, so that later ones have the same numbers on both."""
        self.outputs += [None] * number

    def op_reset(self) -> None:
        self.ddp.reducer._reset_state()

    # Changes of the module after the wrap.

    def op_freeze(self, name: str, value: bool) -> None:
        if self.ddp.module.has(name):
            self.parameter(name).requires_grad_(value)

    def op_replace(self, name: str) -> None:
        import torch

        if self.ddp.module.has(name):
            old = self.parameter(name)
            owner, own_name = self.ddp.module.owner(name)
            setattr(owner, own_name, torch.nn.Parameter(old.detach().clone(), requires_grad=old.requires_grad))

    def op_assign(self) -> None:
        state = {name: value.clone() for name, value in self.ddp.module.state_dict().items()}
        self.ddp.module.load_state_dict(state, assign=True)

    def op_move(self, dtype: str) -> None:
        import torch

        self.ddp.to(getattr(torch, dtype))

    def op_hook(self, name: str) -> None:
        import torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks as debugging
        import torch.distributed.algorithms.ddp_comm_hooks.default_hooks as default

        hooks = {
            "allreduce_hook": default.allreduce_hook,
            "fp16_compress_hook": default.fp16_compress_hook,
            "noop_hook": debugging.noop_hook,
            "sum": lambda state, bucket: sum_hook(bucket),  # torch refuses annotations other than its own
        }
        self.ddp.register_comm_hook(None, hooks[name])

    def parameter(self, name: str) -> Any:
        return self.ddp.module.get_parameter(name)

    # Process groups. Every collective goes to `self.group`, and its handle, if it gives one, to `self.works`.

    def op_new_group(self, ranks: list[int] | None, local: bool) -> None:
        import torch.distributed as dist

        self.groups.append(dist.new_group(ranks, use_local_synchronization=local))

    def op_on(self, number: int, operation: list[Any]) -> None:
        """An operation on one of the groups made before."""
        if number < len(self.groups):
            self.group = self.groups[number]
            try:
                self.execute(operation)
            finally:
                self.group = None

    def op_async(self, operation: list[Any]) -> None:
        self.is_async = True
        try:
            self.execute(operation)
        finally:
            self.is_async = False

    def op_wait(self, number: int) -> None:
        if number < len(self.works) and self.works[number] is not None:
            self.works[number].wait()

    def collective(self, function: Any, *arguments: Any, **keywords: Any) -> None:
        if self.is_async:
            keywords["async_op"] = True
        work = function(*arguments, group=self.group, **keywords)
        if self.is_async:
            self.works.append(work)

    def op_all_reduce(self, numel: int, dtype: str, op: str) -> None:
        import torch.distributed as dist

        self.collective(dist.all_reduce, zeros(numel, dtype), op=getattr(dist.ReduceOp, op))

    def op_broadcast(self, numel: int, dtype: str, root: int) -> None:
        import torch.distributed as dist

        self.collective(dist.broadcast, zeros(numel, dtype), src=root)

    def op_all_gather(self, numel: int, dtype: str) -> None:
        import torch.distributed as dist

        self.collective(dist.all_gather, self.one_each(numel, dtype), zeros(numel, dtype))

    def op_all_gather_single(self, numel: int, dtype: str) -> None:
        import torch.distributed as dist

        function = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        self.collective(function, zeros(numel * self.size(), dtype), zeros(numel, dtype))

    def op_reduce_scatter_single(self, numel: int, dtype: str, op: str) -> None:
        import torch.distributed as dist

        function = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        self.collective(function, zeros(numel, dtype), zeros(numel * self.size(), dtype), op=getattr(dist.ReduceOp, op))

    def op_all_to_all_single(self, numel: int, dtype: str) -> None:
        import torch.distributed as dist

        self.collective(dist.all_to_all_single, zeros(numel * self.size(), dtype), zeros(numel * self.size(), dtype))

    def op_reduce(self, numel: int, dtype: str, root: int) -> None:
        import torch.distributed as dist

        self.collective(dist.reduce, zeros(numel, dtype), dst=root)

    def op_gather(self, numel: int, dtype: str, root: int) -> None:
        import torch.distributed as dist

        self.collective(dist.gather, zeros(numel, dtype), self.one_each(numel, dtype) if self.rank == root else None, dst=root)

    def op_scatter(self, numel: int, dtype: str, root: int) -> None:
        import torch.distributed as dist

        self.collective(dist.scatter, zeros(numel, dtype), self.one_each(numel, dtype) if self.rank == root else None, src=root)

    def op_barrier(self) -> None:
        import torch.distributed as dist

        self.collective(dist.barrier)

    def op_coalesced(self, numels: list[int], dtype: str, op: str, way: str) -> None:
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _coalescing_manager

        tensors, reduce_op = [zeros(n, dtype) for n in numels], getattr(dist.ReduceOp, op)
        if way == "function":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.collective(dist.all_reduce_coalesced, tensors, op=reduce_op)
            return
        with _coalescing_manager(self.group, async_ops=self.is_async) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor, op=reduce_op, group=self.group)
        if self.is_async:
            self.works.append(manager)

    def op_all_gather_object(self, value: Any) -> None:
        import torch.distributed as dist

        dist.all_gather_object([None] * self.size(), value, group=self.group)

    def op_broadcast_object_list(self, values: list[Any], root: int) -> None:
        import torch.distributed as dist

        dist.broadcast_object_list(list(values), src=root, group=self.group)

    def op_gather_object(self, value: Any, root: int) -> None:
        import torch.distributed as dist

        dist.gather_object(value, [None] * self.size() if self.rank == root else None, dst=root, group=self.group)

    def op_scatter_object_list(self, values: list[Any], root: int) -> None:
        import torch.distributed as dist

        dist.scatter_object_list([None], list(values), src=root, group=self.group)

    # Point to point, between two ranks.

    def op_send(self, numel: int, dtype: str, peer: int, tag: int) -> None:
        import torch.distributed as dist

        if self.is_async:
            self.works.append(dist.isend(zeros(numel, dtype), dst=peer, tag=tag))
        else:
            dist.send(zeros(numel, dtype), dst=peer, tag=tag)

    def op_recv(self, numel: int, dtype: str, peer: int, tag: int) -> None:
        import torch.distributed as dist

        if self.is_async:
            self.works.append(dist.irecv(zeros(numel, dtype), src=peer, tag=tag))
        else:
            dist.recv(zeros(numel, dtype), src=peer, tag=tag)

    def op_pass(self, numel: int, dtype: str, source: int, tag: int) -> None:
        """One rank sends and the other receives."""
        (self.op_send if self.rank == source else self.op_recv)(numel, dtype, 1 - self.rank, tag)

    def op_swap(self, numel: int, dtype: str) -> None:
        import torch.distributed as dist

        operations = [dist.P2POp(f, zeros(numel, dtype), 1 - self.rank) for f in (dist.isend, dist.irecv)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    def one_each(self, numel: int, dtype: str) -> list[Any]:
        return [zeros(numel, dtype) for _ in range(self.size())]

    def size(self) -> int:
        import torch.distributed as dist

        return max(1, dist.get_world_size(self.group))  # -1 where this rank is no member

    # State.

    def gradients(self) -> dict[str, float | str | None]:
        """The value that every element of a gradient has; None where it is missing; `mixed` where the elements differ."""
        if self.ddp is None:
            return {}
        out: dict[str, float | str | None] = {}
        for name, p in self.ddp.module.named_parameters():
            if p.grad is None:
                out[name] = None
            elif p.numel() and not alike(p.grad):
                out[name] = "mixed"
            else:
                out[name] = float(p.grad.flatten()[0]) if p.numel() else 0.0
        return out

    def close(self) -> None:
        import torch.distributed as dist

        self.ddp = None
        self.outputs = []
        KEPT.extend(self.works)  # a send whose handle is gone is never received
        for group in self.groups:
            if isinstance(group, dist.ProcessGroup):
                dist.destroy_process_group(group)
        self.groups = []


class FailingHook:
    """Raises where the gradient of a parameter is about to be accumulated."""

    def __init__(self, parameter: Any) -> None:
        self.handle = parameter.register_hook(self.fail)

    def fail(self, gradient: Any) -> Any:
        raise RuntimeError(FAILED)

    def close(self) -> None:
        self.handle.remove()


def alike(gradient: Any) -> bool:
    """Whether all elements are equal; on three ranks and more to the three digits of half precision, as the order of their sums differs."""
    import torch
    import torch.distributed as dist

    first = gradient.flatten()[0]
    if dist.get_world_size() == 2:
        return bool((gradient == first).all())
    return torch.allclose(gradient, first.expand_as(gradient), rtol=2e-3)


def sum_hook(bucket: Any) -> Any:
    """A communication hook that forgets to divide."""
    import torch.distributed as dist

    work: Any = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def zeros(numel: int, dtype: str) -> Any:
    import torch

    return torch.zeros(numel, dtype=getattr(torch, dtype))


def input_value(rank: int, forward: int) -> float:
    """The input of a rank's forward number `forward`, from 1: ranks differ, and no sum of inputs equals another mean."""
    return float(3**forward % 509 + 512 * rank * (forward % 3 + 1))


def edit_factor(rank: int) -> int:
    """What the program multiplies the gradients of a rank by where it edits them: exact in any type, and not equal on two ranks."""
    return 2**rank


def weight(position: int) -> float:
    """The gradient of the parameter at `position` is this times the input."""
    return float(position % 4 + 1)


def build(model: dict[str, Any]) -> Any:
    """A module with the given parameters and buffers, whose gradients do not depend on its parameters.

    Its output is a running sum over the parameters, those in `used` in that order, so that their gradients become ready in the
    reverse. A parameter that is used again adds nothing to the sum.
    """
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.m = torch.nn.Module()  # holds the parameters that are named m.something
            for name, shape, dtype, requires_grad in model["params"]:
                value = torch.ones(shape, dtype=getattr(torch, dtype))
                owner, own_name = self.owner(name)
                owner.register_parameter(own_name, torch.nn.Parameter(value, requires_grad=requires_grad))
            for name, numel, dtype in model["buffers"]:
                self.register_buffer(name, torch.zeros(numel, dtype=getattr(torch, dtype)))

        def has(self, name: str) -> bool:
            owner, own_name = self.owner(name)
            return own_name in owner._parameters

        def owner(self, name: str) -> tuple[Any, str]:
            return (self.m, name[2:]) if name.startswith("m.") else (self, name)

        def forward(self, x: Any, used: list[str] | None) -> Any:
            total = torch.zeros(())
            params = {name: (position, p) for position, (name, p) in enumerate(self.named_parameters())}
            seen: set[str] = set()
            for name in params if used is None else used:
                if name in params:
                    position, p = params[name]
                    factor = 0.0 if name in seen else weight(position)
                    total = total + (p * (x * factor).to(p.dtype)).sum()
                    seen.add(name)
            if used is FAIL:
                raise KeyError("the module fails")
            if self.training:
                for buffer in self.buffers():
                    buffer += 1
            return total

    return Net()
