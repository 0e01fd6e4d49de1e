"""DDP506: a transport of NCCL is switched off for good, in the code, in a launch or by advice, without a diagnosis."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_audit.findings import Finding, Span
from ddp_audit.launch.advice import advised
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import EnvironmentSet, Node
from ddp_audit.tree.questions import first_of_each_place, says
from ddp_audit.tree.values import Const, World

# Variable to what it takes away (NCCL's documentation of environment variables).
_VARIABLES = {
    "NCCL_IB_DISABLE": "InfiniBand and RoCE between nodes, so NCCL falls back to TCP sockets",
    "NCCL_P2P_DISABLE": "direct copies between the GPUs of a node (NVLink, PCIe), so they go through shared memory",
    "NCCL_SHM_DISABLE": "shared memory between the processes of a node, so what has no direct copies goes through the network",
}


class TransportDisabled(Rule):
    code = "DDP506"
    name = "transport-disabled"
    level = "info"
    reads_documents = True
    summary = (
        "NCCL_IB_DISABLE=1, NCCL_P2P_DISABLE=1 or NCCL_SHM_DISABLE=1 set in the code or in a documented launch, or advised "
        "in a docstring or comment, without a word on what it is a remedy for."
    )
    rationale = (
        "The variable takes a transport away from every collective of every rank, also on machines where it works: gradients "
        "then travel a slower way, often several times slower, and nothing says so."
    )
    exceptions = (
        "Text that advises against it, text next to it that names the failure it works around, settings to 0, settings under a "
        "condition that is not always true, and the environment of the named launch, which is the user's own affair."
    )
    trace_evidence = (
        "Nothing: the trace sees collectives and not their transport. NCCL_DEBUG=INFO prints the transport of each channel."
    )
    source = "NCCL user guide, environment variables: NCCL_IB_DISABLE, NCCL_P2P_DISABLE, NCCL_SHM_DISABLE."
    fix_hint = "leave the choice to NCCL, and set the variable only where NCCL_DEBUG=INFO showed that the transport fails"
    outcome = "clean"
    bad = '''"""Averages one number over all ranks."""

import os

import torch
import torch.distributed as dist

os.environ["NCCL_IB_DISABLE"] = "1"


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    value = torch.tensor([float(dist.get_rank())])
    if torch.cuda.is_available():
        value = value.cuda(int(os.environ["LOCAL_RANK"]))
    dist.all_reduce(value)
    print(value.item() / dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
'''
    good = bad.replace('\nos.environ["NCCL_IB_DISABLE"] = "1"\n', "")

    def check(self, context: Context) -> Iterable[Finding]:
        program = context.program
        for node in first_of_each_place(program.of(EnvironmentSet)):
            name, value = node.name, node.value
            if name in _VARIABLES and isinstance(value, Const) and str(value.value) == "1" and _always(node):
                around = " ".join(program.line(node.span.path, node.span.line - back) for back in (0, 1) if back < node.span.line)
                comments = " ".join(part.partition("#")[2] for part in [around] if "#" in part)
                if not says(comments, "diagnosis"):
                    yield self._finding(node.span, name, " is set to 1 here")
        for path, text in {**program.documents, **context.texts}.items():
            for one in advised(text, path, _VARIABLES):
                if not says(one.around, "advises-against", "diagnosis"):
                    yield self._finding(one.span, one.name, "=1 is advised here without a diagnosis")

    def _finding(self, span: Span, name: str, what: str) -> Finding:
        message = f"{name}{what}, which takes away {_VARIABLES[name]}."
        explanation = (
            "All ranks that get the variable use the slower way for every collective. A machine without the transport needs no "
            "setting: NCCL finds out by itself. Use it only where the transport exists but is broken."
        )
        return self.finding(span, message, explanation, cause=name)


def _always(node: Node) -> bool:
    """Whether the setting is reached in any distributed run, and not only under a condition of the user's."""
    return all(guard.admits(World(0, 2, 2)) and not guard.against_default for guard in node.guards)
