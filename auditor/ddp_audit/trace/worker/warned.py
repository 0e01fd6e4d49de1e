"""Lets torch's warnings point past the tracer: at the user's line, as they do without it.

`warnings.warn(.., stacklevel=2)` in a function of torch means its caller. Where the tracer stands around the function, that would
be a line of the tracer's.
"""

from __future__ import annotations

import os
import sys
import warnings
from types import ModuleType
from typing import Any

_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


class _Warnings(ModuleType):
    """The module `warnings` for a module of torch: its `warn` does not count frames of the tracer."""

    def __getattr__(self, name: str) -> Any:
        return getattr(warnings, name)

    @staticmethod
    def warn(message: Any, category: Any = None, stacklevel: int = 1, *args: Any, **kwargs: Any) -> None:
        frame = sys._getframe(1)
        level, left = 2, stacklevel - 1
        while left > 0 and frame.f_back is not None:
            frame = frame.f_back
            level += 1
            left -= not frame.f_code.co_filename.startswith(_OWN)
        warnings.warn(message, category, level + max(0, left), *args, **kwargs)


_warnings = _Warnings("warnings")


def point_past(*modules: ModuleType) -> None:
    """Has the warnings of these modules count no frames of the tracer."""
    for module in modules:
        if getattr(module, "warnings", None) is warnings:
            module.warnings = _warnings  # type: ignore[attr-defined]
