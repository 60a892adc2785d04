"""A small transformer that guesses the next character."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from etude.errors import ConfigError


class CharTransformer(nn.Module):
    """Scores of the next character, shape (samples, vocabulary, length), so that ``CrossEntropyLoss`` takes them."""

    def __init__(
        self,
        vocabulary: int = 256,
        width: int = 64,
        depth: int = 2,
        heads: int = 4,
        length: int = 128,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"CharTransformer: a width of {width} cannot be shared by {heads} heads")
        self.characters = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, text: Tensor) -> Tensor:
        length = text.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
        hidden = self.characters(text) + self.positions[:length]
        for block in self.blocks:
            hidden = block(hidden, src_mask=mask, is_causal=True)
        scores: Tensor = self.head(self.norm(hidden)).transpose(1, 2)
        return scores
