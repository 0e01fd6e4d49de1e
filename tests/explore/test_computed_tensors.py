"""Sizes and types of tensors, as the interpreted run computes them: each expression is held to what torch makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_interpreted_programs import predicted

EXPRESSIONS = (
    "torch.randint(0, 5, (2, 3))",
    "torch.randint(5, (3,))",
    "torch.randint(high=5, size=(2, 2))",
    "torch.randint(0, 5, (2,), dtype=torch.int32)",
    "torch.randperm(7)",
    "torch.eye(3)",
    "torch.eye(2, 5)",
    "torch.linspace(0, 1, 6)",
    "torch.arange(5)",
    "torch.arange(2, 11, 3)",
    "torch.arange(0, 6, dtype=torch.float64)",
    "torch.cat([torch.ones(2, 3), torch.ones(4, 3)])",
    "torch.cat([torch.ones(2, 3), torch.ones(2, 5)], dim=1)",
    "torch.cat([torch.ones(2, 3), torch.ones(2, 5)], dim=-1)",
    "torch.stack([torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3)])",
    "torch.ones(2, 3) @ torch.ones(3, 5)",
    "torch.ones(4, 2, 3) @ torch.ones(4, 3, 5)",
    "torch.ones(4, 2, 3) @ torch.ones(3, 5)",
    "torch.ones(2, 3) @ torch.ones(4, 3, 5)",
    "torch.ones(1, 2, 3) @ torch.ones(4, 3, 5)",
    "torch.ones(3) @ torch.ones(3, 5)",
    "torch.ones(3) @ torch.ones(4, 3, 5)",
    "torch.ones(2, 3) @ torch.ones(3)",
    "torch.mm(torch.ones(2, 3), torch.ones(3, 5))",
    "torch.bmm(torch.ones(4, 2, 3), torch.ones(4, 3, 5))",
    "torch.ones(2, 3) + torch.ones(3)",
    "torch.ones(2, 1) * torch.ones(1, 4)",
    "torch.ones(2, 3).sum()",
    "torch.ones(2, 3).sum(dim=1)",
    "torch.ones(2, 3).mean(0)",
    "torch.ones(2, 3).mean(dim=1, keepdim=True)",
    "torch.ones(2, 3, 4).flatten()",
    "torch.ones(2, 3, 4).flatten(1)",
    "torch.ones(2, 3, 4).view(6, -1)",
    "torch.ones(2, 3, 4).reshape(4, 6)[1]",
    "torch.ones(2, 3).unsqueeze(1)",
    "torch.ones(2, 1, 3).squeeze(1)",
    "torch.ones(2, 3).transpose(0, 1)[0]",
    "torch.ones(2, 3, 4).permute(2, 0, 1)[0]",
    "torch.ones(6, 2)[1:4]",
    "torch.ones(6, 2)[:, 0]",
    "torch.ones(3).expand(2, 3).contiguous()",
    "torch.ones(3).repeat(4)",
    "torch.ones(2).long()",
    "torch.ones(2).half()",
    "torch.ones(2).to(torch.float64)",
    "torch.zeros_like(torch.ones(2, 3))",
    "torch.full((2, 2), 7.0)",
    "torch.tensor([[1, 2], [3, 4]])",
    "torch.tensor([1.0, 2.0])",
    "torch.tensor(1, dtype=float)",
    "torch.zeros(2, dtype=int)",
    "torch.ones(3, dtype=bool)",
    "torch.empty([], dtype=float)",
    "torch.ones(2).to(int)",
    "torch.nn.Linear(2, 3).share_memory().weight.detach()",
    "torch.nn.Linear(2, 3).to(float).weight.detach()",
    "torch.tensor(3)",
    "torch.empty(2, 3, dtype=torch.bfloat16)",
    "nn.functional.one_hot(torch.zeros(3, dtype=torch.int64), num_classes=4)",
    "torch.ones(2, 3).argmax(dim=1)",
    "torch.ones(2, 3).new_zeros(5)",
    "torch.ones(2, 3).new_ones((4, 2))",
    "torch.ones(2, 3).new_full((4,), 1.0)",
    "torch.cat([torch.arange(3, 3), torch.arange(2)])",
    "torch.arange(5.0)",
    "torch.arange(1, 4.5, 0.5)",
    "torch.arange(start=1, end=9, step=3)",
    "torch.arange(6, 0, -2)",
    "torch.cat((torch.ones(2, 3), torch.ones(2, 4)), -1)",
    "torch.concat([torch.ones(2), torch.ones(3)])",
    "torch.stack((torch.ones(2), torch.ones(2)), dim=1)",
    "torch.hstack([torch.ones(2), torch.ones(3)])",
    "torch.ones(2, 3, 4).flatten(start_dim=1)",
    "torch.ones(2, 3, 4).flatten(0, 1)[0]",
    "torch.ones(2, 3, 4).flatten(1, 2)[0]",
    "torch.flatten(torch.ones(2, 3, 4), 1)",
    "torch.flatten(torch.ones(2, 3, 4), start_dim=1)[0]",
    "torch.ones(2, 3, 4).sum(-1)",
    "torch.ones(2, 3, 4).sum(dim=0, keepdim=True)",
    "torch.ones(2, 3, 4).mean(1)",
    "torch.ones(2, 3).mean(axis=1)",
    "torch.ones(2, 3, 4).max()",
    "torch.ones(3, dtype=torch.int32).sum()",
    "torch.ones(3, dtype=torch.int32).prod()",
    "torch.ones(2, 3).any()",
    "torch.ones(2, 3).all(dim=1)",
    "torch.ones(2, 3).argmin(0)",
    "torch.ones(2, 3, 4)[0, 1]",
    "torch.ones(2, 3, 4)[..., 0]",
    "torch.ones(2, 3, 4)[1:, ..., :2]",
    "torch.ones(2, 3, 4)[None]",
    "torch.ones(2, 3, 4)[:, None, 1]",
    "torch.ones(9, 2)[::4]",
    "torch.ones(9, 2)[-3:]",
    "torch.ones(2, 3).T[0]",
    "torch.ones(2, 3).t()[0]",
    "torch.ones(2, 3, 4).transpose(0, 2)[0]",
    "torch.ones(2, 3, 4).swapaxes(1, 2)[0, 0]",
    "torch.ones(2, 3).unsqueeze(-1)[0]",
    "torch.ones(2, 3).unsqueeze(0)[0]",
    "torch.ones(2, 3, 4).view(2, -1)[0]",
    "torch.ones(2, 3, 4).view((4, 6))[0]",
    "torch.ones(2, 3, 4).reshape(-1)",
    "torch.ones(2, 3, 4).reshape(shape=(8, 3))[0]",
    "torch.full((3,), 2)",
    "torch.full((3,), True)",
    "torch.full(size=(2,), fill_value=1.5)",
    "torch.tensor([1, 2.5])",
    "torch.tensor([True, False])",
    "torch.tensor([[1.0], [2.0]], dtype=torch.float16)",
    "torch.tensor([])",
    "torch.as_tensor([1, 2, 3])",
    "torch.tensor(torch.ones(2, dtype=torch.int64))",
    "torch.rand(3)",
    "torch.randn((2, 3))",
    "torch.rand_like(torch.ones(4))",
    "torch.ones_like(torch.ones(4), dtype=torch.int64)",
    "torch.ones(3).to(torch.ones(2, dtype=torch.float64))",
    "torch.ones(3).type(torch.int32)",
    "torch.ones(3).double().float()",
    "torch.ones(3) > 0",
    "(torch.ones(3) > 0).float()",
    "torch.ones(3, dtype=torch.int64) * 2.0",
    "2.0 * torch.ones(3, dtype=torch.int64)",
    "2 * torch.ones(3, dtype=torch.int64)",
    "2 - torch.ones(3)",
    "torch.ones(3, dtype=torch.int64) + torch.ones(3)",
    "torch.ones(3, dtype=torch.int64) + torch.ones(3, dtype=torch.int64)",
    "torch.ones(3, 1) - torch.ones(2)",
    "torch.ones(2, 1, 3) / torch.ones(4, 1)",
    "torch.relu(torch.ones(2, 3))",
    "torch.ones(2, 3).clamp(0, 1)",
    "torch.where(torch.ones(3) > 0, torch.ones(3), torch.zeros(3))",
    "torch.add(torch.ones(3), torch.ones(2, 3))",
    "torch.ones(2, 3).softmax(dim=1)",
    "torch.ones(2, 3).log_softmax(-1).exp()",
    "torch.ones(2, 3).clone().detach()",
    "torch.ones(2, 3).data",
    "torch.ones(2, 3).add_(1)",
    "torch.zeros(2, 3).fill_(1)",
    "nn.functional.linear(torch.ones(2, 3), torch.ones(5, 3))",
    "nn.functional.relu(torch.ones(2, 3))",
    "nn.functional.mse_loss(torch.ones(3), torch.ones(3))",
    "nn.functional.mse_loss(torch.ones(3), torch.ones(3), reduction='sum')",
    "nn.functional.mse_loss(torch.ones(3), torch.ones(3), reduction='none')",
    "torch.matmul(torch.ones(2, 3), torch.ones(3, 4))",
    "torch.ones(5, 2, 3).matmul(torch.ones(3, 4))[0]",
)


NOT_KNOWN = (  # a miss that is admitted: no size rather than another one
    "torch.ones(2, 3) @ torch.ones(3)",
    "torch.ones(2, 1, 3).squeeze(1)",
    "torch.ones(2, 3, 4).permute(2, 0, 1)[0]",
    "torch.ones(3).expand(2, 3).contiguous()",
    "torch.ones(3).repeat(4)",
    "nn.functional.one_hot(torch.zeros(3, dtype=torch.int64), num_classes=4)",
    "torch.stack((torch.ones(2), torch.ones(2)), dim=1)",
    "torch.hstack([torch.ones(2), torch.ones(3)])",
    "torch.full(size=(2,), fill_value=1.5)",
    "nn.functional.mse_loss(torch.ones(3), torch.ones(3), reduction='none')",
    "torch.ones(5, 2, 3).matmul(torch.ones(3, 4))[0]",
)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_tensor_has_the_size_that_torch_gives_it(expression: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    made = eval(expression, {"torch": torch, "nn": torch.nn})
    (event,) = predicted(tmp_path, f"dist.all_reduce({expression})\n").collectives(0)
    assert event.numel in (made.numel(), None) and event.dtype in (str(made.dtype).removeprefix("torch."), None)
    assert event.numel is not None or expression in NOT_KNOWN


STEPPED = """
model, other = DDP(nn.Linear(4, 4)), nn.Linear(4, 4)
optimizer = torch.optim.SGD({})
with model.no_sync():
    (model(torch.ones(2, 4)).sum() + other(torch.ones(2, 4)).sum()).backward()
optimizer.step()
"""


@pytest.mark.parametrize(
    ("arguments", "local"),
    [
        ("model.parameters(), 0.1", ["weight", "bias"]),
        ("[model.module.weight], 0.1, 0.9", ["weight"]),
        ("[{'params': [model.module.bias]}, {'params': other.parameters()}], 0.1", ["bias"]),
        ("params=model.parameters(), lr=0.1", ["weight", "bias"]),
        ("other.parameters(), 0.1", []),
        ("[other.weight, torch.load('more.pt')], 0.1", ["weight", "bias"]),  # what is loaded may be any of them
        ("torch.load('all.pt'), 0.1", ["weight", "bias"]),
    ],
)
def test_what_an_optimizer_holds_however_it_is_given(arguments: str, local: list[str], tmp_path: Path) -> None:
    run = predicted(tmp_path, STEPPED.format(arguments))
    assert [event.detail["local"] for event in run.sequences[0] if event.kind == "step"] == [local]


@pytest.mark.parametrize(("names", "sent"), [("['weight']", 3), ("['bias']", 12), ("[]", 15)])
def test_what_ddp_is_told_to_ignore_is_not_sent(names: str, sent: int, tmp_path: Path) -> None:
    ignore = f"DDP._set_params_and_buffers_to_ignore_for_model(inner, {names})"
    run = predicted(tmp_path, f"inner = nn.Linear(4, 3)\n{ignore}\nmodel = DDP(inner)\n")
    assert [event.numel for event in run.collectives(0) if event.origin == "ddp-constructor"][-1] == sent


@pytest.mark.parametrize(
    "modes",
    [
        ["torch.no_grad()"],
        ["torch.inference_mode()"],
        ["torch.inference_mode(True)"],
        ["torch.inference_mode(False)"],
        ["torch.no_grad()", "torch.enable_grad()"],
        ["torch.no_grad()", "torch.inference_mode(False)"],
        ["torch.set_grad_enabled(False)"],
        ["torch.no_grad()", "torch.set_grad_enabled(True)"],
    ],
)
def test_whether_gradients_are_taken(modes: list[str], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    body = f"with {', '.join(modes)}:\n    send(1 + int(torch.is_grad_enabled()))\nsend(1 + int(torch.is_grad_enabled()))\n"
    expected: list[int] = []
    exec(body, {"send": expected.append, "torch": torch})
    run = predicted(tmp_path, f"def send(n):\n    dist.all_reduce(torch.ones(n))\n{body}")
    assert [event.numel for event in run.collectives(0)] == expected
