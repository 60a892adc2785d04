"""Every key that LiBai's and detectron2's own code reads, by section: what is not here was probably meant otherwise."""

from __future__ import annotations

import re

from etude.config.tree import Path

#: Sections of detectron2's configs in YAML, which say nothing without the script that they are for.
YACS = re.compile(r"^(?:MODEL|SOLVER|DATASETS|DATALOADER|_BASE_)[ \t]*:", re.MULTILINE)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMESPACES = _words("model graph train optim dataloader tokenization optimizer lr_multiplier")

KEYS: dict[Path, tuple[str, ...]] = {
    (): NAMESPACES,
    ("train",): _words(
        "output_dir train_micro_batch_size global_batch_size num_accumulation_steps train_iter train_epoch "
        "consumed_train_samples consumed_valid_samples train_samples warmup_ratio warmup_iter start_iter amp "
        "activation_checkpoint nccl_fusion_threshold_mb nccl_fusion_max_ops zero_optimization checkpointer "
        "test_micro_batch_size evaluation load_weight log_period scheduler dist input_placement_device rdma_enabled "
        "seed resume samples recompute_grad enable_use_compute_stream topology "
        "init_checkpoint max_iter ddp eval_period device cudnn_benchmark float32_precision"
    ),
    ("train", "amp"): _words("enabled"),
    ("train", "activation_checkpoint"): _words("enabled"),
    ("train", "zero_optimization"): _words("enabled stage"),
    ("train", "checkpointer"): _words("period max_to_keep save_model_after_n_epoch"),
    ("train", "evaluation"): _words("enabled evaluator eval_period eval_after_n_epoch eval_iter eval_metric eval_mode"),
    ("train", "dist"): _words(
        "data_parallel_size tensor_parallel_size pipeline_parallel_size pipeline_num_layers custom_pipeline_stage_id "
        "num_nodes num_gpus_per_node device_type auto_pipeline_stage_id actual_pipeline_stage_id"
    ),
    ("train", "ddp"): _words("broadcast_buffers find_unused_parameters fp16_compression"),
    ("graph",): _words("enabled debug auto_parallel train_graph eval_graph global_mode"),
    ("graph", "global_mode"): _words("enabled"),
    ("graph", "auto_parallel"): _words(
        "enabled enable_auto_parallel_ignore_user_sbp_config trunk_algo sbp_collector prune_parallel_cast_ops "
        "mainstem_algo"
    ),
    ("tokenization",): _words("setup tokenizer append_eod make_vocab_size_divisible_by"),
}
