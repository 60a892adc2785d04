"""Defines the plan: frozen, typed, complete data about what will run. Made by a dialect's ``lower``, read by check,
explain, diff and build.

A plan holds no torch object and no default left to guess. Each :class:`Spec` names one object to build and the place
in the config that asks for it, so that any later complaint can point there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from etude.errors import ConfigError
from etude.fast_dataclass import field, record
from etude.units import Amount

PRIORITIES = {
    "HIGHEST": 0, "VERY_HIGH": 10, "HIGH": 30, "ABOVE_NORMAL": 40, "NORMAL": 50,
    "BELOW_NORMAL": 60, "LOW": 70, "VERY_LOW": 90, "LOWEST": 100,
}  # fmt: skip


@record
class Place:
    """Where a value is written: ``train.yaml:14``, or ``override 'optim.lr=1'`` for the command line."""

    file: str
    line: int = 0
    key: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


NOWHERE = Place("")


@record(kw_only=True)
class Spec:
    """One object to build: which registry (``kind``), its name there, its arguments, and the place that asks for it.

    Arguments may hold specs again; they are built first, innermost first.
    """

    kind: str
    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    at: Place = NOWHERE
    #: Place of each argument, where it is known, for messages about one of them.
    places: Mapping[str, Place] = field(default_factory=dict)
    #: Keys next to the arguments that belong to the section (``until`` of a phase, ``every`` of a hook).
    extra_keys: tuple[str, ...] = ()

    def place(self, argument: str) -> Place:
        return self.places.get(argument, self.at)


@record(kw_only=True)
class Loader:
    """How one split of the data becomes batches."""

    dataset: Spec
    #: Of all processes together; ``batch_size_per_rank`` is the other way to say it.
    batch_size: int = 1
    batch_size_per_rank: int | None = None
    #: None: as usual, which is shuffled for training where the data has an order to change.
    shuffle: bool | None = False
    drop_last: bool = False
    workers: int = 0
    sampler: Spec | None = None
    collate: Spec | None = None
    #: ``stop``, ``skip`` or ``retry`` for a sample that raises; ``bad_samples`` bounds how many.
    on_bad_sample: str = "stop"
    bad_samples: int = 10
    options: Mapping[str, Any] = field(default_factory=dict)
    at: Place = NOWHERE
    places: Mapping[str, Place] = field(default_factory=dict)


@record(kw_only=True)
class Group:
    """A rule for parameter groups: which parameters, and what is different for them."""

    match: str = ""
    module: str = ""
    kind: str = ""
    depth_decay: float | None = None
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    at: Place = NOWHERE


#: Keys of a config that are short for a clipping with ``max`` alone: ``clip_norm: 1.0``.
CLIP_KEYS = {"clip_norm": "Norm", "clip_value": "Value"}


@record(kw_only=True)
class Optimizer:
    """One optimizer and what belongs to its step."""

    spec: Spec
    groups: tuple[Group, ...] = ()
    #: Patterns of the parameters that are its own, when a run has several; empty: all.
    params: tuple[str, ...] = ()
    #: What changes the gradients before they reach it, in order.
    clip: tuple[Spec, ...] = ()

    @property
    def short_clip(self) -> dict[str, Any]:
        """The clippings by their short keys (``clip_norm: 1.0``); empty if these cannot say them."""
        names = tuple(spec.name for spec in self.clip)
        if names not in ((*CLIP_KEYS.values(),), *((name,) for name in CLIP_KEYS.values())):
            return {}
        keys = {name: key for key, name in CLIP_KEYS.items()}
        short = {keys[spec.name]: spec.args["max"] for spec in self.clip if list(spec.args) == ["max"]}
        return short if len(short) == len(names) else {}


@record(kw_only=True)
class Phase:
    """One piece of a schedule: a curve and the window it applies in. Units are steps or epochs, as written."""

    curve: Spec
    begin: Amount | None = None
    until: Amount | None = None
    by: str = "step"
    at: Place = NOWHERE


@record(kw_only=True)
class Schedule:
    """Phases for one value: ``lr``, ``momentum``, ``weight_decay``, any group option, or ``model.some.attribute``."""

    target: str
    phases: tuple[Phase, ...]
    optimizer: str = ""
    groups: tuple[str, ...] = ()


@record(kw_only=True)
class HookPlan:
    """A hook in its order. ``every`` is None when it acts whenever its points come."""

    spec: Spec
    priority: int = 50
    every: Amount | None = None
    essential: bool = True


#: What ``train.precision`` and ``train.nonfinite`` may be.
PRECISIONS = ("fp32", "bf16", "fp16")
NONFINITE = ("stop", "skip", "rollback")


@record(kw_only=True)
class Training:
    """How long, in which numbers, on what."""

    epochs: int | None = None
    steps: int | None = None
    accumulate: int = 1
    precision: str = "fp32"
    #: ``stop``, ``skip`` or ``rollback`` when a loss is not finite.
    nonfinite: str = "stop"
    nonfinite_limit: int = 3
    seed: int = 0
    #: True refuses operations whose results depend on chance; ``"warn"`` lists them at the end.
    deterministic: bool | str = False
    device: str = "auto"
    #: Threads that a single operation on the CPU may use; None: torch decides. One is best for small models.
    threads: int | None = None
    #: Arguments of ``torch.compile`` (``mode``, ``fullgraph``, ``dynamic``), or whether to use it.
    compile: bool | Mapping[str, Any] = False
    #: Classes or names of modules that forget their activations and compute them again in the backward pass.
    gradient_checkpointing: tuple[str, ...] | None = None
    #: Keep images in channels-last memory; None: as they are.
    channels_last: bool | None = None
    #: Precision of float32 products: ``highest``, ``high`` (TF32) or ``medium``; None: as torch has it.
    matmul: str | None = None
    #: Batches per epoch at most (``--limit-batches``); None: all.
    limit_batches: int | None = None
    #: Train on the first N batches only, again and again (``--overfit``).
    overfit: int | None = None
    max_seconds: float | None = None


#: The words of a tensor-parallel plan: how the weights of a module are split.
TENSOR_WORDS = ("column", "row", "sequence", "replicate")
#: Schedules of ``torch.distributed.pipelining``, and how many stages each process holds.
PIPELINE_SCHEDULES = {
    "gpipe": ("GPipe", 1), "1f1b": ("1F1B", 1), "interleaved_1f1b": ("Interleaved1F1B", 2),
    "looped_bfs": ("LoopedBFS", 2), "interleaved_zero_bubble": ("InterleavedZeroBubble", 2),
    "zbv_zero_bubble": ("ZBVZeroBubble", 2), "dual_pipe_v": ("DualPipeV", 2),
}  # fmt: skip


@record(kw_only=True)
class Tensor:
    """How the weights of single layers are split over processes that compute them together."""

    size: int = 1
    #: Pattern of module names → ``column``, ``row``, ``sequence`` or ``replicate``; empty: that of a known family.
    plan: Mapping[str, str] = field(default_factory=dict)
    at: Place = NOWHERE
    places: Mapping[str, Place] = field(default_factory=dict)


@record(kw_only=True)
class Pipeline:
    """How the layers are dealt out to stages through which every batch passes in parts."""

    size: int = 1
    schedule: str = "1f1b"
    #: Parts of each process's batch; None: two for each stage.
    microbatches: int | None = None
    #: Module names of each stage, ranges as ``layers.0-3``; empty: layers are dealt out evenly.
    stages: tuple[tuple[str, ...], ...] = ()
    at: Place = NOWHERE
    places: Mapping[str, Place] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """How many stages each process holds."""
        return PIPELINE_SCHEDULES[self.schedule][1]

    @property
    def count(self) -> int:
        """How many stages there are."""
        return self.size * self.held

    @property
    def splits_backward(self) -> bool:
        return self.schedule in ("interleaved_zero_bubble", "zbv_zero_bubble", "dual_pipe_v")

    @property
    def is_vee(self) -> bool:
        """Whether the first process holds the last stage too."""
        return self.schedule in ("zbv_zero_bubble", "dual_pipe_v")

    @property
    def parts(self) -> int:
        """Parts of each process's batch."""
        return self.microbatches or 2 * self.count


@record(kw_only=True)
class Context:
    """How sequences are cut over processes."""

    size: int = 1
    #: Pattern of buffer names → the dimension of positions, along which they are cut too.
    buffers: Mapping[str, int] = field(default_factory=dict)
    at: Place = NOWHERE
    places: Mapping[str, Place] = field(default_factory=dict)


@record(kw_only=True)
class Parallel:
    """How several processes train one model."""

    #: ``auto`` (ddp where there are several processes), ``none``, ``ddp``, ``fsdp`` or ``hsdp``.
    strategy: str = "auto"
    #: DDP: parameters that get no gradient, a graph that never changes, gradients as views of buckets, their size.
    find_unused: bool = False
    static_graph: bool = False
    bucket_view: bool = True
    bucket_mb: int = 25
    #: What gradients travel as: ``none`` (as they are), ``fp16``, ``bf16`` or ``powersgd``.
    compression: str = "none"
    #: FSDP: modules sharded on their own, by class or from a number of parameters on.
    wrap: tuple[str, ...] = ()
    min_params: int | None = None
    #: FSDP: numbers of the computation and of the reduction; parameters in host memory; freed after the forward pass.
    precision: str = "fp32"
    reduce: str = "fp32"
    offload: bool = False
    reshard: bool = True
    #: HSDP: processes that share one copy of the model; None: those of a machine.
    shards: int | None = None
    #: Processes leave and join while the others train on, by torchft.
    fault_tolerant: bool = False
    #: Processes that work on one share of the data: on the same weights, on other layers, on other parts of sequences.
    tensor: Tensor = Tensor()
    pipeline: Pipeline = Pipeline()
    context: Context = Context()
    #: Every batch is computed in so many parts, and comes to the same bits on 1 to that many processes; 0: no parts.
    virtual_ranks: int = 0
    at: Place = NOWHERE

    @property
    def together(self) -> int:
        """How many processes work on one share of the data."""
        return self.tensor.size * self.pipeline.size * self.context.size

    @property
    def is_split(self) -> bool:
        return self.together > 1

    def require_fitting(self, processes: int, *, local: int) -> None:
        """Raise if the strategy cannot be used with so many processes, ``local`` of them on one machine."""
        self.sizes(processes, local=local)

    def sizes(self, processes: int, *, local: int) -> dict[str, int]:
        """Return the size of each axis of the mesh that so many processes form."""
        data, rest = divmod(processes, self.together)
        if rest or not data:
            parts = [(word, part.size) for word, part in self._splits() if part.size > 1]
            product = " × ".join(f"{word} {size}" for word, size in parts)
            near = [n for n in (data * self.together, (data + 1) * self.together) if n]
            raise ConfigError(
                f"parallel: {product} needs {self.together} processes or a multiple of it, not {processes}",
                at=str(next(part.at for _, part in self._splits() if part.size > 1)),
                hint=f"start {' or '.join(map(str, near))} processes (--nproc {near[-1]})",
            )  # fmt: skip
        if self.virtual_ranks and (processes > self.virtual_ranks or self.virtual_ranks % processes):
            fitting = [n for n in range(1, self.virtual_ranks + 1) if self.virtual_ranks % n == 0]
            raise ConfigError(
                f"parallel: {processes} processes cannot share {self.virtual_ranks} virtual ranks evenly",
                at=str(self.at), hint=f"start {', '.join(map(str, fitting))} processes, or change virtual_ranks",
            )  # fmt: skip
        if data > 1 and self.strategy == "none":
            raise ConfigError(
                f"parallel.strategy is none, but there are {processes} processes", at=str(self.at),
                hint="ddp, fsdp, hsdp or auto train together",
            )  # fmt: skip
        copies, shards = data, 1
        if data > 1 and self.strategy == "hsdp":
            copies, shards = self._hybrid(data, local=max(1, local // self.together))
        elif self.strategy == "fsdp":
            copies, shards = 1, data
        sizes = {word: part.size for word, part in self._splits()}
        return {**sizes, "copy": copies, "shard": shards}

    def refusals(
        self, *, precision: str = "fp32", compiled: bool = False, own_update: bool = False, losses: bool = True
    ) -> list[tuple[str, str]]:
        """Return what a model that is split cannot do, or virtual ranks cannot, each with what to do instead."""
        found: list[tuple[str, str]] = []
        if self.virtual_ranks:
            where = "does not work with parallel.virtual_ranks"
            several = ((self.is_split, "a model that is split", "virtual ranks hold the whole model"),
                       (self.strategy in ("fsdp", "hsdp"), self.strategy, "write strategy: ddp"),
                       (self.fault_tolerant, "parallel.fault_tolerant", "leave out one of them"),
                       (own_update, "an update of your own", "leave out one of them"),
                       (precision == "fp16", "precision fp16", "write bf16"),
                       (compiled, "train.compile", "leave it out"))  # fmt: skip
            found += [(f"{what} {where}", hint) for wrong, what, hint in several if wrong]
        if not self.is_split:
            return found
        which = next(word for word, part in self._splits() if part.size > 1)
        where = f"does not work with a model that is split (parallel.{which})"
        if own_update:
            found.append((f"an update of your own {where}", "use ddp without splits"))
        if precision == "fp16":
            found.append((f"precision fp16 {where}", "write bf16"))
        if compiled:
            found.append((f"train.compile {where}", "leave it out"))
        if self.compression != "none" or self.find_unused or self.static_graph:
            found.append((f"an option of ddp {where}", "leave out compression, find_unused and static_graph"))
        if self.pipeline.size > 1 and not losses:
            found.append(("a pipeline computes the loss on its last stage, so it has to be named", "write loss: …"))
        if self.tensor.size > 1 and self.pipeline.size > 1 and self.pipeline.splits_backward:
            text = f"parallel.pipeline.schedule: {self.pipeline.schedule} splits backward passes"
            found.append((f"{text}, which torch cannot with parallel.tensor", "write 1f1b or interleaved_1f1b"))
        if self.context.size > 1 and self.pipeline.size > 1:
            found.append(("parallel.context and parallel.pipeline do not work together", "leave out one of them"))
        if self.context.size > 1 and not losses:
            found.append(("with parallel.context the loss has to be named", "write loss: …"))
        return found

    def _splits(self) -> tuple[tuple[str, Tensor | Pipeline | Context], ...]:
        return ("pipeline", self.pipeline), ("context", self.context), ("tensor", self.tensor)

    def _hybrid(self, processes: int, *, local: int) -> tuple[int, int]:
        """Return how many copies of the model hsdp has, and in how many shards each lies."""
        shards = self.shards or local
        if shards < 2 or processes % shards or processes == shards:
            fitting = [str(n) for n in range(2, processes // 2 + 1) if processes % n == 0]
            hint = f"write shards: {' or '.join(fitting)}, or use fsdp" if fitting else "use fsdp"
            raise ConfigError(
                f"parallel: hsdp keeps several copies of the model, each in several shards; {processes} processes "
                f"with shards: {shards} do not make that", at=str(self.at), hint=hint,
            )  # fmt: skip
        return processes // shards, shards


@record(kw_only=True)
class Plan:
    """Describes a run before it is built: model, data, optimizers, schedules, hooks, as plain data."""

    dialect: str
    name: str = "run"
    folder: str = "runs"
    imports: tuple[str, ...] = ()
    model: Spec
    losses: tuple[Spec, ...] = ()
    data: Mapping[str, Loader] = field(default_factory=dict)
    optimizers: Mapping[str, Optimizer] = field(default_factory=dict)
    schedules: tuple[Schedule, ...] = ()
    update: Spec
    loop: Spec
    hooks: tuple[HookPlan, ...] = ()
    metrics: tuple[Spec, ...] = ()
    writers: tuple[Spec, ...] = ()
    train: Training
    parallel: Parallel = Parallel()
    #: Whether every step gets a row in the ledger.
    ledger: bool = True
    #: Weights to start from (not a resume): path, prefix maps, strictness; see ``checkpoint.warm``.
    init_from: Mapping[str, Any] = field(default_factory=dict)
    #: The config in its own dialect's words, resolved; what the dialect's own builder and ``plan.yaml`` use.
    source: Mapping[str, Any] = field(default_factory=dict)
    #: The files it was read from.
    files: tuple[str, ...] = ()
    #: Where the values of ``source`` were written, by the way to them; of Étude's own words those of ``init_from``.
    places: Mapping[tuple[str | int, ...], Place] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        from html import escape

        rows = {"model": self.model.name, "data": ", ".join(self.data), "optimizers": _names(self.optimizers.values())}
        rows["hooks"] = _names(self.hooks)
        rows |= {"epochs": str(self.train.epochs)} if self.train.epochs is not None else {}
        rows |= {"steps": str(self.train.steps)} if self.train.steps is not None else {}
        cells = "".join(f"<tr><th>{key}</th><td>{escape(value)}</td></tr>" for key, value in rows.items())
        return f"<table><caption>{escape(f'{self.name} ({self.dialect})')}</caption>{cells}</table>"


def _names(parts: Iterable[Any]) -> str:
    return ", ".join(part.spec.name for part in parts)
