"""The gradient reducer behind DDP, as a state machine.

A model of torch's C++ `Reducer` (torch/csrc/distributed/c10d/reducer.cpp) in the terms of that file, so that what follows from
its state (a backward that reduces although it ran inside `no_sync`, one that silently does not) follows here for the same
reason. It knows nothing of tensors: a gradient is a tuple of terms, each the contribution of one backward pass, averaged over
the ranks or local to this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ddp_audit.events import COLLECTIVE, DDP_BUCKET, DDP_REBUILD, DDP_UNUSED_MAP, Event
from ddp_audit.machine import errors
from ddp_audit.machine.buckets import assign_buckets, total
from ddp_audit.machine.comm_hooks import CommHook
from ddp_audit.machine.errors import MachineError
from ddp_audit.machine.gradient import ALL_PRESENT, Gradient, Term, divided, summed
from ddp_audit.machine.module import ParamSpec


def wrapper_event(
    op: str,
    origin: str,
    numel: int | None,
    dtype: str | None,
    reduce_op: str | None,
    *,
    group: str,
    root: int,
    exact: bool,
) -> Event:
    """One collective of a wrapper. Where its module is not known exactly, it stands for one or more of its kind."""
    return Event(
        COLLECTIVE,
        op=op,
        group=group,
        origin=origin,
        numel=numel,
        dtype=dtype,
        root=root if op == "broadcast" else None,
        reduce_op=reduce_op,
        detail={} if exact else {"repeats": True},
    )


class Reducer:
    """State of the reducer of one wrapper; its methods append the collectives that they issue to `issued`.

    `params` are those that required a gradient when the module was wrapped, in registration order; `gradients` are theirs.
    `buckets` hold positions in `params`, in the order of reduction. `rebuild_limits` are bytes.
    """

    def __init__(
        self,
        params: Sequence[ParamSpec],
        gradients: Sequence[Gradient],
        buckets: list[list[int]],
        rebuild_limits: Sequence[int],
        *,
        find_unused: bool,
        static_graph: bool,
        bucket_view: bool,
        group: str,
        root: int,
        exact: bool,
    ) -> None:
        self.params = list(params)
        self.gradients = list(gradients)
        self.lay_out(buckets)
        self.rebuild_limits = list(rebuild_limits)
        self.find_unused = find_unused
        self.static_graph = static_graph
        self.bucket_view = bucket_view
        self.group = group
        self.root = root
        self.exact = exact
        self.issued: list[Event] = []
        self.backwards = 0  # reductions begun: a first hook counts, and counts again once a reduction has ended
        self.hook_called = False
        self.expect_hooks = False
        self.require_finalize = False
        self.has_rebuilt = False
        self.marked_unused = False
        self.unused: list[int] = []
        self.rebuilt_order: list[int] = []
        self.ready: set[int] = set()
        self.in_bucket: dict[int, tuple[Term, ...] | None] = {}  # what each gradient was when it was copied into its bucket
        self.locally_used: set[int] = set()
        self.hooks_fired = [0] * len(self.params)
        self.hooks_left = [0] * len(self.params)
        self.next_bucket = 0
        self.callbacks: list[Callable[[], None]] = []
        self.comm_hook: CommHook | None = None
        self.presence = ALL_PRESENT
        self.rebuilds: list[tuple[int, ...]] = []
        self.rebuilds_of_root: Sequence[Sequence[int]] | None = None

    def lay_out(self, buckets: list[list[int]]) -> None:
        """Takes a layout of buckets into use; nothing of them is ready."""
        self.buckets = buckets
        self.payloads = [total([self.params[i] for i in members]) for members in buckets]
        self.bucket_of = {index: number for number, members in enumerate(buckets) for index in members}
        self.pending = [len(members) for members in buckets]

    # Forward.

    def rebuild_buckets(self) -> None:
        """Runs at the start of every forward with gradients enabled; lays the buckets out again once.

        Raises MachineError where the previous reduction has begun and not ended.
        """
        if self.require_finalize:
            raise MachineError(errors.UNFINISHED if len(self.ready) < len(self.params) else errors.ALL_MARKED)
        if not self.should_rebuild or not self.rebuilt_order:
            return
        if len(self.rebuilt_order) != len(self.params):
            raise MachineError(errors.REBUILT_SIZE)
        order = self.rebuilt_order
        known = self.rebuilds_of_root or ()
        if len(known) > len(self.rebuilds) and len(known[len(self.rebuilds)]) == len(order):
            order = list(known[len(self.rebuilds)])  # the root sends its own, and all take it
        self.rebuilds.append(tuple(order))
        layout = assign_buckets([self.params[i] for i in order], self.rebuild_limits, keep_order=True)
        self.rebuilt_order = []
        count = len(self.params) + 1 if self.exact else None
        self.issue("broadcast", DDP_REBUILD, count, "int32")
        self.issue("broadcast", DDP_REBUILD, len(layout) if self.exact else None, "int32")
        self.has_rebuilt = True
        if self.expect_hooks:
            raise MachineError(errors.REBUILD_DURING_BACKWARD)
        self.lay_out([[order[position] for position in bucket] for bucket in layout])

    def prepare_for_backward(self, used: frozenset[int]) -> None:
        """Runs at the end of a forward that will be synchronized: from here on hooks count, until one reduction has ended.

        `used` are the parameters that the forward's output depends on.
        """
        self.expect_hooks = True
        self.next_bucket = 0
        self.pending = [len(b) for b in self.buckets]
        if self.static_graph:
            self.hooks_left = list(self.hooks_fired)
        self.marked_unused = False
        self.ready = set()
        if self.dynamic_unused:
            self.unused = [i for i in range(len(self.params)) if i not in used]

    # Backward.

    def hook(self, index: int) -> None:
        """Runs after a backward has accumulated the gradient of parameter `index`."""
        if not self.hook_called:
            self.hook_called = True
            self.backwards += 1
        if (self.dynamic_unused or self.static_first) and self.gradients[index].terms is not None:
            self.locally_used.add(index)
        if self.static_first:
            self.hooks_fired[index] += 1
            return
        if not self.expect_hooks:
            return
        if not self.marked_unused:
            self.marked_unused = True
            for unused in self.unused:
                self.mark_ready(unused)
        if self.static_after_first:
            if self.hooks_left[index] <= 0:
                raise MachineError(errors.GRAPH_CHANGED)
            self.hooks_left[index] -= 1
            if self.hooks_left[index] > 0:
                return
        if self.should_rebuild:
            self.rebuilt_order.append(index)
        self.mark_ready(index)

    def mark_ready(self, index: int) -> None:
        """Puts one gradient into its bucket; issues the buckets whose turn has come."""
        if index in self.ready:
            raise MachineError(errors.MARKED_TWICE)
        self.ready.add(index)
        self.require_finalize = True
        self.copy_to_bucket(index)
        bucket = self.bucket_of[index]
        self.pending[bucket] -= 1
        if self.pending[bucket] == 0 and bucket == self.next_bucket:
            while self.next_bucket < len(self.buckets) and self.pending[self.next_bucket] == 0:
                self.reduce_bucket(self.next_bucket)
                self.next_bucket += 1
        if self.next_bucket == len(self.buckets):
            if self.dynamic_unused:
                self.issue("all_reduce", DDP_UNUSED_MAP, len(self.params) if self.exact else None, "int32", "sum")
            self.callbacks.append(self.all_ready)

    def copy_to_bucket(self, index: int) -> None:
        """Copies a gradient, a missing one as zeros. Raises MachineError where a missing one counts as used."""
        gradient = self.gradients[index]
        if gradient.terms is None and (self.dynamic_unused or self.static_first) and index in self.locally_used:
            raise MachineError(errors.UNDEFINED)
        expected = self.payloads[self.bucket_of[index]][1]
        if gradient.terms is not None and self.params[index].dtype != expected:
            raise MachineError(errors.dtype_changed(expected, self.params[index].dtype))
        terms = gradient.terms if self.comm_hook is not None else divided(gradient.terms, self.presence)
        if self.bucket_view:
            gradient.terms = terms
        self.in_bucket[index] = terms

    def all_ready(self) -> None:
        """Runs at the end of the backward in which the last bucket became ready."""
        if self.static_after_first and self.should_rebuild:
            self.rebuilt_order.extend(self.unused)
        self.finalize()

    def delay_all_reduce(self) -> None:
        """Runs at the end of the first backward of a static graph: reduces everything at once, the map of used ones first."""
        self.issue("all_reduce", DDP_UNUSED_MAP, len(self.params) if self.exact else None, "int32", "sum")
        self.require_finalize = True
        self.unused = [i for i, fired in enumerate(self.hooks_fired) if fired == 0]
        for index in range(len(self.params)):
            self.copy_to_bucket(index)
        for bucket in range(len(self.buckets)):
            self.reduce_bucket(bucket)
        self.finalize()

    def reduce_bucket(self, bucket: int) -> None:
        """Issues the all-reduce of one bucket."""
        hook = self.comm_hook
        if hook is not None and not hook.sends:
            return
        numel, dtype = self.payloads[bucket]
        if hook is not None and hook.made is not None:
            members = [self.params[index] for index in self.buckets[bucket]]
            self.issued += hook.made(bucket, members, bucket == len(self.buckets) - 1)
        else:
            self.issue("all_reduce", DDP_BUCKET, numel, hook.dtype or dtype if hook else dtype, "sum")
        if self.bucket_view:
            for index in self.buckets[bucket]:
                self.gradients[index].racing = self.gradients[index].terms is not None

    def reduced(self, terms: tuple[Term, ...] | None) -> tuple[Term, ...]:
        """What the reduction of a bucket makes of the gradient that was copied into it."""
        hook = self.comm_hook
        if hook is None:
            return summed(terms, self.presence)
        if not hook.sends:
            return terms or ()
        return summed(divided(terms, ALL_PRESENT) if hook.divides else terms, self.presence)

    def shadow_reduction(self) -> None:
        """Under `join`, on a rank without inputs: the buckets with zeros, the map, and for a rebuild the order of registration."""
        for bucket in range(len(self.buckets)):
            hook = self.comm_hook
            if hook is None or hook.sends:
                numel, dtype = self.payloads[bucket]
                self.issue("all_reduce", DDP_BUCKET, numel, hook.dtype or dtype if hook else dtype, "sum")
        if self.find_unused:
            self.issue("all_reduce", DDP_UNUSED_MAP, len(self.params) if self.exact else None, "int32", "sum")
        if self.should_rebuild and not self.rebuilt_order:
            self.rebuilt_order = list(range(len(self.params)))

    def finalize(self) -> None:
        """Ends a reduction: writes the averages back, and expects no hooks until the next synchronized forward."""
        if not self.expect_hooks:
            raise MachineError(errors.EXPECT_HOOKS)
        self.expect_hooks = False
        self.hook_called = False
        self.require_finalize = False
        tracks_use = self.static_graph or self.find_unused
        for index, gradient in enumerate(self.gradients):
            if self.bucket_view and gradient.terms is not None:
                gradient.terms, gradient.racing = self.reduced(gradient.terms), False  # it lives in its bucket
            elif not tracks_use or index in self.locally_used:
                gradient.terms, gradient.racing = self.reduced(self.in_bucket.get(index)), False
            # Where use is tracked, a parameter that no rank used keeps its .grad untouched.
        if self.dynamic_unused:
            self.locally_used = set()

    def reset(self) -> None:
        """The private `_reset_state`: forgets a reduction that has begun and not ended, and rebuilds the buckets once more."""
        if self.require_finalize:
            for bucket in self.buckets[: self.next_bucket]:  # nobody waits for these, and they may still be under way
                for index in bucket:
                    self.gradients[index].unsettled = True
        self.has_rebuilt = False
        self.rebuilt_order = []
        if self.dynamic_unused:
            self.locally_used = set()
        self.expect_hooks = False
        self.require_finalize = False
        self.hook_called = False

    # Conditions, named as in reducer.cpp.

    @property
    def dynamic_unused(self) -> bool:
        return self.find_unused and not self.static_graph

    @property
    def static_first(self) -> bool:
        return self.static_graph and self.backwards == 1

    @property
    def static_after_first(self) -> bool:
        return self.static_graph and self.backwards > 1

    @property
    def should_rebuild(self) -> bool:
        return (self.static_graph or not self.find_unused) and not self.has_rebuilt

    def issue(self, op: str, origin: str, numel: int | None, dtype: str | None, reduce_op: str | None = None) -> None:
        """Appends one collective to `issued`."""
        self.issued.append(
            wrapper_event(
                op,
                origin,
                numel,
                dtype,
                reduce_op,
                group=self.group,
                root=self.root,
                exact=self.exact,
            )
        )
