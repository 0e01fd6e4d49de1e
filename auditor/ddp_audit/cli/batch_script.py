"""`ddp-audit batch SCRIPT`: A, B, T and K from the script, its config files and the launch."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ddp_audit.audit import Options, UsageError, explicit_overrides
from ddp_audit.cli.batch import _SHOWN, _unequal_lines, instead_lines, kept_line, option_lines, print_json
from ddp_audit.cli.parser import Usage
from ddp_audit.launch import Launch, arithmetic, world_launch
from ddp_audit.launch.answer import Answer, answer, differing, launch_row, meaning, why_not
from ddp_audit.launch.overrides import missing_config_files
from ddp_audit.launch.question import Script, read_script
from ddp_audit.launch.scaling import Job, config_folders, starts
from ddp_audit.launch.update import Update
from ddp_audit.report.columns import say
from ddp_audit.source.files import SourceError
from ddp_audit.source.paths import place_of

if TYPE_CHECKING:
    from ddp_audit.launch.tokens import Unequal


def run_script(args: argparse.Namespace, path: str, launch: Launch | None, unequal: Unequal | None) -> int:
    """Prints the answer for a script; 0, or Usage where it cannot be given."""
    try:
        explicit = explicit_overrides(Options(settings=args.settings, config_files=args.config_files))
        script = read_script(path, explicit)
    except (UsageError, SourceError) as error:
        raise Usage(str(error)) from None
    if launch is None:
        if args.before is not None:
            raise Usage("--from needs the number of processes that K is kept on: --to or --launch")
        return _list(args, script)
    if not starts(launch, script.entry.path):
        raise Usage(f"the launch starts {launch.script}, and the question is about {script.entry.path}")
    if launch.world_size is None:
        raise Usage(f"the launch starts {launch.describe_world()}; say it with --world-size")
    launch = script.as_started(launch)
    program, now = script.update(launch)
    missing = missing_config_files(launch, config_folders(program))
    if missing:
        raise Usage(f"config file {missing[0]} of the launch is not there")
    if now is None:
        return _without_update(args, script, launch)
    if now.source is not None and now.source.value < 1:
        raise Usage(str(why_not(now)))
    before = script.update(_resized(launch, args.before))[1] if args.before is not None else None
    found = answer(Job(program, launch), now, before, args.tokens, batch=args.batch_size, block=args.block_size)
    if found is None:
        raise Usage(f"{script.entry.path} does not say its batch size; say it with --batch-size")
    if args.accumulation is not None:
        found.accumulation = args.accumulation
    if args.format == "json":
        print_json(_json(script, launch, found, args.limit, unequal))
    else:
        lines = _text(script, launch, found, args.limit or _SHOWN)
        say(lines + (["", *_unequal_lines(args, unequal)] if unequal is not None else []))
    return 0


def _resized(launch: Launch, world: int) -> Launch:
    """The launch with its arguments and another number of processes."""
    from dataclasses import replace

    plain = world_launch(world)
    return replace(launch, nnodes=plain.nnodes, nproc_per_node=plain.nproc_per_node, world_size=world)


def _without_update(args: argparse.Namespace, script: Script, launch: Launch) -> int:
    raise Usage(
        f"{script.entry.path} does not say how many micro-batches an update has or how large they are; say it with --batch-size, "
        "--accumulation and --block-size, without the script"
    )


def _about(update: Update) -> list[str]:
    """Each number with its origin, and what the code does with the first one."""
    lines = [f"  {number}" for number in update.numbers()]
    if update.source is not None:
        lines.append(f"  {meaning(update)}")
    return lines


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count:,} processes"


def _job(update: Update) -> str:
    """One line about the job on its number of processes."""
    reason = why_not(update)
    if reason is None:
        made = f"{update.product()} = {update.tokens:,} {update.unit} an update" if update.tokens is not None else "K is not known"
        return f"on {_processes(update.world)}: a = {update.per_rank:,}, K = {made}"
    quotient = f"{update.source.value:,} / {update.divisor:,} is not whole" if update.source is not None else "no whole number"
    line = f"on {_processes(update.world)}: {quotient} ({reason})"
    if update.check is not None:
        check = update.check.node.span
        return f"{line}, so {place_of(check.path, check.line)} stops every process: {update.check.node.text}"
    place = update.division.span if update.division is not None else None
    where = f"{place_of(place.path, place.line)} rounds it" if place is not None else "it is rounded"
    done = f" to K = {update.tokens:,} instead of what is meant" if update.tokens is not None else ""
    return f"{line}, and {where} down in silence to a = {update.per_rank:,}{done}"


def _text(script: Script, launch: Launch, found: Answer, limit: int) -> list[str]:
    now = found.now
    assert now is not None
    came = "--to or --world-size" if launch.text.startswith("--world-size") else launch.text
    lines = [f"{script.entry.path} on W = {launch.describe_world()}, from {came}"]
    lines += [f"  {name}: {launch.origin(name)}" for name in ("nnodes", "nproc_per_node") if launch.origin(name)]
    lines += _about(found.before or now)
    if found.before is not None:
        lines.append(_job(found.before))
    lines += [_job(now), ""]
    per_rank = found.before.per_rank if found.before is not None and found.before.holds else None
    reason = arithmetic.why_not_exact(found.world, found.tokens, found.block, found.unit)
    options = found.options
    if found.only_per_rank is not None:
        lines.append(f"The script makes {found.only_per_rank} micro-batch{'es' if found.only_per_rank > 1 else ''} an update, so:")
    if options:
        lines += option_lines(options, found.batch, reason, limit, per_rank)
    else:
        lines.append(f"No B keeps K = {found.tokens:,} {found.unit}.")
    if found.only_per_rank is None:
        lines += kept_line(options, per_rank, found.unit)
    if found.instead:
        lines += ["", *instead_lines(found.instead, found.tokens)]
    if found.quantities:
        lines += ["", f"Also on {found.world:,} processes:", *(f"  {line}" for line in found.quantities)]
    for note in found.notes:
        lines += ["", note]
    return lines


def _json(script: Script, launch: Launch, found: Answer, limit: int | None, unequal: Unequal | None) -> dict[str, Any]:
    now = found.current()
    document: dict[str, Any] = {
        "version": 1, "world_size": found.world, "block_size": found.block, "tokens_per_update": found.tokens,
        "current": None if now is None else now.to_json(), "options": [option.to_json() for option in found.options[:limit]],
        "script": script.entry.path, "unit": found.unit, "launch": launch_row(launch, found.now),
        "before": None, "instead": [option.to_json() for option in found.instead],
        "quantities": found.quantities,
        "numbers": [{"name": n.name, "value": n.value, "where": n.where} for n in found.numbers],
        "notes": found.notes + [arithmetic.NO_ROOM] * arithmetic.needs_memory(found.options[:limit], found.batch),
    }  # fmt: skip
    if found.before is not None:
        before = found.before
        document["before"] = {
            "world_size": before.world, "a": before.per_rank if before.holds else None,
            "tokens_per_update": before.tokens if before.holds else None, "reason": why_not(before),
        }  # fmt: skip
    if unequal is not None:
        document["rank_tokens"] = unequal.to_json()
    return document


def _list(args: argparse.Namespace, script: Script) -> int:
    """Every documented launch with what an update is made of under it."""
    launches = script.launches()
    if not launches:
        raise Usage(f"no launch of {script.entry.path} is documented; say the number of processes with --world-size or --launch")
    rows = [launch_row(one, script.update(one)[1] if one.world_size is not None else None) for one in launches]
    if args.format == "json":
        differ = bool(differing(rows))
        print_json({"version": 1, "script": script.entry.path, "launches": rows, "differ": differ})
        return 0
    lines = [f"{script.entry.path}: {len(rows)} documented launch{'es' if len(rows) > 1 else ''}"]
    for row, launch in zip(rows, launches, strict=True):
        lines += ["", f"{row['where']}: W = {launch.describe_world()}", f"  {row['command']}"]
        lines += [f"  {name}: {origin}" for name, origin in row["world_from"].items()]
        lines += [f"  {n['name']} = {n['value']:,} ({n['where']})" for n in row.get("numbers", [])]
        if row.get("meaning"):
            lines.append(f"  {row['meaning']}")
        if row.get("reason"):
            lines.append(f"  does not hold: {row['reason']}")
        elif row.get("tokens_per_update") is not None:
            lines.append(f"  a = {row['a']:,}, K = {row['tokens_per_update']:,} {row['unit']} an update")
        elif row["world_size"] is not None:
            lines.append("  K is not known: the script does not say what an update is made of")
    different = differing(rows)
    if different:
        shown = ", ".join(f"{row['where']} has {row['tokens_per_update']:,}" for row in different)
        lines += ["", f"K differs between these launches: {shown}."]
    say(lines)
    return 0
