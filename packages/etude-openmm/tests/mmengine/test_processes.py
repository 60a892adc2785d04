from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from etude_openmm.mmengine import files
from tests import zygote
from tests.mmengine import lives
from tests.places import REPOSITORY
from tests.sampling import sample

ROOT = REPOSITORY
CONFIG = """
custom_imports = dict(imports=["tests.mmengine.registered"], allow_failed_imports=False)
model = dict(type="RegisteredDropped")
train_dataloader = dict(
    batch_size=2, sampler=dict(type="DefaultSampler", shuffle=True), dataset=dict(type="RegisteredAugmented", length=16))
train_cfg = dict(by_epoch=True, max_epochs=3)
optim_wrapper = dict(optimizer=dict(type="SGD", lr=0.1, momentum=0.9))
default_hooks = dict(checkpoint=dict(type="CheckpointHook", interval=-1))
randomness = dict(seed=0, diff_rank_seed=True)
env_cfg = dict(dist_cfg=dict(backend="gloo"))
"""


def test_two_processes_share_the_data_and_end_with_the_same_weights(tmp_path: Path) -> None:
    for rank in zygote.ranks(2, "-m", "tests.mmengine.two_processes", str(tmp_path), cwd=ROOT):
        said = rank.communicate()
        assert rank.returncode == 0, said
    one, other = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert (one["world"], other["world"]) == (2, 2)
    assert sorted(one["seen"] + other["seen"]) == list(range(8))
    assert one["iter"] == other["iter"] == 6
    assert one["weights"] == other["weights"]
    assert {path.name for path in tmp_path.glob("*.pth")} == {"epoch_1.pth", "epoch_2.pth", "epoch_3.pth"}


def test_a_signal_to_both_processes_stops_them_after_one_iteration_and_saves_what_each_knows(tmp_path: Path) -> None:
    def train(config: str, folder: str, *more: str) -> int | None:
        words = ["train", str(tmp_path / config), "--work-dir", str(tmp_path / folder), "--launcher", "pytorch", "-q"]
        return lives.command([*words, *more], world=2)

    (tmp_path / "c.py").write_text(CONFIG)
    (tmp_path / "cut.py").write_text(f"{CONFIG}custom_hooks = [dict(type='Terminate', at=[4, 5])]\n")
    assert train("c.py", "whole") == 0
    assert train("cut.py", "cut") == 143
    assert [path.name for path in (tmp_path / "cut").glob("*.pth")] == ["iter_4.pth"]
    assert train("c.py", "cut", "--resume") == 0
    one, other = (files.read(str(tmp_path / name / "epoch_3.pth")) for name in ("whole", "cut"))
    assert all(one["state_dict"][name].equal(other["state_dict"][name]) for name in one["state_dict"])
    assert "other random numbers" not in max((tmp_path / "cut").glob("*/*.log")).read_text()


@pytest.mark.parametrize(
    ("before", "cut", "after", "twice"), sample([(2, 6, 1, 0), (1, 12, 2, 0), (1, 11, 2, 2)], (0, 2))
)
def test_a_resume_in_another_number_of_processes_goes_on_in_the_middle_of_the_epoch(
    tmp_path: Path, before: int, cut: int, after: int, twice: int
) -> None:
    def train(config: str, world: int, *more: str) -> int | None:
        words = ["train", str(tmp_path / config), "--work-dir", str(tmp_path / "run"), "-q", *more]
        return lives.command([*words, "--launcher", "pytorch" if world > 1 else "none"], world=world)

    (tmp_path / "c.py").write_text(f"{CONFIG}custom_hooks = [dict(type='NoteSamples')]\n")
    hooks = f"custom_hooks = [dict(type='NoteSamples'), dict(type='Terminate', at={cut})]\n"
    (tmp_path / "cut.py").write_text(CONFIG + hooks)
    assert train("cut.py", before) == 143
    assert train("c.py", after, "--resume") == 0
    seen = Counter(tuple(line.split()) for line in (tmp_path / "run" / "seen.txt").read_text().splitlines())
    assert set(seen) == {(str(epoch), str(sample)) for epoch in range(3) for sample in range(16)}
    assert sorted(seen.values())[-twice - 1 :] == [1] + [2] * twice
    told = "some samples are seen twice" in max((tmp_path / "run").glob("*/*.log")).read_text()
    assert told == bool(twice)
