"""Fixes inside of expressions: arguments, calls, orders, the inner module, devices; and the imports that they need."""

from __future__ import annotations

import pytest
from mending import HEAD, mended, text_after

from ddp_audit.fix.imports import Imports
from ddp_audit.fix.tree import FixNotApplicable, Tree

# DDP107

BLOCK = """\
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = torch.nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(2):
            x = {call}
        return x


model = DDP(Net())
model(torch.randn(2, 4)).sum().backward()
"""


@pytest.mark.parametrize(
    ("imported", "call", "after"),
    [
        (
            "from torch.utils.checkpoint import checkpoint",
            "checkpoint(self.block, x)",
            "checkpoint(self.block, x, use_reentrant=False)",
        ),
        (
            "import torch.utils.checkpoint as cp",
            "cp.checkpoint(\n                self.block,\n                x,  # input\n            )",
            "cp.checkpoint(\n                self.block,\n                x,  # input\n                use_reentrant=False,\n            )",
        ),
        (
            "from torch.utils import checkpoint as c",
            "c.checkpoint(self.block, x, use_reentrant=None)",
            "c.checkpoint(self.block, x, use_reentrant=False)",
        ),
    ],
)
def test_a_checkpoint_is_not_reentrant(imported: str, call: str, after: str) -> None:
    before = f"{imported}\n{HEAD}{BLOCK.format(call=call)}"
    outcome = mended(before, "DDP107")
    assert text_after(outcome) == before.replace(call, after)
    assert outcome.result.findings == []


# DDP115 and DDP401

WRAPPED = """\
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.scale = 2.0

    def forward(self, x):
        return self.norm(x) * self.scale

    def sample(self):
        return self.scale


net = Net()
"""
ALONE = "if dist.is_initialized():\n    net = DDP(net)\n"
STEP = "for step in range(4):\n    net(torch.randn(8, 4)).mean().backward()\n"


@pytest.mark.parametrize(
    ("wrap", "line", "after", "safety"),
    [
        ("net = DDP(net)\n", "print(net.scale)", "print(net.module.scale)", "safe"),
        ("net = DDP(net)\n", "print(net.sample())", "print(net.module.sample())", "unsafe"),
    ],
)
def test_an_attribute_is_read_on_the_inner_module(wrap: str, line: str, after: str, safety: str) -> None:
    before = f"{HEAD}{WRAPPED}{wrap}{STEP}{line}\n"
    outcome = mended(before, "DDP115")
    assert text_after(outcome) == before.replace(line, after)
    assert [finding.fix.safety for finding in outcome.fixed if finding.fix] == [safety]


@pytest.mark.parametrize(
    ("raw", "call"),
    [
        ("raw_net = net.module if dist.is_initialized() else net\n", "raw_net("),
        ("raw_net = net.module\nraw_net = net\n", 'getattr(net, "module", net)('),
        ("", 'getattr(net, "module", net)('),
    ],
)
def test_a_lone_forward_goes_by_the_name_of_the_inner_module(raw: str, call: str) -> None:
    function = "\n\ndef evaluate():\n    with torch.no_grad():\n        return net(torch.randn(8, 4)).mean()\n\n\n"
    end = "    if rank == 0:\n        evaluate()\n    dist.barrier()\n"
    before = f"{HEAD}{WRAPPED}{function}{ALONE}{raw}{STEP}{end}"
    assert text_after(mended(before, "DDP401")) == before.replace("return net(", f"return {call}")


def test_a_parameter_is_not_taken_for_the_global_name() -> None:
    function = "\n\ndef evaluate(net):\n    with torch.no_grad():\n        return net(torch.randn(8, 4)).mean()\n\n\n"
    raw = "raw_net = net.module if dist.is_initialized() else net\n"
    end = "    if rank == 0:\n        evaluate(net)\n    dist.barrier()\n"
    after = text_after(mended(f"{HEAD}{WRAPPED}{function}{ALONE}{raw}{STEP}{end}", "DDP401"))
    assert 'return getattr(net, "module", net)(' in after


# DDP206


@pytest.mark.parametrize(
    ("over", "after", "safety"),
    [
        ("{'a', 'b'}", "sorted({'a', 'b'})", "safe"),
        ("enumerate(set(names))", "enumerate(sorted(set(names)))", "unsafe"),
        ("os.listdir('.')", "sorted(os.listdir('.'))", "unsafe"),
    ],
)
def test_a_loop_goes_in_order(over: str, after: str, safety: str) -> None:
    before = f"import os\n{HEAD}names = [line.strip() for line in open('names.txt')]\nfor name in {over}:\n    dist.all_reduce(torch.ones(1))\n"
    outcome = mended(before, "DDP206")
    assert text_after(outcome) == before.replace(f" in {over}:", f" in {after}:")
    assert [finding.fix.safety for finding in outcome.fixed if finding.fix] == [safety]


@pytest.mark.parametrize("over", ["set(model.parameters())", "os.scandir('.')", "zip({'a', 'b'}, [1, 2])"])
def test_elements_that_may_have_no_order_are_left(over: str) -> None:
    assert mended(f"import os\n{HEAD}for thing in {over}:\n    dist.all_reduce(torch.ones(1))\n", "DDP206").changed == []


# DDP212

PREDICATE = "\n\ndef is_main_process({parameters}):\n    return dist.get_rank() == 0\n\n\n"


@pytest.mark.parametrize(
    ("parameters", "lines", "safety"),
    [
        ("", "if is_main_process:\n    print(1)\n", "safe"),
        ("group=None", "if not is_main_process and rank < 4:\n    print(1)\n", "safe"),
        ("", "if is_main_process:\n    dist.barrier()\n", "unsafe"),
        ("", "def helper():\n    dist.barrier()\n\n\nif is_main_process:\n    helper()\n", "unsafe"),
        ("", "for step in range(3):\n    if is_main_process:\n        continue\n    dist.barrier()\n", "unsafe"),
    ],
)
def test_the_function_is_called(parameters: str, lines: str, safety: str) -> None:
    before = HEAD + PREDICATE.format(parameters=parameters) + lines
    outcome = mended(before, "DDP212")
    assert text_after(outcome) == before.replace(lines, lines.replace("is_main_process", "is_main_process()"))
    assert [finding.fix.safety for finding in outcome.fixed if finding.fix] == [safety]


def test_a_function_that_wants_arguments_is_left() -> None:
    outcome = mended(HEAD + PREDICATE.format(parameters="group") + "if is_main_process:\n    print(1)\n", "DDP212")
    assert outcome.changed == []


# DDP603

CUDA = (
    HEAD.replace('"gloo"', '"nccl"')
    + "model = model.cuda()\nif rank == 0:\n    torch.save(model.state_dict(), 'last.pt')\ndist.barrier()\n"
)


@pytest.mark.parametrize(
    ("lines", "after", "safety"),
    [
        ("model.load_state_dict(torch.load('last.pt'))", "torch.load('last.pt', map_location=\"cpu\")", "safe"),
        ("state = torch.load('last.pt', None)\nmodel.load_state_dict(state)", "torch.load('last.pt', \"cpu\")", "safe"),
        (
            "state = torch.load('last.pt', map_location = None)\nmodel.load_state_dict(state)\nprint(state)",
            'map_location = "cpu")',
            "unsafe",
        ),
    ],
)
def test_a_checkpoint_is_loaded_to_the_cpu(lines: str, after: str, safety: str) -> None:
    outcome = mended(CUDA + lines + "\n", "DDP603")
    assert after.replace('"cpu"', "'cpu'") in text_after(outcome).replace('"cpu"', "'cpu'")
    assert [finding.fix.safety for finding in outcome.fixed if finding.fix] == [safety]


def test_quotes_are_those_of_the_file() -> None:
    text = (CUDA + "model.load_state_dict(torch.load('last.pt'))\n").replace('"', "'")
    assert "torch.load('last.pt', map_location='cpu')" in text_after(mended(text, "DDP603"))


def test_parameters_that_would_stay_on_the_cpu_are_left() -> None:
    assert mended(CUDA + "model.load_state_dict(torch.load('last.pt'), assign=True)\n", "DDP603").changed == []


# DDP601

DEVICE = HEAD.replace("rank = dist.get_rank()\n", "").replace('"gloo"', '"nccl"')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("rank = dist.get_rank()\ntorch.cuda.set_device(rank)", "rank = dist.get_rank()\n{read}torch.cuda.set_device(local_rank)"),
        ("torch.cuda.set_device(dist.get_rank())", "{read}torch.cuda.set_device(local_rank)"),
        ("torch.cuda.set_device(int(os.environ['RANK']))", "{read}torch.cuda.set_device(local_rank)"),
        ("device = torch.device('cuda', dist.get_rank())", "{read}device = torch.device('cuda', local_rank)"),
        ("device = torch.device(f'cuda:{{dist.get_rank()}}')", "{read}device = torch.device(f'cuda:{{local_rank}}')"),
        ("device = torch.device('cuda:%d' % dist.get_rank())", "{read}device = torch.device('cuda:%d' % local_rank)"),
        (
            "here = int(os.environ['LOCAL_RANK'])\ntorch.cuda.set_device(dist.get_rank())",
            "here = int(os.environ['LOCAL_RANK'])\ntorch.cuda.set_device(here)",
        ),
        (
            "rank = dist.get_rank()\nnet = model.module.to(rank)\nnet = DDP(net, device_ids=[rank])",
            "rank = dist.get_rank()\n{read}net = model.module.to(local_rank)\nnet = DDP(net, device_ids=[local_rank])",
        ),
    ],
)
def test_a_device_goes_by_the_local_rank(before: str, after: str) -> None:
    start = "import os\n" + DEVICE
    outcome = mended(f"{start}{before.format()}\n", "DDP601")
    mark = "'" if start.count("'") + before.count("'") > start.count('"') else '"'
    assert text_after(outcome) == start + after.format(read=f"local_rank = int(os.environ[{mark}LOCAL_RANK{mark}])\n") + "\n"
    assert outcome.result.findings == []


def test_the_name_is_given_before_the_first_of_several_uses_in_a_function() -> None:
    function = "\n\ndef work(rank):\n    x = torch.ones(1).to(rank)\n    y = DDP(model.module, device_ids=[rank])\n    return x.to(rank), y\n\n\n"
    outcome = mended(f"{DEVICE}{function}work(dist.get_rank())\n", "DDP601")
    lines = (
        'def work(rank):\n    local_rank = int(os.environ["LOCAL_RANK"])\n    x = torch.ones(1).to(local_rank)\n'
        "    y = DDP(model.module, device_ids=[local_rank])\n    return x.to(local_rank), y\n"
    )
    assert text_after(outcome).startswith("import os\n\nimport torch\n")
    assert lines in text_after(outcome)


@pytest.mark.parametrize(
    "lines",
    [
        "import torch.multiprocessing as mp\ndef run(i):\n    torch.cuda.set_device(dist.get_rank())\nmp.spawn(run, nprocs=2)",
        "os.environ['RANK'] = os.environ['SLURM_PROCID']\ntorch.cuda.set_device(dist.get_rank())",
        "place = f'cuda:{dist.get_rank()}' if torch.cuda.is_available() else 'cpu'\nmodel.to(place)",
    ],
)
def test_other_launchers_and_devices_that_are_named_elsewhere_are_left(lines: str) -> None:
    assert mended(f"import os\n{DEVICE}{lines}\n", "DDP601").changed == []


# DDP507


@pytest.mark.parametrize(
    ("option", "after"),
    [
        ("'--local_rank', type=int, default=-1", "'--local_rank', type=int, default=int(os.environ.get('LOCAL_RANK', -1))"),
        (
            "'--local_rank', '--local-rank', default = 0",
            "'--local_rank', '--local-rank', default = int(os.environ.get('LOCAL_RANK', 0))",
        ),
        ("'--local_rank', type=int, required=True", None),
        ("'--local_rank', type=int", None),
    ],
)
def test_the_old_option_defaults_to_what_torchrun_says(option: str, after: str | None) -> None:
    before = (
        "import argparse\nimport os\n\nparser = argparse.ArgumentParser()\n"
        f"parser.add_argument({option})\nargs = parser.parse_args()\n{DEVICE}torch.cuda.set_device(args.local_rank)\n"
    ).replace('"', "'")
    outcome = mended(before, "DDP507")
    assert outcome.changed == [] if after is None else text_after(outcome) == before.replace(f"({option})", f"({after})")


# DDP804

SCALED = (
    "scaler = torch.amp.GradScaler('cpu')\nfor step in range(4):\n    scaler.scale(model(torch.randn(8, 4)).mean()).backward()\n"
)


@pytest.mark.parametrize(
    "clip",
    [
        "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
        "    if step:\n        # cut\n        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
    ],
)
def test_gradients_are_unscaled_before_the_clip(clip: str) -> None:
    before = f"{HEAD}{SCALED}{clip}    scaler.step(optimizer)\n    scaler.update()\n"
    outcome = mended(before, "DDP804")
    indent = " " * (8 if "if" in clip else 4)
    line = next(line for line in clip.splitlines(keepends=True) if "clip_grad" in line)
    assert text_after(outcome) == before.replace(line, f"{indent}scaler.unscale_(optimizer)\n{line}")
    assert outcome.result.findings == []


def test_a_clip_that_may_run_without_the_step_is_left() -> None:
    clip = "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    outcome = mended(f"{HEAD}{SCALED}{clip}    if step >= 0:\n        scaler.step(optimizer)\n        scaler.update()\n", "DDP804")
    assert outcome.changed == []


# Imports


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '"""Doc."""\n\nfrom __future__ import annotations\n\nimport torch\n',
            '"""Doc."""\n\nfrom __future__ import annotations\n\nimport os\n\nimport torch\n',
        ),
        (
            "#!/usr/bin/env python\n# hello\nimport argparse\nimport sys\n\nimport torch\n",
            "#!/usr/bin/env python\n# hello\nimport argparse\nimport os\nimport sys\n\nimport torch\n",
        ),
        ("import sys\nimport argparse\nimport torch\n", "import sys\nimport argparse\nimport os\nimport torch\n"),
        ("from pathlib import Path\n", "import os\nfrom pathlib import Path\n"),
        ('"""Doc."""\nx = 1\n', '"""Doc."""\n\nimport os\nx = 1\n'),
    ],
)
def test_an_import_comes_to_its_place(before: str, after: str) -> None:
    tree = Tree(before)
    imports = Imports(tree, 99)
    assert imports.wanted("os.environ", "os") == "os.environ"
    assert imports.put_into(tree.module).code == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from a import b, d\n", "from a import b, c, d\n"),
        ("from a import (\n    b,\n    d,\n)\n", "from a import (\n    b,\n    c,\n    d,\n)\n"),
        ("from a import d, b\n", "from a import d, b, c\n"),
        ("from a import b as x\n", "from a import b as x, c\n"),
        ("import a\n", "import a\nfrom a import c\n"),
    ],
)
def test_a_name_comes_into_the_import_of_its_module(before: str, after: str) -> None:
    tree = Tree(before)
    imports = Imports(tree, 99)
    assert imports.take("a", "c") == "c"
    assert imports.put_into(tree.module).code == after


def test_what_a_name_means_is_asked_before_it_is_used() -> None:
    tree = Tree("import torch.distributed as dist\nfrom torch.utils.data import DataLoader as DL\n\n\ndef f(os):\n    return os\n")
    imports = Imports(tree, 9)
    assert imports.name_of("torch.distributed.get_rank") == "dist.get_rank"
    assert imports.is_name_of("DL", "torch.utils.data.DataLoader")
    assert not imports.is_name_of("DataLoader", "torch.utils.data.DataLoader")
    with pytest.raises(FixNotApplicable, match="os means something else"):
        imports.wanted("os.environ", "os")
    assert Imports(tree, 1).name_of("torch.distributed.get_rank") is None  # not imported yet in that line
