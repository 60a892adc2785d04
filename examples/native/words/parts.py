"""Words become numbers by a hash, and a sentence the mean of its words."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import etude

WORDS = 4096


class Tokens:
    """A row of the table as (numbers of its words, label); 0 is for padding."""

    def __call__(self, row: Mapping[str, Any]) -> tuple[Tensor, int]:
        numbers = [1 + zlib.crc32(word.encode()) % (WORDS - 1) for word in row["text"].lower().split()]
        return torch.tensor(numbers), int(row["label"])


@etude.MODELS.register
class BagOfWords(nn.Module):
    def __init__(self, classes: int, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(WORDS, width, padding_idx=0)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embedding(tokens))
