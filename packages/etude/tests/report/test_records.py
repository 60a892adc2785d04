"""Reading records: cut off, strange, huge, of several systems, while they are being written."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from itertools import pairwise

import pytest

from etude.report.downsample import thin
from etude.report.lines import Lines
from etude.report.records import Curve, Records


def points(records: Records, name: str) -> list[tuple[float, float]]:
    curve = records.curves[name]
    return list(zip(curve.steps, curve.values, strict=True))


def read(folder) -> Records:
    records = Records(folder)
    records.update()
    return records


def test_native_records_become_curves_by_split(make_run):
    rows = [
        {"step": 2, "epoch": 0, "split": "train", "loss": 1.5, "time/step": 0.1},
        {"step": 2, "epoch": 0, "split": "val", "accuracy": 0.5},
    ]
    records = read(make_run(rows=rows))
    assert points(records, "train/loss") == [(2, 1.5)] and points(records, "val/accuracy") == [(2, 0.5)]
    assert points(records, "time/step") == [(2, 0.1)] and records.step == 2


def test_a_line_that_is_cut_off_is_read_once_it_is_whole(make_run):
    folder = make_run(rows=[{"step": 1, "split": "train", "loss": 3.0}])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "split": "tr')
    records = read(folder)
    assert points(records, "train/loss") == [(1, 3.0)] and records.bad_lines == 0
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('ain", "loss": 2.0}\n')
    assert records.update() and points(records, "train/loss") == [(1, 3.0), (2, 2.0)]
    assert not records.update()


def test_garbage_between_records_is_counted_and_left_out(make_run):
    text = (
        '{"step": 1, "split": "train", "loss": 1}\n\x00\x00garbage\n[1, 2]\n{"step": 2, "split": "train", "loss": 2}\n'
    )
    records = read(make_run(text=text))
    assert points(records, "train/loss") == [(1, 1), (2, 2)] and records.bad_lines == 2


def test_values_that_are_not_finite_stay_in_the_curve(make_run):
    text = '{"step": 1, "split": "train", "loss": "nan"}\n{"step": 2, "split": "train", "loss": Infinity}\n{"step": 3, "split": "train", "loss": "-inf"}\n{"step": 4, "split": "train", "loss": 1}\n'
    curve = read(make_run(text=text)).curves["train/loss"]
    assert math.isnan(curve.values[0]) and list(curve.values[1:]) == [math.inf, -math.inf, 1.0]
    shown = thin(curve, 100)
    assert shown["y"] == [None, None, None, 1.0] and shown["strange"] == 3
    json.dumps(shown, allow_nan=False)


def test_a_file_that_a_resume_has_cut_is_read_again(make_run):
    rows = [{"step": n, "split": "train", "loss": float(n)} for n in range(1, 6)]
    folder = make_run(rows=rows)
    records = read(folder)
    make_run(
        rows=[
            *rows[:2],
            {"step": 3, "split": "train", "loss": 30.0},
            *[{"step": n, "split": "train", "loss": 0.0} for n in range(4, 12)],
        ]
    )
    assert records.update()
    assert [value for _, value in points(records, "train/loss")][:4] == [1, 2, 30, 0] and records.step == 11


def test_mmcv1_iterations_count_on_from_epoch_to_epoch(make_run):
    rows = [
        {"env_info": "…", "seed": 0},
        {"mode": "train", "epoch": 1, "iter": 10, "lr": 0.1, "time": 0.2, "loss": 3.0},
        {"mode": "train", "epoch": 1, "iter": 20, "lr": 0.1, "time": 0.2, "loss": 2.0},
        {"mode": "val", "epoch": 1, "iter": 5, "accuracy_top-1": 40.0},
        {"mode": "train", "epoch": 2, "iter": 10, "lr": 0.1, "time": 0.2, "loss": 1.0},
    ]
    records = read(make_run(rows=rows, file="20261116_120000.log.json"))
    assert points(records, "train/loss") == [(10, 3.0), (20, 2.0), (30, 1.0)]
    assert points(records, "val/accuracy_top-1") == [(20, 40.0)] and "time/step" in records.curves


def test_mmengine_validations_stand_at_the_step_of_training(make_run):
    rows = [
        {"lr": 0.1, "loss": 3.0, "time": 0.1, "iter": 10, "memory": 0, "step": 10},
        {"accuracy/top1": 50.0, "step": 1},
        {"lr": 0.1, "loss": 2.0, "time": 0.1, "iter": 20, "memory": 0, "step": 20},
    ]
    records = read(make_run(rows=rows, file="20261116_120000/vis_data/scalars.json"))
    assert points(records, "val/accuracy/top1") == [(10, 50.0)] and points(records, "train/loss")[-1] == (20, 2.0)


def test_libai_records_count_iterations_from_zero(make_run):
    records = read(
        make_run(rows=[{"iteration": 19, "total_loss": 2.0, "lr": 0.1, "eta_seconds": 3.0}], file="metrics.json")
    )
    assert points(records, "train/total_loss") == [(20, 2.0)]


def test_a_large_file_is_sampled_and_its_end_is_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with path.open("w") as file:
        for step in range(600_000):
            file.write(f'{{"step": {step}, "split": "train", "loss": {1 / (step + 1):.6f}}}\n')
    records = Records(tmp_path, whole=1 << 20)
    records.update()
    steps = list(records.curves["train/loss"].steps)
    assert records.sampled and len(steps) < 300_000
    assert steps[0] == 0 and steps[-1] == 599_999 and steps == sorted(steps)
    assert max(b - a for a, b in pairwise(steps)) < 500


@pytest.mark.thorough  # writes two gigabytes
def test_two_gigabytes_are_read_without_holding_them(tmp_path):
    """A sparse file: real lines at the beginning and the end, two gigabytes of holes between them."""
    path = tmp_path / "metrics.jsonl"
    with path.open("wb") as file:
        file.write(b'{"step": 1, "split": "train", "loss": 2.0}\n')
        file.seek(2 << 30)
        file.write(b"\n" + b"".join(b'{"step": %d, "split": "train", "loss": 1.0}\n' % n for n in range(2, 3000)))
    code = (
        "import re\nfrom pathlib import Path\nfrom etude.report.records import Records\n"
        f"r = Records(Path({str(tmp_path)!r})); r.update()\n"
        "print(r.curves['train/loss'].steps[-1], r.sampled, int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    last, sampled, megabytes = done.stdout.split()
    assert (last, sampled) == ("2999.0", "True") and int(megabytes) < 300


def test_a_line_without_end_is_no_record(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"x" * (3 << 20) + b"\n" + b'{"step": 1, "split": "train", "loss": 2.0}\n')
    assert [row["step"] for row in Lines(path).read()] == [1]


@pytest.mark.parametrize("count", [10, 1000, 100_000])
def test_thinning_keeps_the_spikes(count):
    curve = Curve()
    for step in range(count):
        curve.steps.append(step)
        curve.values.append(9.0 if step == count // 3 else 1.0)
    shown = thin(curve, 200)
    assert 9.0 in shown["y"] and len(shown["x"]) <= 210 and shown["x"] == sorted(shown["x"]) and shown["count"] == count
    inside = thin(curve, 200, low=2, high=5)
    assert inside["x"] == [1, 2, 3, 4, 5, 6]
