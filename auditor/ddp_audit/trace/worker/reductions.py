"""Which operation a reduction has, as a number of torch's enum `RedOpType`.

From torch 2.10 on, the dispatcher's object says it. Before, it says nothing to Python: there it is noted on the way in, in the
thread that calls, by the methods of ProcessGroup and by the functional collectives. What comes from torch's C++ code past both is
the Reducer's, which sums, or unknown.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import library

NAMES = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")
SUM = NAMES.index("sum")


class Reductions:
    """Tells operations. Where torch does not, the methods are wrapped until `remove`."""

    def __init__(self) -> None:
        self.number: Callable[[Any], int | None] = _number
        self.wrapped: list[Any] = []  # code that a compiler is to leave alone
        self._thread = threading.local()
        self._before: dict[str, Any] = {}
        self._registration: Any = None
        if not _tells():
            self.number = self._noted
            self._wrap_methods()
            self._wrap_functional()

    def remove(self) -> None:
        for name, method in self._before.items():
            setattr(torch.distributed.ProcessGroup, name, method)
        if self._registration is not None:
            self._registration._destroy()

    def _noted(self, value: Any) -> int | None:
        return getattr(self._thread, "number", None)

    @contextmanager
    def _noting(self, number: int | None) -> Iterator[None]:
        self._thread.number = number
        try:
            yield
        finally:
            self._thread.number = None

    def _wrap_methods(self) -> None:
        group = torch.distributed.ProcessGroup
        for name, held in list(vars(group).items()):
            if "reduce" in name:
                self._before[name] = held
                setattr(group, name, self._noting_method(getattr(group, name)))

    def _noting_method(self, method: Any) -> Any:
        def noted(*args: Any, **kwargs: Any) -> Any:
            with self._noting(_asked(args, kwargs)):
                return method(*args, **kwargs)

        self.wrapped.append(noted.__code__)
        return functools.wraps(method)(noted)

    def _wrap_functional(self) -> None:
        key = torch._C.DispatchKey.BackendSelect
        after = torch._C._dispatch_keyset_full_after(key)
        self._registration = library.Library("_c10d_functional", "IMPL")
        for schema in torch._C._jit_get_all_schemas():
            space, _, name = schema.name.partition("::")
            names = [argument.name for argument in schema.arguments]
            if space == "_c10d_functional" and "reduce_op" in names and not schema.overload_name:
                handle = getattr(torch.ops._c10d_functional, name).default._handle
                kernel = self._noting_kernel(handle.redispatch_boxed, names.index("reduce_op"), after)
                self._registration.impl(name, kernel, "BackendSelect", with_keyset=True)

    def _noting_kernel(self, redispatch: Any, at: int, after: Any) -> Any:
        def kernel(keys: Any, *args: Any) -> Any:
            text = str(args[at]).lower()
            with self._noting(NAMES.index(text) if text in NAMES else None):
                return redispatch(keys & after, *args)

        self.wrapped.append(kernel.__code__)
        return kernel


def name_of(number: int | None) -> str | None:
    """torch's name of an operation in lower case."""
    if number is None:
        return None
    return NAMES[number] if number < len(NAMES) else str(number)


def _tells() -> bool:
    """Whether the dispatcher's object has a method for it."""
    return hasattr(torch.classes.c10d.ReduceOp(), "op")


def _number(value: Any) -> int | None:
    return int(value.op())


def _asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """The operation that a method of ProcessGroup was given, in its options or by itself."""
    for value in (*args[1:], *kwargs.values()):
        operation = getattr(value, "reduceOp", value)
        if isinstance(operation, (torch.distributed.ReduceOp, torch.distributed.ReduceOp.RedOpType)):
            return next((n for n, name in enumerate(NAMES) if operation == getattr(torch.distributed.ReduceOp, name.upper())), None)
    return SUM
