"""Regular expressions that are compiled when one is first used.

A script needs few of those that stand in the modules of an audit, and compiling them all took a tenth of its time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from re import compile as lazy_compile
else:

    class lazy_compile:
        """What `re.compile` gives, for what is written at the top of a module."""

        def __init__(self, text: str | bytes, flags: int = 0) -> None:
            self._text, self._flags = text, flags

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # what copies and the like ask of any object
                raise AttributeError(name)
            found = getattr(re.compile(self._text, self._flags), name)  # re keeps what it compiled
            setattr(self, name, found)
            return found


__all__ = ["lazy_compile"]
