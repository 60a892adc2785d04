"""Builds datasets and loaders, and computes the length of a run from them."""

from __future__ import annotations

from typing import Any

import torch

from etude.building.components import KINDS, _collate, build_component
from etude.core.run import Run
from etude.data.loader import Loader, is_stream
from etude.dist.layout.mesh import Mesh
from etude.errors import placed
from etude.fast_dataclass import replace
from etude.inspection.paths import located
from etude.plan import Loader as LoaderPlan
from etude.plan import Plan, Spec, Training
from etude.registry import DATASETS


def build_loaders(plan: Plan, device: torch.device, mesh: Mesh, share: tuple[int, int]) -> dict[str, Any]:
    """Build the loaders of all splits, the training data first: the others take its columns and classes."""
    made: dict[str, Any] = {}
    for split in sorted(plan.data, key=lambda split: split != "train"):
        train = made["train"].dataset if "train" in made else None
        own = share if split == "train" else mesh.share
        made[split] = _loader(split, plan.data[split], plan, device, own, mesh.parts, train)
    return {split: made[split] for split in plan.data}


def make_dataset(plan: Plan, spec: Spec, train: Any = None) -> Any:
    """Build a dataset of a plan. A dataset of Étude takes the columns and classes of the training data ``train``."""
    spec = located(spec, plan.files)
    first = plan.data.get("train")
    own = DATASETS.origin(spec.name).startswith("etude.data.")
    if train is not None and first is not None and first.dataset.name == spec.name and own:
        spec = replace(spec, args={**getattr(train, "shared", {}), **spec.args})
    return build_component(spec)


def _loader(
    split: str,
    wanted: LoaderPlan,
    plan: Plan,
    device: torch.device,
    shard: tuple[int, int],
    parts: int,
    train: Any = None,
) -> Loader:
    """Build the loader of one split. ``train`` is the training dataset, if it was built before."""
    training = plan.train
    with placed(wanted.dataset.at):
        dataset = make_dataset(plan, wanted.dataset, train)
    usual = split == "train" and wanted.sampler is None and not is_stream(dataset)
    shuffle = usual if wanted.shuffle is None else wanted.shuffle
    return Loader(
        dataset,
        batch_size=wanted.batch_size,
        shuffle=shuffle and training.overfit is None,
        drop_last=wanted.drop_last,
        workers=wanted.workers,
        sampler=build_component(wanted.sampler, dataset) if wanted.sampler else None,
        collate=_collate(wanted.collate) if wanted.collate else None,
        seed=training.seed,
        on_bad_sample=wanted.on_bad_sample,
        bad_samples=wanted.bad_samples,
        device=None if device.type == "cpu" else device,
        shard=shard,
        parts=parts,
        limit=None if split == "train" else training.limit_batches,
        at=str(wanted.at),
        **wanted.options,
    )


def length_of_epoch(loader: Any, training: Training) -> int | None:
    """Return the steps of an epoch: those of the data, or fewer if the run is limited; None for a stream."""
    limit = training.overfit or training.limit_batches
    try:
        length = len(loader)
    except TypeError:
        return limit
    return min(length, limit) if limit else length


def overfit(run: Run, training: Training) -> None:
    """Let the run train on the same few batches (``--overfit``), for as many steps as the whole data would give."""
    length = len(run.data["train"])  # type: ignore[arg-type]
    run.total_steps = training.steps or (training.epochs or 1) * length
    run.max_epochs, run.loop = None, KINDS["loop"].get("steps")


def length_of_run(training: Training, steps_per_epoch: int | None) -> int | None:
    """Return the steps of a run; None if they are not known."""
    if training.steps is not None:
        return training.steps
    if training.epochs is None or steps_per_epoch is None:
        return None
    return training.epochs * steps_per_epoch
