"""A small GPT: token and position embeddings, pre-norm blocks, logits by the transposed token embedding."""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ddp_audit_trainer.data import IGNORED


class Attention(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Causal self-attention. `manual` registers its mask as a buffer, which DDP then broadcasts; `sdpa` has no buffer."""

    def __init__(self, config: argparse.Namespace) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.manual = config.attention == "manual"
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.project = nn.Linear(config.n_embd, config.n_embd)
        if self.manual:
            mask = torch.tril(torch.ones(config.block_size, config.block_size))
            self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] to [B, T, C]."""
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.n_head, width // self.n_head).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        rate = self.dropout if self.training else 0.0
        if self.manual:
            scores = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
            scores = scores.masked_fill(self.mask[:length, :length] == 0, float("-inf"))
            mixed = F.dropout(scores.softmax(dim=-1), rate) @ value
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=True)
        out: Tensor = self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class Block(nn.Module):  # type: ignore[misc]
    """Attention and a two-layer perceptron, each behind a LayerNorm and added to the stream: [B, T, C] to [B, T, C]."""

    def __init__(self, config: argparse.Namespace) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.n_embd)
        self.attention = Attention(config)
        self.norm_2 = nn.LayerNorm(config.n_embd)
        self.perceptron = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Linear(4 * config.n_embd, config.n_embd)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm_1(x)))
        out: Tensor = x + self.dropout(self.perceptron(self.norm_2(x)))
        return out


class GPT(nn.Module):  # type: ignore[misc]
    """Tokens int64 [B, T] to logits [B, T, vocabulary]."""

    def __init__(self, config: argparse.Namespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.n_embd)
        self.positions = nn.Embedding(config.block_size, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.n_layer)))
        self.norm = nn.LayerNorm(config.n_embd)
        self.apply(initialise)

    def forward(self, inputs: Tensor) -> Tensor:
        places = torch.arange(inputs.shape[1], device=inputs.device)
        x = self.dropout(self.tokens(inputs) + self.positions(places))
        logits: Tensor = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return logits


def initialise(module: nn.Module) -> None:
    """Small normal weights and zero biases for linear layers and embeddings."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy summed over the positions that count, a scalar: logits [B, T, V], targets int64 [B, T]."""
    loss: Tensor = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")
    return loss
