"""Metrics of classification. Counts stay on the device until ``compute``, and are read by whoever records them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from etude.errors import ConfigError
from etude.errors.spelling import suggest


class Accuracy:
    """The share of samples whose class is the first guess, or among the first ``top``.

    ``output`` holds a score per class (samples first, classes second), one logit per sample (more than 0 is class 1),
    or classes. Recorded as ``accuracy``, and as ``accuracy_top5`` for ``top=5``; several at once with ``top=[1, 5]``.

    >>> metric = Accuracy()
    >>> metric.update(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1]))
    >>> float(metric.compute()["accuracy"])
    0.5
    """

    sums = ("_right", "_count")

    def __init__(self, top: int | Sequence[int] = 1) -> None:
        self.top = (top,) if isinstance(top, int) else tuple(top)
        if not self.top or min(self.top) < 1:
            raise ConfigError(f"Accuracy: top is {top}; it must be at least 1")
        self.reset()

    def reset(self) -> None:
        self._right: Tensor | None = None
        self._count = 0

    def update(self, output: Tensor, target: Tensor) -> None:
        right = torch.stack([_hits(output, target, top).sum() for top in self.top])
        self._right = right if self._right is None else self._right + right
        self._count += target.numel()

    def compute(self) -> dict[str, Tensor]:
        right = torch.zeros(len(self.top)) if self._right is None else self._right
        shares = (right.double() / max(1, self._count)).unbind()
        return dict(zip(self.results, shares, strict=True))

    @property
    def results(self) -> tuple[str, ...]:
        """The names that :meth:`compute` returns, known before the first evaluation."""
        return tuple("accuracy" if top == 1 else f"accuracy_top{top}" for top in self.top)


class Confusion:
    """How often class ``i`` was taken for class ``j``: :attr:`matrix`. Records the recall of every class."""

    sums = ("_matrix",)
    #: Names of the results that are known before the first evaluation; ``recall/`` means all that begin so.
    results = ("recall/",)

    def __init__(self, classes: int | None = None) -> None:
        self.classes = classes
        self.reset()

    def reset(self) -> None:
        self._matrix: Tensor | None = None

    def update(self, output: Tensor, target: Tensor) -> None:
        classes = self.classes or _classes(output)
        pairs = target.reshape(-1).long() * classes + _guess(output, target).reshape(-1).long()
        counts = torch.bincount(pairs, minlength=classes * classes).view(classes, classes)
        self._matrix = counts if self._matrix is None else self._matrix + counts

    @property
    def matrix(self) -> Tensor:
        """Counts: true classes in rows, guesses in columns."""
        if self._matrix is None:
            return torch.zeros(self.classes or 0, self.classes or 0, dtype=torch.int64)
        return self._matrix

    def compute(self) -> dict[str, Tensor]:
        matrix = self.matrix.double()
        recalls = matrix.diagonal() / matrix.sum(1).clamp(min=1)
        return {f"recall/{number}": recall for number, recall in enumerate(recalls.unbind())}


class F1:
    """The harmonic mean of precision and recall: ``macro`` over classes, ``weighted`` by how many each has, ``micro``
    over all samples, or ``binary`` for class 1. Classes that never occur and are never guessed do not count.
    """

    sums = ("_confusion._matrix",)
    _AVERAGES = ("macro", "weighted", "micro", "binary")

    def __init__(self, classes: int | None = None, average: str = "macro") -> None:
        if average not in self._AVERAGES:
            raise ConfigError(f"F1: no average is called {average!r}", hint=suggest(average, self._AVERAGES))
        self.average = average
        self._confusion = Confusion(classes)

    def reset(self) -> None:
        self._confusion.reset()

    def update(self, output: Tensor, target: Tensor) -> None:
        self._confusion.update(output, target)

    def compute(self) -> Tensor:
        matrix = self._confusion.matrix.double()
        hits, truly, guessed = matrix.diagonal(), matrix.sum(1), matrix.sum(0)
        if self.average == "micro":
            return hits.sum() / matrix.sum().clamp(min=1)
        scores = 2 * hits / (truly + guessed).clamp(min=1)
        if self.average == "binary":
            return scores[1]
        weights = truly if self.average == "weighted" else ((truly + guessed) > 0).double()
        return (scores * weights).sum() / weights.sum().clamp(min=1)


class IoU:
    """The overlap of the pixels that are guessed and that are of a class, over their union; the mean over classes.

    ``output`` has scores per class in its second dimension, ``target`` classes; pixels of the class ``ignore`` do not
    count, nor do classes that are neither there nor guessed. Recorded as ``iou``.
    """

    name = "iou"

    def __init__(self, classes: int | None = None, ignore: int = 255) -> None:
        self.ignore = ignore
        self._confusion = Confusion(classes)

    def reset(self) -> None:
        self._confusion.reset()

    def update(self, output: Tensor, target: Tensor) -> None:
        classes = self._confusion.classes or _classes(output)
        guess, counted = _guess(output, target), target != self.ignore
        self._confusion.classes = classes
        self._confusion.update(guess[counted].long(), target[counted])

    def compute(self) -> Tensor:
        matrix = self._confusion.matrix.double()
        hits = matrix.diagonal()
        union = matrix.sum(1) + matrix.sum(0) - hits
        return (hits / union)[union > 0].mean()


def _hits(output: Tensor, target: Tensor, top: int) -> Tensor:
    if top == 1:
        return _guess(output, target) == target
    _require_classes(target)
    if top >= (classes := _classes(output)):
        raise ConfigError(f"the first {top} of {classes} classes hold the right one always", hint="write a smaller top")
    return (output.topk(top, dim=1).indices == target.unsqueeze(1)).any(1)


def _guess(output: Tensor, target: Tensor) -> Tensor:
    """The class of each sample, whatever form the output has."""
    _require_classes(target)
    if output.ndim == target.ndim + 1 and output.shape[1] == 1:
        output = output.squeeze(1)  # one logit per sample, in a column
    if output.ndim == target.ndim + 1:
        return output.argmax(1)
    if output.shape != target.shape:
        raise ValueError(f"an output of shape {tuple(output.shape)} does not go with targets of {tuple(target.shape)}")
    return (output > 0).to(target.dtype) if output.is_floating_point() else output


def _require_classes(target: Tensor) -> None:
    """Refuse targets that are no classes. Classes may be floats, as losses of two classes take them."""
    if target.is_floating_point() and bool((strange := target != target.round()).any()):
        hint = "MAE, RMSE and R2 measure numbers"
        raise ConfigError(f"a target is {float(target[strange][0]):.4g}, which is no class", hint=hint)


def _classes(output: Tensor) -> int:
    if output.ndim < 2 or output.shape[1] == 1:
        if output.is_floating_point():
            return 2
        raise ConfigError("the number of classes is not known from guesses alone; give `classes`")
    return int(output.shape[1])
