"""The machine's side of the agreement test: the operations of `real_operations`, carried out on the machine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ddp_audit.events import Event
from ddp_audit.machine.comm_hooks import HOOKS, SUM_HOOK, CommHook
from ddp_audit.machine.ddp import Ddp
from ddp_audit.machine.errors import MachineError
from ddp_audit.machine.gradient import Gradient
from ddp_audit.machine.graph import ForwardResult, Handle
from ddp_audit.machine.join import JoinBlock
from ddp_audit.machine.module import ModuleSpec, ParamSpec
from ddp_audit.machine.process_group import Groups, ProcessGroup, asynchronous, pickled_size, wait


@dataclass
class Case:
    """A module, the options of its wrapper, and a program for each rank."""

    model: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    programs: list[list[list[Any]]] = field(default_factory=list)


@dataclass
class Step:
    """What one operation did on one rank, predicted."""

    error: str
    events: list[Event]
    gradients: dict[str, Gradient]
    rounded: bool = False  # whether gradients have been sent in half precision
    halted: bool = False  # whether an error has ended the marking of unused parameters


class Predictor:
    """The machine's side of `real_ranks.Executor`: the same operations on `Ddp` and `ProcessGroup`."""

    def __init__(self, rank: int, case: Case, root: Predictor | None = None) -> None:
        model, options = case.model, case.options
        params = tuple(ParamSpec(n, product(shape), dtype, grad, len(shape)) for n, shape, dtype, grad in model["params"])
        self.rank = rank
        self.world = Groups(rank, len(case.programs))
        self.group = self.world.default
        self.groups: list[ProcessGroup | None] = []
        options = dict(options)
        self.made: list[Event] = []
        if options.pop("own_group", False):
            self.made = self.op_new_group(None, False)
            options["group"] = "1"
        rebuilds = None if root is None else root.ddp.rebuilds
        spec = ModuleSpec(params, tuple(tuple(b) for b in model["buffers"]))
        self.ddp = Ddp(spec, rebuilds_of_root=rebuilds, **options)
        self.programs = case.programs
        self.joins = 0
        self.works: list[int | None] = []
        self.equal = all(program == case.programs[0] for program in case.programs)
        self.outputs: list[Handle | None] = []
        self.spoiled: set[int] = set()
        self.contexts: list[Any] = []
        self.hook: CommHook | None = None
        self.halted = False
        self.steps: list[Step] = []  # for the tests to keep what `run` returned

    def run(self, program: list[list[Any]]) -> list[Step]:
        steps = []
        for operation in [["construct"], *program]:
            error, events = "", []
            try:
                events = self.execute(operation)
            except MachineError as problem:
                error, events = problem.text, problem.events
            gradients: dict[str, Gradient] = {}
            if operation[0] != "construct" or not error:
                gradients = {name: replace(g) for name, g in self.ddp.gradients.items()}
            rounded = self.hook is not None and self.hook.dtype == "float16"
            # Torch keeps unused parameters in a hash map by their addresses: which of them were marked before an error is chance.
            self.halted |= self.ddp.find_unused_parameters and error.startswith("Expected ") and ", got " in error
            steps.append(Step(error, list(events), gradients, rounded, self.halted))
            if operation[0] == "construct" and error:
                break
        return steps

    def execute(self, operation: list[Any]) -> list[Event]:
        events: list[Event] | None = getattr(self, f"op_{operation[0]}")(*operation[1:])
        return events or []

    @classmethod
    def all(cls, case: Case) -> list[Predictor]:
        """The predictors of all ranks, which take the layout of rebuilt buckets from rank 0."""
        root = cls(0, case)
        return [root, *(cls(rank, case, root) for rank in range(1, len(case.programs)))]

    def op_construct(self) -> list[Event]:
        return [*self.made, *self.ddp.construct()]

    # Forward and backward.

    def op_forward(self, mode: str, training: bool, used: list[str] | None) -> list[Event]:
        return self.call(self.ddp.forward, mode, training, used)

    def op_module(self, mode: str, training: bool, used: list[str] | None) -> list[Event]:
        return self.call(self.ddp.module_forward, mode, training, used)

    def call(self, target: Any, mode: str, training: bool, used: list[str] | None) -> list[Event]:
        self.outputs.append(None)
        result: ForwardResult = target(grad=mode == "grad", training=training, used=used)
        # The machine numbers outputs that exist; inputs are numbered by calls, failed ones included.
        result.handle.number = len(self.outputs)
        self.outputs[-1] = result.handle
        return result.events

    def op_fail(self, mode: str) -> list[Event]:
        self.outputs.append(None)
        return self.ddp.failing_forward(grad=mode == "grad")

    def op_backward(self, which: list[int], retain: bool, fails_at: str | None = None) -> list[Event]:
        handles = [h for h in (self.outputs[i] for i in which) if h is not None]
        if len(handles) < len(which) or self.spoiled & set(which):
            return []
        if fails_at is not None and (fails_at not in self.ddp.gradients or not self.ddp.requires_grad(fails_at)):
            fails_at = None  # torch lets nobody hook a frozen tensor
        try:
            return self.ddp.backward(handles, retain_graph=retain, fails_at=fails_at)
        except MachineError:
            self.spoiled.update(which)
            raise

    def op_extend(self, which: int, used: list[str]) -> None:
        handle = self.usable(which)
        if handle is not None:
            self.ddp.extend(handle, [name for name in used if name in self.ddp.gradients])

    def op_autograd_grad(self, which: int) -> list[Event]:
        handle = self.usable(which)
        return self.ddp.autograd_grad([handle], retain_graph=True) if handle is not None else []

    def usable(self, number: int) -> Handle | None:
        handle = self.outputs[number]
        return handle if handle is not None and number not in self.spoiled and handle.grad else None

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
        self.ddp.edit_gradients()

    def op_step(self) -> None:
        self.ddp.step()

    def op_join(self, initial: bool, throw: bool) -> None:
        blocks = [forwards_in_join(program)[self.joins] for program in self.programs]
        self.ddp.enter_join(JoinBlock(dict(enumerate(blocks)), initial, throw), self.rank)
        self.joins += 1

    def op_leave(self) -> list[Event]:
        return self.ddp.exit_join()

    def op_skip(self, number: int) -> None:
        """Forwards that only the other rank has done, so that later ones have the same numbers on both."""
        self.outputs += [None] * number

    def op_reset(self) -> None:
        self.ddp.reset_reducer()

    # Changes of the module after the wrap.

    def op_freeze(self, name: str, value: bool) -> None:
        if name in self.ddp.gradients:
            self.ddp.set_requires_grad(name, value)

    def op_replace(self, name: str) -> None:
        if name in self.ddp.gradients:
            self.ddp.replace_parameter(name)

    def op_assign(self) -> None:
        self.ddp.load_by_assignment()

    def op_move(self, dtype: str) -> None:
        self.ddp.move(dtype)

    def op_hook(self, name: str) -> None:
        hook = SUM_HOOK if name == "sum" else HOOKS[name]
        self.ddp.register_comm_hook(hook)
        self.hook = hook

    # Process groups.

    def op_new_group(self, ranks: list[int] | None, local: bool) -> list[Event]:
        events, group = self.world.new_group(None if ranks is None else tuple(ranks), use_local_synchronization=local)
        self.groups.append(group)
        return events

    def op_on(self, number: int, operation: list[Any]) -> list[Event]:
        if number >= len(self.groups):
            return []
        group = self.groups[number]
        if group is None:
            if operation[0] == "async":
                self.works.append(None)
            return []
        self.group = group
        try:
            return self.execute(operation)
        finally:
            self.group = self.world.default

    def op_async(self, operation: list[Any]) -> list[Event]:
        events = asynchronous(self.execute(operation), len(self.works))
        self.works.append(len(self.works))
        return events

    def op_wait(self, number: int) -> list[Event]:
        return wait(number) if number < len(self.works) and self.works[number] is not None else []

    def op_all_reduce(self, numel: int, dtype: str, op: str) -> list[Event]:
        return self.group.all_reduce(numel, dtype, op.lower())

    def op_broadcast(self, numel: int, dtype: str, root: int) -> list[Event]:
        return self.group.broadcast(numel, dtype, root=root)

    def op_all_gather(self, numel: int, dtype: str) -> list[Event]:
        return self.group.all_gather(numel, dtype)

    def op_all_gather_single(self, numel: int, dtype: str) -> list[Event]:
        return self.group.all_gather_single(numel, dtype)

    def op_reduce_scatter_single(self, numel: int, dtype: str, op: str) -> list[Event]:
        return self.group.reduce_scatter(numel * self.size(), dtype, op.lower())

    def op_all_to_all_single(self, numel: int, dtype: str) -> list[Event]:
        return self.group.all_to_all(numel * self.size(), dtype)

    def op_reduce(self, numel: int, dtype: str, root: int) -> list[Event]:
        return self.group.reduce(numel, dtype, root=root)

    def op_gather(self, numel: int, dtype: str, root: int) -> list[Event]:
        return self.group.gather(numel, dtype, root=root)

    def op_scatter(self, numel: int, dtype: str, root: int) -> list[Event]:
        return self.group.scatter(numel, dtype, root=root)

    def op_barrier(self) -> list[Event]:
        return self.group.barrier()

    def op_coalesced(self, numels: list[int], dtype: str, op: str, way: str) -> list[Event]:
        return self.group.all_reduce_coalesced(numels, dtype, op.lower())

    # The sizes of objects hold where all ranks run the same program, and are left unknown otherwise.

    def op_all_gather_object(self, value: Any) -> list[Event]:
        return self.group.all_gather_object([pickled_size(value)] if self.equal else [])

    def op_broadcast_object_list(self, values: list[Any], root: int) -> list[Event]:
        return self.group.broadcast_object_list(len(values), root=root, sizes=self.sizes(values))

    def op_gather_object(self, value: Any, root: int) -> list[Event]:
        return self.group.gather_object(root, [pickled_size(value)] if self.equal else [])

    def op_scatter_object_list(self, values: list[Any], root: int) -> list[Event]:
        return self.group.scatter_object_list(root=root, sizes=self.sizes(values))

    def sizes(self, values: list[Any]) -> list[int]:
        return [pickled_size(v) for v in values] if self.equal else []

    def op_send(self, numel: int, dtype: str, peer: int, tag: int) -> list[Event]:
        return self.group.send(numel, dtype, peer=peer, tag=tag)

    def op_recv(self, numel: int, dtype: str, peer: int, tag: int) -> list[Event]:
        return self.group.recv(numel, dtype, peer=peer, tag=tag)

    def op_pass(self, numel: int, dtype: str, source: int, tag: int) -> list[Event]:
        return (self.op_send if self.rank == source else self.op_recv)(numel, dtype, 1 - self.rank, tag)

    def op_swap(self, numel: int, dtype: str) -> list[Event]:
        peer = 1 - self.rank
        both = asynchronous(self.group.send(numel, dtype, peer=peer), -1) + asynchronous(
            self.group.recv(numel, dtype, peer=peer), -2
        )
        return [*both, *wait(-1), *wait(-2)]

    def size(self) -> int:
        return len(self.world.members[self.group.name])


def forwards_in_join(program: list[list[Any]]) -> list[list[bool]]:
    """For each join block its forwards, each as whether it is outside `no_sync`."""
    blocks: list[list[bool]] = []
    inside, suppressed = False, 0
    for name, *_ in program:
        if name == "join":
            blocks.append([])
            inside = True
        elif name == "leave":
            inside = False
        elif name in ("enter", "exit"):
            suppressed += 1 if name == "enter" else -1
        elif name == "forward" and inside:
            blocks[-1].append(suppressed == 0)
    return blocks


def product(shape: list[int]) -> int:
    result = 1
    for n in shape:
        result *= n
    return result


def without(program: list[list[Any]], at: int) -> list[list[Any]] | None:
    """The program without one operation; a forward takes its backward passes along and the later outputs are renumbered."""
    name = program[at][0]
    if name not in ("forward", "module", "fail"):
        return program[:at] + program[at + 1 :]
    number = sum(op[0] in ("forward", "module", "fail") for op in program[:at])
    out = []
    for i, op in enumerate(program):
        if i == at:
            continue
        if op[0] == "backward":
            which = [w - (w > number) for w in op[1] if w != number]
            if not which:
                continue
            op = ["backward", which, *op[2:]]
        if op[0] in ("extend", "autograd_grad"):
            if op[1] == number:
                continue
            op = [op[0], op[1] - (op[1] > number), *op[2:]]
        out.append(op)
    return out
