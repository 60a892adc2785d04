"""A small Llama-like model of bytes, its data, and what a run of it shows. Nothing here knows of processes, except that
a stage of a pipeline lacks modules, which `forward` passes by."""

from __future__ import annotations

import os
import time
from math import log
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import etude

HERE = Path(__file__).parent


def rotary(length: int, size: int) -> Tensor:
    """Return cosine and sine of the angle of every position and pair of features."""
    angles = torch.outer(torch.arange(length).float(), 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size))
    return torch.stack([angles.cos(), angles.sin()], -1)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    a, b = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cos, sin = (part[None, :, None] for part in table[: x.shape[1]].unbind(-1))
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (one(x).view(batch, length, self.heads, self.size) for one in (self.wq, self.wk, self.wv))
        q, k, v = (one.transpose(1, 2) for one in (rotate(q, table), rotate(k, table), v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.w2 = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(width, heads), FeedForward(width, 3 * width)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), table)
        return x + self.feed_forward(self.ffn_norm(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary: int = 256, width: int = 128, heads: int = 4, layers: int = 4, length: int = 128):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.output = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("table", rotary(length, width // heads), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_embeddings(tokens) if self.tok_embeddings is not None else tokens
        for layer in self.layers:
            x = layer(x, self.table)
        x = self.norm(x) if self.norm is not None else x
        return self.output(x) if self.output is not None else x


class Tokens(torch.utils.data.Dataset):
    """Pieces of a file of tokens, which stays on the disk, and the same pieces shifted by one.

    Without a file the text is Python's own help, one token a byte, written when it is first needed.
    """

    def __init__(self, file: str = "", split: str = "train", length: int = 128) -> None:
        self.file, self.length = Path(file) if file else HERE / "tokens.bin", length
        if not file and not self.file.exists():
            _write_help(self.file)
        count = self.file.stat().st_size // 2
        border = count * 9 // 10
        self.begin, self.end = (0, border) if split == "train" else (border, count)

    def __len__(self) -> int:
        return (self.end - self.begin - 1) // self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        tokens = np.memmap(self.file, dtype=np.uint16, mode="r")
        at = self.begin + index * self.length
        piece = torch.from_numpy(tokens[at : at + self.length + 1].astype(np.int64))
        return piece[:-1], piece[1:]


def _write_help(file: Path) -> None:
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    own = file.with_suffix(f".{os.getpid()}")
    np.frombuffer(text, dtype=np.uint8).astype(np.uint16).tofile(own)
    os.replace(own, file)  # several processes may write it; each finds it whole


def bits_per_byte(scores: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), target.flatten(0, 1)) / log(2)


class Speed(etude.Hook):
    """Records tokens per second of all processes and, given the peak of one device in FLOP/s, the share of it in use."""

    def __init__(self, peak: float = 0.0) -> None:
        self.peak, self._last = peak, 0.0

    def before_train(self, run: etude.Run) -> None:
        loader = run.data["train"]
        self._tokens = loader.batch_size * loader.dataset.length
        self._weights = sum(param.numel() for param in Gpt(**run.plan.model.args).parameters())
        self._last = time.perf_counter()

    def after_step(self, run: etude.Run) -> None:
        now = time.perf_counter()
        rate = self._tokens / (now - self._last)
        self._last = now
        run.events.put("time/tokens_per_second", rate)
        if self.peak:
            run.events.put("time/mfu", 6 * self._weights * rate / (self.peak * run.world.size))


class Sample(etude.Hook):
    """Continues a prompt at every evaluation, and writes the text to ``samples.txt`` in the run's folder."""

    def __init__(self, prompt: str = "The ", tokens: int = 40, length: int = 128) -> None:
        self.prompt, self.tokens, self.length = prompt, tokens, length

    def after_eval(self, run: etude.Run) -> None:
        text = list(self.prompt.encode())
        for _ in range(self.tokens):
            window = torch.zeros(1, self.length, dtype=torch.long)
            window[0, : len(text)] = torch.tensor(text)
            # Of whole length, so that it can be cut like a batch. What follows the text does not change its scores.
            scores = run.evaluation.forward.call((window.to(next(run.model.parameters()).device),))
            scores = scores.full_tensor() if hasattr(scores, "full_tensor") else scores
            text.append(int(scores[0, len(text) - 1].argmax()))
        if run.world.is_main and run.folder is not None:
            with open(run.folder / "samples.txt", "a", encoding="utf-8") as file:
                file.write(f"step {run.done}: {bytes(text).decode(errors='replace')!r}\n")
