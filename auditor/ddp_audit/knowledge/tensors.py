"""What functions and methods of tensors give, as `tensors.toml` says: sets of names, and the element types by all their names."""

from __future__ import annotations

from collections.abc import Mapping

from ddp_audit.knowledge.reading import HERE, parse

_TABLE = parse((HERE / "tensors.toml").read_text(encoding="utf-8"))

TYPES: Mapping[str, str] = _TABLE["types"]
OF_PYTHON: Mapping[str, str] = {"builtins.float": "float64", "builtins.int": "int64", "builtins.bool": "bool"}  # `dtype=float`


def _names(key: str) -> frozenset[str]:
    return frozenset(_TABLE[key])


OF_SIZES = _names("of-sizes")
OF_ELEMENTS = _names("of-elements")
LIKE_ANOTHER = _names("like-another")
SAME_ELEMENTS = _names("same-elements")
VIEWS = _names("views")
SAME_SHAPE = _names("same-shape")
REDUCTIONS = _names("reductions")
LOSSES = _names("losses")
BY_DATA = _names("by-data")
JOINS = _names("joins")
