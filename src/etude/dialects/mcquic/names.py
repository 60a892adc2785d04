"""Which import names this dialect answers to."""

from __future__ import annotations

_LIVE = "etude.dialects.mcquic.live"


def _from(module: str, names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names.split()}


_REGISTRIES = _from(
    f"{_LIVE}.registry",
    "ModuleRegistry ValueTunerRegistry LrSchedulerRegistry OptimizerRegistry LossRegistry HookRegistry",
)
_HOOKS = _from(
    f"{_LIVE}.hooks",
    "HookType hook BeforeRunHook AfterRunHook EpochStartHook EpochFinishHook StepStartHook StepFinishHook "
    "splitHooks getAllHooks DisablePostProcessAfterEpoch CodebookReassign",
)
_CONFIG = _from("etude.dialects.mcquic.config", "Config ConfigSchema General GPU Train ValidationError")
_SCHEDULERS = _from(f"{_LIVE}.schedulers", "MultiStepLRWithWarmUp CyclicLR CosineAnnealingWarmupRestarts")
_TUNERS = _from(
    f"{_LIVE}.tuners",
    "ValueTuner CyclicValue ExponentialValue StepValue CosineValue CosineValueWithEnd JumpValue JumpAlter",
)
_TRANSFORMS = _from(
    f"{_LIVE}.data.transforms",
    "AlignedCrop AlignedPadding getTrainingPreprocess getTrainingTransform getTraingingPostprocess getEvalTransform",
)
_VISION = _from(
    f"{_LIVE}.data.transforms",
    "RandomGamma RandomPlanckianJitter RandomHorizontalFlip RandomVerticalFlip PatchWiseErasing DeTransform",
)
_UTILS = _from(f"{_LIVE}.formats", "totalParameters versionCheck hashOfFile nop")
_LOSSES = _from(f"{_LIVE}.model.losses", "Distortion PSNR MsSSIM")

MODULES: dict[str, dict[str, str]] = {
    "mcquic": {"Config": _CONFIG["Config"]},
    "mcquic.config": _CONFIG,
    "mcquic.baseClass": {"ValueTuner": _TUNERS["ValueTuner"], "Serializable": f"{_LIVE}.tuners:Serializable"},
    "mcquic.datasets": {},
    "mcquic.datasets.transforms": _TRANSFORMS | _VISION,
    "mcquic.rans": _from(f"{_LIVE}.model.rans", "pmfToQuantizedCDF RansEncoder RansDecoder"),
    "mcquic.utils": _REGISTRIES | _UTILS,
    "mcquic.utils.vision": _VISION,
    "mcquic.utils.registry": {"Registry": f"{_LIVE}.registry:Registry", **_REGISTRIES},
    "mcquic.modules": {},
    "mcquic.modules.compressor": {"Compressor": f"{_LIVE}.model.compressor:Compressor"},
    "mcquic.loss": {**_LOSSES, "Decibel": f"{_LIVE}.formats:Decibel"},
    "mcquic.train": {"MainTrainer": f"{_LIVE}.trainer:MainTrainer"},
    "mcquic.train.hooks": _HOOKS,
    "mcquic.train.lrSchedulers": _SCHEDULERS,
    "mcquic.train.valueTuners": _TUNERS,
    "mcquic.train.trainer": _from(f"{_LIVE}.trainer", "Trainer MainTrainer"),
    "vlutils": {},
    "vlutils.base": {
        "Registry": f"{_LIVE}.registry:Registry",
        "Restorable": "etude.dialects.mcquic.files:Restorable",
        **_from(f"{_LIVE}.hooks", "FrequecyHook ChainHook"),
    },
    "vlutils.base.registry": {"Registry": f"{_LIVE}.registry:Registry"},
    "vlutils.base.freqHook": _from(f"{_LIVE}.hooks", "FrequecyHook ChainHook"),
    "vlutils.base.restorable": {"Restorable": "etude.dialects.mcquic.files:Restorable"},
    "vlutils.logger": {},
    "vlutils.saver": {"Saver": "etude.dialects.mcquic.files:Saver"},
}
#: What Étude serves even where McQuic is installed: the trainer and its data. Models and layers are McQuic's.
ENGINE = (
    "mcquic.baseClass",
    "mcquic.config",
    "mcquic.datasets",
    "mcquic.loss",
    "mcquic.train",
    "mcquic.utils",
)
#: What McQuic compiles when it is installed; a checkout that was not built lacks it.
COMPILED = ("mcquic.rans",)
OUT_OF_SCOPE: dict[str, str] = {
    "mcquic.validate": "use the validation of the trainer (`train.valSet`), or etude.Trainer(...).evaluate",
    "mcquic.service": "serving a model is not part of training",
}
