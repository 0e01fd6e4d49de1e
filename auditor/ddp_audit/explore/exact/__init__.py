"""The run of each rank, value by value: numbers, lists, classes and the sizes of layers are computed, tensors stand as shapes.

`predict` takes a job and gives what every rank issues, how the ranks meet, and what was assumed on the way. Nothing of
the audited code is executed: statements are interpreted here, and calls of libraries have models of their own.
"""

from ddp_audit.explore.exact.interpreter import Interpreter
from ddp_audit.explore.exact.run import FAILS, NOTHING, OPEN, Bounds, Job, Run, Variant, interpreted, predict, together, variant
from ddp_audit.explore.exact.state import ALWAYS, RANK, OpenOption

__all__ = [
    "ALWAYS", "FAILS", "NOTHING", "OPEN", "RANK", "Bounds", "Interpreter", "Job", "OpenOption", "Run", "Variant", "interpreted",
    "predict", "together", "variant",
]  # fmt: skip
