"""The data of an mmcv 1.x config in a native one: splits, loaders, workflow, evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Tree
from etude.dialects.mmcv1.tracking import tracks, trained_model, trains_a_part
from etude.dialects.openmm.checks.lowering import Lowering
from etude.dialects.openmm.escaped_types import hidden

_SPLITS = ("train", "val", "test", "train_dataloader", "val_dataloader", "test_dataloader")
#: Keys of ``evaluation`` that are the hook's own and no arguments of ``dataset.evaluate``.
_NO_ARGUMENTS = (
    "start", "interval", "by_epoch", "save_best", "rule", "test_fn", "greater_keys", "less_keys", "out_dir", "priority",
    "file_client_args", "broadcast_bn_buffer", "tmpdir", "gpu_collect", "type",
)  # fmt: skip


class Data:
    """The sections that have to do with data, of a config of either project."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.given = tree, tree.values["data"]
        self.tracks = tracks(Lowering(tree))
        self.project = {"project": "mmtrack"} if self.tracks else {}
        #: Whether it is a part of a tracker, which MMDetection's function trains.
        self.trains_a_part = self.tracks and trains_a_part(tree.values)
        self.by_runner = not self.tracks or bool(self.trains_a_part and tree.get("runner"))
        self.by_steps = self.by_runner and tree.get("runner", "type") == "IterBasedRunner"
        self.flow = [(str(mode), int(count)) for mode, count in tree.get("workflow") or [("train", 1)]]
        self.evaluates = self.given.get("val") is not None

    def model(self) -> dict[str, Any]:
        given = trained_model(self.tree.values) if self.tracks else self.tree.values["model"]
        return {"type": "mmcv1.Model", "config": hidden(given, "model"), **self.project}

    # -- splits ----------------------------------------------------------------------------------------------------

    def sections(self) -> dict[str, Any]:
        """The splits in native words; the hook ``mmcv1.Data`` puts the original's loaders in their place."""
        found = {"train": self._split("train", self._trained_on())}
        if self.evaluates:
            found["val"] = self._split("val", self.given["val"])
        if self.given.get("test") is not None:
            found["test"] = self._split("test", self.given["test"])
        return found

    def _split(self, split: str, dataset: Any) -> dict[str, Any]:
        settings, kind = self.settings(split), {"train": "", "val": "test_mode", "test": "late"}[split]
        made = {"type": "mmcv1.Dataset", "config": hidden(dataset, f"data.{split}"), **self.project}
        return {
            "dataset": {**made, **({kind: True} if kind else {})},
            "batch_size": int(settings["samples_per_gpu"]),
            "workers": int(settings["workers_per_gpu"]),
            "shuffle": bool(settings.get("shuffle", True)) and split != "test",
            "drop_last": bool(settings.get("drop_last", False)),
        }

    def settings(self, split: str) -> dict[str, Any]:
        """What the project's ``build_dataloader`` is called with."""
        return self._tracking_settings(split) if self.tracks else self._settings(split)

    def _settings(self, split: str) -> dict[str, Any]:
        common = {key: value for key, value in self.given.items() if key not in _SPLITS}
        if self.tree.get("sampler"):
            common = {"sampler_cfg": self.tree.get("sampler"), **common}
        if split != "train":
            common |= {"shuffle": False, "drop_last": False, "sampler_cfg": None}
        section = self.given.get(f"{split}_dataloader")
        if split == "test" and section is None:
            section = self.given.get("val_dataloader")
        settings = {"dist": False, "shuffle": True, **common, **dict(section or {})}
        if settings.get("sampler_cfg"):
            return {"seed": self.tree.get("seed"), **settings}
        return {key: value for key, value in settings.items() if key != "sampler_cfg"}

    def _tracking_settings(self, split: str) -> dict[str, Any]:
        given, workers = self.given, {"workers_per_gpu": self.given.get("workers_per_gpu", 0), "dist": False}
        if split != "train":
            return {"samples_per_gpu": 1, **workers, "shuffle": False}
        size = given.get("samples_per_gpu", given.get("imgs_per_gpu", 1))
        return {"samples_per_gpu": size, **workers, "persistent_workers": given.get("persistent_workers", False)}

    # -- the workflow ----------------------------------------------------------------------------------------------

    def workflow_mistake(self) -> str:
        """Why this workflow cannot be said natively; empty where it can."""
        modes = [mode for mode, _ in self.flow]
        if modes == ["train"]:
            return ""
        if set(modes) != {"train", "val"} or len(modes) != 2:
            return f"the workflow {self.flow}, which is not training and validation in turn,"
        if self.by_steps and self._validates_first:
            return "validation before the first iteration"
        return "" if self.evaluates else "validation epochs without data.val"

    @property
    def _validates_first(self) -> bool:
        return self.flow[0][0] == "val"

    def _validation(self) -> Any:
        """The validation split with the pipeline of training, as the train script gives it to the workflow."""
        train, val = self.given["train"], self.given["val"]
        return {**val, "pipeline": train["pipeline"]} if "pipeline" in train else val

    def _trained_on(self) -> Any:
        """Loaders go to the entries of the workflow by number: one that validates first trains on data.val."""
        return self._validation() if self._validates_first else self.given["train"]

    def loaders(self) -> dict[str, Any]:
        """The hook that reads the data as the original does."""
        hook: dict[str, Any] = {"type": "mmcv1.Data", "priority": 0, **self.project}
        hook["train"] = hidden(self.settings("train"), "data")
        if self.evaluates:
            hook["val"] = hidden(self.settings("val"), "data")
        if self.given.get("test") is not None:
            hook["test"] = hidden(self.settings("test"), "data")
        if len(self.flow) == 2:
            other = self.given["train"] if self._validates_first else self._validation()
            hook["validate"] = hidden(other, "data.val")
            hook |= {"turns": [count for _, count in self.flow]} if self.by_steps else {}
        return hook

    def training(self) -> dict[str, Any]:
        """What the section ``train`` says of evaluations and validation epochs."""
        by_epochs = len(self.flow) == 2 and not self.by_steps
        flow = {"workflow": [list(entry) for entry in self.flow]} if by_epochs else {}
        return {**flow, **({"validate": f"{self._period}{self._unit}"} if self.evaluates else {})}

    # -- the evaluation --------------------------------------------------------------------------------------------

    @property
    def _unit(self) -> str:
        by_epoch = not self.by_steps if self.by_runner else self.tree.get("evaluation", "by_epoch", default=True)
        return "ep" if by_epoch else "step"

    @property
    def _interval(self) -> int:
        return int(self.tree.get("evaluation", "interval", default=1))

    @property
    def _period(self) -> int:
        """Where an evaluation starts late, the hook ``mmcv1.Evaluations`` says which of all are due."""
        return self._interval if self.tree.get("evaluation", "start") is None else 1

    def evaluations(self) -> list[dict[str, Any]]:
        """The hook that says which evaluations are due, where an interval does not."""
        start = self.tree.get("evaluation", "start")
        if start is None or not self.evaluates:
            return []
        return [{"type": "mmcv1.Evaluations", "priority": 120, "start": int(start), "interval": self._interval}]

    def metrics(self) -> dict[str, Any]:
        """How to judge a model, also for `etude test`."""
        if not self.evaluates and self.given.get("test") is None:
            return {}
        given: Mapping[str, Any] = self.tree.get("evaluation") or {}
        arguments = {key: value for key, value in given.items() if key not in _NO_ARGUMENTS}
        metric: dict[str, Any] = {"type": "mmcv1.Results", "arguments": hidden(arguments, "evaluation")}
        return {"metrics": [metric | ({"name": given["save_best"]} if given.get("save_best") else {})]}
