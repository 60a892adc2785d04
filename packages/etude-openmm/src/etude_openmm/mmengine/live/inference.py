"""From a run of MMEngine to its model, its predictions, and a program."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from etude.errors import UserError
from etude.plan import Plan
from etude_openmm.mmengine.live.build import build, of_split
from etude_openmm.mmengine.live.collate import is_element, on_cpu
from etude_openmm.shared.live.pictures import FromFiles, files_at, with_pipeline
from etude_openmm.shared.live.program import Program, batch_of

if TYPE_CHECKING:
    from etude.building.options import Options
    from etude.dialects.base import Answers, Inputs


def build_model(plan: Plan) -> nn.Module:
    """Return the model with its data preprocessor, built by a runner that does nothing else."""
    from etude.building.options import Options

    keys = ("model", "default_scope", "custom_imports", "data_preprocessor", "env_cfg", "experiment_name")
    source = {key: plan.source[key] for key in keys if key in plan.source}
    model: nn.Module = _runner(plan, source, Options(quiet=True)).model
    return model


def _runner(plan: Plan, source: Mapping[str, Any], options: Options) -> Any:
    """Return a runner whose log goes to a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="etude-") as folder:
        options = dataclasses.replace(options, folder=Path(folder))
        return build(dataclasses.replace(plan, source={**source, "load_from": None, "resume": False}), options).runner


# -- predict -----------------------------------------------------------------------------------------------------------


class _Kept:
    """Keeps what the model answers, in place of an evaluator: the data samples as dicts, as ``--out`` writes them."""

    dataset_meta: Any = None

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.rows: list[Mapping[str, Any]] = []

    def process(self, data_samples: Sequence[Any], data_batch: Any = None) -> None:
        for sample in map(on_cpu, data_samples):
            self.results.append(sample.to_dict() if is_element(sample) else sample)
            self.rows.append(_row(sample))

    def evaluate(self, size: int) -> dict[str, Any]:
        return {}


def _row(sample: Any) -> Mapping[str, Any]:
    """Return what is predicted, without what the data says and where the picture came from."""
    if is_element(sample):
        return {key: _told(sample.get(key)) for key in sorted(sample.keys()) if not key.startswith(("gt_", "_gt"))}
    return sample if isinstance(sample, Mapping) else {"result": sample}


def _told(value: Any) -> Any:
    return {key: _told(value.get(key)) for key in sorted(value.keys())} if is_element(value) else value


def predict(plan: Plan, options: Options, checkpoint: str, split: str, data: Path | None) -> Answers:
    """Let the runner's test loop run over a split, or over pictures, and return what the model answers."""
    source = of_split(plan, checkpoint, split)
    if source.get("test_dataloader") is None:
        raise UserError(f"the config has no {split}_dataloader")
    source["test_evaluator"] = source.get("test_evaluator") or []
    with tempfile.TemporaryDirectory(prefix="etude-predict-") as folder:
        runner: Any = build(
            dataclasses.replace(plan, source=source), dataclasses.replace(options, folder=Path(folder))
        ).runner
        runner._test_evaluator = kept = _Kept()
        if data is not None:
            runner._test_dataloader = _loader_of(runner, source["test_dataloader"], data)
        runner.test()
    names = [_name(result, index) for index, result in enumerate(kept.results)]
    return names, kept.results, kept.rows


def _loader_of(runner: Any, config: Mapping[str, Any], path: Path) -> Any:
    """Return the loader of a config with pictures in place of its data set, whose annotations need not be there."""
    from etude_openmm.shared.registries.root import DATASETS

    made = with_pipeline(DATASETS.build({**config["dataset"], "lazy_init": True}))
    steps = [one for one in made.pipeline.transforms if not type(one).__name__.startswith("LoadAnn")]

    def pipeline(sample: Any) -> Any:
        for step in steps:
            sample = step(sample)
        return sample

    files = FromFiles(made, files_at(path), pipeline, lambda file, index: {"img_path": file, "img_id": index})
    options = {**config, "dataset": files, "num_workers": 0}
    return runner.build_dataloader({key: value for key, value in options.items() if key != "persistent_workers"})


def _name(result: Any, index: int) -> str | int:
    found = result if isinstance(result, Mapping) else {}
    return next((str(found[key]) for key in ("img_path", "filename", "img_id", "sample_idx") if key in found), index)


# -- export ------------------------------------------------------------------------------------------------------------


def program(plan: Plan, model: nn.Module, shape: Sequence[int] | None) -> tuple[nn.Module, Inputs]:
    """Return a module that prepares pictures as the model's data preprocessor does, and calls ``mode='tensor'``."""
    before: Any = getattr(model, "data_preprocessor", None)
    mean, std = (getattr(before, key, None) for key in ("mean", "std"))
    flip = any(getattr(before, key, False) for key in ("_channel_conversion", "channel_conversion", "to_rgb"))
    made = Program(model, lambda images: model(images, mode="tensor"), mean, std, flip=flip)
    images = torch.rand(4, *shape) * 255 if shape is not None else batch_of(_example(plan))
    if before is not None:
        found = before({"inputs": list(images), "data_samples": None}, False)["inputs"]
        height, width = images.shape[-2:]
        same = isinstance(found, Tensor) and found.ndim == 4
        if not same or not torch.allclose(found[..., :height, :width], made.prepared(images), atol=1e-5):
            raise UserError(f"{type(before).__name__} does more than to normalise, so no program can stand for it")
        images = made.raw(found)  # padded where the preprocessor pads
    return made, ((images,), {})


def _example(plan: Plan) -> Tensor:
    """Return the picture of the first sample, before the data preprocessor."""
    split = next((one for one in ("test", "val", "train") if plan.source.get(f"{one}_dataloader")), "")
    if not split:
        raise UserError("the config has no data to take an example from; give --shape")
    from etude.building.options import Options

    runner = _runner(plan, plan.source, Options(quiet=True))
    sample = next(iter(runner.build_dataloader(plan.source[f"{split}_dataloader"])))
    inputs = sample["inputs"] if isinstance(sample, Mapping) else sample[0]
    while not isinstance(inputs, Tensor) or inputs.ndim > 3:
        inputs = inputs[0]
    return inputs.float()
