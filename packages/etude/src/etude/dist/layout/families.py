"""Plans for tensor parallelism of families of models that are known by the names of their layers.

A plan is taken if each of its patterns fits some layer of the model. A model of transformers may bring its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from torch import nn

COLUMN, ROW, SEQUENCE = "column", "row", "sequence"
#: Family → pattern → word. The first match decides; a name in parentheses is split only where a model has it.
FAMILIES: Mapping[str, Mapping[str, str]] = {
    "Llama": {
        "tok_embeddings": ROW, "layers.*.attention.w[qkv]": COLUMN, "layers.*.attention.wo": ROW,
        "layers.*.feed_forward.w[13]": COLUMN, "layers.*.feed_forward.w2": ROW, "output": COLUMN,
    },
    "Llama of transformers": {
        "*embed_tokens": ROW, "*layers.*.self_attn.[qkv]_proj": COLUMN, "*layers.*.self_attn.o_proj": ROW,
        "*layers.*.mlp.gate_proj": COLUMN, "*layers.*.mlp.up_proj": COLUMN, "*layers.*.mlp.down_proj": ROW,
        "(lm_head)": COLUMN,
    },
    # One matrix makes query, key and value: each process computes a part of it, and attention has all of it.
    "GPT-2": {
        "*wte": ROW, "*h.*.attn.c_attn": COLUMN, "*h.*.attn.c_proj": ROW, "*h.*.mlp.c_fc": COLUMN,
        "*h.*.mlp.c_proj": ROW, "(lm_head)": COLUMN,
    },
    "BERT": {
        "*embeddings.word_embeddings": ROW, "*layer.*.attention.self.query": COLUMN,
        "*layer.*.attention.self.key": COLUMN, "*layer.*.attention.self.value": COLUMN,
        "*layer.*.attention.output.dense": ROW, "*layer.*.intermediate.dense": COLUMN, "*layer.*.output.dense": ROW,
    },
    "ViT of transformers": {
        "*layer.*.attention.attention.query": COLUMN, "*layer.*.attention.attention.key": COLUMN,
        "*layer.*.attention.attention.value": COLUMN, "*layer.*.attention.output.dense": ROW,
        "*layer.*.intermediate.dense": COLUMN, "*layer.*.output.dense": ROW,
    },
    "ViT of transformers 5": {
        "*layers.*.attention.[qkv]_proj": COLUMN, "*layers.*.attention.o_proj": ROW, "*layers.*.mlp.fc1": COLUMN,
        "*layers.*.mlp.fc2": ROW,
    },
    # One matrix makes query, key and value, whose outputs are reshaped to three first: attention stays whole.
    "ViT of timm": {"*blocks.*.mlp.fc1": COLUMN, "*blocks.*.mlp.fc2": ROW},
    "layers of torch": {"*.linear1": COLUMN, "*.linear2": ROW},
}  # fmt: skip
#: Words of the plans in transformers. What gathers or scatters follows from what is split; the rest is for experts.
_TRANSFORMERS = {
    "colwise": COLUMN, "colwise_rep": COLUMN, "colwise_gather_output": COLUMN, "rowwise": ROW, "rowwise_rep": ROW,
    "rowwise_split_input": ROW, "embedding_rowwise": ROW,
}  # fmt: skip


def plan_of(model: nn.Module) -> dict[str, str]:
    """Return pattern → word for a model of a known family; nothing for others."""
    names = [name for name, module in model.named_modules() if any(True for _ in module.parameters(recurse=False))]
    own = _of_transformers(model, names)
    if own:
        return own
    for plan in FAMILIES.values():
        needed = {pattern: word for pattern, word in plan.items() if not pattern.startswith("(")}
        if all(_fits(pattern, names) for pattern in needed):
            wanted = {pattern.strip("()"): word for pattern, word in plan.items()}
            return {pattern: word for pattern, word in wanted.items() if _fits(pattern, names)}
    return {}


def _fits(pattern: str, names: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _of_transformers(model: nn.Module, names: list[str]) -> dict[str, str]:
    """Return the plan that a model of transformers brings, if all of it can be done."""
    given = getattr(model, "_tp_plan", None) or getattr(model, "tp_plan", None)
    if not isinstance(given, Mapping) or not given:
        return {}
    words = {pattern: _TRANSFORMERS.get(word) for pattern, word in given.items() if _fits(pattern, names)}
    found = {pattern: word for pattern, word in words.items() if word is not None}
    return found if len(found) == len(words) else {}
