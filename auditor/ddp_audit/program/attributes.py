"""What a DistributedDataParallel object answers to; any other attribute of the inner module is an AttributeError on it."""

from __future__ import annotations

# Attributes and methods of DistributedDataParallel beside those of nn.Module (torch 2.13, nn/parallel/distributed.py).
WRAPPER_ATTRIBUTES = frozenset([
    "module", "device_ids", "output_device", "broadcast_buffers", "forward_sync_buffers", "find_unused_parameters",
    "static_graph", "dim", "reducer", "logger", "process_group", "require_backward_grad_sync", "require_forward_param_sync",
    "gradient_as_bucket_view", "bucket_bytes_cap", "no_sync", "join", "register_comm_hook", "will_sync_module_buffers",
    "join_hook", "join_device", "join_process_group", "is_multi_device_module", "parameters_to_ignore", "device",
    "mixed_precision", "modules_buffers", "scatter", "gather", "train_collective", "device_type", "ddp_uneven_inputs_config",
])  # fmt: skip

# Attributes and methods of nn.Module (torch 2.13, nn/modules/module.py).
MODULE_ATTRIBUTES = frozenset([
    "training", "forward", "register_buffer", "register_parameter", "add_module", "register_module", "get_submodule",
    "set_submodule", "get_parameter", "get_buffer", "get_extra_state", "set_extra_state", "apply", "cuda", "ipu", "xpu",
    "mtia", "cpu", "type", "float", "double", "half", "bfloat16", "to_empty", "to", "register_full_backward_pre_hook",
    "register_backward_hook", "register_full_backward_hook", "register_forward_pre_hook", "register_forward_hook",
    "register_state_dict_post_hook", "register_state_dict_pre_hook", "state_dict", "load_state_dict",
    "register_load_state_dict_pre_hook", "register_load_state_dict_post_hook", "parameters", "named_parameters", "buffers",
    "named_buffers", "children", "named_children", "modules", "named_modules", "train", "eval", "requires_grad_",
    "zero_grad", "share_memory", "extra_repr", "compile", "dump_patches", "call_super_init", "T_destination",
])  # fmt: skip

# What a tensor is, whatever it holds: equal on all ranks that run the same program.
TENSOR_FACTS = frozenset(["requires_grad", "dtype", "device", "ndim", "is_cuda", "is_leaf", "layout", "grad_fn", "is_sparse"])
