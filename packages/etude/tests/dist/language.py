"""A small language model of one file, as people write them, and its data."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def rotary(length: int, size: int) -> Tensor:
    angles = torch.outer(torch.arange(length).float(), 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size))
    return torch.stack([angles.cos(), angles.sin()], -1)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cos, sin = (part[None, :, None] for part in table[: x.shape[1]].unbind(-1))
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(3)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.size, self.dropout = heads, width // heads, dropout
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (one(x).view(batch, length, self.n_heads, self.size) for one in (self.wq, self.wk, self.wv))
        q, k = rotate(q, table), rotate(k, table)
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(width, hidden) for _ in range(2))
        self.w2, self.drop = nn.Linear(hidden, width), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(self.drop(F.silu(self.w1(x)) * self.w3(x)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(width, heads, dropout), FeedForward(width, 2 * width, dropout)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), table)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(
        self, vocab: int = 64, width: int = 32, heads: int = 4, layers: int = 4, length: int = 16,
        dropout: float = 0.0, tied: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, width)
        self.layers = nn.ModuleDict({str(at): Block(width, heads, dropout) for at in range(layers)})
        self.norm, self.output = nn.RMSNorm(width), nn.Linear(width, vocab, bias=False)
        self.register_buffer("table", rotary(length, width // heads), persistent=False)
        if tied:
            self.output.weight = self.tok_embeddings.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_embeddings(tokens) if self.tok_embeddings is not None else tokens
        for layer in self.layers.values():
            x = layer(x, self.table)
        x = self.norm(x) if self.norm is not None else x
        return self.output(x) if self.output is not None else x


class Unguarded(Llama):
    """Calls modules that its stage may not have."""

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            x = layer(x, self.table)
        return self.output(self.norm(x))


class Branching(Llama):
    """Decides by the values of a tensor."""

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens if tokens.float().mean() < 1e9 else tokens * 0)


class Tokens(torch.utils.data.Dataset):
    """Sequences in which each token follows from the one before, and their next tokens; some are not to be learnt."""

    def __init__(self, size: int = 40, length: int = 16, vocab: int = 64, seed: int = 0, ignore: float = 0.0) -> None:
        made = torch.Generator().manual_seed(seed)
        first = torch.randint(0, vocab, (size, 1), generator=made)
        steps = torch.randint(1, 4, (size, 1), generator=made)
        self.tokens = (first + steps * torch.arange(length + 1)) % vocab
        self.ignored = torch.rand(size, length, generator=made) < ignore

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.tokens[index, :-1], self.tokens[index, 1:].masked_fill(self.ignored[index], -100)


def next_token(scores: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), target.flatten(0, 1))


class RightTokens:
    """The share of tokens that are predicted right."""

    sums = ("right", "count")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.right, self.count = torch.zeros(()), torch.zeros(())

    def update(self, scores: Tensor, target: Tensor) -> None:
        self.right = self.right + (scores.argmax(-1) == target).sum()
        self.count = self.count + target.numel()

    def compute(self) -> Tensor:
        return self.right / self.count
