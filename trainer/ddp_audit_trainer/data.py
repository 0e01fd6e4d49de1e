"""Tokens and windows of them: generated text or a token file, cut into sequences with their targets."""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from ddp_audit_trainer.config import Refused

IGNORED = -1  # the target of a padded position

GENERATED_TOKENS = 2_700  # 67 training windows of 32: with the default options two epochs of four updates

_SUBJECTS = ("the river", "a lamp", "our neighbour", "the old clock", "a grey heron", "the baker", "some child", "the tide")
_VERBS = ("carries", "finds", "counts", "remembers", "follows", "mends", "paints", "forgets")
_OBJECTS = (
    "seven stones",
    "the north wind",
    "a paper boat",
    "every letter",
    "the garden gate",
    "two copper keys",
    "a slow tune",
)


def generated_text(tokens: int) -> bytes:
    """Sentences of our own words, the same on every call, cut to `tokens` bytes."""
    words = random.Random(7)
    text = ""
    while len(text) < tokens:
        text += f"{words.choice(_SUBJECTS)} {words.choice(_VERBS)} {words.choice(_OBJECTS)}.\n"
    return text[:tokens].encode("ascii")


def load_tokens(config: argparse.Namespace) -> Tensor:
    """The tokens as a uint16 tensor [N]. A file is mapped into memory, not read.

    Raises Refused where the file cannot be read, is not a sequence of 16 bit numbers, or holds a token outside the vocabulary.
    """
    if config.data:
        path = Path(config.data)
        try:
            with path.open("rb") as file:  # from_file would make the file where it is missing
                size = file.seek(0, os.SEEK_END)
        except OSError as error:
            raise Refused(f"cannot read {path}: {error.strerror}") from error
        if size == 0 or size % 2 != 0:
            raise Refused(f"{path} is not a token file: its {size} bytes are not a whole number of 16 bit tokens")
        tokens: Tensor = torch.from_file(str(path), shared=False, size=size // 2, dtype=torch.uint16)
    else:
        tokens = torch.tensor(list(generated_text(GENERATED_TOKENS)), dtype=torch.uint16)
    largest = max(int(part.to(torch.int32).max()) for part in tokens.split(1 << 24))
    if largest >= config.vocab_size:
        what = config.data or "the generated text"
        raise Refused(f"{what} holds token {largest}: --vocab-size must be {largest + 1} or more, it is {config.vocab_size}")
    return tokens


class Windows(Dataset):  # type: ignore[misc]  # torch is untyped here
    """Map-style data: item i is the T tokens from i*stride on, with the targets one token later, both int64 [T].

    With `--lengths varied` the items are T/4 to T tokens long and padded to T; a padded position has the target IGNORED.
    """

    def __init__(self, tokens: Tensor, config: argparse.Namespace, stride: int) -> None:
        self.tokens = tokens
        self.stride = stride
        self.block_size: int = config.block_size
        self.varied = config.lengths == "varied"

    @property
    def disjoint(self) -> int:
        """How many sequences there are that share no target: the length of an epoch."""
        return (len(self.tokens) - 1) // self.block_size

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1 - self.block_size) // self.stride + 1)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self.stride
        tokens = self.tokens[start : start + self.block_size + 1].to(torch.int64)
        inputs, targets = tokens[:-1], tokens[1:]
        if self.varied:
            shortest = max(1, self.block_size // 4)
            length = shortest + index * 7 % (self.block_size - shortest + 1)
            inputs, targets = inputs.clone(), targets.clone()
            inputs[length:] = 0
            targets[length:] = IGNORED
        return inputs, targets

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Items `indices` as inputs and targets, int64 [len(indices), T]."""
        pairs = [self[index] for index in indices]
        return torch.stack([inputs for inputs, _ in pairs]), torch.stack([targets for _, targets in pairs])


class RandomWindows(Sampler):  # type: ignore[misc]
    """`count` indices an epoch, drawn from all of `windows` with replacement by a generator of this rank alone.

    The draws follow from the seed, the epoch and the rank. Windows of different ranks may overlap.
    """

    def __init__(self, windows: Windows, count: int, seed: int, rank: int) -> None:
        self.windows = windows
        self.count = count
        self.seed = seed
        self.rank = rank
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(((self.seed << 16) + self.epoch << 16) + self.rank)
        return iter(torch.randint(len(self.windows), (self.count,), generator=generator).tolist())


def split_tokens(tokens: Tensor, config: argparse.Namespace) -> tuple[Windows, Windows]:
    """Training and validation data: the first four fifths and the rest. Raises Refused where either is shorter than T + 1."""
    cut = len(tokens) * 4 // 5
    train_set = Windows(tokens[:cut], config, stride=1 if config.sampling == "random-windows" else config.block_size)
    val_set = Windows(tokens[cut:], config, stride=config.block_size)
    if len(train_set) == 0 or len(val_set) == 0:
        what = config.data or "the generated text"
        raise Refused(f"{what} is too short for --block-size {config.block_size}: it has {len(tokens)} tokens")
    return train_set, val_set
