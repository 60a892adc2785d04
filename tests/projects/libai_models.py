"""Trains one of LiBai's models for a few steps: MODEL DATA TENSOR PIPELINE OUT [key=value …].

Run by `etude exec --nproc N`. Rank 0 writes the losses and the whole weights to OUT, and how much each rank holds.
"""

from __future__ import annotations

import sys
from typing import Any

import oneflow as flow
import torch
import torch.distributed as torch_dist
from libai.config import LazyCall
from libai.models.utils import GraphBase
from libai.optim import build_optimizer, get_default_optimizer_params
from libai.utils import distributed as dist
from omegaconf import DictConfig

name, data, tensor, pipeline, out = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
options = dict(word.split("=") for word in sys.argv[6:])
dropout, steps, micro = float(options.get("dropout", 0)), int(options.get("steps", 4)), int(options.get("micro", 1))
LAYERS, VOCAB, HIDDEN, SEQ, BATCH = int(options.get("layers", 2)), 64, 32, 8, 8
sizes = {"tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline}
if pipeline > 1:
    sizes["pipeline_num_layers"] = LAYERS * (2 if name == "t5" else 1)
zero = int(options.get("zero", 0))
dist.setup_dist_util(DictConfig(sizes), zero=zero)
fused = {
    "bias_gelu_fusion": True,
    "bias_dropout_fusion": True,
    "scale_mask_softmax_fusion": True,
    "amp_enabled": False,
    "apply_query_key_layer_scaling": True,
    "apply_residual_post_layernorm": False,
    "initializer_range": 0.02,
}
if options.get("fused") == "0":
    fused |= dict.fromkeys(("bias_gelu_fusion", "bias_dropout_fusion", "scale_mask_softmax_fusion"), False)
drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout, "layernorm_eps": 1e-5}
words = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": SEQ,
}
images = {"img_size": 16, "num_classes": 10, "drop_rate": dropout, "attn_drop_rate": dropout, "drop_path_rate": dropout}


def made() -> Any:
    from libai import models

    if name == "gpt":
        return models.GPTForPreTraining(
            DictConfig(
                dict(
                    **fused,
                    num_layers=LAYERS,
                    hidden_layers=LAYERS,
                    vocab_size=VOCAB,
                    hidden_size=HIDDEN,
                    ffn_hidden_size=64,
                    num_attention_heads=4,
                    max_seq_length=SEQ,
                    embedding_dropout_prob=dropout,
                    attention_dropout_prob=dropout,
                    output_dropout_prob=dropout,
                    layernorm_epsilon=1e-5,
                    use_scaled_init_for_output_weights=True,
                )
            )
        )
    if name == "bert":
        return models.BertForPreTraining(
            DictConfig(dict(**fused, **words, **drops, num_tokentypes=2, add_pooling_layer=True, add_binary_head=True))
        )
    if name == "t5":
        return models.T5ForPreTraining(DictConfig(dict(**fused, **words, **drops, embedding_dropout_prob=dropout)))
    if name == "swin":
        return models.SwinTransformer(
            **images, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 4], window_size=4
        )
    return models.VisionTransformer(**images, patch_size=8, embed_dim=HIDDEN, depth=LAYERS, num_heads=4)


def batch(step: int) -> dict[str, torch.Tensor]:
    source = torch.Generator().manual_seed(100 + step)

    def draw(top: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, top, shape or (BATCH, SEQ), generator=source)

    ids, labels, mask = draw(VOCAB), draw(VOCAB), (torch.rand(BATCH, SEQ, generator=source) > 0.3).long()
    if name == "gpt":
        return {"input_ids": ids, "labels": labels}
    if name in ("vit", "swin"):
        return {"images": torch.randn(BATCH, 3, 16, 16, generator=source), "labels": draw(10, BATCH)}
    if name == "bert":
        return {
            "input_ids": ids,
            "attention_mask": torch.ones(BATCH, SEQ).long(),
            "tokentype_ids": draw(2),
            "ns_labels": draw(2, BATCH),
            "lm_labels": labels,
            "loss_mask": mask,
        }
    ones = torch.ones(BATCH, SEQ, SEQ, dtype=torch.long)
    return {
        "encoder_input_ids": ids,
        "decoder_input_ids": ids.roll(1, 1),
        "encoder_attn_mask": ones,
        "decoder_attn_mask": ones.tril(),
        "encoder_decoder_attn_mask": ones,
        "lm_labels": labels,
        "loss_mask": mask,
    }


def placed(fields: dict[str, torch.Tensor]) -> dict[str, Any]:
    from libai.data import DistTensorData

    each, at, made = BATCH // micro // data, dist.get_data_parallel_rank(), {}
    for key, value in fields.items():
        last = key in ("labels", "lm_labels", "loss_mask", "ns_labels")
        one = DistTensorData(value[at * each : (at + 1) * each], placement_idx=-1 if last else 0)
        one.to_global(device_type="cpu")
        made[key] = one.tensor
    return made


torch.manual_seed(0)
model = made().train()
dist.convert_to_distributed_default_setting(model)
whole = sum(parameter.numel() for parameter in model.parameters())
if zero > 2:
    from etude_libai.live.split import updates

    updates.shard_layers(model)
config = LazyCall(getattr(flow.optim, options.get("optim", "SGD")))(
    lr=float(options.get("lr", 0.2)),
    params=LazyCall(get_default_optimizer_params)(clip_grad_max_norm=0.5, clip_grad_norm_type=2.0),
)
optimizer = build_optimizer(config, model)
graph = GraphBase(model, optimizer, grad_acc_steps=micro, activation_checkpoint="recompute" in options, backend="eager")
losses = []
for step in range(steps):
    parts = [{key: value.chunk(micro)[at] for key, value in batch(step).items()} for at in range(micro)]
    if data * tensor * pipeline > 1:
        returned = graph.train_on([placed(part) for part in parts])
    else:
        returned = graph._train({key: torch.cat([part[key] for part in parts]) for key in parts[0]})
    losses.append({key: value.mean().item() for key, value in returned.items()})
held = sum(p.to_local().numel() for group in optimizer.param_groups for p in group["params"])
state = {key: dist.ttol(value.detach()) for key, value in model.state_dict().items()}
if torch_dist.is_initialized():
    everyone: list[Any] = [None] * torch_dist.get_world_size()
    torch_dist.all_gather_object(everyone, (held, torch.get_rng_state().sum().item()))
else:
    everyone = [(held, 0)]
if dist.is_main_process():
    torch.save(
        {
            "losses": losses,
            "state": state,
            "held": [one for one, _ in everyone],
            "whole": whole,
            "generators": len({state for _, state in everyone}),
        },
        out,
    )
