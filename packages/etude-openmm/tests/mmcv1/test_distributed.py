"""Two processes: gradients are averaged, one of them evaluates and saves."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests import zygote
from tests.places import REPOSITORY

ROOT = REPOSITORY


def in_two(function: str, folder: Path) -> None:
    """Call a function of this module in two processes."""
    code = f"from tests.mmcv1 import test_distributed; test_distributed.{function}({str(folder)!r})"
    for rank in zygote.ranks(2, "-c", code, cwd=ROOT):
        said = rank.communicate()
        assert rank.returncode == 0, said


def work(folder: str) -> None:
    """Train, resume and evaluate in each of two processes."""
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    from etude.dialects import imports

    imports.install()
    from mmcv.parallel import MMDistributedDataParallel
    from mmcv.runner import DistEvalHook, EpochBasedRunner, build_optimizer, init_dist, set_random_seed
    from torch.utils.data import DataLoader, DistributedSampler

    from tests.mmcv1.toys import Net, Noisy

    def train(folder: str, resume: str = "", **checkpoint: Any) -> tuple[Any, Any]:
        set_random_seed(rank)
        net = MMDistributedDataParallel(Net(), broadcast_buffers=False)
        runner: Any = EpochBasedRunner(
            net,
            optimizer=build_optimizer(net, {"type": "SGD", "lr": 0.1}),
            work_dir=folder,
            logger=logging.getLogger("two"),
            meta={},
            max_epochs=2,
        )
        hooks = [{"type": "DistSamplerSeedHook"}, {"type": "SyncBuffersHook"}]
        runner.register_training_hooks({"policy": "fixed"}, {}, checkpoint, custom_hooks_config=hooks)
        data, val = Noisy(), Noisy()
        loaders = [DataLoader(one, batch_size=4, sampler=DistributedSampler(one)) for one in (data, val)]
        runner.register_hook(DistEvalHook(loaders[1], save_best="acc", rule="less"), priority="LOW")
        if resume:
            runner.resume(resume)
        runner.run(loaders[:1], [("train", 1)])
        dist.barrier()
        return net.module, val

    init_dist("pytorch", backend="gloo")
    net, val = train(folder, interval=1)
    again, _ = train(f"{folder}/again", f"{folder}/epoch_1.pth", interval=1)
    best = Path(folder, "best_acc_epoch_1.pth")  # the score is drawn: with this seed the first one is the least
    from_best = train(f"{folder}/best", str(best), interval=1)[0].fc1.weight.tolist()
    train(f"{folder}/inside", interval=2, by_epoch=False)
    inside, _ = train(f"{folder}/more", f"{folder}/inside/epoch_1.pth", interval=2, by_epoch=False)
    told = {"weight": net.fc1.weight.tolist(), "mean": net.bn.running_mean.tolist()}
    told |= {"again": again.fc1.weight.tolist(), "inside": inside.fc1.weight.tolist(), "best": from_best}
    told["tracked"] = _tracked(rank)
    Path(folder, f"rank{rank}.json").write_text(json.dumps({**told, "evaluations": val.evaluations}))
    dist.destroy_process_group()


def _tracked(rank: int) -> Any:
    """What mmtracking's test gives where each process has whole videos of its own: two frames here, three there."""
    from mmtrack.apis import multi_gpu_test

    class Tracker(torch.nn.Module):
        def forward(self, return_loss: bool, x: torch.Tensor) -> dict[str, Any]:
            return {"track_bboxes": x.tolist(), "rank": rank}

    frames = [{"x": torch.tensor(float(10 * rank + number))} for number in range(2 + rank)]
    return multi_gpu_test(Tracker(), frames)


def test_two_processes_train_one_model(tmp_path: Path) -> None:
    in_two("work", tmp_path)
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    assert first["weight"] == second["weight"]
    assert first["mean"] == second["mean"]
    assert (first["evaluations"], second["evaluations"]) == (2, 0)
    assert {"epoch_1.pth", "epoch_2.pth", "latest.pth"} <= {path.name for path in tmp_path.iterdir()}
    assert first["weight"] == first["again"] == second["again"] == first["best"] == second["best"]
    assert first["weight"] == first["inside"] == second["inside"]
    assert first["tracked"] == {"track_bboxes": [0.0, 1.0, 10.0, 11.0, 12.0], "rank": [0, 0, 1, 1, 1]}
    assert second["tracked"] is None


class Numbered(torch.utils.data.Dataset[Any]):
    """Samples that say which they are."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((4,), float(index)), "y": torch.zeros(1)}


def _pass_over(kind: str, folder: Path, *, stop_at: int = 0, resume: str = "") -> None:
    """Train two epochs of 22 samples, in batches of 2 a process, and note which ones; stop and save on the way."""
    from mmcv.runner import EpochBasedRunner, Hook, IterBasedRunner, build_optimizer, get_dist_info, set_random_seed
    from torch.utils.data import DataLoader, DistributedSampler

    from tests.mmcv1.toys import Net

    rank, world = get_dist_info()

    class Notes(Hook):
        def after_train_iter(self, runner: Any) -> None:
            with open(folder / f"{kind}-{rank}.txt", "a") as file:
                file.writelines(f"{runner.epoch} {int(x[0])}\n" for x in runner.data_batch["x"])
            if runner.iter + 1 == stop_at:
                runner.engine.stop("enough", exit_code=75)

    set_random_seed(rank)
    net, data = Net(), Numbered()
    net.bn = torch.nn.Identity()  # some batches hold one sample
    sampler: Any = DistributedSampler(data, seed=3) if world > 1 else None
    loader: Any = DataLoader(data, batch_size=2, sampler=sampler, shuffle=sampler is None)
    made, length = (EpochBasedRunner, {"max_epochs": 2}) if kind == "epochs" else (IterBasedRunner, {"max_iters": 22})
    optimizer = build_optimizer(net, {"type": "SGD", "lr": 0.1})
    logger = logging.getLogger("passes")
    runner: Any = made(net, optimizer=optimizer, work_dir=str(folder), logger=logger, meta={}, **length)
    hooks = [{"type": "DistSamplerSeedHook"}] if kind == "epochs" else []
    runner.register_training_hooks({"policy": "fixed"}, {}, None, custom_hooks_config=hooks)
    runner.register_hook(Notes(), priority="LOW")
    if resume:
        runner.resume(resume)
    runner.run([loader], [("train", 1)])
    (folder / f"{kind}-{rank}.end").write_text(str(runner.iter))


def share(folder: str) -> None:
    """Train in each of two processes what one of them began, and the other way round."""
    torch.set_num_threads(1)
    from etude.dialects import imports

    imports.install()
    from mmcv.runner import init_dist

    init_dist("pytorch", backend="gloo")
    for kind, inside in (("epochs", 4), ("iters", 7)):
        two, one = Path(folder, kind, "two"), Path(folder, kind, "one")
        _pass_over(kind, two, stop_at=2)
        _pass_over(kind, one, stop_at=inside, resume=str(one / "stopped_iter_5.pth"))
        dist.barrier()
        _pass_over(kind, one, resume=str(one / f"stopped_iter_{inside}.pth"))
    dist.destroy_process_group()


def test_another_number_of_processes_shares_what_is_left_of_an_epoch(tmp_path: Path) -> None:
    """From one to two, stopped again inside the rest, and from two to one: each sample of an epoch is seen once."""
    for kind in ("epochs", "iters"):
        for name in ("one", "two"):
            (tmp_path / kind / name).mkdir(parents=True)
        _pass_over(kind, tmp_path / kind / "one", stop_at=5)
    in_two("share", tmp_path)
    for kind in ("epochs", "iters"):
        _pass_over(kind, tmp_path / kind / "two", resume=str(tmp_path / kind / "two/stopped_iter_2.pth"))
        # Of the first epoch: what a process alone took, then each of two; or two of them, and then one alone.
        for name, firsts in (("one", (16, 6)), ("two", (18, 4))):
            lines = [(tmp_path / kind / name / f"{kind}-{rank}.txt").read_text().split("\n") for rank in (0, 1)]
            seen = [line.split()[1] for own, first in zip(lines, firsts, strict=True) for line in own[:first]]
            assert sorted(seen, key=int) == [str(sample) for sample in range(22)], (kind, name)
    ends = [(tmp_path / "epochs" / name / "epochs-0.end").read_text() for name in ("one", "two")]
    assert ends == ["12", "22"]  # two epochs of two processes, and of one
