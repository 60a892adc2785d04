"""Computes LiBai's parallel sizes: which are possible, and which pipeline stage has which layer. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etude.errors import Finding
from etude.fast_dataclass import record

TENSOR, PIPELINE = "tensor_parallel_size", "pipeline_parallel_size"
#: Without a pipeline every layer is on stage 0, whatever its number is. LiBai has as many layers then.
ENDLESS = 10_000
#: Sizes in a model's config that tensor parallelism splits, by what they are.
_SPLIT = {
    "heads": ("num_attention_heads", "num_heads", "n_head", "num_key_value_heads"),
    "vocabulary": ("vocab_size",),
    "hidden size": ("hidden_size", "embed_dim", "n_embd"),
    "inner size": ("ffn_hidden_size", "intermediate_size"),
}


@record
class Sizes:
    """How many data-parallel shares, pieces of a tensor and pipeline stages there are."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1

    def stage(self, rank: int) -> int:
        return rank // (self.data * self.tensor)

    def share(self, rank: int) -> int:
        """Return the data-parallel rank."""
        return rank // self.tensor % self.data

    def ranks(self, stage: int) -> list[int]:
        each = self.data * self.tensor
        return list(range(stage * each, (stage + 1) * each))


def sizes_of(dist: Mapping[str, Any], processes: int) -> Sizes:
    """Return the sizes of the section ``train.dist``. Call :func:`misfits` first."""
    tensor, pipeline = (_size(dist, key) for key in (TENSOR, PIPELINE))
    return Sizes(processes // (tensor * pipeline), tensor, pipeline)


def _size(dist: Mapping[str, Any], key: str) -> int:
    value = dist.get(key)
    return value if isinstance(value, int) else 1


def misfits(dist: Mapping[str, Any], processes: int) -> Iterator[tuple[str, str, str]]:
    """Yield (key, what is wrong, what would fit) for sizes that do not fit the processes that were started."""
    tensor, pipeline = (_size(dist, key) for key in (TENSOR, PIPELINE))
    product = tensor * pipeline
    if product < 1 or processes % product == 0:
        return
    key = TENSOR if tensor > 1 else PIPELINE
    given = [f"{name}={size}" for name, size in ((TENSOR, tensor), (PIPELINE, pipeline)) if size > 1]
    count = f"{product} processes" if processes < product else f"a multiple of {product} processes"
    said = f"{' and '.join(given)} need{'' if len(given) > 1 else 's'} {count}"
    down = processes // product * product
    numbers = f"--nproc {down} or --nproc {down + product}" if down else f"--nproc {product}"
    yield key, f"{said}; {processes} {'was' if processes == 1 else 'were'} started", f"start them with {numbers}"


def mistakes(dist: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (key, what is wrong, what would fit) for sizes that no number of processes makes possible."""
    tensor, pipeline = (_size(dist, key) for key in (TENSOR, PIPELINE))
    for key, size in ((TENSOR, tensor), (PIPELINE, pipeline)):
        if size < 1:
            yield key, f"{key}={size}", "1 is the least, and means that nothing is split"
    if tensor > 1:
        yield from _undivided(model, tensor)
    if pipeline > 1:
        yield from _stages(dist, pipeline)


def _undivided(model: Mapping[str, Any], tensor: int) -> Iterator[tuple[str, str, str]]:
    inner = model.get("cfg")
    known = {**model, **(inner if isinstance(inner, Mapping) else {})}
    numbers = [value for key in _SPLIT["heads"] if isinstance(value := known.get(key), int)]
    for word, keys in _SPLIT.items():
        for key in keys:
            value = known.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0 and value % tensor:
                fitting = [n for n in range(2, tensor) if all(v % n == 0 for v in (*numbers, value))]
                hint = f"set {TENSOR}={fitting[-1] if fitting else 1}, or a model.{key} that {tensor} divides"
                yield TENSOR, f"{TENSOR}={tensor} does not divide the {word} of the model, {key}={value}", hint


def _stages(dist: Mapping[str, Any], pipeline: int) -> Iterator[tuple[str, str, str]]:
    layers, custom = dist.get("pipeline_num_layers"), dist.get("custom_pipeline_stage_id")
    if not isinstance(layers, int):
        hint = "set train.dist.pipeline_num_layers to the number of layers of the model"
        yield PIPELINE, f"{PIPELINE}={pipeline} needs train.dist.pipeline_num_layers", hint
    elif layers < pipeline:
        yield PIPELINE, f"{PIPELINE}={pipeline} is more than pipeline_num_layers={layers}", f"{layers} is the most"
    elif custom is not None:
        key = "custom_pipeline_stage_id"
        whole = isinstance(custom, Sequence) and all(isinstance(one, int) for one in custom)
        if not whole or len(custom) != layers:
            yield key, f"{key} needs {layers} numbers, one for each of pipeline_num_layers", f"it is {custom}"
        elif set(custom) != set(range(pipeline)):
            yield (
                key,
                f"{key} is {list(custom)}",
                f"every stage from 0 to {pipeline - 1} needs a layer, and no other is",
            )


def findings(tree: Any) -> Iterator[Finding]:
    """Yield a finding for every impossible parallel size in a config."""
    dist, model = tree.get("train", "dist"), tree.get("model")
    if isinstance(dist, Mapping):
        padded = tree.get("tokenization", "make_vocab_size_divisible_by") is not None
        known = _without_vocabulary(model) if padded else model
        for key, wrong, hint in mistakes(dist, known if isinstance(known, Mapping) else {}):
            yield Finding(str(tree.place("train", "dist", key)), f"train.dist.{wrong}", hint)


def _without_vocabulary(model: Any) -> Any:
    """Return the model's config without the size of its vocabulary, which is padded to a multiple of the pieces."""
    if not isinstance(model, Mapping):
        return model
    return {key: _without_vocabulary(value) for key, value in model.items() if key != "vocab_size"}


def stage_of_layers(layers: int, stages: int, custom: Sequence[int] | None = None) -> list[int]:
    """Return the stage of every layer by LiBai's rule, or as ``custom`` says.

    Where the layers cannot be divided, later stages have one more. With four stages or more and eight layers or more
    that can be divided, the first and last stage have one less, because embeddings and losses are theirs.

    >>> stage_of_layers(5, 2), stage_of_layers(8, 4)
    ([0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2, 2, 3])
    """
    if stages > 1 and custom is not None:
        return list(custom)
    counted = layers
    if stages >= 4 and layers >= 8 and layers % stages == 0:
        counted += min(stages - 1, layers // stages)
    each, longer = divmod(counted, stages)
    made: list[int] = []
    for stage in range(stages):
        made += [stage] * (each + (stage >= stages - longer))
    return made[:layers]
