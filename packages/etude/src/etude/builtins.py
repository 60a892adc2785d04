"""Lists the components of Étude: registered name → ``"module:attribute"``. Nothing is imported until it is used."""

from __future__ import annotations

from collections.abc import Mapping


def _same(module: str, names: str) -> dict[str, str]:
    """Return entries whose registered name is the attribute's own."""
    return {name: f"{module}:{name}" for name in names.split()}


MODELS: dict[str, str] = {
    "CharTransformer": "etude.models.text:CharTransformer",
    "ConvNet": "etude.models.conv:ConvNet",
    "MLP": "etude.models.mlp:MLP",
}

LOSSES: dict[str, str] = _same(
    "torch.nn",
    "BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss HingeEmbeddingLoss "
    "HuberLoss KLDivLoss L1Loss MSELoss MarginRankingLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss "
    "MultiMarginLoss NLLLoss PoissonNLLLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss "
    "TripletMarginWithDistanceLoss",
) | {"SumLoss": "etude.losses.combine:SumLoss"}

DATASETS: dict[str, str] = {
    "Characters": "etude.data.datasets.text:Characters",
    "Concat": "etude.data.datasets.several:Concat",
    "Csv": "etude.data.datasets.csv:Csv",
    "Digits": "etude.data.datasets.digits:Digits",
    "Fold": "etude.data.datasets.several:Fold",
    "Idx": "etude.data.datasets.idx:Idx",
    "Jsonl": "etude.data.datasets.tables:Jsonl",
    "Parquet": "etude.data.datasets.tables:Parquet",
    "Tar": "etude.data.datasets.tar:Tar",
    "ImageFolder": "etude.data.datasets.images:ImageFolder",
    "TensorData": "etude.data.datasets.tensors:TensorData",
    "Transformed": "etude.data.transforms:Transformed",
    "Zip": "etude.data.datasets.several:Zip",
}

TRANSFORMS: dict[str, str] = _same("etude.data.transforms", "Chain Normalize RandomFlip RandomShift") | {
    "RandAugment": "etude.data.transforms:RandAugment"
}

SAMPLERS: dict[str, str] = _same(
    "etude.data.samplers", "Balanced LengthGrouped Mixture RepeatedAugmentation Subset Weighted"
)

COLLATES: dict[str, str] = _same("etude.data.collate", "CutMix Lists Mixup Pad")

OPTIMIZERS: dict[str, str] = _same(
    "torch.optim",
    "ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam RAdam RMSprop Rprop SGD SparseAdam",
) | {"LAMB": "etude.optim.lamb:LAMB", "LARS": "etude.optim.lars:LARS"}

CLIPPINGS: dict[str, str] = _same("etude.optim.clipping", "AGC Norm Value")

SCHEDULES: dict[str, str] = _same(
    "etude.schedules.curves",
    "Constant Cosine CosineRestarts Cyclic Exponential FlatCosine Inverse Linear MultiStep OneCycle Plateau Poly Step "
    "WarmupStableDecay",
)

LOOPS: dict[str, str] = _same("etude.core.loop", "epochs steps Workflow")

UPDATES: dict[str, str] = _same("etude.core.update", "Step")

HOOKS: dict[str, str] = {
    "Alerts": "etude.hooks.alerts:Alerts",
    "Checkpoint": "etude.hooks.checkpoint:Checkpoint",
    "DetectAnomaly": "etude.hooks.upkeep:DetectAnomaly",
    "EMA": "etude.hooks.ema:Ema",
    "EarlyStop": "etude.hooks.early_stop:EarlyStop",
    "EmptyCache": "etude.hooks.upkeep:EmptyCache",
    "Evaluate": "etude.hooks.evaluate:Evaluate",
    "Freeze": "etude.hooks.freeze:Freeze",
    "Log": "etude.hooks.log:Log",
    "Profiler": "etude.hooks.profiler:Profiler",
    "SWA": "etude.hooks.ema:Swa",
    "SamplerSeed": "etude.hooks.upkeep:SamplerSeed",
    "Schedule": "etude.hooks.schedule:Schedule",
    "Statistics": "etude.hooks.statistics:Statistics",
    "SyncBuffers": "etude.hooks.upkeep:SyncBuffers",
    "TimeBudget": "etude.hooks.early_stop:TimeBudget",
    "Timer": "etude.hooks.timer:Timer",
}

METRICS: dict[str, str] = {
    **_same("etude.metrics.classes", "Accuracy Confusion F1 IoU"),
    **_same("etude.metrics.values", "MAE Mean Perplexity R2 RMSE"),
    **_same("etude.metrics.ranking", "AUROC AveragePrecision"),
}

WRITERS: dict[str, str] = {
    "aim": "etude.events.trackers.local:Aim",
    "clearml": "etude.events.trackers.clearml:ClearML",
    "csv": "etude.events.csv:Csv",
    "dvclive": "etude.events.trackers.local:DvcLive",
    "jsonl": "etude.events.jsonl:JsonLines",
    "media": "etude.events.media:Media",
    "mlflow": "etude.events.trackers.mlflow:Mlflow",
    "swanlab": "etude.events.trackers.local:SwanLab",
    "tensorboard": "etude.events.trackers.tensorboard:TensorBoard",
    "trackio": "etude.events.trackers.local:Trackio",
    "wandb": "etude.events.trackers.wandb:Wandb",
}

#: The same words as :data:`etude.registry.TABLES`.
ENTRIES: Mapping[str, Mapping[str, str]] = {
    "models": MODELS, "losses": LOSSES, "datasets": DATASETS, "transforms": TRANSFORMS, "samplers": SAMPLERS,
    "collates": COLLATES, "optimizers": OPTIMIZERS, "clippings": CLIPPINGS, "schedules": SCHEDULES, "loops": LOOPS,
    "updates": UPDATES, "hooks": HOOKS, "metrics": METRICS, "writers": WRITERS,
}  # fmt: skip
