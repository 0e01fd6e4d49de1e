"""Records every collective at torch's dispatcher, those of the C++ Reducer too.

Kernels at the dispatch key BackendSelect see every call of a ProcessGroup method, whatever the grad mode or the thread, and
hand it on unchanged. A record is in the file before the call goes on. The kernels are those of this module, or the native one
(native/kernel.cpp), which asks this module about every call that it has not seen before.
"""

from __future__ import annotations

import sys
import threading
import time
import zlib
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import library

from ddp_audit import events
from ddp_audit.trace.worker import fingerprint, layout, reductions
from ddp_audit.trace.worker.frames import Stack
from ddp_audit.trace.worker.markers import BACKWARD_ENGINE
from ddp_audit.trace.worker.ring import is_marked, mark
from ddp_audit.trace.worker.tracer import Group, Pending, Prepared, Tracer

# Dispatcher name -> operation, and the argument that holds what this rank brings. A scatter's input stands on the root alone,
# so its output counts. Variants of one operation share its name; `call` in the detail keeps the dispatcher's own.
_OPERATIONS = {
    "allreduce_": ("all_reduce", "tensors"),
    "allreduce_coalesced_": ("all_reduce", "tensors"),
    "broadcast_": ("broadcast", "tensors"),
    "reduce_": ("reduce", "tensors"),
    "allgather_": ("all_gather", "input_tensors"),
    "_allgather_base_": ("all_gather", "input_tensor"),
    "allgather_coalesced_": ("all_gather", "input_list"),
    "allgather_into_tensor_coalesced_": ("all_gather", "inputs"),
    "reduce_scatter_": ("reduce_scatter", "input_tensors"),
    "_reduce_scatter_base_": ("reduce_scatter", "input_tensor"),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", "inputs"),
    "alltoall_": ("all_to_all", "input_tensors"),
    "alltoall_base_": ("all_to_all", "input"),
    "gather_": ("gather", "input_tensors"),
    "scatter_": ("scatter", "output_tensors"),
    "barrier": ("barrier", ""),
    "monitored_barrier_": ("monitored_barrier", ""),
    "send": ("send", "tensors"),
    "recv_": ("recv", "tensors"),
    "recv_any_source_": ("recv", "tensors"),
}
# Arguments that say how much goes to each rank and comes from it.
_SHARES = ("output", "output_tensors", "output_split_sizes", "input_split_sizes")
# Operations whose tensors are lists: how much each rank brings, and how much of each the others expect. NCCL takes uneven ones.
_LISTS = frozenset({"allgather_", "reduce_scatter_", "gather_", "scatter_"})
_ROOT_ARGUMENTS = ("root_rank", "dst", "src")
# Sizes that ranks may choose freely, so that they say nothing about agreement.
_FREE_SIZES = frozenset({"all_to_all"})


class Signature:
    """Everything of a collective that repeats from call to call."""

    __slots__ = ("blocks", "definition", "digest", "is_bucket", "lingers", "on_device", "user_elements")

    def __init__(self, definition: int, digest: int) -> None:
        self.definition = definition
        self.digest = digest
        self.is_bucket = False
        self.blocks = False  # a send or receive that waits, though its operation does not
        self.lingers = False
        self.on_device = False
        self.user_elements = 0


class _Operation:
    """Where the arguments of one dispatcher operation stand. Those equal to their default may be absent from a call's end."""

    def __init__(self, name: str, schema: Any) -> None:
        names = [argument.name for argument in schema.arguments]
        self.call = name
        self.op, payload = _OPERATIONS.get(name, (name.strip("_"), ""))
        if name not in _OPERATIONS:  # an operation that came with a later torch
            payload = next((n for n in names if n.startswith(("input", "tensor"))), "")
        self.payload = names.index(payload) if payload in names else -1
        self.group = names.index("process_group")
        self.tag = names.index("tag") if "tag" in names else -1
        self.root = next((names.index(n) for n in _ROOT_ARGUMENTS if n in names), -1)
        self.reduce_op = names.index("reduce_op") if "reduce_op" in names else -1
        self.is_async = names.index("async_op") if "async_op" in names else -1
        self.shares = [names.index(n) for n in _SHARES if n in names] if self.op in _FREE_SIZES else []
        if name in _LISTS:
            self.shares = [names.index(n) for n in ("input_tensors", "output_tensors") if n != payload]
        self.splits = {n: names.index(n) for n in names if n.endswith(("_split_sizes", "put", "put_tensors"))}
        self.blocks = not schema.returns
        self.is_p2p = self.op in events.POINT_TO_POINT


def _shares(operation: _Operation, args: tuple[Any, ...], ranks: int) -> dict[str, Any]:
    """How many elements go to each rank of the group, and come from each: one number where that is the same for all."""
    found: dict[str, Any] = {}
    for key, side in (("sends", "input"), ("receives", "output")):
        if operation.call == "alltoall_":
            each = [t.numel() for t in args[operation.splits[f"{side}_tensors"]]]
        elif operation.call in _LISTS:
            each = [t.numel() for t in _tensors(args[operation.splits[f"{side}_tensors"]])]
            if not each:  # not the root
                continue
        else:
            tensor, sizes = args[operation.splits[side]], args[operation.splits[f"{side}_split_sizes"]]
            row = tensor[:1].numel() if tensor.dim() and len(tensor) else 1
            each = [size * row for size in sizes] if sizes else [tensor.numel() // ranks] * ranks
        found[key] = each[0] if each and each.count(each[0]) == len(each) else each
    return found


def _shape_of(value: Any) -> Any:
    """What of an argument tells calls apart: shapes and types of tensors, or numbers."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    return tuple([_shape_of(item) if isinstance(item, (torch.Tensor, list)) else item for item in value])


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors(item)]


class Hook:
    """The kernels. Installed once a process; `remove` takes them out again. `native` is the native kernel's module."""

    def __init__(self, tracer: Tracer, native: Any = None) -> None:
        self._tracer = tracer
        tracer.forget_calls = self.forget_definitions
        self._native = native
        self._operations: list[_Operation] = []
        self._signatures: list[dict[Any, Signature]] = []  # of each kernel in Python
        self._kernel_in_cpp: Any = None
        if native is not None:
            self._kernel_in_cpp = tracer.native = native.Kernel(tracer, self, fingerprint.about)
            tracer.note, tracer.finish, tracer.native_fingerprint = self._kernel_in_cpp.functions()
            tracer.native_gradients = native.gradients
        self._key = torch._C.DispatchKey.BackendSelect
        self._after = torch._C._dispatch_keyset_full_after(self._key)
        self._registration = library.Library("c10d", "IMPL")  # the registration lives as long as this
        self._unbox = torch.distributed.ProcessGroup.unbox
        self._reductions = reductions.Reductions() if native is None else None  # the native kernel reads torch's own field
        for schema in torch._C._jit_get_all_schemas():
            space, _, name = schema.name.partition("::")
            if space == "c10d" and any(argument.name == "process_group" for argument in schema.arguments):
                self._install(_Operation(name, schema))
        if self._reductions is not None:
            for code in self._reductions.wrapped:
                hide_from_compiler(code, callees=False)
        if native is not None:
            for part in (self.learn, self.meet, self.judge, self.locate, self.define, tracer.thread, tracer.fail):
                hide_from_compiler(part.__func__.__code__, callees=True)  # type: ignore[union-attr]

    def remove(self) -> None:
        if self._native is not None:
            self._kernel_in_cpp.remove()
            self._kernel_in_cpp = self._tracer.native = None
            self._tracer.note, self._tracer.finish = self._tracer.note_in_python, self._tracer.finish_in_python
            self._tracer.native_fingerprint = self._tracer.native_gradients = None
        if self._reductions is not None:
            self._reductions.remove()
        self._registration._destroy()

    def forget_definitions(self) -> None:
        """Has what the kernels know of calls looked up again, since the definitions in the file will be overwritten."""
        for signatures in self._signatures:
            signatures.clear()
        if self._native is not None:
            self._kernel_in_cpp.forget_definitions()

    # -- what the native kernel asks ----------------------------------------------------------------------------------

    def learn(self, number: int, args: tuple[Any, ...], group: Group, is_async: bool, reduce_op: int) -> Signature | None:
        """What is recorded for a call of the operation `number`; writes the definition. None where that failed. `reduce_op`: the
        number of its reduction, -1 where it has none."""
        tracer = self._tracer
        try:
            operation = self._operations[number]
            stack = tracer.frames.at(sys._getframe(1)) if tracer.with_stack else tracer.frames.empty
            if not stack.frames and tracer.backward is not None:
                stack = tracer.backward
            root = args[operation.root] if operation.root >= 0 else None
            return self._signature(operation, args, stack, group, root, is_async, reduce_op if reduce_op >= 0 else None)
        except Exception as error:
            tracer.fail(error)
            return None

    def meet(self, process_group: Any) -> Group:
        """The trace's record of a process group, given as the dispatcher hands it to Python."""
        return self._tracer.group(self._unbox(process_group))

    def judge(self, code: CodeType) -> int:
        """How a frame with this code counts in a stack; see Frames.judge."""
        return self._tracer.frames.judge(code)

    def locate(self) -> Stack:
        """The user's stack of an event."""
        return self._tracer.frames.at(sys._getframe(1))

    def define(self, prepared: Prepared, stack: Stack) -> int:
        """Writes the definition of a prepared event at a place of the user's."""
        return self._tracer.define_event(prepared.kind, prepared.group, prepared.detail, stack)

    # -- the kernels in Python ----------------------------------------------------------------------------------------

    def _install(self, operation: _Operation) -> None:
        if self._native is not None:
            places = (
                operation.payload,
                operation.group,
                operation.root,
                operation.tag,
                operation.reduce_op,
                operation.is_async,
            )
            shares = [*operation.shares, -1, -1, -1][:3]
            number = len(self._operations)
            self._operations.append(operation)
            self._kernel_in_cpp.install(operation.call, number, *places, *shares, operation.blocks, operation.is_p2p)
            return
        record = self._recorder(operation)
        handle = getattr(torch.ops.c10d, operation.call).default._handle
        kernel = self._kernel(record, handle.redispatch_boxed, operation)
        self._registration.impl(operation.call, kernel, "BackendSelect", with_keyset=True)
        for code in (kernel.__code__, record.__code__):
            hide_from_compiler(code, callees=True)

    def _kernel(self, record: Callable[..., Any], redispatch: Any, operation: _Operation) -> Any:
        tracer = self._tracer
        after = self._after
        pending = tracer.pending
        blocks = operation.blocks

        def kernel(keys: Any, *args: Any) -> Any:
            if not tracer.on:
                return redispatch(keys & after, *args)
            try:
                entry = record(args)
            except Exception as error:
                tracer.fail(error)
                return redispatch(keys & after, *args)
            try:
                result = redispatch(keys & after, *args)
            except BaseException:
                mark(entry.place, layout.RAISED, time.time())
                raise
            if blocks:  # no Work: the call itself has waited
                mark(entry.place, layout.DONE, time.time())
                return result
            entry.work = result[-1] if type(result) is tuple else result
            if entry.is_async:
                pending.append(entry)
            return result

        return kernel

    def _recorder(self, operation: _Operation) -> Any:
        tracer = self._tracer
        frames_at = tracer.frames.at
        unbox = self._unbox
        at_payload, at_group, at_root = operation.payload, operation.group, operation.root
        at_reduce, at_async, at_tag = operation.reduce_op, operation.is_async, operation.tag
        is_p2p, blocks, shares = operation.is_p2p, operation.blocks, operation.shares
        signatures: dict[Any, Signature] = {}
        self._signatures.append(signatures)
        signature_of = self._signature
        assert self._reductions is not None
        reduction = self._reductions.number
        last_sync = tracer.last_sync
        threads = tracer.threads
        ident = threading.get_ident
        getframe = sys._getframe
        clock = time.time
        no_stack = tracer.frames.empty

        def record(args: tuple[Any, ...]) -> Pending:
            stack = frames_at(getframe(2)) if tracer.with_stack else no_stack
            if not stack.frames and tracer.backward is not None:
                stack = tracer.backward
            process_group = unbox(args[at_group])
            group = tracer.groups.get(process_group)
            if group is None:
                group = tracer.group(process_group)
            if at_payload < 0:
                payload: Any = None
            else:
                payload = args[at_payload]
                if type(payload) is list and len(payload) == 1:
                    payload = payload[0]
                payload = (
                    tuple((t.shape, t.dtype) for t in _tensors(payload))
                    if type(payload) is list
                    else (payload.shape, payload.dtype)
                )
            if shares:
                payload = (payload, *[_shape_of(args[at]) for at in shares])
            is_async = args[at_async] if 0 <= at_async < len(args) else not blocks
            root = args[at_root] if at_root >= 0 else None
            reduce_op = reduction(args[at_reduce]) if at_reduce >= 0 else None
            tag = args[at_tag] if at_tag >= 0 else None
            key = (stack, group, payload, root, reduce_op, is_async, tag)
            signature = signatures.get(key)
            if signature is None:
                if len(signatures) > 1 << 15:
                    signatures.clear()
                signature = signatures[key] = signature_of(operation, args, stack, group, root, is_async, reduce_op)
            if signature.is_bucket:
                tracer.buckets += 1
            else:
                tracer.user_elements += signature.user_elements
            if is_p2p:
                index = layout.NO_INDEX
                is_async = not signature.blocks
            else:
                index = group.next_index
                group.next_index = index + 1
            now = clock()
            me = ident()
            before = last_sync.get(me)
            if before is not None and not is_marked(before.place):  # it has returned when its thread makes the next call
                mark(before.place, layout.DONE, now)
            ring = tracer.ring
            if ring is None:
                raise RuntimeError("no file")
            thread = threads.get(me)
            if thread is None:
                thread = tracer.thread()
            entry = Pending(ring.write(layout.COLLECTIVE, thread, signature.definition, index, now), group, index)
            entry.is_async = is_async
            entry.lingers = signature.lingers
            entry.on_device = signature.on_device
            last_sync[me] = None if is_async else entry
            tracer.last_time = now
            tracer.digest = (tracer.digest * 0x100000001B3 + signature.digest) & 0xFFFFFFFFFFFFFFFF
            tracer.collectives += 1
            if tracer.collectives % layout.CHECK_EVERY == 0:
                ring.write_check(tracer.collectives, tracer.digest)
            return entry

        return record

    def _signature(
        self,
        operation: _Operation,
        args: tuple[Any, ...],
        stack: Stack,
        group: Group,
        root: int | None,
        is_async: bool,
        reduce_op: int | None,
    ) -> Signature:
        """Writes the definition of a collective that was not seen before."""
        ring = self._tracer.ring
        if ring is None:
            raise RuntimeError("no file")
        tensors = _tensors(args[operation.payload]) if operation.payload >= 0 else []
        origin = stack.origin
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else None
        if origin == BACKWARD_ENGINE:
            # The map of used parameters is int32 (reducer.cpp); gradients are never whole numbers.
            origin = events.DDP_UNUSED_MAP if dtype == "int32" else events.DDP_BUCKET
        if reduce_op is None and operation.reduce_op >= 0 and origin in (events.DDP_BUCKET, events.DDP_UNUSED_MAP):
            reduce_op = reductions.SUM
        peer = None if root is None else group.ranks[root] if 0 <= root < len(group.ranks) else root
        text: dict[str, Any] = {
            "op": operation.op,
            "call": operation.call,
            "group": group.name,
            "origin": origin,
            "numel": sum(t.numel() for t in tensors) if tensors else None,
            "dtype": dtype,
            "shape": [list(t.shape) for t in tensors[:16]],
            "root": None if operation.is_p2p else peer,
            "reduce_op": reductions.name_of(reduce_op),
            "async": is_async and not (operation.is_p2p and stack.blocks),
        }
        agreed = [text["op"], text["group"], text["root"], text["reduce_op"]]
        agreed += [] if operation.op in _FREE_SIZES or operation.is_p2p else [text["numel"], text["dtype"]]
        if operation.is_p2p:
            text["peer"] = peer
            text["tag"] = int(args[operation.tag])
        if operation.shares and operation.call in ("alltoall_", "alltoall_base_", *_LISTS):
            text.update(_shares(operation, args, len(group.ranks)))
        if stack.issuer and origin == events.USER:
            text["library"] = stack.issuer
        text["stack"] = stack.definition
        digest = zlib.crc32(repr(agreed).encode()) | (zlib.adler32(repr(agreed).encode()) << 32)
        signature = Signature(ring.define(layout.SIGNATURE_TEXT, text), 0 if operation.is_p2p else digest)
        signature.blocks = operation.is_p2p and stack.blocks
        signature.is_bucket = origin == events.DDP_BUCKET
        signature.lingers = operation.op == "reduce_scatter"
        signature.on_device = bool(tensors) and tensors[0].device.type != "cpu"
        if origin == events.USER and operation.op in ("all_reduce", "reduce_scatter"):
            signature.user_elements = text["numel"] or 0
        return signature


def hide_from_compiler(code: CodeType, callees: bool) -> None:
    """Tells torch.compile not to trace a function of the tracer, and with `callees` nothing that it calls either."""
    try:
        frame = torch._C._dynamo.eval_frame
        skip, usual = frame._FrameAction.SKIP, frame._FrameAction.DEFAULT
        frame.set_code_exec_strategy(code, frame._FrameExecStrategy(skip, skip if callees else usual))
    except AttributeError:  # names as of torch 2.13; without them the compiler prints a warning at worst
        pass
