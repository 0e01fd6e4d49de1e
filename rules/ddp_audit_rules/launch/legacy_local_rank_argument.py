"""DDP507: the local rank is taken from --local_rank, which torchrun does not pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Fix, Related
from ddp_audit.launch.model import PYTHON, TORCH_LAUNCH, WORLD_SIZE, Launch
from ddp_audit.launch.scaling import starts
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import LocalRankOption, Program
from ddp_audit.tree.questions import first_of_each_place
from ddp_audit.tree.values import constant
from ddp_audit_rules.facts.evidence import by_devices
from ddp_audit_rules.launch._local_rank_option import consequence, gives, handed_over, is_set, reads, reads_environment


class LegacyLocalRankArgument(Rule):
    code = "DDP507"
    name = "legacy-local-rank-argument"
    level = "warning"
    summary = (
        "A script that takes its local rank from the argument --local_rank and reads LOCAL_RANK nowhere. An option that is kept "
        "for old launchers while nothing reads it is an info."
    )
    rationale = (
        "torchrun sets LOCAL_RANK in the environment and passes no argument, so the option keeps its default in every process: "
        "with 0 all ranks of a node use the first device, with -1 each takes itself for the only one and trains alone. From torch "
        "2.0 on torch.distributed.launch passes --local-rank, which a parser of --local_rank refuses."
    )
    exceptions = (
        "Scripts that read LOCAL_RANK or another launcher's variable; DeepSpeed, whose launcher passes the argument; scripts whose "
        "documented launcher passes it in a spelling that the parser knows; --local_rank given by hand."
    )
    trace_evidence = (
        "Models of several ranks on one device (the silent fault same-device). Equal indices show nothing, where each "
        "process may see one GPU alone."
    )
    source = (
        "torch 2.13: distributed/run.py sets LOCAL_RANK; distributed/launch.py adds --local-rank unless --use-env is given (seen "
        "in runs: torchrun leaves the default, launch ends a parser of --local_rank with 'unrecognized arguments')."
    )
    outcome = "shows rank 1 takes device 0"
    fix_hint = "read the local rank from the environment: int(os.environ['LOCAL_RANK'])"
    bad = '''"""Averages one number over all ranks; each says which device it would take."""

import argparse

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", args.local_rank)
print(f"rank {dist.get_rank()} takes device {args.local_rank}")
value = torch.tensor([float(dist.get_rank())], device=device)
dist.all_reduce(value)
dist.destroy_process_group()
'''
    good = (
        bad.replace("import argparse\n", "import os\n")
        .replace('parser = argparse.ArgumentParser()\nparser.add_argument("--local_rank", type=int, default=0)\n', "")
        .replace("args = parser.parse_args()", 'local_rank = int(os.environ["LOCAL_RANK"])')
        .replace("args.local_rank", "local_rank")
    )

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        if program.frameworks.passes_local_rank:
            return
        launches = [*context.documented, *([context.launch] if context.launch is not None else [])]
        own = [one for one in launches if starts(one, program.entry) and one.kind not in (PYTHON, WORLD_SIZE)]
        for node in first_of_each_place(program.of(LocalRankOption)):
            if handed_over(own, node.flags) or any(gives(one) for one in own):
                continue
            finding = self._finding(program, node, own)
            if finding is not None:
                yield finding

    def _finding(self, program: Program, node: LocalRankOption, launches: Sequence[Launch]) -> Finding | None:
        option = str(node.name)
        used, set_elsewhere = list(dict.fromkeys(reads(program))), is_set(program)
        if used and not set_elsewhere and reads_environment(program):
            return None
        if not used or set_elsewhere:
            return self.finding(
                node.span,
                f"{option} is an option of the old launcher: torchrun does not pass it, and "
                + ("the script sets the value itself." if set_elsewhere else "nothing here reads it."),
                "It does no harm as long as nobody relies on it; readers take it for the way in which the local rank is found.",
                severity="info",
            )
        default = constant(node.default)
        torchrun = next((one for one in launches if not one.passes_local_rank), None)
        starter = f"{torchrun.kind} ({torchrun.where()})" if torchrun is not None else "torchrun"
        message = f"The local rank is read from {option}, which {starter} does not pass: {consequence(program, default, node)}."
        related = [Related(path, line, "use", program.line(path, line)) for path, line in used[:3]]
        if torchrun is not None and torchrun.path is not None and torchrun.line is not None:
            related.append(Related(torchrun.path, torchrun.line, "launch", torchrun.text))
        old = next((one for one in launches if one.kind == TORCH_LAUNCH), None)
        explanation = "torchrun, and srun and mpirun too, pass the local rank to a process only in the environment."
        if old is not None:
            explanation += f" {old.where()} starts it by torch.distributed.launch, which from torch 2.0 on passes --local-rank."
        fix = None
        if type(default) is int and not set_elsewhere:
            fix = Fix("unsafe", f"let the default be int(os.environ.get('LOCAL_RANK', {default})), or read it from there alone")
        return self.finding(node.span, message, explanation, related=related, guards=node.guards, fix=fix)

    def verify(self, finding: Finding, run: RecordedRun) -> str:
        """Confirmed by models of several ranks on one device; not-observed where each rank of a host chose another index.

        Equal indices show nothing: each process may see one GPU alone, which is then its device 0.
        """
        return by_devices(run)
