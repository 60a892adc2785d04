"""The dialect of mmcv 1.x, MMClassification and MMTracking configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etude.dialects.base import Flag, Packaged
from etude_openmm.shared import flags
from etude_openmm.shared.homes import home, is_project_v1
from etude_openmm.shared.reading.keys import keys_in, texts_of
from etude_openmm.shared.silence import only, without

if TYPE_CHECKING:
    from torch import Tensor

#: Keys that no other dialect has.
_OWN_KEYS = {
    "optimizer_config", "lr_config", "momentum_config", "checkpoint_config", "log_config", "total_epochs",
    "dist_params", "resume_from", "evaluation", "workflow",
}  # fmt: skip

#: Sections of hooks that save.
_SAVING = ("checkpoint_config", "evaluation")


class Mmcv1(Packaged):
    """Reads configs of train scripts that use ``mmcv.runner``."""

    name = "mmcv1"
    title = "mmcv 1.x"
    asked = 40
    seed_key = ("seed",)
    best_keys = (("evaluation", "save_best"), ("evaluation", "rule"))
    idle_flags = ("allow_change",)
    flags = (
        Flag("--resume-from", "resume from this checkpoint", {"metavar": "FILE"}, instead="--resume FILE does"),
        Flag("--auto-resume", "resume from the newest checkpoint", {"action": "store_true"}, instead="--resume does"),
        flags.LOAD_FROM,
        flags.NO_VALIDATE,
        Flag("--deterministic", "deterministic kernels of cuDNN", {"action": "store_true"}),
        Flag("--diff-seed", "seed + rank on every rank", {"action": "store_true"}),
        Flag("--project", "the package whose tools/train.py builds the run", {"metavar": "PACKAGE"}),
        *flags.SHARED,
    )

    def weights_of(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Leave out the training weights that an EMA hook keeps beside the averaged ones."""
        names = {f"ema_{name.replace('.', '_')}" for name in state}
        return {name: value for name, value in state.items() if name not in names}

    def zoo(self, name: str) -> tuple[str, str] | None:
        from etude_openmm.shared.zoo import address

        return address(name)

    def recognise(self, path: str, text: str) -> bool:
        """Return whether the file, or a base of it, has a key that only this dialect has, or is a project's."""
        if not path.endswith((".py", ".json", ".yaml", ".yml")):
            return False
        if keys_in(texts_of(path, text)) & _OWN_KEYS or "samples_per_gpu" in text:
            return True
        return path.endswith(".py") and is_project_v1(home(path))

    def silent(self, source: Mapping[str, Any]) -> Mapping[str, Any]:
        made = dict(source)
        if isinstance(made.get("log_config"), dict):
            loggers = only(made["log_config"].get("hooks", []), ["TextLoggerHook"])
            made["log_config"] = made["log_config"] | {"hooks": [without(one, "out_dir") for one in loggers]}
        # Both stay, because other hooks act after them. A new best checkpoint would replace the file of the old one.
        made |= {key: without(made[key], "out_dir", "save_best") for key in _SAVING if key in made}
        return made
