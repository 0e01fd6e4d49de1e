"""DDP506: a transport of NCCL is switched off for good, in the code, in a launch or by advice, without a diagnosis."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ddp_audit.findings import Finding, Span
from ddp_audit.launch.documents import prose_lines
from ddp_audit.patterns import pattern
from ddp_audit.rule import Context, Rule
from ddp_audit.tree.nodes import EnvironmentSet, Node
from ddp_audit.tree.questions import first_of_each_place
from ddp_audit.tree.values import Const, World

# Variable to what it takes away (NCCL's documentation of environment variables).
_VARIABLES = {
    "NCCL_IB_DISABLE": "InfiniBand and RoCE between nodes, so NCCL falls back to TCP sockets",
    "NCCL_P2P_DISABLE": "direct copies between the GPUs of a node (NVLink, PCIe), so they go through shared memory",
    "NCCL_SHM_DISABLE": "shared memory between the processes of a node, so what has no direct copies goes through the network",
}
_SETTING = pattern(r"\b(NCCL_(?:IB|P2P|SHM)_DISABLE)\s*=\s*[\"']?1\b")
_ADVISES_AGAINST = pattern(
    r"\b(?:do not|don't|never) (?:set|use|export|prepend|add|need|disable)\b"
    r"|\b(?:avoid|unset|remove|drop|instead of|rather than|no need|not needed)\b",
    re.IGNORECASE,
)
_DIAGNOSIS = pattern(
    r"\b(?:hangs?|hung|stuck|deadlocks?|crash\w*|errors?|fails?|failing|broken|bugs?|issues?|debug\w*|diagnos\w*"
    r"|workaround|work around|iommu|acs|rtx ?\d{4}|4090|3090|https?)\b",
    re.IGNORECASE,
)


class TransportDisabled(Rule):
    code = "DDP506"
    name = "transport-disabled"
    level = "info"
    reads_documents = True
    what = (
        "NCCL_IB_DISABLE=1, NCCL_P2P_DISABLE=1 or NCCL_SHM_DISABLE=1 set in the code or in a documented launch, or advised "
        "in a docstring or comment, without a word on what it is a remedy for."
    )
    why = (
        "The variable takes a transport away from every collective of every rank, also on machines where it works: gradients "
        "then travel a slower way, often several times slower, and nothing says so."
    )
    quiet = (
        "Text that advises against it, text next to it that names the failure it works around, settings to 0, settings under a "
        "condition that is not always true, and the environment of the named launch, which is the user's own affair."
    )
    confirmed = "Nothing: the trace sees collectives and not their transport. NCCL_DEBUG=INFO prints the transport of each channel."
    source = "NCCL user guide, environment variables: NCCL_IB_DISABLE, NCCL_P2P_DISABLE, NCCL_SHM_DISABLE."
    remedy = "leave the choice to NCCL, and set the variable only where NCCL_DEBUG=INFO showed that the transport fails"
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
                if not _DIAGNOSIS.search(comments):
                    yield self._finding(node.span, name, " is set to 1 here")
        for path, text in {**program.documents, **context.texts}.items():
            yield from self._advice(path, text)

    def _advice(self, path: str, text: str) -> Iterator[Finding]:
        if "_DISABLE" not in text or not _SETTING.search(text):  # most files: their comments need not be read
            return
        for paragraph in prose_lines(text, path):
            for index, line in enumerate(paragraph):
                for match in _SETTING.finditer(line.text):
                    sentence = " ".join(part.text for part in paragraph[max(0, index - 1) : index + 2])
                    if _ADVISES_AGAINST.search(sentence) or _DIAGNOSIS.search(sentence):
                        continue
                    column = line.column + match.start()
                    span = Span(path, line.number, column, line.number, line.column + match.end())
                    yield self._finding(span, match.group(1), "=1 is advised here without a diagnosis")

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
