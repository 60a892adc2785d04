"""Simulate jobs that fail at random, and hold the formulas of Young and Daly against what comes out.

    python bench/goodput.py [--days 54] [--seed 0]

Failures come at a constant rate. A failure costs the restart and everything since the last save that was finished; a
failure may come during a save or a restart, too.
"""

from __future__ import annotations

import argparse
import random

from etude.dist.jobs.goodput import goodput, interval

#: What a save and a restart take, and the time between failures of the whole job, in seconds.
JOBS = {
    "8 nodes, one failure a week": (10.0, 60.0, 7 * 86400.0),
    "512 nodes, one every 4 h": (30.0, 300.0, 4 * 3600.0),
    "Llama 3: 466 in 54 days": (10.0, 600.0, 54 * 86400.0 / 466),
    "4096 nodes, one an hour": (30.0, 300.0, 3600.0),
}


def simulate(every: float, *, save: float, restart: float, mtbf: float, seconds: float, draw: random.Random) -> float:
    """The share of ``seconds`` that was training which counts."""
    now = saved = 0.0
    fails = draw.expovariate(1 / mtbf)
    while now < seconds:
        end = now + every + save
        if end <= fails:
            now, saved = end, saved + every
            continue
        now = fails
        while True:  # a restart may fail, too
            fails = now + draw.expovariate(1 / mtbf)
            if now + restart <= fails:
                now += restart
                break
            now = fails
    return saved / now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=54)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=40, help="simulated jobs of each kind")
    args = parser.parse_args()
    draw = random.Random(args.seed)
    print(f"{'job':30} {'save every':>11} {'formula':>8} {'simulated':>10} {'half':>7} {'double':>7}")
    for name, (save, restart, mtbf) in JOBS.items():
        best = interval(save, mtbf)
        shares = []
        for every in (best, best / 2, best * 2):
            runs = [
                simulate(every, save=save, restart=restart, mtbf=mtbf, seconds=args.days * 86400, draw=draw)
                for _ in range(args.jobs)
            ]
            shares.append(sum(runs) / len(runs))
        formula = goodput(best, save=save, restart=restart, mtbf=mtbf)
        print(f"{name:30} {best / 60:8.1f} min {formula:8.1%} {shares[0]:10.1%} {shares[1]:7.1%} {shares[2]:7.1%}")


if __name__ == "__main__":
    main()
