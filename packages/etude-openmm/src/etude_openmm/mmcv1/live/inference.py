"""From a run of an mmcv 1.x project to its model, its predictions, and a program."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from etude.dialects import imports
from etude.errors import UserError
from etude.plan import Plan
from etude_openmm.mmcv1.live import build
from etude_openmm.mmcv1.live.originals import imported
from etude_openmm.mmcv1.projects import Project
from etude_openmm.shared.live.pictures import FromFiles, files_at, with_pipeline
from etude_openmm.shared.live.program import Program, batch_of

if TYPE_CHECKING:
    from etude.building.options import Options
    from etude.dialects.base import Answers, Inputs


def build_model(plan: Plan) -> nn.Module:
    """Return the model, built as the project's script builds it, but without initial weights from elsewhere."""
    from etude.building.options import Options

    imports.install()
    cfg = build._config(plan, Options())
    found = build._found(cfg, plan)
    _forget_initial_weights(cfg["model"])
    if found is None or found.is_known:
        model: nn.Module = build._project(found, cfg, plan).model(cfg)
        return model
    imported(f"{found.package}.models")
    build._import_user_modules(cfg, plan)
    registry, kind = _registry(found, str(cfg["model"]["type"]))
    defaults = {key: cfg.get(key) for key in ("train_cfg", "test_cfg") if key in inspect.signature(kind).parameters}
    built: nn.Module = registry.build(cfg["model"], default_args=defaults)
    return built


def _forget_initial_weights(model: Any) -> None:
    for key, value in model.items():
        if key in ("pretrained", "init_cfg") and value is not None:
            model[key] = None
        elif isinstance(value, dict):
            _forget_initial_weights(value)


def _registry(project: Project, name: str) -> tuple[Any, Any]:
    """Return the registry of models, of the project or of one that it builds on, that has ``name``, and its class."""
    root = importlib.import_module("mmcv.cnn").MODELS
    for package in (*project.packages, *root.children):
        registry = root.children.get(package)
        kind = registry.get(name) if registry is not None else None
        if kind is not None:
            return registry, kind
    raise UserError(f"{project.title} registers no model {name!r}")


# -- predict -----------------------------------------------------------------------------------------------------------


def predict(plan: Plan, options: Options, checkpoint: str, split: str, data: Path | None) -> Answers:
    """Let the project's own loop of evaluations test the model, and return what it would evaluate."""
    found: list[Any] = []
    with build.evaluating(plan, options, checkpoint, split) as (runner, hook):
        if hasattr(hook, "pre_eval"):
            hook.pre_eval = False  # else MMSegmentation keeps numbers for its metric only
        hook.evaluate = lambda runner, results: found.extend(_by_sample(results, len(hook.dataloader.dataset)))
        if data is not None:
            hook.dataloader = _loader_of(hook.dataloader, data)
        hook._do_evaluate(runner)
        names = list(_names(hook.dataloader.dataset, len(found)))
    return names, found, [result if isinstance(result, Mapping) else {"result": result} for result in found]


def _by_sample(results: Any, count: int) -> list[Any]:
    """Return one result a sample. Trackers give lists by name instead of a list."""
    if isinstance(results, Mapping):
        return [{name: values[index] for name, values in results.items()} for index in range(count)]
    return list(results)


def _loader_of(loader: Any, path: Path) -> Any:
    dataset = with_pipeline(loader.dataset)

    def begin(file: str, index: int) -> dict[str, Any]:
        sample: dict[str, Any] = {"img_info": {"filename": file}}
        if hasattr(dataset, "pre_pipeline"):
            dataset.pre_pipeline(sample)
        return sample | {"img_prefix": None}

    files = FromFiles(dataset, files_at(path), dataset.pipeline, begin)
    made: Any = DataLoader(files, batch_size=1, collate_fn=loader.collate_fn)  # type: ignore[arg-type]
    return made


def _names(dataset: Any, count: int) -> Iterator[str | int]:
    files = getattr(dataset, "files", None)
    infos = next(
        (getattr(dataset, key) for key in ("data_infos", "img_infos", "video_infos", "db") if hasattr(dataset, key)), ()
    )
    for index in range(count):
        info = files[index] if files is not None else infos[index] if index < len(infos) else index
        if isinstance(info, Mapping):
            inner = info.get("img_info")
            info = {**info, **inner} if isinstance(inner, Mapping) else info
            info = next(
                (info[key] for key in ("filename", "file_name", "image_file", "frame_dir") if key in info), index
            )
        yield info if isinstance(info, int) else str(info)


# -- export ------------------------------------------------------------------------------------------------------------


def program(plan: Plan, model: nn.Module, shape: Sequence[int] | None) -> tuple[nn.Module, Inputs]:
    """Return a module that normalises pictures as the test pipeline does, and gives what the model computes of them."""
    source: Any = plan.source
    split = next((one for one in ("test", "val") if isinstance(source["data"].get(one), Mapping)), "")
    pipeline = source["data"][split].get("pipeline") or [] if split else []
    steps = list(_steps(pipeline))
    norms = [one for one in steps if one.get("type") == "Normalize"]
    norm = norms[0] if len(norms) == 1 else {}
    made = Program(model, _answer(model), norm.get("mean"), norm.get("std"), flip=bool(norm.get("to_rgb", bool(norm))))
    if shape is not None:
        return made, ((torch.rand(4, *shape) * 255,), {})
    return made, ((made.raw(batch_of(_example(source["data"][split], plan))),), {})


def _steps(pipeline: Any) -> Iterator[Mapping[str, Any]]:
    for one in pipeline:
        yield one
        yield from _steps(one.get("transforms") or [])


def _answer(model: Any) -> Any:
    """Return the method that projects give their models to be traced by."""
    if hasattr(model, "forward_dummy"):
        return model.forward_dummy
    if hasattr(model, "head") and hasattr(model, "simple_test"):
        return lambda images: model.simple_test(images, None, softmax=False, post_process=False)
    if hasattr(model, "extract_feat"):
        return model.extract_feat
    raise UserError(f"{type(model).__name__} has no method that takes tensors alone (forward_dummy, extract_feat)")


def _example(config: Any, plan: Plan) -> Tensor:
    """Return the picture of the first sample, as the model gets it."""
    from etude.building.options import Options

    found = build._found(build._config(plan, Options()), plan)
    package = found.package if found is not None else ""
    dataset = importlib.import_module(f"{package}.datasets").build_dataset(
        copy.deepcopy({**config, "test_mode": True}) if package not in ("mmcls",) else copy.deepcopy(dict(config))
    )
    image = dataset[0]["img"]
    while not isinstance(image, Tensor):
        image = image[0] if isinstance(image, list | tuple) else image.data
    return image.float()
