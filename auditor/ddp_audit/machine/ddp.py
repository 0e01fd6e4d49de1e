"""DistributedDataParallel as a machine: calls go in, the collectives that torch would issue come out.

One `Ddp` models one wrapper on one rank. Three flags decide (torch/nn/parallel/distributed.py of torch 2.13):

- `require_backward_grad_sync`, which `no_sync()` clears and restores, is read in FORWARD only;
- the reducer's "expect hooks", set at the end of a synchronized forward and cleared by the end of one reduction;
- `require_forward_param_sync`, which each forward leaves for the next and which decides on the broadcast of buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace

from ddp_audit.events import (
    ASYNC,
    DDP_BUCKET,
    DDP_BUFFERS,
    DDP_CONSTRUCTOR,
    DDP_JOIN,
    DEFAULT_GROUP,
    SYNC_BATCHNORM,
    Event,
)
from ddp_audit.machine import errors
from ddp_audit.machine.backward import Asked, backward
from ddp_audit.machine.buckets import (
    BROADCAST_BUCKET_BYTES,
    DEFAULT_BUCKET_CAP_MB,
    FIRST_BUCKET_BYTES,
    MIB,
    UNLIMITED,
    Sized,
    assign_buckets,
    total,
)
from ddp_audit.machine.comm_hooks import CommHook
from ddp_audit.machine.errors import MachineError
from ddp_audit.machine.gradient import ALL_PRESENT, ANY_FORWARD, Gradient, Term, divided, summed
from ddp_audit.machine.graph import ForwardResult, Handle, Used, numbered
from ddp_audit.machine.join import JoinBlock, JoinState, announce, leave
from ddp_audit.machine.module import ModuleSpec, ParamSpec, is_floating
from ddp_audit.machine.reducer import Reducer, wrapper_event

AVERAGED = "averaged"
LOCAL = "local"
MISSING = "missing"


class Ddp:
    """One wrapper on one rank.

    `bucket_cap_mb` is in MiB; None is torch's default of 25 with a first bucket of 1 MiB (with an explicit number the first
    bucket gets that number too). `forward_sync_buffers` None means True, and `broadcast_buffers` counts only then, as in torch
    2.13. `root` is the global rank of the group's first member. `ready_order` names the parameters in the order in which
    their gradients become ready where a forward does not say in which order it uses them, if that is not the reverse of their
    registration. The order in the backward pass before the rebuild decides on the sizes of rebuilt buckets, and that of the
    root counts: `rebuilds_of_root` is the list `rebuilds` of the wrapper on that rank. `delay_all_reduce_named_params` names
    parameters that the reducer leaves alone: the gradient of `param_to_hook_all_reduce` starts one all-reduce of them, for which
    nobody waits. Torch compares their names with a dot before those of the outermost module's own parameters, so that the
    reducer has these all the same. `ignored` are the names in the module's
    `_ddp_params_and_buffers_to_ignore`: neither sent nor reduced, with the same dot. Without `keep_sources` gradients know
    whether they are averaged or local, and not of which forwards they are the sum, so that a long
    run costs no more than a short one.
    """

    def __init__(
        self,
        spec: ModuleSpec,
        *,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        forward_sync_buffers: bool | None = None,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        bucket_cap_mb: float | None = None,
        gradient_as_bucket_view: bool = False,
        group: str = DEFAULT_GROUP,
        root: int = 0,
        ready_order: Sequence[str] | None = None,
        delay_all_reduce_named_params: Sequence[str] = (),
        param_to_hook_all_reduce: str | None = None,
        ignored: Sequence[str] = (),
        keep_sources: bool = True,
        rebuilds_of_root: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.spec = spec
        self.find_unused_parameters = find_unused_parameters
        self.static_graph = static_graph
        effective = True if broadcast_buffers is None else broadcast_buffers
        self.forward_sync_buffers = effective if forward_sync_buffers is None else forward_sync_buffers
        self.init_sync_buffers = effective if forward_sync_buffers is None else True
        self.init_sync = init_sync
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.group = group
        self.root = root
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        self._keep_sources = keep_sources
        self._gradients = {p.name: Gradient() for p in spec.params}
        self._spec_of = {p.name: p for p in spec.params}  # by key
        self._keys = {p.name: p.name for p in spec.params}  # the key of the parameter that has a name now
        self._delayed = tuple(delay_all_reduce_named_params)
        self._delay_hook = param_to_hook_all_reduce
        self._in_delay_buffer: set[str] = set()  # delayed parameters whose gradient is a view of the buffer now
        self._ignored = {*self._delayed, *ignored}
        self._params: list[ParamSpec] = [p for p in spec.params if p.requires_grad and not self._left_out(p.name)]
        self._delays_all = bool(self._delayed) and not self._params  # torch's constructor then ends early, and every forward raises
        self.buffers = tuple(b for b in spec.buffers if b.name not in self._ignored)
        self._bucket_cap_mb = DEFAULT_BUCKET_CAP_MB if bucket_cap_mb is None else bucket_cap_mb
        self._index = {p.name: i for i, p in enumerate(self._params)}
        order = list(ready_order) if ready_order is not None else [p.name for p in reversed(spec.params)]
        self._requires_grad = {p.name: p.requires_grad for p in spec.params}
        self._hooked = dict(self._index)  # parameters whose gradient accumulation still calls the reducer
        self._rank_in_order = {name: i for i, name in enumerate(order)}
        self.delay_enqueued = False
        self._forgets = False  # whether buckets under way were forgotten by a reset: nobody will wait for them
        self._join: JoinState | None = None
        self._forwards = 0
        self.reducer = self._make_reducer(bucket_cap_mb)
        self.reducer.rebuilds_of_root = rebuilds_of_root

    def _left_out(self, name: str) -> bool:
        """Whether the reducer leaves a parameter alone: torch puts a dot before the names of the outermost module's own."""
        return (name if "." in name else f".{name}") in self._ignored

    def _make_reducer(self, bucket_cap_mb: float | None) -> Reducer:
        cap = int((DEFAULT_BUCKET_CAP_MB if bucket_cap_mb is None else bucket_cap_mb) * MIB)
        first = FIRST_BUCKET_BYTES if bucket_cap_mb is None else cap
        limits = [UNLIMITED]
        if self.find_unused_parameters and not self.static_graph:
            limits = [first, cap] if first < cap else [cap]
        return Reducer(
            self._params,
            [self._gradients[p.name] for p in self._params],
            assign_buckets(self._params, limits)[::-1],
            [first, cap],
            find_unused=self.find_unused_parameters,
            static_graph=self.static_graph,
            bucket_view=self.gradient_as_bucket_view,
            group=self.group,
            root=self.root,
            exact=self.spec.exact,
        )

    # Calls.

    def construct(self) -> list[Event]:
        """What the constructor sends: a check of the parameters' number and shapes, then parameters and buffers.

        Raises MachineError where no parameter requires a gradient, or where the reduction of all is delayed.
        """
        kept = [p for p in self.spec.params if p.name not in self._ignored]
        if not any(p.requires_grad for p in kept) and not self._delayed:
            raise MachineError(errors.NOT_NEEDED)
        if not kept:
            raise MachineError(errors.ALL_DELAYED)
        delayed = [p for name in self._delayed for p in self.spec.params if p.name == name]
        # The limit of these broadcasts is meant to be MiB and is taken as bytes, so nearly every parameter gets its own.
        first = self.broadcasts(delayed, DDP_CONSTRUCTOR, int(self._bucket_cap_mb))
        if not self.init_sync or self._delays_all:
            return first
        dims = [p.ndim for p in self._params]
        metadata = None if any(d is None for d in dims) else 2 * sum(d for d in dims if d is not None)
        events = [
            self.event("all_gather", DDP_CONSTRUCTOR, 1, "int64"),
            self.event("broadcast", DDP_CONSTRUCTOR, metadata, "int64"),
        ]
        states: list[Sized] = [p for p in self.spec.params if p.name not in self._ignored]
        if self.init_sync_buffers:
            states.extend(self.buffers)
        return first + events + self.broadcasts(states, DDP_CONSTRUCTOR)

    def forward(self, *, grad: bool = True, training: bool = True, used: Used = None) -> ForwardResult:
        """A call of the wrapper. `grad`: whether gradients are enabled; `used`: parameters behind the output, None for all.

        In a sequence the parameters stand in the order of their use, and may stand there more than once; a mapping has the
        numbers of their oldest uses, from `graph.numbered`; a set leaves the order to `ready_order`. Raises
        MachineError where an earlier backward left a reduction unfinished; `.events` of it are then empty.
        """
        reducer = self.reducer
        sync = grad and self.require_backward_grad_sync
        events = self._before_forward(grad)
        handle = self._module_output(grad, training, used)
        events.extend(self._sync_batchnorm_forward(training))
        self._clear_delay_buffer()
        self.require_forward_param_sync = sync
        if sync:
            reducer.prepare_for_backward(frozenset(self._hooked[n] for n in handle.used if n in self._hooked))
        handle.sink = self.static_graph and not self.delay_enqueued
        handle.reaches_all = handle.sink or reducer.dynamic_unused
        return ForwardResult(events, handle)

    def failing_forward(self, *, grad: bool = True) -> list[Event]:
        """A call of the wrapper whose module raises: what was sent before it did. Flags stay as they were."""
        return self._before_forward(grad)

    def module_forward(self, *, grad: bool = True, training: bool = True, used: Used = None) -> ForwardResult:
        """A call of `wrapper.module`, past the wrapper: only SyncBatchNorm layers send anything."""
        return ForwardResult(self._sync_batchnorm_forward(training), self._module_output(grad, training, used))

    def backward(self, handles: Sequence[Handle], *, retain_graph: bool = False, fails_at: str | None = None) -> list[Event]:
        """One backward pass from the sum of the losses of these forwards.

        `fails_at` names a parameter before whose gradient the user's own code raises (an out-of-memory error, a hook): what
        torch queued for the end of the pass is then lost. Raises MachineError with torch's text; its `events` are what had
        been issued by then.
        """
        return backward([(self, handles)], retain_graph=retain_graph, fails_at=fails_at)

    def autograd_grad(self, handles: Sequence[Handle], *, asked: Asked = None, retain_graph: bool = False) -> list[Event]:
        """`torch.autograd.grad` of these outputs: returns local gradients and leaves `.grad` alone.

        Nothing is sent, but the first that passes the sink of a static graph starts its first reduction, in which nothing is used.
        """
        return backward([(self, handles)], retain_graph=retain_graph, asked=[asked])

    def extend(self, handle: Handle, used: Iterable[str]) -> None:
        """Parameters of the module that are applied to an output after the call, past the wrapper."""
        keys = [self._keys[name] for name in used]
        late = [key for key in keys if self._requires_grad[key] and key not in handle.uses]
        handle.uses.update(numbered(sorted(late, key=lambda key: -self._rank_in_order.get(key, -1))))
        handle.grad = handle.grad or bool(late)

    def part(self, handle: Handle, uses: Mapping[str, int]) -> Handle:
        """One tensor of an output, which depends on these parameters, each with the number of its oldest use."""
        return handle.part({self._keys[name]: at for name, at in uses.items() if self._requires_grad[self._keys[name]]})

    # Changes of the module after the wrap. DDP looks at parameters in its constructor only.

    def requires_grad(self, name: str) -> bool:
        """Whether the parameter that has a name now requires a gradient."""
        return self._requires_grad[self._keys[name]]

    def set_requires_grad(self, name: str, value: bool) -> None:
        """Freezes or unfreezes a parameter. One that was frozen at the wrap is never reduced."""
        self._requires_grad[self._keys[name]] = value

    def replace_parameter(self, name: str) -> None:
        """Another Parameter takes the name: `load_state_dict(assign=True)`, or a new layer. The reducer keeps the old one."""
        old = self._keys[name]
        key = f"{name}#{len(self._gradients)}"
        self._keys[name] = key
        self._gradients[key] = Gradient()
        self._spec_of[key] = self._spec_of[old]
        self._requires_grad[key] = self._requires_grad[old]
        self._rank_in_order[key] = self._rank_in_order.get(old, -1)

    def load_by_assignment(self) -> None:
        """`load_state_dict(assign=True)`: every parameter is replaced, so that no gradient is reduced any more."""
        for name in list(self._keys):
            self.replace_parameter(name)

    def move(self, dtype: str | None = None) -> None:
        """`.double()`, `.half()`, `.to(dtype)`; with None `.to(device)`: the hooks of all parameters that change are lost.

        Setting `.data` to another dtype or device makes a new gradient accumulator, and the reducer's hook sits on the old.
        (`.to("meta")` makes new parameters instead, with the same outcome. That a CUDA device does as a dtype does is read in
        torch's `VariableHooks::set_data`, which compares both with those of the accumulator; it was not run.)
        A dtype changes floating tensors only. Not modelled: graphs from before the move, and gradients that are bucket views of
        a module of several dtypes.
        """
        for key in self._keys.values():
            spec = self._spec_of[key]
            if dtype is not None and (spec.dtype == dtype or not is_floating(spec.dtype)):
                continue
            self._hooked.pop(key, None)
            self._in_delay_buffer.discard(key)
            if dtype is not None:
                self._spec_of[key] = replace(spec, dtype=dtype)
                if key in self._index:
                    self.reducer.params[self._index[key]] = self._spec_of[key]
        if dtype is not None:
            self.buffers = tuple(replace(b, dtype=dtype) if is_floating(b.dtype) else b for b in self.buffers)

    def register_comm_hook(self, hook: CommHook) -> None:
        """Replaces the all-reduce of buckets. Raises MachineError where there is a hook already."""
        if self._delays_all:
            raise MachineError(errors.NO_LOGGER)
        if self.reducer.comm_hook is not None:
            raise MachineError(errors.HOOK_TWICE)
        self.reducer.comm_hook = hook

    def reset_reducer(self) -> None:
        """`reducer._reset_state()`, private: the only way on after a backward that failed.

        With `static_graph` what follows depends on when it is called, and is not modelled.
        """
        if self._delays_all:
            raise MachineError(errors.NO_REDUCER)
        self._forgets = self.reducer.require_finalize
        self.reducer.reset()

    def add_parameter(self, spec: ParamSpec) -> None:
        """A parameter that is registered after the wrap: neither broadcast nor reduced."""
        self._keys[spec.name] = spec.name
        self._spec_of[spec.name] = spec
        self._gradients[spec.name] = Gradient()
        self._requires_grad[spec.name] = spec.requires_grad

    def edit_gradients(self) -> None:
        """The program changes every `.grad` by a factor that differs between ranks, as clipping local gradients does."""
        for key in self._keys.values():
            self._gradients[key].edit()

    def step(self) -> list[str]:
        """An optimizer step: the parameters whose gradient is LOCAL at it, in registration order. Nothing is sent."""
        return [name for name in self._keys if self.gradient_state(name) == LOCAL]

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        """Clears the gradients of all parameters; without `set_to_none` those that exist become zero."""
        for key in self._keys.values():
            gradient = self._gradients[key]
            if set_to_none:
                gradient.terms, gradient.racing = None, False
                self._in_delay_buffer.discard(key)
            elif gradient.terms is not None:
                gradient.terms = ()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Clears `require_backward_grad_sync` and restores what it was, whatever happens inside."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    # Uneven inputs.

    def enter_join(self, block: JoinBlock, rank: int) -> None:
        """`with ddp.join(..)` begins on this rank."""
        self._join = JoinState(block, rank)

    def exit_join(self) -> list[Event]:
        """The block ends: shadows of what the others still do, then the last joiner's parameters and buffers for all.

        Forwards after the block keep the traffic of `join`, as torch never takes its configuration back. Raises MachineError
        on the ranks that are out of inputs with `throw_on_early_termination`.
        """
        if self._join is None:
            raise ValueError("no join block is open")
        return leave(self, self._join)

    # State.

    @property
    def will_broadcast_buffers(self) -> bool:
        """Whether the next forward broadcasts buffers, whatever its mode."""
        return self.require_forward_param_sync and self.forward_sync_buffers and bool(self.buffers)

    def gradient_state(self, name: str) -> str:
        """`averaged`, `local` (some of it is this rank's alone) or `missing` (`.grad` is None)."""
        terms = self.terms(name)
        if terms is None:
            return MISSING
        return AVERAGED if all(t.is_shared for t in terms) else LOCAL

    @property
    def gradient_states(self) -> dict[str, str]:
        """`gradient_state` of every parameter, in registration order."""
        return {name: self.gradient_state(name) for name in self._keys}

    @property
    def gradients(self) -> dict[str, Gradient]:
        """The gradients of the parameters that the module has now, by name."""
        return {name: self._gradients[key] for name, key in self._keys.items()}

    def terms(self, name: str) -> tuple[Term, ...] | None:
        """The contributions that `.grad` of a parameter sums, None where it is missing."""
        return self._gradients[self._keys[name]].terms

    @property
    def states(self) -> list[Sized]:
        """What the end of a join block sends: parameters and buffers that are not left alone."""
        found: list[Sized] = [p for p in self.spec.params if p.name not in self._ignored]
        return [*found, *self.buffers] if self.forward_sync_buffers else found

    @property
    def rebuilds(self) -> list[tuple[int, ...]]:
        """The order of gradients, as positions among those reduced, that each rebuild of the buckets took."""
        return self.reducer.rebuilds

    @property
    def bucket_sizes(self) -> list[int | None]:
        """Elements of the buckets as they are now, in the order of reduction."""
        return [total([self._params[i] for i in bucket])[0] for bucket in self.reducer.buckets]

    # Parts.

    def accumulate(self, key: str, sources: Iterable[int]) -> None:
        """Adds to a gradient what the forwards `sources` contribute in one backward pass, and calls the reducer's hook."""
        for source in sources:
            if self._requires_grad[key]:
                self._gradients[key].add(source if self._keep_sources else ANY_FORWARD)
        if key in self._hooked:
            self.reducer.hook(self._hooked[key])

    def key_of(self, name: str | None) -> str | None:
        """The key of the parameter that has a name now."""
        return None if name is None else self._keys.get(name)

    def start_delayed(self, ready: AbstractSet[str]) -> None:
        """The gradient of the hooked parameter is there, and not accumulated yet: reduces the buffer as it is."""
        if self._delay_hook is None or self._delay_hook not in ready:
            return
        numel, _ = total([p for p in self.spec.params if p.name in self._delayed])
        self.reducer.issued.append(replace(self.event("all_reduce", DDP_BUCKET, numel, "float32", "sum"), detail=ASYNC))
        for key in self._in_delay_buffer:
            gradient = self._gradients[key]
            gradient.terms, gradient.unsettled = summed(divided(gradient.terms, ALL_PRESENT), ALL_PRESENT), True

    def _clear_delay_buffer(self) -> None:
        """Every forward makes the missing gradients of delayed parameters views of the buffer, which is zero there."""
        for name in self._delayed:
            if self._gradients[name].terms is None:
                self._gradients[name].terms = ()
                self._in_delay_buffer.add(name)

    def _before_forward(self, grad: bool) -> list[Event]:
        events: list[Event] = []
        if self._delays_all:
            raise MachineError(errors.NO_LAZY_INIT)
        join = self._join
        if join is not None:
            events.extend(announce(self, join))
            self.reducer.presence = join.presence
        if grad:
            self.run(self.reducer.rebuild_buckets, events)
        root = self.root if join is None else join.leader
        if self.will_broadcast_buffers:
            if join is not None:
                events.append(self.event("all_reduce", DDP_JOIN, 1, "int64", "max"))
            events.extend(replace(e, root=root) for e in self.broadcasts(self.buffers, DDP_BUFFERS))
        if join is not None:
            events.append(replace(self.event("all_reduce", DDP_JOIN, 1, "float32", "sum"), detail=ASYNC))
            join.iteration += 1
        return events

    def _module_output(self, grad: bool, training: bool, used: Used) -> Handle:
        if not isinstance(used, Mapping):
            chosen = self._keys if used is None else used
            if not isinstance(chosen, Sequence):  # the gradient of what was used last is ready first
                chosen = sorted((n for n in self._keys if n in chosen), key=lambda n: -self._rank_in_order.get(self._keys[n], -1))
            used = numbered(chosen)
        uses = {self._keys[n]: at for n, at in used.items() if n in self._keys and self._requires_grad[self._keys[n]]}
        self._forwards += 1
        return Handle(self._forwards, grad and bool(uses), uses, training=training)

    def run(self, part: Callable[[], None], events: list[Event]) -> None:
        """Runs a part of the reducer and moves what it issued to `events`, also when it raises."""
        try:
            part()
        except MachineError as error:
            error.events = [*events, *self._take_issued()]
            raise
        events.extend(self._take_issued())

    def _take_issued(self) -> list[Event]:
        issued, self.reducer.issued = self.reducer.issued, []
        return self.settled(issued)

    def settled(self, issued: list[Event]) -> list[Event]:
        """What the reducer issued in one call. Nobody waits for the buckets of a reduction that has not ended."""
        if self._forgets and issued:
            issued[0] = replace(issued[0], detail={**issued[0].detail, "forgets": True})
            self._forgets = False
        if not self.reducer.require_finalize:
            return issued
        return [event if event.detail is ASYNC else replace(event, detail={**event.detail, "awaited": False}) for event in issued]

    def broadcasts(self, tensors: Sequence[Sized], origin: str, limit: int = BROADCAST_BUCKET_BYTES) -> list[Event]:
        """Coalesced broadcasts: one a dtype, and one more for every `limit` bytes."""
        events = []
        for bucket in assign_buckets(tensors, [limit]):
            numel, dtype = total([tensors[i] for i in bucket])
            events.append(self.event("broadcast", origin, numel, dtype))
        return events

    def _sync_batchnorm_forward(self, training: bool) -> list[Event]:
        """In training mode each layer gathers mean, inverse deviation and count (torch/nn/modules/_functions.py); read only."""
        if not training:
            return []
        return [self.event("all_gather", SYNC_BATCHNORM, size, "float32") for size in self.spec.sync_batchnorm_sizes(1)]

    def sync_batchnorm_backward(self, handles: Sequence[Handle]) -> list[Event]:
        """Each layer sums two vectors in backward. They interleave with buckets on a GPU; here they stand before them."""
        return [
            self.event("all_reduce", SYNC_BATCHNORM, size, "float32", "sum")
            for handle in handles
            if handle.training
            for size in reversed(self.spec.sync_batchnorm_sizes(0))
        ]

    def event(self, op: str, origin: str, numel: int | None, dtype: str | None, reduce_op: str | None = None) -> Event:
        """One collective of this wrapper."""
        return wrapper_event(op, origin, numel, dtype, reduce_op, group=self.group, root=self.root, exact=self.spec.exact)
