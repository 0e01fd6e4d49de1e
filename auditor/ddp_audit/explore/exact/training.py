"""What trains: DDP wrappers on the machine, backward passes, optimizers, scalers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ddp_audit import events as ev
from ddp_audit.events import DEFAULT_GROUP
from ddp_audit.explore.exact import calls, hooks, layers, tensors, unread
from ddp_audit.explore.exact.built import built
from ddp_audit.explore.exact.collectives import Group
from ddp_audit.explore.exact.contents import tensors_in
from ddp_audit.explore.exact.values import (
    SPREAD,
    Class,
    Context,
    Error,
    Function,
    Instance,
    Lib,
    Module,
    Native,
    Output,
    Param,
    Raised,
    Stream,
    Tensor,
    Unknown,
    Use,
    error,
)
from ddp_audit.knowledge import functions
from ddp_audit.machine import backward as graph
from ddp_audit.machine.ddp import Ddp
from ddp_audit.machine.errors import MachineError
from ddp_audit.machine.graph import Handle, numbered
from ddp_audit.machine.join import JoinBlock
from ddp_audit.machine.module import BufferSpec, ModuleSpec, ParamSpec

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_OPTIONS = (
    "find_unused_parameters", "static_graph", "broadcast_buffers", "forward_sync_buffers", "init_sync", "bucket_cap_mb",
    "gradient_as_bucket_view",
)  # fmt: skip
_HARMLESS = ("module", "device_ids", "output_device", "dim", "process_group", "check_reduction")  # and what is read below


def spec_of(module: Any) -> ModuleSpec:
    """What DDP sees of a module."""
    if not isinstance(module, Module):
        return ModuleSpec.unknown()
    inner = [m for _, m in module.walk()]
    params = [
        ParamSpec(name, p.numel, p.dtype, p.requires_grad, None if p.shape is None else len(p.shape), (p.shape or (None,))[0])
        for name, p in module.named_parameters()
    ]
    buffers = [BufferSpec(name, b.numel, b.dtype) for name, b in module.named_buffers()]
    synced = [m for m in inner if m.layer == "SyncBatchNorm"]
    channels = tuple(m.params["weight"].numel for m in synced if "weight" in m.params)
    known = tuple(c for c in channels if c is not None)
    known = known if len(known) == len(synced) else ()
    exact = not any(m.opaque or m.opaque_buffers for m in inner)
    if any(m.opaque for m in inner):
        params.append(ParamSpec("*", None, None))
    if any(m.opaque_buffers for m in inner):
        buffers.append(BufferSpec("*", None, None))
    return ModuleSpec(tuple(params), tuple(buffers), len(synced), known, exact)


@dataclass(slots=True, eq=False)
class Wrapper:
    """A DistributedDataParallel object. `names` are those of its parameters by id()."""

    module: Any
    ddp: Ddp
    names: dict[int, str]
    params: list[Param]  # keeps the ids above alive
    attrs: dict[str, Any] = field(default_factory=dict)
    joins: list[tuple[str, int]] = field(default_factory=list)  # the join blocks that it is in

    hooks: Module = field(default_factory=lambda: Module("torch.nn.Module"))  # holds those that are its own, not its module's

    def called(self, it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A forward through the wrapper, with the hooks around it."""
        if self._is_left_out(it):
            return layers.call_module(it, self.module, args, kwargs)
        if self not in it.wrappers and self.names:
            it.wrappers.append(self)
            it.opaque("a module with two wrappers")
        return hooks.around(it, self.hooks, self, args, kwargs, lambda args, kwargs: self._forward(it, args, kwargs))

    def _is_left_out(self, it: Interpreter) -> bool:
        """Whether the statement that runs is that whose forwards are to pass the wrapper by."""
        return (it.frames[-1].source.path, it.frames[-1].line) in it.without and isinstance(self.module, Module)

    def _forward(self, it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if self._is_left_out(it):
            return layers.call_module(it, self.module, args, kwargs)
        start, losses = len(it.events), it.losses
        before, it.used = it.used, []
        if self.joins:
            it.joins[self.joins[-1]].append(self.ddp.require_backward_grad_sync)
            if not it.grad:
                it.bound("a forward without gradients inside join() is not followed")
        it.module_depth += 1
        failed: Raised | None = None
        result: Any = None
        try:
            known = isinstance(self.module, Module)
            result = layers.remembered_forward(it, self.module, args, kwargs) if known else Unknown("an output")
        except Raised as raised:
            failed = raised
        finally:
            it.module_depth -= 1
            order, it.used = it.used, before
        inside = it.events[start:]
        del it.events[start:]
        it.mark(ev.FORWARD, grad=it.grad, training=self.in_training, sync=self.ddp.require_backward_grad_sync)
        if failed is not None:
            it.emit(self.ddp.failing_forward(grad=it.grad))
            it.events += inside
            raise failed
        numbers = self._numbers({dep for t in tensors_in(result) for dep in t.deps})
        # Where not all of the forward was followed, every parameter counts as used.
        told = bool(numbers) and self.ddp.spec.exact and it.losses == losses
        used: dict[str, int] | None = numbers if told else None
        if not told and order and it.grad:
            used = numbered(p.name for p in self.ddp.spec.params) | self._numbers(order)
        try:
            made = self.ddp.forward(grad=it.grad, training=self.in_training, used=used)
        except MachineError as stop:
            raise _stopped(it, stop) from None
        it.emit(made.events)
        it.events += inside
        if it.grad and told and len(numbers) < len(self.names):
            unused = [n for n in self.names.values() if n not in numbers and self.ddp.requires_grad(n)]
            if unused and not self.ddp.find_unused_parameters:
                it.note(f"the forward does not use {', '.join(unused[:3])}{' and others' if len(unused) > 3 else ''}")
        outputs = {frozenset(numbers.items()): Output(self, made.handle)}
        return self._given(result, outputs, made.handle, told, it.grad and made.handle.grad)

    def _numbers(self, deps: Iterable[Any]) -> dict[str, int]:
        """The wrapper's parameters among what something was computed from, each with the number of its oldest use."""
        return {self.names[id(p)]: number for p, number in tensors.oldest(deps).items() if id(p) in self.names}

    @property
    def in_training(self) -> bool:
        return self.module.training if isinstance(self.module, Module) else True

    def _given(self, value: Any, outputs: dict[Any, Output], handle: Handle, told: bool, live: bool) -> Any:
        """The output, its tensors computed from this forward, each from the parameters that it depends on."""
        match value:
            case Tensor():
                own = self._numbers(value.deps)
                deps = frozenset(d for d in value.deps if not (isinstance(d, Use) and id(d.param) in self.names))
                if live and (own or not told):
                    made = outputs[next(iter(outputs))]
                    if told:
                        made = outputs.setdefault(frozenset(own.items()), Output(self, self.ddp.part(handle, own)))
                    deps |= {made}
                return Tensor(value.shape, value.dtype, deps, value.local)
            case tuple() | list():
                return type(value)(self._given(v, outputs, handle, told, live) for v in value)
            case dict():
                return {k: self._given(v, outputs, handle, told, live) for k, v in value.items()}
            case Instance():
                value.attrs = {k: self._given(v, outputs, handle, told, live) for k, v in value.attrs.items()}
                return value
            case Unknown():
                return Tensor(None, None, frozenset({outputs[next(iter(outputs))]}) if live else frozenset(), True)
        return value

    def attribute(self, it: Interpreter, name: str) -> Any:
        """An attribute or a method of the wrapper."""
        if name in self.attrs:
            return self.attrs[name]
        match name:
            case "module":
                return self.module
            case "require_backward_grad_sync":
                return self.ddp.require_backward_grad_sync
            case "no_sync":
                return Native(self._no_sync)
            case "forward":
                return Native(lambda *args, **kwargs: self._forward(it, list(args), kwargs))
            case "join":
                return Native(lambda *args, **kwargs: join(it, self, args, kwargs))
            case "train" | "eval" | "to" | "cuda" | "cpu" | "requires_grad_" | "apply" | "float" | "double" | "half":
                if isinstance(self.module, Module):
                    inner = layers.attribute(it, self.module, name)
                    return Native(lambda *args, **kwargs: (calls.call(it, inner, list(args), kwargs), self)[1])
                return Native(lambda *args, **kwargs: self)
            case "register_comm_hook":
                return Native(lambda state=None, hook=None: self._hook(it, state, hook))
        if name in hooks.ON_MODULES:
            return layers.attribute(it, self.hooks, name)
        if isinstance(self.module, Module) and name in layers.METHODS:
            return layers.attribute(it, self.module, name)
        return Unknown(name)

    def set_attribute(self, it: Interpreter, name: str, value: Any) -> None:
        """`wrapper.name = value`."""
        if name == "require_backward_grad_sync":
            self.ddp.require_backward_grad_sync = it.known_truth(value) is not False
        else:
            self.attrs[name] = value

    def _hook(self, it: Interpreter, state: Any, hook: Any) -> None:
        """`register_comm_hook(state, hook)`."""
        known = hooks.comm_hook(it, state, hook, self.ddp.group)
        if known is None:
            name = hook.name.rsplit(".", 1)[-1] if isinstance(hook, Lib) else "of an unknown kind"
            it.bound(f"the communication hook {name} is not followed")
            return
        try:
            self.ddp.register_comm_hook(known)
        except MachineError as stop:
            raise _stopped(it, stop) from None

    def _no_sync(self) -> Context:
        before: list[bool] = []

        def enter() -> None:
            before.append(self.ddp.require_backward_grad_sync)
            self.ddp.require_backward_grad_sync = False

        def leave() -> None:
            self.ddp.require_backward_grad_sync = before.pop()

        return Context(enter=enter, leave=leave)


def join(it: Interpreter, wrapper: Wrapper, args: Sequence[Any], kwargs: dict[str, Any]) -> Context:
    """`with wrapper.join(..)`. What a rank does in it depends on the inputs of the others, which `it.blocks` tells."""
    given = functions.given("torch.nn.parallel.DistributedDataParallel.join", args, kwargs)
    if given.get("enable", True) is False:
        return Context()
    entered: list[int] = []

    def enter() -> None:
        group = wrapper.ddp.group
        block = group, sum(name == group for name, _ in it.joins)
        it.joins[block] = []
        entered.append(it.frames[-1].line)
        wrapper.joins.append(block)
        if it.blocks is not None and block in it.blocks:
            forwards = it.blocks[block].forwards
            divide = given.get("divide_by_initial_world_size", True) is not False
            throw = given.get("throw_on_early_termination") is True
            wrapper.ddp.enter_join(JoinBlock(forwards, divide, throw), it.rank)

    def leave() -> None:
        line = entered.pop()
        wrapper.joins.pop()
        if it.blocks is None or sys.exc_info()[0] is not None:  # torch's own end of the block does nothing then
            return
        frame = it.frames[-1]
        frame.line = frame.end = line
        try:
            it.emit([replace(event, origin=ev.DDP_JOIN) for event in wrapper.ddp.exit_join()])
        except MachineError as stop:
            raise _stopped(it, stop) from None

    return Context(enter=enter, leave=leave)


def wrap(it: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`DistributedDataParallel(module, ..)`."""
    kwargs = functions.given("torch.nn.parallel.DistributedDataParallel", args, kwargs)
    module = kwargs.get("module", Unknown("a module"))
    if isinstance(module, Wrapper):
        it.bound("a wrapper around a wrapper is not followed")
        return module
    _note_options(it, kwargs)
    given = {name: kwargs[name] for name in _OPTIONS if name in kwargs}
    known: dict[str, Any] = {name: value for name, value in given.items() if isinstance(value, (bool, int, float, type(None)))}
    group = kwargs.get("process_group")
    if isinstance(group, Group):
        known |= {"group": group.name, "root": group.members[0]}
    unread.mark(module)
    spec = spec_of(module)
    if kwargs.get("broadcast_buffers", True) is not False:
        spec = unread.with_buffers(it, module, spec)
    known |= _left_alone(it, module, kwargs)
    name = known.get("group", DEFAULT_GROUP)
    number = name, sum(wrapper.ddp.group == name for wrapper in it.wrappers)
    ddp = Ddp(spec, keep_sources=False, rebuilds_of_root=it.rebuilds.get(number), **known)
    if it.rank == known.get("root", 0):
        it.rebuilds[number] = ddp.rebuilds
    params = module.named_parameters() if isinstance(module, Module) else []
    made = Wrapper(module, ddp, {id(p): name for name, p in params}, [p for _, p in params])
    # An earlier wrapper of the same parameters is taken to be gone, as one that a function made and left, until it is called again.
    it.wrappers = [earlier for earlier in it.wrappers if not made.names.keys() & earlier.names.keys()]
    start = len(it.events)
    try:
        it.emit(ddp.construct())
    except MachineError as stop:
        raise _stopped(it, stop) from None
    plain = spec.exact and not {"ignored", "delay_all_reduce_named_params"} & known.keys()
    call = built(it.events, start, ddp.group, [p for p in spec.params if p.requires_grad] if plain else None)
    it.built += [] if call is None else [call]
    it.wrappers.append(made)
    return made


def _note_options(it: Interpreter, kwargs: dict[str, Any]) -> None:
    """Says which options of a wrapper are not followed: those whose value is not known, and those without a model."""
    read = (*_HARMLESS, *_OPTIONS, "delay_all_reduce_named_params", "param_to_hook_all_reduce")
    for name, value in kwargs.items():
        if name == SPREAD:
            it.bound("not all options of DistributedDataParallel are known")
        elif name in read and isinstance(value, Unknown) and name not in ("module", "device_ids", "output_device", "dim"):
            it.bound(f"the option {name} of DistributedDataParallel is not known")
        elif name not in read and value is not None and value is not False:
            it.bound(f"the option {name} of DistributedDataParallel is not followed")


def _left_alone(it: Interpreter, module: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The options that name parameters: those that the wrapper ignores, and those whose reduction is delayed."""
    found: dict[str, Any] = {}
    if not isinstance(module, Module):
        return found
    ignored = module.attrs.get("_ddp_params_and_buffers_to_ignore")
    if ignored is not None:
        if isinstance(ignored, (list, tuple, set)) and all(isinstance(name, str) for name in ignored):
            found["ignored"] = tuple(ignored)
        else:
            it.bound("which parameters and buffers the wrapper ignores is not known")
    delayed = kwargs.get("delay_all_reduce_named_params")
    if delayed is not None:
        names = {id(param): name for name, param in module.named_parameters()}
        pairs = [pair for pair in delayed if isinstance(pair, tuple) and len(pair) == 2] if isinstance(delayed, list) else []
        hooked = names.get(id(kwargs.get("param_to_hook_all_reduce")))
        if not pairs or len(pairs) < len(delayed) or not all(isinstance(pair[0], str) for pair in pairs) or hooked is None:
            it.bound("the parameters whose reduction is delayed are not known")
        else:
            found |= {"delay_all_reduce_named_params": tuple(pair[0] for pair in pairs), "param_to_hook_all_reduce": hooked}
    return found


def ignore(args: list[Any], kwargs: dict[str, Any]) -> None:
    """`DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)`."""
    module = args[0] if args else kwargs.get("module")
    if isinstance(module, Module):
        module.attrs["_ddp_params_and_buffers_to_ignore"] = args[1] if len(args) > 1 else kwargs.get("params_and_buffers_to_ignore")


def _stopped(it: Interpreter, stop: MachineError) -> Raised:
    it.emit(stop.events)
    return error("RuntimeError", stop.text)


# ---- changes after the wrap


def changed(it: Interpreter) -> None:
    """Parameters may have been added or replaced: tells the wrappers, which never look again."""
    for wrapper in it.wrappers:
        if not isinstance(wrapper.module, Module):
            continue
        known = set(wrapper.names.values())
        for name, param in wrapper.module.named_parameters():
            if wrapper.names.get(id(param)) == name:
                continue
            if name in known:
                wrapper.ddp.replace_parameter(name)
            else:
                wrapper.ddp.add_parameter(ParamSpec(name, param.numel, param.dtype, param.requires_grad))
            wrapper.names[id(param)] = name
            wrapper.params.append(param)


def moved(it: Interpreter, module: Module, dtype: str | None) -> None:
    """A change of dtype, or with None of device, after the wrap: no hook of the reducer fires for the parameters again.

    Either swaps the data of a parameter under a new gradient accumulator; `.to("meta")` makes other parameters of them.
    """
    if dtype is None and any(wrapper.module is module for wrapper in it.wrappers):
        it.note("parameters change their device after the wrap, and their gradients are not reduced from here on")
    inside = {id(p) for _, p in module.named_parameters()}
    for wrapper in it.wrappers:
        if wrapper.module is module:
            wrapper.ddp.move(dtype)
            continue
        for identity, name in wrapper.names.items():
            if identity in inside:
                wrapper.ddp.replace_parameter(name)


# ---- backward


def past_wrapper(it: Interpreter, value: Any) -> Any:
    """What a call of a wrapped module, past its wrapper, gives: tensors that know which parameters they went through."""
    handles: dict[Any, Output] = {}
    for tensor in tensors_in(value):
        for wrapper in it.wrappers:
            own = frozenset(d for d in tensor.deps if isinstance(d, Use) and id(d.param) in wrapper.names)
            if own:
                handle = handles.get((id(wrapper), own)) or _late(it, wrapper, own, tensor.deps)
                handles[id(wrapper), own] = handle
                tensor.deps = (tensor.deps - own) | {handle}
    return value


def _late(it: Interpreter, wrapper: Wrapper, own: frozenset[Any], deps: frozenset[Any]) -> Output:
    """The output that a use of parameters outside of the wrapper belongs to: an earlier one that it continues, or its own."""
    numbers = {wrapper.names[id(p)]: number for p, number in tensors.oldest(own).items()}
    earlier = [d for d in deps if isinstance(d, Output) and d.wrapper is wrapper]
    if earlier:
        last = max(earlier, key=lambda output: output.handle.number)
        late = wrapper.ddp.part(last.handle, numbers)
        late.uses = {**late.uses, **last.handle.uses}
        return Output(wrapper, late)
    made = wrapper.ddp.module_forward(grad=True, training=wrapper.in_training, used=numbers)
    it.emit(made.events)
    return Output(wrapper, made.handle)


def _handles(it: Interpreter, losses: list[Tensor]) -> list[tuple[Wrapper, list[Any]]]:
    """The forwards behind some losses, by wrapper, the latest wrapper first."""
    found: dict[int, tuple[Wrapper, list[Any]]] = {}
    for loss in losses:
        past_wrapper(it, loss)
        for output in loss.deps:
            if isinstance(output, Output):
                entry = found.setdefault(id(output.wrapper), (output.wrapper, []))
                if all(output.handle is not handle for handle in entry[1]):
                    entry[1].append(output.handle)
    order = {id(wrapper): number for number, wrapper in enumerate(it.wrappers)}
    return sorted(found.values(), key=lambda pair: -order.get(id(pair[0]), -1))


def backward(it: Interpreter, losses: list[Any], retain_graph: bool = False) -> None:
    """One backward pass."""
    behind_losses = [t for loss in losses for t in tensors_in(loss)]
    it.mark(ev.BACKWARD)
    behind = _handles(it, behind_losses)
    hooks.run_backwards(it, behind_losses, max((len(wrapper.ddp.bucket_sizes) for wrapper, _ in behind), default=1))
    _pass(it, behind, retain_graph)


def _pass(it: Interpreter, behind: list[tuple[Wrapper, list[Any]]], retain_graph: bool, asked: list[Any] | None = None) -> None:
    """One pass of the engine through the outputs of all wrappers."""
    if not behind:
        return
    try:
        it.emit(graph.backward([(wrapper.ddp, handles) for wrapper, handles in behind], retain_graph=retain_graph, asked=asked))
    except MachineError as stop:
        raise _stopped(it, stop) from None


def autograd_grad(it: Interpreter, outputs: list[Tensor], asked: list[Tensor], retain_graph: bool) -> None:
    """The pass of `torch.autograd.grad`."""
    behind = _handles(it, outputs)
    _pass(it, behind, retain_graph, [_asked_of(wrapper, asked) if asked else {None} for wrapper, _ in behind])


def _asked_of(wrapper: Wrapper, asked: list[Tensor]) -> set[str | None]:
    """The wrapper's own parameters among what is asked for, and None for what may lie before it; nothing for its outputs."""
    return {wrapper.names.get(id(t)) for t in asked if not any(isinstance(d, Output) and d.wrapper is wrapper for d in t.deps)}


# ---- optimizers


def zero_grad(it: Interpreter, params: Any, set_to_none: bool) -> None:
    """Clears gradients: of the wrappers that hold one of these parameters; of all where they are not known."""
    inside = {id(p) for p in params} if isinstance(params, list) else None
    for param in params if isinstance(params, list) else ():
        param.grad = None
    for wrapper in it.wrappers:
        if inside is None or inside & set(wrapper.names):
            wrapper.ddp.zero_grad(set_to_none=set_to_none)


__all__ = [
    "Class", "Error", "Function", "Stream", "Wrapper", "autograd_grad", "backward", "changed", "moved",
    "past_wrapper", "spec_of", "wrap", "zero_grad",
]  # fmt: skip
