"""Functions of torch that tell what made a collective, by file below torch's folder and name."""

from __future__ import annotations

from ddp_audit import events

BACKWARD_ENGINE = "backward-engine"  # a marker only: the payload's type tells a bucket from the unused-parameter map
BLOCKING = "blocking"  # a marker only: a send or receive that returns when it is done
CONSTRUCTOR = "constructor"  # a marker only: DDP's constructor, or join's last synchronisation when join stands further out

# Functions of torch whose presence on the stack says what made a collective; the innermost counts. Names as of torch 2.13.
_DDP = "nn/parallel/distributed.py"
_C10D = "distributed/distributed_c10d.py"
MARKERS = {
    (_DDP, "_distributed_broadcast_coalesced"): events.DDP_BUFFERS,
    (_DDP, "_pre_forward"): events.DDP_REBUILD,
    (_DDP, "__init__"): CONSTRUCTOR,
    (_DDP, "_match_all_reduce_for_bwd_pass"): events.DDP_JOIN,
    (_DDP, "_check_global_requires_backward_grad_sync"): events.DDP_JOIN,
    (_DDP, "_find_common_rank"): events.DDP_JOIN,
    (_DDP, "_sync_final_model"): events.DDP_JOIN,
    (_DDP, "main_hook"): events.DDP_JOIN,
    (_DDP, "post_hook"): events.DDP_JOIN,
    ("distributed/algorithms/join.py", "notify_join_context"): events.DDP_JOIN,
    ("distributed/algorithms/join.py", "__exit__"): events.DDP_JOIN,
    ("distributed/utils.py", "_verify_param_shape_across_processes"): CONSTRUCTOR,
    ("distributed/utils.py", "_sync_params_and_buffers"): CONSTRUCTOR,
    ("distributed/utils.py", "_sync_module_states"): CONSTRUCTOR,
    ("autograd/graph.py", "_engine_run_backward"): BACKWARD_ENGINE,
    ("nn/modules/_functions.py", "forward"): events.SYNC_BATCHNORM,
    ("nn/modules/_functions.py", "backward"): events.SYNC_BATCHNORM,
    (_C10D, "all_gather_object"): events.OBJECT,
    (_C10D, "gather_object"): events.OBJECT,
    (_C10D, "broadcast_object_list"): events.OBJECT,
    (_C10D, "scatter_object_list"): events.OBJECT,
    (_C10D, "send_object_list"): events.OBJECT,
    (_C10D, "recv_object_list"): events.OBJECT,
    (_C10D, "send"): BLOCKING,
    (_C10D, "recv"): BLOCKING,
}

# Folders of torch whose collectives are a library's own, never the Reducer's, also where they are issued inside a backward pass.
OWN_COLLECTIVES = ("distributed/nn/", "distributed/fsdp/", "distributed/tensor/", "distributed/_composable/")

# Parts of torch that communicate where the user's line names no collective, by folder below torch's, the first that fits.
LIBRARIES = (
    ("distributed/fsdp/_fully_shard/", "FSDP2"),
    ("distributed/_composable/fsdp/", "FSDP2"),
    ("distributed/fsdp/", "FSDP"),
    ("distributed/tensor/", "DTensor"),
    ("distributed/checkpoint/", "torch.distributed.checkpoint"),
    ("distributed/optim/", "torch.distributed.optim"),
    ("distributed/pipelining/", "torch.distributed.pipelining"),
    ("distributed/algorithms/", "torch.distributed.algorithms"),
)
