"""Tables, shards, samplers and augmentations by their names in a config, and resuming in the middle of an epoch."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from etude.data.to_device import ahead, move
from etude.metrics import AUROC, R2, AveragePrecision, IoU, Perplexity


def test_metrics_agree_with_those_of_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    scores = (torch.randn(200, generator=generator) * 4).round() / 4  # with ties
    targets = (torch.rand(200, generator=generator) < scores.sigmoid()).long()
    for metric, theirs in ((AUROC(), sklearn.roc_auc_score), (AveragePrecision(), sklearn.average_precision_score)):
        for part in range(0, 200, 50):
            metric.update(scores[part : part + 50, None], targets[part : part + 50])
        assert float(metric.compute()) == pytest.approx(theirs(targets, scores))
    several = torch.randn(200, 3, generator=generator)
    classes = torch.randint(3, (200,), generator=generator)
    metric = AUROC()
    metric.update(several, classes)
    assert float(metric.compute()) == pytest.approx(
        sklearn.roc_auc_score(classes, several.softmax(1), multi_class="ovr")
    )
    r2, values = R2(), torch.randn(200, generator=generator)
    r2.update(scores[:100, None], values[:100]), r2.update(scores[100:, None], values[100:])
    assert float(r2.compute()) == pytest.approx(sklearn.r2_score(values, scores))
    iou, maps = IoU(), torch.randint(3, (2, 5, 5), generator=generator)
    logits = torch.randn(2, 3, 5, 5, generator=generator)
    iou.update(logits, maps)
    wanted = sklearn.jaccard_score(maps.flatten(), logits.argmax(1).flatten(), average="macro")
    assert float(iou.compute()) == pytest.approx(wanted)
    perplexity, words = Perplexity(), torch.randint(7, (4, 6), generator=generator)
    words[0, 0] = -100
    answers = torch.randn(4, 6, 7, generator=generator)
    perplexity.update(answers, words)
    expected = torch.nn.functional.cross_entropy(answers.flatten(0, 1), words.flatten()).exp()
    assert float(perplexity.compute()) == pytest.approx(float(expected), rel=1e-5)


def test_a_batch_is_moved_with_everything_in_it():
    class Pair(NamedTuple):
        x: torch.Tensor
        name: str

    class Boxes:
        def to(self, device):
            return f"on {device}"

    x = torch.ones(2)
    moved = move({"a": [x, (x, 3)], "pair": Pair(x, "n"), "boxes": Boxes()}, "meta")
    assert moved["a"][0].device.type == moved["a"][1][0].device.type == moved["pair"].x.device.type == "meta"
    assert moved["a"][1][1] == 3 and moved["pair"].name == "n" and moved["boxes"] == "on meta"
    assert isinstance(moved["a"][1], tuple) and isinstance(moved["pair"], Pair)
    assert move(x, "cpu") is x and move(x, torch.device("cpu", 0)) is x
    seen: list[int] = []
    prepared = ahead(iter([1, 2, 3]), lambda one: (seen.append(one), one * 10)[1])
    assert next(prepared) == 10 and seen == [1, 2] and list(prepared) == [20, 30]
