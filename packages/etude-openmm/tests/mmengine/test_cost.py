from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from tests.mmengine import toy


class Reads(TorchDispatchMode):
    """How often a tensor became a Python number."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "_local_scalar_dense" in str(func)
        return func(*args, **(kwargs or {}))


def test_no_tensor_is_read_between_log_lines(tmp_path: Path) -> None:
    reads, by_iter = Reads(), {}

    class Note(toy.Hook):
        priority = "LOWEST"

        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            by_iter[runner.iter + 1], reads.count = reads.count, 0

    class Quiet(toy.Net):
        def forward(self, inputs: Any, data_samples: Any = None, mode: str = "tensor") -> Any:
            return {"loss": self.fc(inputs[0]).pow(2).sum()}

    runner = toy.make(
        tmp_path,
        model=Quiet(),
        train_dataloader=toy.loader(80),
        train_cfg={"by_epoch": False, "max_iters": 40},
        # torch's plain AdamW reads its own step counters, which are on the CPU; the fused one does not.
        optim_wrapper={"optimizer": {"type": "AdamW", "lr": 0.1, "fused": True}, "clip_grad": {"max_norm": 1.0}},
        param_scheduler={"type": "CosineAnnealingLR", "by_epoch": False},
        default_hooks={"logger": {"type": "LoggerHook", "interval": 10}, "checkpoint": None},
        custom_hooks=[{"type": "EMAHook"}, Note()],
    )
    with reads:
        runner.train()
    by_iter.pop(1)  # torch's dataloader draws a seed when it begins
    assert sum(count for number, count in by_iter.items() if number % 10) == 0
    assert len(by_iter) == 39
