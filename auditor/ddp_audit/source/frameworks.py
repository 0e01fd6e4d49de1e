"""Training frameworks whose calls have contracts (program/contracts_*), and how their own source is recognised in a tree.

A clone of a framework has its package beside the examples. The contracts know what its calls mean; reading its source instead takes
long, and is wrong where that source asks the machine. A package of the user's own with such a name is read as any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

# Package to the word for it in Program.frameworks (empty for libraries that are none), and a name that its `__init__.py` binds or
# lists for later; with a slash, a module in it.
_KNOWN = {
    "accelerate": ("accelerate", "Accelerator"),
    "lightning": ("lightning", "LightningModule"),
    "pytorch_lightning": ("lightning", "LightningModule"),
    "lightning_fabric": ("lightning", "Fabric"),
    "deepspeed": ("deepspeed", "DeepSpeedEngine"),
    "transformers": ("transformers", "TrainingArguments"),
    "apex": ("apex", "/multi_tensor_apply"),
    "horovod": ("horovod", "/common/basics"),
    "dgl": ("dgl", "DGLGraph"),
    "composer": ("composer", "ComposerModel"),
    "fairscale": ("fairscale", "/nn/data_parallel"),
    "colossalai": ("colossalai", "launch_from_torch"),
    "mpi4py": ("mpi", "/MPI"),
    "torch": ("", "Tensor"),
    "torchmetrics": ("", "Metric"),
}
FRAMEWORKS = {package: word for package, (word, _) in _KNOWN.items() if word}
MARKS = {package: mark for package, (_, mark) in _KNOWN.items()}


def binds(text: str, name: str) -> bool:
    """Return whether a module's text imports, defines or assigns a name, or lists it in a string, as lazy packages do."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return name in _names(tree)


def _names(tree: ast.Module) -> Iterator[object]:
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Constant):
            yield node.value
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
