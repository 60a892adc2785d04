"""What MMPretrain's registries hold: registry → name → ``"module:attribute"``. No torch."""

from __future__ import annotations

_HERE = "etude.dialects.mmengine.live.pretrain"

REGISTERED: dict[str, dict[str, str]] = {
    "OPTIMIZERS": {"LARS": "etude.optim.lars:LARS", "Lamb": "etude.optim.lamb:LAMB", "Adan": f"{_HERE}.adan:Adan"},
    "OPTIM_WRAPPER_CONSTRUCTORS": {
        "LearningRateDecayOptimWrapperConstructor": f"{_HERE}.layer_decay:LearningRateDecayOptimWrapperConstructor"
    },
    "PARAM_SCHEDULERS": {"CosineAnnealingWeightDecay": f"{_HERE}.weight_decay:CosineAnnealingWeightDecay"},
    "HOOKS": {
        **{name: f"{_HERE}.hooks:{name}" for name in ("EMAHook", "PreciseBNHook", "WarmupParamHook")},
        "VisualizationHook": f"{_HERE}.visualizer:VisualizationHook",
    },
    "VISUALIZERS": {"UniversalVisualizer": f"{_HERE}.visualizer:UniversalVisualizer"},
}
