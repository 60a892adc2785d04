from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import etude
from etude.building.options import Options

EXAMPLES = Path(__file__).parents[2] / "examples" / "mmengine"
SHORT = ["train_cfg.max_epochs=6", "param_scheduler.1.begin=2", "param_scheduler.1.end=6", "param_scheduler.1.T_max=4"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """So small a model is slowed down by a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.thorough  # tests/projects pretrains with the real projects
def test_contrastive_pretraining_beats_a_random_encoder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(EXAMPLES / "probe.py"))["main"]
    before, after = main([str(EXAMPLES / "simclr_lars.py"), "--work-dir", str(tmp_path), "--cfg-options", *SHORT])
    assert after > before + 0.01
    assert "after pretraining" in capfd.readouterr().out
    left = {path.name for path in tmp_path.iterdir()}
    assert {"epoch_6.pth", "last_checkpoint", "simclr_lars.py"} <= left
    assert any(name.startswith("best_probe_accuracy_epoch_") for name in left)


@pytest.mark.thorough  # the other example pretrains, too
def test_the_masked_autoencoder_learns_to_paint(tmp_path: Path) -> None:
    run = etude.train(
        EXAMPLES / "mae_adamw.py", options=Options(folder=tmp_path, quiet=True, extras={"cfg_options": SHORT})
    )
    rows = [json.loads(line) for line in next(tmp_path.glob("*/vis_data/scalars.json")).read_text().splitlines()]
    assert run.epoch == 6
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[-1] < 0.6 * losses[0]
    assert rows[-1]["probe/accuracy"] > 0.9
    groups = run.runner.optim_wrapper.optimizer.param_groups
    named = dict(run.model.named_parameters())
    decays = {
        name: next(g["weight_decay"] for g in groups if any(p is q for q in g["params"])) for name, p in named.items()
    }
    undecayed = ("ln", "bias", "pos_embed", "mask_token", "cls_token")
    assert all((decay == 0) == any(key in name for key in undecayed) for name, decay in decays.items())
