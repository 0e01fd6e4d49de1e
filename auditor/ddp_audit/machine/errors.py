"""The errors that torch raises and the machine predicts. The texts are the beginnings of torch's own messages."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_audit.events import Event

UNFINISHED = "Expected to have finished reduction in the prior iteration before starting a new one"
ALL_MARKED = "!unmarked_param_indices.empty() INTERNAL ASSERT FAILED"  # unfinished although every parameter was ready
MARKED_TWICE = "Expected to mark a variable ready only once"
GRAPH_CHANGED = "Your training graph has changed in this iteration"
UNDEFINED = "Encountered gradient which is undefined, but still allreduced by DDP reducer"
EXPECT_HOOKS = "expect_autograd_hooks_ INTERNAL ASSERT FAILED"
REBUILD_DURING_BACKWARD = "`initialize_buckets` must NOT be called during autograd execution"
REBUILT_SIZE = "rebuilt parameter indices size is not same as original model parameters size"
NOT_NEEDED = "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient"
BACKWARD_TWICE = "Trying to backward through the graph a second time"
NO_GRAPH = "element 0 of tensors does not require grad and does not have a grad_fn"
HOOK_TWICE = "register_comm_hook or register_builtin_comm_hook can only be called once"
ALL_DELAYED = "DistributedDataParallel's input module must be on the same type of devices"
NO_LOGGER = "self.logger must not be None"
NO_REDUCER = "object has no attribute 'reducer'"
NO_LAZY_INIT = "object has no attribute '_lazy_init_ran'"
EXHAUSTED = "exhausted all inputs"
DETECTED_EXHAUSTED = "Detected at least one rank that exhausted inputs"
FAILED = "the backward pass fails"  # an exception of the user's own in a hook or an operator of the backward pass

SCALAR_TYPES = {"float64": "Double", "float32": "Float", "float16": "Half", "bfloat16": "BFloat16"}


def dtype_changed(bucket: str | None, gradient: str | None) -> str:
    """A gradient of another dtype than its bucket: the parameter was moved after the wrap."""
    return f"Expected {SCALAR_TYPES.get(bucket or '', '')}, got {SCALAR_TYPES.get(gradient or '', '')}"


class MachineError(Exception):
    """A call that torch answers with an exception.

    `text` is the beginning of torch's message; `events` are the collectives that the call issued before it raised.
    """

    def __init__(self, text: str, events: Sequence[Event] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.events: list[Event] = list(events)
