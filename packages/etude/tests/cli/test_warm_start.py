"""``init_from`` through the command line: one submodule, names adapted, and mistakes told before training."""

from __future__ import annotations

from pathlib import Path

import torch

from etude.checkpoint.warm_start import read_weights
from tests.cli.commands import CONFIG, Commands

#: What the config's model calls its first layer.
FIRST = {"weight": torch.full((16, 64), 0.5), "bias": torch.zeros(16)}


def config(init_from: str) -> str:
    return f"{CONFIG.replace('epochs: 2', 'steps: 1')}init_from: {init_from}\n"


def test_one_submodule_of_a_file_strictly(command, workdir: Path) -> None:
    torch.save({"state_dict": {f"backbone.fc.{name}": value for name, value in FIRST.items()}}, workdir / "w.pth")
    said = command("train", "w.yaml", w_yaml=config("{path: w.pth, prefix: backbone.fc, to: layers.0, strict: true}"))
    assert said.code == 0, said.err
    assert "2 fit, 0 of another shape, 0 missing, 0 unused; the other 2 of the model stay as they are" in said.err
    said = command("train", "w.yaml", w_yaml=config("{path: w.pth, prefix: {backbone.fc: layers.0}, strict: true}"))
    assert said.code == 0 and "2 fit" in said.err
    said = command("train", "w.yaml", w_yaml=config("{path: w.pth, prefix: backbone, to: layers.0}"))
    assert said.code == 2 and "nothing matched" in said.err and "missing  layers.0.weight" in said.err
    line = len(config("").splitlines())
    assert f"error: w.yaml:{line}: init_from w.pth: nothing matched" in said.err
    said = command("train", "w.yaml", w_yaml=config("\n  path: w.pth\n  prefix: bakbone"))
    assert said.code == 2 and f"w.yaml:{line + 2}: init_from: prefix 'bakbone' matches no weight" in said.err
    (workdir / "torn.pth").write_bytes((workdir / "w.pth").read_bytes()[:300])
    said = command("train", "w.yaml", w_yaml=config("torn.pth"))
    assert said.code == 7 and f"error: w.yaml:{line}: torn.pth: damaged" in said.err


def test_names_are_revised_and_what_does_not_fit_is_a_table(command, workdir: Path) -> None:
    torch.save(
        {f"module.net.{name}": value for name, value in FIRST.items()} | {"odd": torch.ones(1)}, workdir / "w.pth"
    )
    text = config(r"{path: w.pth, rename: [['^module\.net', 'layers.0']]}")
    said = command("train", "w.yaml", w_yaml=text)
    assert said.code == 0, said.err
    assert "unused   odd" in said.err and "2 fit, 0 of another shape, 2 missing, 1 unused" in said.err
    said = command("train", "w.yaml", w_yaml=text.replace("path", "strict: true, path"))
    assert said.code == 2 and "does not fit exactly" in said.err and "unused   odd" in said.err


def test_mistakes_in_the_section_are_found_by_check(command, workdir: Path) -> None:
    for text, words in {
        "{path: w.pth, strct: true}": "unknown key init_from.strct; did you mean 'strict'?",
        "{path: w.pth, trust: true}": "unknown key init_from.trust",
        "{prefix: a}": "init_from.path",
        "{path: w.pth, strict: maybe}": "init_from.strict must be",
        "{path: w.pth, rename: [a, b]}": "init_from.rename must be pairs",
        "{path: w.pth, rename: [['(', b]]}": "'(' is not a valid regular expression",
        "[a]": "init_from must be",
    }.items():
        said = command("check", "w.yaml", w_yaml=config(text))
        assert said.code == 2 and words in said.out + said.err, (text, said)


def test_a_file_that_is_not_there_is_told_before_anything_is_built(command, workdir: Path) -> None:
    (workdir / "weights.pth").touch()
    for text in ("wieghts.pth", "{path: wieghts.pth}"):
        said = command("check", "w.yaml", w_yaml=config(text))
        assert said.code == 0 and "there is no wieghts.pth; did you mean 'weights.pth'?" in said.out
    assert "there is no" not in command("check", "w.yaml", w_yaml=config("s3://bucket/w.pth")).out


def test_a_run_is_named_and_its_best_taken(command: Commands):
    config = CONFIG.replace("keep: 2", "keep: 9").replace("every: 1ep", "every: 2step")
    assert command("train", "c.yaml", "-q", "--folder", "runs/mine/20260101-000000", c_yaml=config).code == 0
    assert command("train", "c.yaml", "-q", "--folder", "runs/mine/20260102-000000").code == 0
    run = "runs/mine/20260102-000000/checkpoints"
    best, last = (Path(f"{run}/{name}").read_text().strip() for name in ("best", "latest"))

    def started(*words: str) -> str:
        done = command(
            "train",
            "c.yaml",
            "optim.lr=0",
            "+optim.weight_decay=0",
            "train.epochs=1",
            "--folder",
            "new",
            "--restart",
            *words,
        )
        assert done.code == 0, done.err
        new = read_weights("new")
        return next(step for step in (best, last) if _same(read_weights(f"{run}/{step}"), new))

    assert started("+init_from={path: mine, best: true}") == best
    assert started("+init_from={path: mine/20260102-000000, best: accuracy}") == best
    assert started(f"init_from={run}/best") == best
    assert started("init_from=mine") == last
    wrong = command("train", "c.yaml", "+init_from={best: true}", "--folder", "no")
    assert wrong.code == 2 and "init_from.best is the best of a run; which one?; add path: runs/NAME" in wrong.err


def _same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], two[name]) for name in one)
