"""Models whose layers, stages and sequences are split over processes give what one process gives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from etude.cli import main
from tests.dist import project
from tests.places import REPOSITORY
from tests.sampling import sample

CONFIG = """
imports: [language.py]
model: {type: language.Llama}
loss: language.next_token
data:
  train: {dataset: {type: language.Tokens}, batch_size: 8}
  val: {dataset: {type: language.Tokens, size: 12, seed: 1}, batch_size: 4}
optim: {type: SGD, lr: 0.5, clip_norm: 0.5}  # Adam would hide a wrong factor of all gradients
metrics: [language.RightTokens]
train: {epochs: 2, threads: 1}
checkpoint: {every: 3step, keep: 3}
log: {every: 1step}
"""
SEQUENCE = """+parallel.tensor={size: 2, plan: {tok_embeddings: row, "layers.*.attention.w[qkv]": column,
    "layers.*.attention.wo": row, "layers.*.feed_forward.w[13]": column, "layers.*.feed_forward.w2": row,
    "layers.*_norm": sequence, norm: sequence, output: column}}"""
TRAIN = ("train", "config.yaml", "-q", "--folder")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("split")
    shutil.copy(project.HERE / "language.py", made)
    (made / "config.yaml").write_text(CONFIG)
    return made


@pytest.fixture(scope="module")
def alone(jobs, folder):
    """What one process makes of a config with some changes."""
    made: dict[tuple[str, ...], Path] = {}

    def train(*changes: str) -> Path:
        if changes not in made:
            name = f"alone-{len(made)}"
            jobs.run(*TRAIN, name, *changes, cwd=folder, nproc=1)
            made[changes] = folder / name
        return made[changes]

    return train


def gap(one: Path, other: Path) -> float:
    """The largest difference between weights, and between recorded losses, norms and metrics."""
    words = ("loss", "grad_norm", "right_tokens")
    pairs = list(zip(project.records(one), project.records(other), strict=True))
    values = [abs(a[word] - b[word]) for a, b in pairs for word in words if word in a]
    a, b = project.weights(one), project.weights(other)
    assert a.keys() == b.keys()
    return max(*((a[name] - b[name]).abs().max().item() for name in a), *values)


def test_what_torch_gets_wrong_is_corrected_in_value_and_gradient(jobs, tmp_path):
    jobs.run("exec", project.HERE / "corrected.py", cwd=tmp_path)


@pytest.mark.parametrize(
    ("changes", "split"),
    sample(
        [
            (("+model.dropout=0.1",), "+parallel.tensor=2"),
            (("+model.dropout=0.1",), SEQUENCE),
            (("+model.tied=true",), "+parallel.tensor=2"),
            (("+data.train.dataset.ignore=0.3", "+train.gradient_checkpointing=[Block]"), "+parallel.tensor=2"),
        ],
        (0, 1),
    ),
)
def test_tensor_parallelism_gives_the_curve_of_one_process(jobs, folder, alone, changes, split):
    """Dropout too: every process draws for whole tensors."""
    name = f"tensor-{len(changes[0])}-{len(split)}"
    jobs.run(*TRAIN, name, *changes, split, cwd=folder)
    assert gap(alone(*changes), folder / name) < 5e-6
    loss = [row["loss"] for row in project.records(folder / name) if row["split"] == "val"][-1]
    said = jobs.run("test", name, cwd=folder, nproc=1).output  # one process measures the whole model
    assert float(said.split("loss")[-1].split()[0]) == pytest.approx(loss, abs=1e-3)


@pytest.mark.parametrize(
    "parallel", sample(["{tensor: 2}", "{tensor: 2, strategy: fsdp}", "{tensor: 1, strategy: ddp}"], (1,))
)
def test_data_parallelism_over_tensor_parallelism(jobs, folder, alone, parallel):
    """With an average of weights, and statistics of gradients, over both."""
    more = ("+hooks=[{type: EMA, momentum: 0.3}, {type: Statistics, every: 1step}]",)
    name = f"both-{len(parallel)}"
    jobs.run(*TRAIN, name, *more, f"+parallel={parallel}", cwd=folder, nproc=4)
    assert gap(alone(*more), folder / name) < 5e-6
    norms = [
        [r["norm/gradient"] for r in project.records(at) if "norm/gradient" in r]
        for at in (alone(*more), folder / name)
    ]
    assert norms[0] == pytest.approx(norms[1], abs=5e-6) and norms[0]


@pytest.mark.parametrize(
    ("nproc", "parallel"),
    sample(
        [
            (2, "{pipeline: {size: 2, microbatches: 4}}"),
            (2, "{pipeline: {size: 2, microbatches: 4, schedule: gpipe}}"),
            (2, "{pipeline: {size: 2, microbatches: 4, schedule: looped_bfs}}"),
            (2, "{pipeline: {size: 2, microbatches: 4, schedule: interleaved_1f1b}}"),
            (2, "{pipeline: {size: 2, microbatches: 4, schedule: interleaved_zero_bubble}}"),
            (2, "{pipeline: {size: 2, microbatches: 4, schedule: dual_pipe_v}}"),
            (2, "{pipeline: {size: 2, microbatches: 4, schedule: zbv_zero_bubble}}"),
            (4, "{pipeline: {size: 2, microbatches: 4}, tensor: 2}"),
            (4, "{pipeline: {size: 2, microbatches: 4}, strategy: fsdp}"),
            (4, "{pipeline: {size: 2, microbatches: 2}}"),
            (
                2,
                "{pipeline: {size: 2, microbatches: 2, stages: [[tok_embeddings, layers.0-2], [layers.3, norm, output]]}}",
            ),
        ],
        (6, 7),
    ),
)
def test_every_schedule_gives_the_curve_of_one_process(jobs, folder, alone, nproc, parallel):
    name = f"pipeline-{nproc}-{len(parallel)}"
    jobs.run(*TRAIN, name, f"+parallel={parallel}", cwd=folder, nproc=nproc)
    assert gap(alone(), folder / name) < 5e-6


@pytest.mark.parametrize(
    ("nproc", "parallel"),
    sample([(2, "{%s}"), (4, "{%s, strategy: fsdp}"), (4, "{%s, tensor: 2}"), (4, "{%s}")], (0, 2)),
)
def test_sequences_in_parts_give_the_curve_of_one_process(jobs, folder, alone, nproc, parallel):
    """Labels that do not count are spread unevenly over the parts; activations are computed again."""
    changes = ("+data.train.dataset.ignore=0.3", "+train.gradient_checkpointing=[Block]")
    name = f"context-{nproc}-{len(parallel)}"
    split = parallel % "context: {size: 2, buffers: {table: 0}}"
    jobs.run(*TRAIN, name, *changes, f"+parallel={split}", cwd=folder, nproc=nproc)
    if nproc == 2 or "tensor" in parallel:  # over shares of the data, each has a mean of its own labels
        assert gap(alone(*changes), folder / name) < 5e-6
    else:
        assert gap(alone(*changes), folder / name) < 0.1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["+parallel.context=2"], "name its tables of positions under buffers"),
        (["+parallel.context={size: 2, buffers: {tables: 0}}"], "no buffer 'tables'; did you mean 'table'?"),
        (["+parallel.context=2", "+model.length=15", "+data.train.dataset.length=15"], "a length of 16 would fit"),
    ],
)
def test_sequences_that_cannot_be_cut_are_refused(jobs, folder, changes, words):
    assert words in jobs.run(*TRAIN, "refused", *changes, cwd=folder, code=2).output


STAGES = "+parallel={pipeline: {size: 2, microbatches: 4}, tensor: 2}"
FSDP = "+parallel={tensor: 2, strategy: fsdp}"


@pytest.mark.parametrize(
    ("before", "after"),
    sample(
        [((4, FSDP), (1, "seed=0")), ((1, "seed=0"), (2, "+parallel.tensor=2")), ((2, "+parallel.tensor=2"), (4, FSDP)),
         ((4, FSDP), (2, "+parallel.tensor=2")), ((4, STAGES), (1, "seed=0")), ((1, "seed=0"), (4, STAGES)),
         ((4, "+parallel={pipeline: {size: 2, microbatches: 4}}"), (4, FSDP)),
         ((4, FSDP), (2, "+parallel={pipeline: {size: 2, microbatches: 4, schedule: zbv_zero_bubble}}"))],
        (3, 7),
    ),
)  # fmt: skip
def test_any_mesh_goes_on_where_another_stopped(jobs, folder, alone, before, after):
    """Inside of an update whose gradients are not complete, with an average of weights and a state of the optimizer."""
    more = ("+train.accumulate=2", "+optim.momentum=0.9", "+hooks=[{type: EMA, momentum: 0.3}]")
    name = f"from-{before[0]}-{len(before[1])}-to-{after[0]}-{len(after[1])}"
    words = [[option.replace("seed=0", "+train.seed=0")] for _, option in (before, after)]
    jobs.run(*TRAIN, name, *more, *words[0], "--chaos", "sigterm@step=5", cwd=folder, nproc=before[0], code=143)
    jobs.run(*TRAIN, name, *more, *words[1], "--resume", cwd=folder, nproc=after[0])
    assert gap(alone(*more), folder / name) < 5e-6


@pytest.mark.parametrize(
    ("nproc", "option", "words"),
    [
        (3, "+parallel.tensor=2", "tensor 2 needs 2 processes or a multiple of it, not 3; start 2 or 4 processes"),
        (2, "+parallel={tensor: {size: 2, plan: {'layer.*.wq': column}}}", "did you mean 'layers.*.attention.wq'?"),
        (2, "+parallel={tensor: {size: 2, plan: {output: colum}}}", "did you mean 'column'?"),
        (3, "+parallel.tensor=3", "3 processes cannot share"),
        (8, "+parallel.pipeline=8", "8 stages for 4 layers (layers); size: 4 would fit"),
        (
            2,
            "+parallel.pipeline={size: 2, stages: [[tok_embeddings, layer.0-1], [norm, output]]}",
            "has no 'layer.0-1'",
        ),
        (2, "+parallel.pipeline={size: 2, stages: [[tok_embeddings], [layers, norm]]}", "no stage holds output"),
        (2, "+parallel.pipeline={size: 2, stages: [[tok_embeddings]]}", "has 1 stages; 2 processes"),
        (2, "+parallel.pipeline={size: 2, microbatches: 1}", "fewer than the 2 stages"),
        (2, "+parallel.pipeline={size: 2, schedule: 1f2b}", "must be one of"),
        (8, "+parallel.tensor=8", "cannot share n_heads of layers.0.attention, of which there are 4"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(folder, monkeypatch, capsys, nproc, option, words):
    monkeypatch.chdir(folder)
    assert main(["plan", "config.yaml", "--nproc", str(nproc), option]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "+train.precision=fp16",
            "precision fp16 does not work with a model that is split (parallel.tensor); write bf16",
        ),
        ("+train.compile=true", "train.compile does not work with a model that is split"),
        ("optim={type: LBFGS}", "LBFGS trains in one process only"),
        ("optim={type: SGD, lr: 0.1, fused: true}", "fused SGD does not work with a model that is split"),
        (
            "+parallel.pipeline={size: 2, schedule: zbv_zero_bubble}",
            "zbv_zero_bubble splits backward passes, which torch",
        ),
        ("+update=language.Tokens", "an update of your own does not work with a model that is split"),
    ],
)
def test_check_refuses_what_a_split_cannot_do(folder, monkeypatch, capsys, change, words):
    monkeypatch.chdir(folder)
    assert main(["check", "config.yaml", "+parallel.tensor=2", change]) == 2
    said = capsys.readouterr()
    assert words in said.out + said.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("+model.tied=true", "tok_embeddings.weight and output.weight are one parameter, in stages 0 and 1"),
        ("data.train.batch_size=6", "need a multiple of 4; write batch_size: 8"),
        ("+data.train.dataset.size=42", "the last batch of an epoch has 2 samples instead of 8"),
        (
            "model={type: language.Unguarded}",
            "and `forward` calls it: write x = self.NAME(x) if self.NAME is not None else x",
        ),
        ("model={type: language.Branching}", "reads values of a tensor (language.py:"),
    ],
)
def test_a_pipeline_refuses_what_it_cannot_cut(jobs, folder, change, words):
    code = 3 if "Unguarded" in change else 2
    job = jobs.run(*TRAIN, "refused", change, "+parallel.pipeline=2", cwd=folder, code=code)
    assert words in job.output


def test_plan_draws_stages(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["plan", "config.yaml", "--nproc", "4", STAGES]) == 0
    said = capsys.readouterr().out
    assert "4 processes: pipeline 2 × tensor 2" in said
    assert "stage 1: layers.2, layers.3, norm, output" in said


def test_plan_draws_what_each_process_holds(jobs, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["plan", "config.yaml", "--nproc", "4", FSDP]) == 0
    said = capsys.readouterr().out
    assert "4 processes: shard 2 × tensor 2" in said
    drawn = [
        int(line.split(": ")[1].split(" of ")[0].replace(",", "")) for line in said.splitlines() if " rank " in line
    ]
    (folder / "held.py").write_text(HELD)
    jobs.run(
        *TRAIN,
        "held",
        FSDP,
        "imports=[language.py, held.py]",
        "+hooks=[held.Held]",
        "train.epochs=1",
        cwd=folder,
        nproc=4,
    )
    held = [json.loads((folder / f"held-{rank}.json").read_text()) for rank in range(4)]
    assert held == drawn


HELD = """
import json
import etude
from etude.dist.layout.shards import local

class Held(etude.Hook):
    def before_train(self, run):
        with open(f"held-{run.world.rank}.json", "w") as file:
            json.dump(sum(local(p).numel() for p in run.model.parameters()), file)
"""


GPT = (
    "-q", "--limit-batches", "3", "train.steps=4", "train.validate=4step", "log.every=1step", "~schedule",
    "model={type: gpt.Gpt, width: 32, length: 32}", "+data.train.dataset.length=32", "+data.val.dataset.length=32",
    "hooks=[gpt.Speed, {type: gpt.Sample, tokens: 3, length: 32}]", "optim.type=SGD", "optim.lr=0.5",
)  # fmt: skip


@pytest.mark.parametrize(
    "parallel",
    sample(
        ["{tensor: 2, strategy: fsdp}", "{pipeline: {size: 2, microbatches: 4}, tensor: 2}",
         "{pipeline: {size: 2, microbatches: 4}}", "{context: {size: 2, buffers: {table: 0}}, tensor: 2}"],
        (1, 3),
    ),
)  # fmt: skip
def test_the_example_of_a_language_model_trains_and_writes_text_on_any_mesh(jobs, gpt, parallel):
    jobs.run("train", "gpt.yaml", *GPT, "--folder", f"on-{len(parallel)}", f"+parallel={parallel}", cwd=gpt, nproc=4)
    one, other = gpt / "alone", gpt / f"on-{len(parallel)}"
    assert gap(one, other) < 1e-5
    assert (one / "samples.txt").read_text() == (other / "samples.txt").read_text()


@pytest.fixture(scope="module")
def gpt(jobs, tmp_path_factory):
    made = tmp_path_factory.mktemp("gpt")
    for name in ("gpt.py", "gpt.yaml"):
        shutil.copy(REPOSITORY / "examples/native/gpt" / name, made)
    jobs.run("train", "gpt.yaml", *GPT, "--folder", "alone", cwd=made, nproc=1)
    return made


def test_a_trainer_takes_the_same_settings_and_predicts_whole_outputs(jobs, folder):
    (folder / "script.py").write_text(SCRIPT)
    jobs.run("exec", "script.py", "{}", cwd=folder, nproc=1)
    wanted = torch.load(folder / "predicted.pt")
    for parallel in ("{'tensor': 2}", "{'pipeline': {'size': 2, 'microbatches': 2}}"):
        jobs.run("exec", "script.py", parallel, cwd=folder)
        torch.testing.assert_close(torch.load(folder / "predicted.pt"), wanted, rtol=0, atol=1e-5)


SCRIPT = """
import ast, sys
import torch, etude, language
torch.manual_seed(0)
model = language.Llama()
trainer = etude.Trainer(
    model, loss=language.next_token, optimizer=torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9), clip_norm=1.0,
    parallel=ast.literal_eval(sys.argv[1]) or "auto", seed=0, quiet=True,
)
trainer.fit(language.Tokens(), batch_size=8, steps=4)
predicted = trainer.predict(language.Tokens(size=4, seed=1), batch_size=4)
if trainer.placed.world.is_main:
    torch.save(predicted, "predicted.pt")
"""
