"""The fixes that can be applied: for each code of a rule the codemod, how safe it is, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst

from ddp_audit.findings import Finding
from ddp_audit.fix import calls, current_device, devices, endings, guarded, handles, inner, loaders, moves, samplers, seeds
from ddp_audit.fix.tree import Tree

Codemod = Callable[[Tree, Finding], cst.Module]


@dataclass(frozen=True, slots=True)
class FixSpec:
    """One fix. `title` says in a few words what its one edit does, where the finding's own fix does not say it.

    `safety` holds the levels that its findings may have, safe or unsafe; `changes` and `why` are for readers.
    """

    codemod: Codemod
    title: str
    safety: tuple[str, ...]
    changes: str
    why: str


CATALOGUE: dict[str, FixSpec] = {
    "DDP107": FixSpec(
        calls.not_reentrant,
        "pass `use_reentrant=False`",
        ("unsafe",),
        "`use_reentrant=False` for the checkpoint",
        "The gradients are the same; but what is recomputed in the backward may differ where the function has effects of its own.",
    ),
    "DDP112": FixSpec(
        moves.flag_before_forward,
        "set the flag before the forward",
        ("unsafe",),
        "The assignment of the flag, or an `if` of nothing else, moves before the statement with the forward.",
        "Gradients are reduced at other micro-batches than before.",
    ),
    "DDP113": FixSpec(
        moves.block_around_forward,
        "put the forward into the `no_sync()` block",
        ("unsafe",),
        "The forward, and what stands between, moves into the `no_sync()` block. An `if` with the block in one arm and the same "
        "statements in the other becomes one `with .. if .. else nullcontext():`.",
        "Micro-batches are no longer reduced one by one; a step that relied on that is another one.",
    ),
    "DDP115": FixSpec(
        inner.attribute_of_inner,
        "read the attribute on the inner module",
        ("safe", "unsafe"),
        "`model.name` becomes `model.module.name`.",
        "The line raises AttributeError as it is. Unsafe where the name may also hold the model without wrapper, or is called: "
        "a loss that is computed by the inner module's method is not averaged.",
    ),
    "DDP201": FixSpec(
        guarded.out_of_the_guard,
        "move the collective out of the rank test",
        ("unsafe",),
        "The collective with which the body of a rank test begins moves before it; a barrier at its end moves behind it.",
        "All ranks take part then; what they bring to the collective may not be meant for it.",
    ),
    "DDP202": FixSpec(
        guarded.out_of_the_guard,
        "move the call out of the rank test",
        ("unsafe",),
        "The call with which the body of a rank test begins moves before it.",
        "All ranks make the call then, with its time and memory.",
    ),
    "DDP206": FixSpec(
        calls.in_order,
        "iterate over `sorted(..)`",
        ("safe", "unsafe"),
        "`for name in names:` becomes `for name in sorted(names):`.",
        "Safe where all elements are texts in sight; else elements may be of a kind that cannot be sorted.",
    ),
    "DDP208": FixSpec(
        handles.waited_first,
        "wait for the operation before its buffer is used",
        ("safe", "unsafe"),
        "`handle.wait()` moves before the statement that uses the buffer, or is written there; without a handle the call loses "
        "`async_op=True`.",
        "The wait ends when the other ranks have started the operation too. Unsafe where they may be waiting for a message of this "
        "rank, or in another group.",
    ),
    "DDP212": FixSpec(
        calls.called,
        "call the function in the condition",
        ("safe", "unsafe"),
        "`if is_main_process:` becomes `if is_main_process():`.",
        "Safe where the function's definition was read, takes no arguments, and the block issues no collective and leaves nothing: "
        "else ranks that came along so far would wait for the one that enters.",
    ),
    "DDP301": FixSpec(
        loaders.sampler_of_its_own,
        "give the loader a `DistributedSampler`",
        ("unsafe",),
        "`sampler = DistributedSampler(data)` before the loader, `sampler=sampler` in the place of `shuffle=True`, and "
        "`sampler.set_epoch(epoch)` in the loop over epochs. Where the script also runs without a process group, only "
        "under `dist.is_initialized()`.",
        "An epoch has a W-th of its steps then, on which schedules and logs may count, and other samples come in other batches.",
    ),
    "DDP302": FixSpec(
        loaders.epoch_to_sampler,
        "call `set_epoch(epoch)` at the start of each epoch",
        ("safe",),
        "`sampler.set_epoch(epoch)` as the first statement of the loop over epochs (`loader.sampler` where it has no name); "
        "a call that stands before the loop moves into it, and a constant becomes the epoch.",
        "Nothing but the order of the samples changes, as it was meant to in each epoch.",
    ),
    "DDP303": FixSpec(
        samplers.own_share,
        "give the sampler the numbers of the process group",
        ("unsafe",),
        "`num_replicas` and `rank` of the sampler, where they are not those of the job, become `dist.get_world_size()` and "
        "`dist.get_rank()`, or names that hold them; a seed loses the rank that is added to it.",
        "Ranks get other samples, and another number of them.",
    ),
    "DDP306": FixSpec(
        samplers.same_split,
        "pass `generator=torch.Generator().manual_seed(0)`",
        ("safe", "unsafe"),
        "`generator=torch.Generator().manual_seed(0)` for random_split; `sorted(..)` around the listing of a folder.",
        "Safe for a listing, whose order nobody promised. A split with a seed is another split, and the same one in every run.",
    ),
    "DDP308": FixSpec(
        seeds.seeded_by_rank,
        "seed each rank by itself",
        ("unsafe",),
        "`torch.manual_seed(seed + rank)` before the loop that trains (`numpy.random.seed`, `random.seed` for draws of theirs); "
        "where the ranks are spawned, behind init_process_group in the function that is spawned.",
        "Ranks draw other numbers than before, and than each other: not where they must agree, as in tensor parallelism.",
    ),
    "DDP401": FixSpec(
        inner.call_inner_module,
        "call the inner module",
        ("unsafe",),
        "`model(x)` becomes `model.module(x)`, or `getattr(model, \"module\", model)(x)` where the wrap is conditional.",
        "Rank 0 evaluates with its own buffers, which DDP no longer sends there.",
    ),
    "DDP507": FixSpec(
        devices.local_rank_of_torchrun,
        "let LOCAL_RANK be the default of the option",
        ("unsafe",),
        "`default=0` of the option becomes `default=int(os.environ.get(\"LOCAL_RANK\", 0))`.",
        "Processes that took themselves for the only one become ranks of a job.",
    ),
    "DDP601": FixSpec(
        devices.by_local_rank,
        "use the local rank as the device index",
        ("unsafe",),
        "The rank in a device index becomes a name that holds the local rank, or "
        "`local_rank = int(os.environ[\"LOCAL_RANK\"])`.",
        "torchrun sets LOCAL_RANK; another launcher need not.",
    ),
    "DDP602": FixSpec(
        current_device.device_before_group,
        "set the CUDA device before `init_process_group`",
        ("unsafe",),
        "`torch.cuda.set_device(..)` with the local rank before init_process_group, under `torch.cuda.is_available()` where the "
        "script asks that; a call that comes later in the same block moves there.",
        "torchrun sets LOCAL_RANK; another launcher need not.",
    ),
    "DDP603": FixSpec(
        calls.load_to_cpu,
        "pass `map_location=\"cpu\"`",
        ("safe", "unsafe"),
        "`map_location=\"cpu\"` for torch.load.",
        "Safe where load_state_dict is all that uses what is loaded, as it copies to the device of the parameters; else something "
        "may be used where it lies.",
    ),
    "DDP604": FixSpec(
        endings.destroyed_at_last,
        "destroy the process group in `finally:`",
        ("unsafe",),
        "What follows init_process_group is put into `try:` and destroy_process_group into `finally:`.",
        "After an exception a rank leaves its group at once, and the others see their collectives fail earlier than before.",
    ),
    "DDP701": FixSpec(
        guarded.one_writer,
        "let rank 0 alone save",
        ("safe", "unsafe"),
        "`exist_ok=True` for a folder; `if rank == 0:` around the statement that saves.",
        "Safe for a folder that is looked for before it is made. Unsafe for others, where an error may be meant, and for saves: "
        "a rank that reads the file next may come too early.",
    ),
    "DDP804": FixSpec(
        calls.unscaled_first,
        "call `scaler.unscale_(optimizer)` before the clip",
        ("unsafe",),
        "`scaler.unscale_(optimizer)` before the clip, where `scaler.step(optimizer)` surely follows.",
        "The limit counts in the gradients' own scale from then on, where it hardly ever cuts what it cut before.",
    ),
}  # fmt: skip
FIXES: dict[str, Codemod] = {code: spec.codemod for code, spec in CATALOGUE.items()}


def title_of(finding: Finding) -> str:
    """What the codemod of a finding does to the file, in a few words: one edit, without alternatives to it."""
    own = finding.fix.title if finding.fix is not None else ""
    return own or CATALOGUE[finding.code].title
