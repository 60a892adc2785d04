"""LiBai's evaluators: accuracy, perplexity, correlations and BLEU."""

from __future__ import annotations

import math
import sys
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from etude_libai.live.evaluation.run import DatasetEvaluator

Tokens = Sequence[str]
_ORDERS = (1, 2, 3, 4)


def corpus_bleu(references: Sequence[Sequence[Tokens]], candidates: Sequence[Tokens]) -> float:
    """Return BLEU as nltk counts it, in [0, 1]: n-grams up to four with equal weights, and a penalty for brevity.

    Each candidate has one or more references.

    >>> corpus_bleu([["the cat sat on the mat".split()]], ["the cat sat on the mat".split()])
    1.0
    """
    right, all_of = Counter[int](), Counter[int]()
    own_length = wanted_length = 0
    for several, candidate in zip(references, candidates, strict=True):
        for order in _ORDERS:
            counts = _grams(candidate, order)
            most: Counter[Tokens] = Counter()
            for reference in several:
                most |= _grams(reference, order)
            right[order] += sum((counts & most).values())
            # nltk counts at least one n-gram per candidate, also for one that is too short.
            all_of[order] += max(1, sum(counts.values()))
        own_length += len(candidate)
        wanted_length += min((len(reference) for reference in several), key=lambda n: (abs(n - len(candidate)), n))
    if right[1] == 0:
        return 0.0
    # nltk takes the smallest float for an order without a hit.
    shares = [right[order] / all_of[order] if right[order] else sys.float_info.min for order in _ORDERS]
    return _brevity(own_length, wanted_length) * math.exp(math.fsum(0.25 * math.log(share) for share in shares))


def _grams(tokens: Tokens, order: int) -> Counter[Tokens]:
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))


def _brevity(own: int, wanted: int) -> float:
    if own > wanted:
        return 1.0
    return math.exp(1 - wanted / own) if own else 0.0


class ClsEvaluator(DatasetEvaluator):
    """Computes ``Acc@k`` in percent from ``prediction_scores`` and ``labels``."""

    def __init__(self, topk: Sequence[int] = (1, 5)) -> None:
        self.topk = tuple(topk)
        self.reset()

    def reset(self) -> None:
        self._hits = [0] * len(self.topk)
        self._samples = 0

    def process(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        scores, labels = outputs["prediction_scores"], inputs["labels"]
        most = min(max(self.topk), scores.shape[1])
        best = scores.topk(most, dim=1).indices
        right = best.eq(labels.reshape(-1, 1).to(best.device))
        for index, k in enumerate(self.topk):
            self._hits[index] += int(right[:, : min(k, most)].sum())
        self._samples += int(labels.shape[0])

    def evaluate(self) -> dict[str, float]:
        if self._samples == 0:
            raise ValueError("ClsEvaluator saw no sample: is the evaluation data empty?")
        pairs = zip(self.topk, self._hits, strict=True)
        return OrderedDict((f"Acc@{k}", hits * 100.0 / self._samples) for k, hits in pairs)


class PPLEvaluator(DatasetEvaluator):
    """Computes ``<key>_PPL`` for each output: the mean over batches of ``exp(min(20, loss))``."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._values: dict[str, list[float]] = {}

    def process(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        for key, value in outputs.items():
            # LiBai's cap: a large loss must not become infinite.
            self._values.setdefault(key, []).append(math.exp(min(20.0, float(value))))

    def evaluate(self) -> dict[str, float]:
        return {f"{key}_PPL": sum(values) / len(values) for key, values in self._values.items()}


class RegEvaluator(DatasetEvaluator):
    """Computes correlations between the arg-max predictions and the labels."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._predictions: list[np.ndarray[Any, Any]] = []
        self._labels: list[np.ndarray[Any, Any]] = []

    def process(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        self._predictions.append(outputs["prediction_scores"].argmax(dim=-1).cpu().numpy())
        self._labels.append(inputs["labels"].cpu().numpy())

    def evaluate(self) -> dict[str, float]:
        predictions, labels = np.concatenate(self._predictions), np.concatenate(self._labels)
        pearson = _correlation(predictions, labels)
        spearman = _correlation(_ranks(predictions), _ranks(labels))
        return {"pearson": pearson, "spearman": spearman, "corr": (pearson + spearman) / 2}


class BLEUEvaluator(DatasetEvaluator):
    """Computes corpus BLEU of ``outputs["candidate"]`` and ``inputs["reference"]`` (or that of the outputs).

    Both are batches of texts or of lists of tokens; or one list of tokens and a list of references.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._candidates: list[list[str]] = []
        self._references: list[list[list[str]]] = []

    def process(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        candidate = outputs["candidate"]
        reference = inputs["reference"] if "reference" in inputs else outputs["reference"]
        if _is_tokens(candidate) and not _is_tokens(reference):
            candidate, reference = [candidate], [reference]
        for own, wanted in zip(candidate, reference, strict=True):
            self._candidates.append(_tokens(own))
            several = [wanted] if isinstance(wanted, str) or _is_tokens(wanted) else wanted
            self._references.append([_tokens(each) for each in several])

    def evaluate(self) -> dict[str, float]:
        return {"bleu_score": corpus_bleu(self._references, self._candidates)}


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _tokens(value: Any) -> list[str]:
    return value.split() if isinstance(value, str) else [str(item) for item in value]


def _correlation(one: Any, other: Any) -> float:
    return float(np.corrcoef(one, other)[0, 1])


def _ranks(values: Any) -> Any:
    """Return ranks from 1; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + 1 + last) / 2)[inverse]
