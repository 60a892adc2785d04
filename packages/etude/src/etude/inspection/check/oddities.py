"""Finds settings that run and do something else than they say: the silent kind of mistake."""

from __future__ import annotations

from collections.abc import Iterator

from etude.errors import Finding
from etude.plan import Loader, Plan, Spec

#: Optimizers that scale each step themselves: beyond a rate of 1 they learn nothing.
_ADAPTIVE = ("Adafactor", "Adam", "AdamW", "Adamax", "LAMB", "Muon", "NAdam", "RAdam", "RMSprop", "SparseAdam")
_BETAS = ("Adam", "AdamW", "Adamax", "LAMB", "NAdam", "RAdam", "SparseAdam")
#: The largest rate that anybody uses, of adaptive and of other optimizers.
_MOST_ADAPTIVE, _MOST = 1.0, 100.0
#: Collate functions that mix samples, for training alone.
_MIXING = ("CutMix", "Mixup")


def oddities(plan: Plan) -> Iterator[Finding]:
    """Yield settings of a plan that run, and do something else than they say."""
    yield from _hooks(plan)
    yield from _rates(plan)
    yield from _data(plan)
    if plan.train.device == "cpu":
        yield from half_on_cpu(plan)


def half_on_cpu(plan: Plan) -> Iterator[Finding]:
    """Yield a warning of fp16 on a CPU, which has no units for it."""
    if plan.train.precision == "fp16":
        at = plan.places.get(("train", "precision"), "")
        text = "train.precision: fp16 on a CPU is slower than fp32, and less exact"
        yield Finding(str(at), text, "write bf16 or fp32", "warning")


def _hooks(plan: Plan) -> Iterator[Finding]:
    """Yield hooks and groups whose numbers mean something else than they look like."""
    if plan.train.nonfinite == "rollback" and not any(hook.spec.name == "Checkpoint" for hook in plan.hooks):
        at = plan.places.get(("train", "nonfinite"), "")
        yield Finding(str(at), "train.nonfinite: rollback needs checkpoints to go back to, and the run keeps none")
    for spec in (hook.spec for hook in plan.hooks if hook.spec.name == "EMA"):
        share = spec.args.get("momentum")
        if isinstance(share, float) and 0.5 < share <= 1:
            text = f"EMA: momentum {share:g} is the share of the new weights, so that almost nothing is averaged"
            yield Finding(
                str(spec.place("momentum")), text, f"write {1 - share:.6g} for a decay of {share:g}", "warning"
            )
    for optimizer in plan.optimizers.values():
        for group in optimizer.groups:
            for key in ("lr_mult", "decay_mult"):
                if getattr(group, key) < 0:
                    yield Finding(str(group.at), f"{key} is {getattr(group, key):g}; it cannot be negative")


def _rates(plan: Plan) -> Iterator[Finding]:
    """Yield learning rates with which nothing is learnt, and a schedule of a momentum that the optimizer has not."""
    for name, optimizer in plan.optimizers.items():
        spec = optimizer.spec
        rate, most = spec.args.get("lr"), _MOST_ADAPTIVE if spec.name in _ADAPTIVE else _MOST
        if isinstance(rate, int | float) and not isinstance(rate, bool):
            at = str(spec.place("lr"))
            if rate == 0 and not any("lr" in group.options for group in optimizer.groups):
                yield Finding(at, "lr is 0: nothing will be learnt", severity="warning")
            elif rate > most:
                text = f"lr is {rate:g}; {spec.name} learns nothing with more than {most:g}"
                yield Finding(at, text, "rates are usually between 1e-5 and 0.1", "warning")
        for schedule in plan.schedules:
            if schedule.target == "momentum" and schedule.optimizer in ("", name) and spec.name in _BETAS:
                text = f"{spec.name} has no momentum; schedule.momentum moves its first beta"
                at = str(schedule.phases[0].at) if schedule.phases else ""
                yield Finding(at, text, "write schedule.beta1 to say so", "warning")


def _data(plan: Plan) -> Iterator[Finding]:
    train, val = plan.data.get("train"), plan.data.get("val")
    if train is not None and val is not None and train.dataset.args and _is_same(train.dataset, val.dataset):
        text = f"data.val is the data of data.train ({val.dataset.name} with the same arguments)"
        yield Finding(str(val.dataset.at), text, "results on it say nothing about new data", "warning")
    if train is not None and train.shuffle is False and train.sampler is None and plan.train.overfit is None:
        text = "data.train is not shuffled: every epoch has the samples in the order of the dataset"
        yield Finding(_at(train, "shuffle"), text, "a sampler can give another order on purpose", "warning")
    for split, loader in plan.data.items():
        if split == "train":
            continue
        if loader.shuffle:
            text = f"data.{split} is shuffled: results do not depend on the order, unless only a part is measured"
            yield Finding(_at(loader, "shuffle"), text, "leave shuffle out", "warning")
        if loader.collate is not None and loader.collate.name in _MIXING:
            text = (
                f"{loader.collate.name} mixes the samples of data.{split}, so that results say nothing about real ones"
            )
            yield Finding(str(loader.collate.at), text, "mix training data only")


def _at(loader: Loader, key: str) -> str:
    return str(loader.places.get(key, loader.at))


def _is_same(one: Spec, other: Spec) -> bool:
    return one.name == other.name and dict(one.args) == dict(other.args) and "samples" not in one.args
