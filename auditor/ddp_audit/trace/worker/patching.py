"""Puts a function of the tracer around one of torch's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def put_around(owner: Any, name: str, around: Callable[..., Any], is_off: Callable[[], bool], also: tuple[Any, ...] = ()) -> None:
    """Replace the function `name` of `owner`, and of each of `also` that has the same one.

    `around` gets the original in front of the arguments. Inside of torch.compile the original runs alone, and so it does where
    `is_off` says so.
    """
    original = getattr(owner, name)

    @functools.wraps(original)
    def patched(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or is_off():
            return original(*args, **kwargs)
        return around(original, *args, **kwargs)

    setattr(owner, name, patched)
    for other in also:
        if getattr(other, name, None) is original:
            setattr(other, name, patched)
