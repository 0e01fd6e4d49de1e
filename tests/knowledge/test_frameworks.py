"""What the files of the frameworks say, and that rules ask them and hold no lists of their own."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import ddp_audit.program
import ddp_audit_rules
from ddp_audit.knowledge.framework import QUESTIONS, Answers, answers_of, framework_of, frameworks, marks, one
from ddp_audit.knowledge.functions import described
from ddp_audit.knowledge.libraries import may_send, silent_packages, unfollowed
from ddp_audit.knowledge.reading import KnowledgeError
from ddp_audit.rule import Rule

KNOWN = tuple(frameworks().values())
RULES = Path(ddp_audit_rules.__path__[0])
PAGE = {name for name, value in vars(Rule).items() if isinstance(value, str)} | set(Rule.__annotations__)


def _constants(tree: ast.Module) -> list[ast.Constant]:
    """The texts of a file outside of docstrings and of what a rule's page shows."""
    kept: list[ast.Constant] = []
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id in PAGE for target in targets):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            kept.append(node)
        queue.extend(ast.iter_child_nodes(node))
    return kept


def test_no_rule_names_a_library() -> None:
    known = {name for found in frameworks().values() for name in (found.name, *found.packages)}
    known |= set(silent_packages()) | {name.partition(".")[0] for name in described()}
    known -= {"torch", "numpy", *sys.stdlib_module_names}  # the subject, and what Python and torch draw numbers with
    assert {"accelerate", "lightning", "pytorch_lightning", "horovod", "wandb", "datasets", "timm"} <= known
    found = [
        f"{path.relative_to(RULES)}:{constant.lineno} {constant.value}"
        for path in sorted(RULES.rglob("*.py"))
        for constant in _constants(ast.parse(path.read_text()))
        if constant.value in known or ("." in constant.value and constant.value.partition(".")[0] in known)
    ]
    assert found == []


def test_every_question_is_asked_and_answered() -> None:
    rooms = (RULES, Path(ddp_audit.program.__path__[0]))
    asked = "\n".join(path.read_text() for room in rooms for path in room.rglob("*.py"))
    for question in QUESTIONS:
        assert f".{question}" in asked, question
        assert any(question in found.does for found in frameworks().values()), question


def test_answers_of_several_frameworks_are_joined() -> None:
    found = answers_of({"horovod.torch", "accelerate.Accelerator", "numpy"}, lambda name: False, KNOWN)
    assert found.names == {"horovod", "accelerate"}
    assert found.numbers_processes and found.shards_again and not found.passes_local_rank


def test_an_answer_can_depend_on_what_is_used() -> None:
    fabric = answers_of({"lightning.Fabric"}, lambda name: name == "Fabric", KNOWN)
    trainer = answers_of({"lightning"}, lambda name: name == "Trainer", KNOWN)
    assert fabric.leaves_loop and not fabric.reports_metrics and not fabric.injects_samplers
    assert not trainer.leaves_loop and trainer.reports_metrics and trainer.injects_samplers
    models = answers_of({"transformers.AutoModel"}, lambda name: name == "AutoModel", KNOWN)
    assert models.names == {"transformers"} and not models.shards_loaders


def test_fsdp_is_known_by_the_name_of_what_is_imported() -> None:
    assert answers_of({"torch.distributed.fsdp.FullyShardedDataParallel"}, lambda name: False, KNOWN).shards_parameters
    assert not answers_of({"torch.distributed"}, lambda name: False, KNOWN)


def test_nobody_answers_for_a_library_or_an_unknown() -> None:
    assert not answers_of({"torchmetrics", "ray.train"}, lambda name: True, KNOWN)
    assert one("nobody") == Answers()


def test_the_source_of_a_framework_is_recognised_by_a_mark() -> None:
    assert marks()["accelerate"] == "Accelerator"
    assert marks()["torch"] == "Tensor"
    assert "trl" not in marks()


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({}, "a framework needs a 'name'"),
        ({"name": "x", "package": {}}, "unknown key 'package' in a framework; did you mean 'packages'?"),
        ({"name": "x", "does": {"owns-epochs": True}}, "unknown key 'owns-epochs' in 'does'; did you mean 'owns-epoch'?"),
        (
            {"name": "x", "does": {"owns-epoch": 1}},
            "'owns-epoch' must be true, false, { if-used = [..] } or { unless-used = [..] }",
        ),
        ({"name": "x", "packages": {"x": 1}}, "'packages' must be a table of texts"),
        ({"name": "x", "runs": [1]}, "'runs' must be a text or a list of texts"),
        ({"name": "x", "objects": {"y": 1}}, "the object 'y' must be a table"),
    ],
)
def test_a_wrong_description_is_refused_in_one_line(table: dict[str, object], text: str) -> None:
    with pytest.raises(KnowledgeError) as raised:
        framework_of(table)
    assert str(raised.value) == text


def test_what_communicates_by_itself() -> None:
    assert "communicates by itself" in unfollowed("transformers.Trainer")
    assert "communicates by itself" in unfollowed("trl.SFTTrainer")
    assert unfollowed("lightning.LightningModule") == ""
    assert unfollowed("torch.distributed.optim.ZeroRedundancyOptimizer")
    assert not may_send("numpy.random.rand") and not may_send("os.path.join") and not may_send("torch.stack")
    assert may_send("timm.utils.reduce_tensor") and may_send("unheard.of")
