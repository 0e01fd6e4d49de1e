"""The error texts that torch, gloo, NCCL and torchrun print when ranks diverge, and what each of them means.

Texts of gloo, DDP and torchrun as torch 2.13 prints them; those of NCCL as its sources have them.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class LogText(NamedTuple):
    """A text: its kind, how it is recognised, and its meaning. Named groups of the expression stand in the meaning as {name}."""

    kind: str
    pattern: re.Pattern[str]
    meaning: str


def _text(kind: str, pattern: str, meaning: str) -> LogText:
    return LogText(kind, re.compile(pattern), meaning)


# In order: of the texts that fit a line the first counts.
TEXTS = (
    _text(
        "gloo-timeout",
        r"Timed out waiting (?P<ms>\d+)ms for (?P<what>send|recv) operation",
        "This rank waited {seconds} s in a collective for data of a peer that did not come: a rank is in another collective, in "
        "none, or gone. The rank that prints this is the one that waited, not the one at fault.",
    ),
    _text(
        "gloo-size-mismatch",
        r"op\.preamble\.length <= op\.nbytes[.,]? *(?P<got>\d+) vs\.? (?P<room>\d+)",
        "This rank received {got} bytes in a collective where it had room for {room}: the ranks were in different collectives, "
        "or in one with different sizes or types. gloo ends the process by SIGABRT (exit code -6), without an exception.",
    ),
    _text(
        "gloo-all-to-all-splits",
        r"inLengthPerRank\[myRank\] == outLengthPerRank\[myRank\]",
        "The splits of an all_to_all do not fit: what this rank sends to itself is not as much as it expects from itself. Exchange "
        "the sizes first, and pass them as output_split_sizes.",
    ),
    _text(
        "gloo-peer-closed",
        r"Connection closed by peer",
        "Another rank's process ended, or timed out first, while this one waited for it. It is a consequence: look for the rank "
        "that left first. A healthy rank prints it as well when a peer merely returned earlier.",
    ),
    _text(
        "gloo-peer-reset",
        r"Read error \[[^\]]*\]:\S*: Connection reset by peer|Connection reset by peer",
        "Another rank's process was aborted or killed in the middle of a collective. It is a consequence of what happened there.",
    ),
    _text(
        "gloo-pair-closure",
        r"Application timeout caused pair closure",
        "A collective of this process timed out before, and gloo then closed all its connections. The first timeout counts.",
    ),
    _text(
        "terminate-after-timeout",
        r"terminate called without an active exception",
        "The process ended while a thread of gloo's still waited. It follows a timeout and says nothing more.",
    ),
    _text(
        "monitored-barrier-failed",
        r"Ranks? (?P<ranks>[\d, ]+) failed to pass monitoredBarrier in (?P<ms>\d+) ms",
        "Ranks {ranks} did not enter the barrier within {seconds} s. With TORCH_DISTRIBUTED_DEBUG=DETAIL every collective begins "
        "with such a barrier, so they were missing in a collective, which the text does not name.",
    ),
    _text(
        "monitored-barrier-passed",
        r"successfully reached monitoredBarrier, but received errors while waiting",
        "This rank reached the barrier; rank 0's log names the ranks that did not.",
    ),
    _text(
        "nccl-timeout",
        r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+)"
        r"(?:, NumelIn=(?P<numel>\d+))?.*?(?:Timeout\(ms\)=(?P<ms>\d+))",
        "{op} number {seq} of its group did not finish within {seconds} s on this rank: a rank did not enter it, or entered "
        "another collective under that number. The number counts from 1 within the group.",
    ),
    _text(
        "nccl-watchdog-failure",
        r"failure detected by watchdog at work sequence id: (?P<seq>\d+) PG status: last enqueued work: (?P<enqueued>-?\d+), "
        r"last completed work: (?P<completed>-?\d+)",
        "The group stands at work {seq}: {completed} collectives were completed and {enqueued} enqueued on this rank. The rank "
        "with the smallest number enqueued is the one that others wait for.",
    ),
    _text(
        "nccl-no-stack",
        r"Stack trace of the failed collective not found",
        "torch's Flight Recorder was off or did not answer in time, so the collective's line is not known. "
        "TORCH_FR_BUFFER_SIZE=2000 (TORCH_NCCL_TRACE_BUFFER_SIZE in older versions) turns it on.",
    ),
    _text(
        "nccl-dump-first",
        r"First PG on this rank to signal dumping|Received a dump signal due to a collective timeout from this local rank",
        "This rank's own collective timed out first here, and the Flight Recorder was asked to dump. "
        "`ddp-audit diff` reads the folder of those dumps.",
    ),
    _text(
        "nccl-dump-other",
        r"Observed flight recorder dump signal from another rank via TCPStore|Received a dump signal from another rank",
        "Another rank timed out and asked this one for its dump: this rank is a bystander.",
    ),
    _text(
        "nccl-stuck-watchdog",
        r"watchdog got stuck for (?P<s>\d+) ?seconds",
        "The watchdog thread itself did not run for {s} s: usually a thread holds the GIL, or a CUDA call blocks. No collective is "
        "known to be at fault.",
    ),
    _text(
        "nccl-taken-down",
        r"To avoid data inconsistency, we are taking the entire process down|Some NCCL operations have failed or timed out",
        "What follows a timeout: the process is ended, since its tensors may be half written.",
    ),
    _text(
        "nccl-watchdog-ended",
        r"Process group watchdog thread terminated with exception",
        "What follows a failure that the watchdog has reported above.",
    ),
    _text(
        "detail-mismatch",
        r"Detected mismatch between collectives on ranks",
        "The ranks entered one collective with different operations, sizes or types. TORCH_DISTRIBUTED_DEBUG=DETAIL compares "
        "those, and neither reductions nor roots; where only the dimensions differ it names an operation nobody called.",
    ),
    _text(
        "ddp-unused-parameters",
        r"Expected to have finished reduction in the prior iteration before starting a new one",
        "In the step before, a parameter got no gradient on this rank, so its bucket was never reduced: a branch of the model was "
        "not used. DDP notices it one forward later. find_unused_parameters=True allows it.",
    ),
    _text(
        "ddp-unused-names",
        r"Parameters? (?:which did not receive grad|indices which did not receive grad) for rank (?P<rank>\d+): (?P<names>.+)",
        "On rank {rank} these parameters took no part in the loss of the step before: {names}.",
    ),
    _text(
        "ddp-static-graph-changed",
        r"training graph has changed in this iteration|not compatible with static_graph set to True",
        "Another set of parameters took part in the loss than in the first step, which static_graph=True excludes.",
    ),
    _text(
        "ddp-ready-twice",
        r"Expected to mark a variable ready only once",
        "A parameter got its gradient twice in one backward pass: it is used outside the wrapper's forward, or a checkpointed "
        "segment uses it again.",
    ),
    _text(
        "ddp-other-model",
        r"DDP expects same model across all ranks|appears not to match (?:sizes|strides) of the same param in process 0",
        "The ranks wrapped models of different shape: what builds the model depends on the rank or on its data.",
    ),
    _text(
        "segmentation-fault",
        r"Signal 11 \(SIGSEGV\) received",
        "The process crashed in C++. With TORCH_DISTRIBUTED_DEBUG=DETAIL, DDP on gloo does so in torch 2.13: unset it.",
    ),
    _text(
        "child-failed",
        r"ChildFailedError|Root Cause \(first observed failure\)",
        "torchrun names the worker that ended first. That need not be the one that parted: a survivor may have timed out first.",
    ),
)
