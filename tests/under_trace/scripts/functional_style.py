# ends: completes
"""Functional style: pure steps over a named tuple of state, map and lambda, torch.func without a wrapper."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.func import grad


class State(NamedTuple):
    weight: torch.Tensor
    bias: torch.Tensor
    step: int


def loss_fn(params, x, y):
    weight, bias = params
    return ((x @ weight + bias - y) ** 2).mean()


def reduce_mean(tensor):
    tensor = tensor.clone()
    dist.all_reduce(tensor)
    return tensor / dist.get_world_size()


def update(state, batch, lr=0.1):
    grads = grad(loss_fn)((state.weight, state.bias), *batch)
    weight_grad, bias_grad = map(reduce_mean, grads)
    return State(state.weight - lr * weight_grad, state.bias - lr * bias_grad, state.step + 1)


def fold(function, state, items):
    for item in items:
        state = function(state, item)
    return state


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(dist.get_rank())
    batches = [(torch.randn(4, 2, generator=g), torch.randn(4, generator=g)) for _ in range(5)]
    state = fold(update, State(torch.zeros(2), torch.zeros(()), 0), batches)
    assert state.step == len(batches)
    check = reduce_mean(state.weight)
    assert torch.allclose(check, state.weight)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
