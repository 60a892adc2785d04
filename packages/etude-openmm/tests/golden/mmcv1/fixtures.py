"""Small fixtures that the recorded cases were run with (no engine import here)."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def untag(o):
    """JSON -> Python: {"__tuple__": [...]} and {"__float__": "nan"} are the only tags."""
    if isinstance(o, dict):
        if set(o) == {"__tuple__"}:
            return tuple(untag(x) for x in o["__tuple__"])
        if set(o) == {"__float__"}:
            return float(o["__float__"])
        return {k: untag(v) for k, v in o.items()}
    return [untag(x) for x in o] if isinstance(o, list) else o


class FakeClock:
    """What the iteration timer reads: +0.25 s per reading, starting at 1000."""

    def __init__(self):
        self.t = 1000.0

    def time(self):
        self.t += 0.25
        return self.t


class ToySet(Dataset):
    """n samples, float64; evaluate() returns the scripted results one after another (cyclic)."""

    def __init__(self, n, offset=0, results=None):
        self.n, self.offset, self.results, self.calls = n, offset, results, []

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        i += self.offset
        return {
            "x": torch.tensor([((7 * i) % 11) / 11, ((3 * i) % 5) / 5], dtype=torch.float64),
            "y": torch.tensor([((i * i) % 7) / 7], dtype=torch.float64),
        }

    def evaluate(self, results, logger=None, **kwargs):
        r = self.results[len(self.calls) % len(self.results)]
        self.calls.append(kwargs)
        return dict(untag(r)) if r is not None else {}


def loader(n_iters, batch=2, offset=0, results=None, n=None):
    return DataLoader(ToySet(n if n is not None else n_iters * batch, offset, results), batch_size=batch, shuffle=False)


def set_params(model):
    """k-th element of the j-th parameter = 0.3 * cos(1.7 j + 0.9 k)."""
    with torch.no_grad():
        for j, p in enumerate(model.parameters()):
            k = torch.arange(p.numel(), dtype=torch.float64)
            p.copy_((0.3 * torch.cos(1.7 * j + 0.9 * k)).reshape(p.shape).to(p.dtype))


class ToyNet(nn.Module):
    """2 -> fc1 -> 3 -> tanh -> fc2 -> 1, mean squared error, float64."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(2, 3), nn.Linear(3, 1)
        self.double()
        set_params(self)

    def forward(self, x, y=None, return_loss=True):
        out = self.fc2(torch.tanh(self.fc1(x)))
        return ((out - y) ** 2).mean() if return_loss else list(out)

    def train_step(self, data, optimizer=None, **kwargs):
        loss = self(**data)
        return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": len(data["x"])}

    val_step = train_step


class ToyNetExtra(ToyNet):
    """for log cases with extra_vars: three logged variables."""

    def train_step(self, data, optimizer=None, **kwargs):
        o = super().train_step(data, optimizer)
        v = o["log_vars"]["loss"]
        o["log_vars"] = {"loss_a": v, "acc": float(len(data["x"])), "loss": v}
        return o


def make_trace_hooks(Hook, record):
    """Hook = the dialect's hook base class. record gets [tag, method, epoch, iter, inner_iter, mode]."""
    stages = (
        "before_run",
        "before_train_epoch",
        "before_train_iter",
        "after_train_iter",
        "after_train_epoch",
        "before_val_epoch",
        "before_val_iter",
        "after_val_iter",
        "after_val_epoch",
        "after_run",
    )
    generic = ("before_run", "before_epoch", "before_iter", "after_iter", "after_epoch", "after_run")
    mixed = ("before_epoch", "after_iter", "before_train_epoch", "after_val_iter", "after_train_epoch")

    def build(name, methods, call_base):
        def init(self, tag):
            self.tag = tag

        ns = {"__init__": init}
        for m in methods:

            def f(self, runner, _m=m):
                record.append([self.tag, _m, runner.epoch, runner.iter, runner.inner_iter, runner.mode])
                if call_base:
                    getattr(Hook, _m)(self, runner)

            ns[m] = f
        return type(name, (Hook,), ns)

    return {
        "StageHook": build("StageHook", stages, False),
        "GenericHook": build("GenericHook", generic, False),
        "MixedHook": build("MixedHook", mixed, True),
    }


# --- nets for param_groups.json
class _Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.dw = nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 3, groups=8)
        self.bn, self.gn = nn.BatchNorm2d(8), nn.GroupNorm(2, 8)


class _Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.ln, self.fc = nn.LayerNorm(8), nn.Linear(8, 3)


class PNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 8))
        self.stem = nn.Conv2d(1, 4, 3, bias=False)
        self.backbone = nn.Sequential(_Block(), _Block())
        self.inorm = nn.InstanceNorm2d(4, affine=True)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.head = _Head()
        self.conv1d = nn.Conv1d(3, 3, 3, groups=3)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.b.weight = self.a.weight
        self.c = self.a


# --- nets for init_cfg.json / init_hierarchy.json / load_checkpoint.json; Base = the dialect's BaseModule
class Sub(nn.Linear):
    pass


def make_init_nets(Base):
    class InitNet(Base):
        def __init__(self, init_cfg=None):
            super().__init__(init_cfg)
            self.conv, self.fc, self.sub, self.bn = nn.Conv2d(2, 3, 2), nn.Linear(3, 2), Sub(2, 2), nn.BatchNorm2d(3)

    class Leaf(Base):
        def __init__(self, init_cfg=None):
            super().__init__(init_cfg)
            self.fc = nn.Linear(1, 1)

    class Outer(Base):
        def __init__(self, init_cfg=None, leaf_cfg=None):
            super().__init__(init_cfg)
            self.leaf, self.own = Leaf(leaf_cfg), nn.Linear(1, 1)

    return InitNet, Leaf, Outer
