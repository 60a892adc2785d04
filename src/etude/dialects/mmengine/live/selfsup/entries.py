"""What MMSelfSup's registries hold: registry → name → ``"module:attribute"``. No torch."""

from __future__ import annotations

_LIVE = "etude.dialects.mmengine.live"

REGISTERED: dict[str, dict[str, str]] = {
    "HOOKS": {
        "SimSiamHook": f"{_LIVE}.selfsup.hooks:SimSiamHook",
        "DenseCLHook": f"{_LIVE}.selfsup.hooks:DenseCLHook",
        "SwAVHook": f"{_LIVE}.selfsup.hooks:SwAVHook",
        "DeepClusterHook": f"{_LIVE}.selfsup.deepcluster:DeepClusterHook",
        "ODCHook": f"{_LIVE}.selfsup.deepcluster:ODCHook",
    },
    "MODELS": {
        "SelfSupDataPreprocessor": f"{_LIVE}.selfsup.model:SelfSupDataPreprocessor",
        "CosineEMA": f"{_LIVE}.model.averaged:CosineEMA",
    },
    "OPTIMIZERS": {"LARS": "etude.optim.lars:LARS"},
    "OPTIM_WRAPPER_CONSTRUCTORS": {
        "LearningRateDecayOptimWrapperConstructor": (
            f"{_LIVE}.selfsup.layer_decay:LearningRateDecayOptimWrapperConstructor"
        )
    },
    "VISUALIZERS": {"SelfSupVisualizer": f"{_LIVE}.selfsup.visualizer:SelfSupVisualizer"},
    "DATA_SAMPLERS": {"DeepClusterSampler": f"{_LIVE}.selfsup.sampler:DeepClusterSampler"},
}
