"""Maps words of Lightning, Hugging Face's Trainer, Hydra, Ignite and torch to Étude's.

:func:`etude.errors.nearest` looks here before it compares letters, so that ``learning_rate`` is answered with ``lr``.
"""

from __future__ import annotations

from collections.abc import Collection

#: Their words (in lower case) → ours. The first of ours that is known where the word stands is meant.
_TABLE = """
learning_rate lr_init base_lr init_lr eta0 = lr
wd l2 weight_decay_rate = weight_decay
monitor metric_for_best_model save_best = best metric
save_top_k = best_k
save_total_limit max_keep_ckpts n_saved = keep
every_n_epochs every_n_train_steps save_steps interval log_every_n_steps logging_steps = every
min_delta threshold = by
max_epochs num_epochs num_train_epochs n_epochs total_epochs epoch = epochs
max_steps num_steps max_iters max_iter total_iters iterations total_steps = steps
accumulate_grad_batches gradient_accumulation_steps grad_accum accumulation_steps = accumulate
gradient_clip_val max_grad_norm clip_grad_norm clip_grad grad_clip max_norm gradient_clipping = clip_norm
check_val_every_n_epoch val_check_interval eval_steps eval_strategy evaluation_strategy eval_interval = validate
amp fp16 bf16 mixed_precision use_amp = precision
torch_compile = compile
bf16-mixed bf16-true bfloat16 = bf16
16-mixed 16 16-true float16 half = fp16
32 32-true float32 full = fp32
accelerator devices gpus no_cuda use_cpu = device
seed_everything random_seed manual_seed = seed
limit_train_batches limit_val_batches = limit_batches
overfit_batches = overfit
num_workers dataloader_num_workers workers_per_gpu n_workers = workers
per_device_train_batch_size per_device_eval_batch_size train_batch_size eval_batch_size samples_per_gpu bs = batch_size
collate_fn data_collator = collate
dataloader_drop_last = drop_last
train_dataloader train_dataloaders train_dataset train_loader = train
val_dataloader val_dataloaders eval_dataset valid validation dev val_loader eval = val
test_dataloader test_dataset test_loader = test
callbacks custom_hooks handlers = hooks
logger loggers logging report_to = log
log_to = to
default_root_dir output_dir work_dir save_dir logging_dir run_dir = folder
run_name experiment experiment_name = name
optimizer optimizers = optim
scheduler lr_scheduler schedulers lr_schedulers lr_scheduler_type param_scheduler lr_config = schedule
dataset datamodule dataloader dataloaders = data dataset
criterion loss_fn loss_func loss_function objective = loss
trainer training training_args train_cfg = train
net network lit_module lightning_module = model
metric evaluators evaluator val_evaluator = metrics
defaults = _base_
_target_ class_path _class_ class target = type
pretrained pretrained_path load_from init_checkpoint = init_from
parameters param_groups paramwise_cfg = groups params
patience_epochs = patience
decay = momentum
cosineannealinglr cosineannealing cosine_annealing cosine_with_warmup = Cosine
cosineannealingwarmrestarts cosine_with_restarts = CosineRestarts
steplr = Step
multisteplr = MultiStep
exponentiallr = Exponential
linearlr linearwarmup warmup linear_warmup = Linear
polynomiallr polynomial polylr = Poly
constantlr = Constant
onecyclelr = OneCycle
cycliclr = Cyclic
reducelronplateau reduce_lr_on_plateau = Plateau
inverse_sqrt inversesqrt = Inverse
modelcheckpoint checkpointhook checkpointing savecheckpoint = Checkpoint
earlystopping earlystoppinghook earlystoppingcallback = EarlyStop
stochasticweightaveraging = SWA
exponentialmovingaverage weightaveraging emahook modelema emacallback = EMA
learningratemonitor loggerhook progressbar tqdmprogressbar = Log
backbonefinetuning basefinetuning freezelayers = Freeze
pytorchprofiler profilerhook = Profiler
devicestatsmonitor = Statistics
tensorboardlogger tensorboardvisbackend = tensorboard
csvlogger = csv
wandblogger wandbvisbackend = wandb
mlflowlogger = mlflow
meanabsoluteerror mean_absolute_error = MAE
meansquarederror mean_squared_error mse = RMSE MSELoss
r2score r2_score = R2
f1score f1_score = F1
confusionmatrix = Confusion
jaccardindex miou = IoU
roc_auc roc_auc_score auc = AUROC
averageprecisionscore average_precision_score map = AveragePrecision
cross_entropy ce crossentropy = CrossEntropyLoss
bce bce_with_logits = BCEWithLogitsLoss
l1 = L1Loss
smooth_l1 = SmoothL1Loss
adamw_torch adamw_hf = AdamW
tensordataset = TensorData
randomhorizontalflip horizontalflip = RandomFlip
compose sequential = Chain
weightedrandomsampler = Weighted
lengthgroupedsampler group_by_length = LengthGrouped
rasampler repeataugsampler = RepeatedAugmentation
datacollatorwithpadding padcollate pad_sequence = Pad
"""

#: Keys that stand elsewhere, or on the command line: what to write instead.
_ELSEWHERE = {
    "epochs": "train.epochs", "steps": "train.steps", "accumulate": "train.accumulate", "precision": "train.precision",
    "clip_norm": "optim.clip_norm", "lr": "optim.lr", "weight_decay": "optim.weight_decay", "seed": "train.seed",
    "device": "train.device", "compile": "train.compile", "validate": "train.validate", "best": "checkpoint.best",
    "keep": "checkpoint.keep", "best_k": "checkpoint.best_k", "limit_batches": "train.limit_batches",
    "overfit": "train.overfit", "workers": "data.train.workers", "batch_size": "data.train.batch_size",
    "collate": "data.train.collate", "to": "log.to", "hooks": "hooks", "metrics": "metrics", "schedule": "schedule",
    "loss": "loss", "folder": "folder", "init_from": "init_from", "log": "log",
}  # fmt: skip
_ADVICE = {
    "warmup_steps": "schedule: {lr: [{type: Linear, from: 0, until: 500step}, Cosine]}",
    "warmup_ratio": "schedule: {lr: [{type: Linear, from: 0, until: 500step}, Cosine]}",
    "warmup_epochs": "schedule: {lr: [{type: Linear, from: 0, until: 5ep}, Cosine]}",
    "resume_from_checkpoint": "`etude train CONFIG --resume`",
    "resume_from": "`etude train CONFIG --resume`",
    "ckpt_path": "`etude train CONFIG --resume`",
    "auto_resume": "`etude train CONFIG --resume`",
    "fast_dev_run": "`etude train CONFIG --fast-dev-run`",
    "strategy": "`torchrun` or the launcher; a config does not say how many processes there are",
}


def _read(table: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for line in table.strip().splitlines():
        theirs, _, ours = line.partition(" = ")
        found |= {word: tuple(ours.split()) for word in theirs.split()}
    return found


_OURS = _read(_TABLE)


def meaning(word: str, known: Collection[str]) -> str | None:
    """Return the name among ``known`` that means the same as ``word`` in another system.

    >>> meaning("learning_rate", ["lr", "momentum"]), meaning("CosineAnnealingLR", ["Cosine"]), meaning("lr", ["lr"])
    ('lr', 'Cosine', None)
    """
    return next((ours for ours in _OURS.get(word.casefold(), ()) if ours in known), None)


def elsewhere(word: str) -> str:
    """Return what to write instead of a key that Étude keeps in another section; empty where nothing is known.

    >>> elsewhere("max_epochs"), elsewhere("clip_norm"), elsewhere("nonsense")
    ('train.epochs', 'optim.clip_norm', '')
    """
    folded = word.casefold()
    if folded in _ADVICE:
        return _ADVICE[folded]
    ours = (folded, *_OURS.get(folded, ()))
    return next((_ELSEWHERE[name] for name in ours if name in _ELSEWHERE), "")
