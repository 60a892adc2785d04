"""Computes how often to save, and the goodput, for a job that fails at random. Imports no torch.

A job of many machines fails at random, on average every ``mtbf`` seconds. A save costs ``save`` seconds of training, a
failure costs ``restart`` seconds and what was done since the last save. Young (1974) and Daly (2006) say which interval
loses the least.
"""

from __future__ import annotations

import math


def interval(save: float, mtbf: float) -> float:
    """Return the best time between two saves, by Daly's series; Young's square root is its first term.

    >>> round(interval(60.0, 4 * 3600.0))
    1275
    """
    if save >= 2 * mtbf:
        return mtbf
    ratio = save / (2 * mtbf)
    return math.sqrt(2 * save * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save


def goodput(every: float, *, save: float, restart: float, mtbf: float) -> float:
    """Return the share of the time that is useful training, if failures come at random at a constant rate.

    >>> round(goodput(1275.0, save=60.0, restart=300.0, mtbf=4 * 3600.0), 3)
    0.893
    """
    exponent = (every + save) / mtbf
    if exponent > 500:
        return 0.0
    return every / (mtbf * math.exp(restart / mtbf) * math.expm1(exponent))
