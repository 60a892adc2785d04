"""Turns text into numbers: pieces of a file, and the same pieces shifted by one character."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from etude.data.datasets.missing import cannot_be_read
from etude.data.fingerprint import checksum_of_tensors
from etude.errors import ConfigError
from etude.errors.spelling import suggest


class Characters:
    """Pieces of ``length`` bytes of a text and, as target, the same shifted by one; both int64.

    Without a ``file`` the text is Python's own help, which every installation has. ``split``: ``train`` is the first
    nine tenths, ``val`` the rest, ``all`` everything. Pieces begin every ``stride`` bytes (half of the length).
    """

    deterministic = True

    def __init__(self, file: str = "", split: str = "train", length: int = 128, stride: int | None = None) -> None:
        data = _bytes(file)
        border = len(data) * 9 // 10
        parts = {"train": data[:border], "val": data[border:], "all": data}
        if split not in parts:
            raise ConfigError(f"Characters: no split is called {split!r}", hint=suggest(split, parts))
        # torch warns about memory that cannot be written to, as that of bytes, and takes no empty buffer.
        self.text = torch.frombuffer(bytearray(parts[split]), dtype=torch.uint8) if parts[split] else torch.empty(0)
        self.length, self.stride = length, stride or max(1, length // 2)

    def __len__(self) -> int:
        return max(0, (len(self.text) - self.length - 1) // self.stride + 1)

    def fingerprint(self) -> str:
        return checksum_of_tensors([self.text])

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, targets = self.fetch(torch.tensor([index]))
        return inputs[0], targets[0]

    def fetch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        places = (indices * self.stride).unsqueeze(1) + torch.arange(self.length + 1)
        pieces = self.text[places].long()
        return pieces[:, :-1], pieces[:, 1:]


def _bytes(file: str) -> bytes:
    if not file:
        from pydoc_data.topics import topics

        return "\n".join(topics[name] for name in sorted(topics)).encode()
    try:
        return Path(file).expanduser().read_bytes()
    except OSError as error:
        raise cannot_be_read("Characters", file, error) from error
