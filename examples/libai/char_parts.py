"""A transformer that guesses the next character, in LiBai's words: fields by name, losses by name."""

import math
from pydoc_data.topics import topics

import torch
from libai.data import DistTensorData, Instance
from libai.evaluation import DatasetEvaluator
from torch import nn
from torch.nn import functional as F


class Characters(torch.utils.data.Dataset):
    """Pieces of Python's own help (about 465,000 characters); the last tenth is for evaluation."""

    def __init__(self, length=64, train=True):
        text = "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
        self.alphabet = sorted(set(text))
        numbers = torch.zeros(128, dtype=torch.long)
        numbers[self.alphabet] = torch.arange(len(self.alphabet))
        codes = numbers[torch.frombuffer(bytearray(text), dtype=torch.uint8).long()]
        border = len(codes) * 9 // 10
        self.codes, self.length = (codes[:border] if train else codes[border:]), length

    def __len__(self):
        return (len(self.codes) - 1) // self.length

    def __getitem__(self, index):
        piece = self.codes[index * self.length : (index + 1) * self.length + 1]
        return Instance(text=DistTensorData(piece[:-1]), labels=DistTensorData(piece[1:]))


class CharTransformer(nn.Module):
    def __init__(self, alphabet=100, width=64, depth=2, heads=4, length=64, dropout=0.0):
        super().__init__()
        self.characters = nn.Embedding(alphabet, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, alphabet)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, text, labels):
        hidden = self.characters(text) + self.positions
        for block in self.blocks:
            hidden = block(hidden, src_mask=self.mask, is_causal=True)
        scores = self.head(self.norm(hidden))
        if not self.training:
            return {"prediction_scores": scores}
        return {"lm_loss": F.cross_entropy(scores.flatten(0, 1), labels.flatten())}


class BitsPerCharacter(DatasetEvaluator):
    def reset(self):
        self.nats, self.characters = 0.0, 0

    def process(self, inputs, outputs):
        scores, labels = outputs["prediction_scores"].flatten(0, 1), inputs["labels"].flatten()
        self.nats += float(F.cross_entropy(scores, labels, reduction="sum"))
        self.characters += len(labels)

    def evaluate(self):
        return {"bits": self.nats / self.characters / math.log(2)}
