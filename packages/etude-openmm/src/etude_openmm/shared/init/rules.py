"""Weight initialisers (``ConstantInit``, ``KaimingInit`` …), and how an ``init_cfg`` applies them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from etude.errors import UserError
from etude_openmm.shared.errors import ConfigRuntimeError, ConfigTypeError, ConfigValueError
from etude_openmm.shared.init.functions import (
    bias_init_with_prob,
    constant_init,
    kaiming_init,
    normal_init,
    trunc_normal_init,
    uniform_init,
    xavier_init,
)
from etude_openmm.shared.reading.source import missing_weights


class BaseInit:
    """Initialises modules whose class, or a direct base of it, is in ``layer``; all modules if ``wholemodule``."""

    #: Initialises one module, and the names of its arguments, in the order of the log.
    function: Callable[..., None]
    arguments: tuple[str, ...] = ()

    def __init__(
        self, *, bias: float = 0, bias_prob: float | None = None, layer: str | list[str] | None = None
    ) -> None:
        self.wholemodule = False
        if not isinstance(bias, int | float):
            raise ConfigTypeError(f"bias must be a number, but got a {type(bias)}")
        if bias_prob is not None and not isinstance(bias_prob, float):
            raise ConfigTypeError(f"bias_prob type must be float, but got {type(bias_prob)}")
        if layer is not None and not isinstance(layer, str | list):
            raise ConfigTypeError(f"layer must be a str or a list of str, but got a {type(layer)}")
        self.layer: list[str] | str = layer if layer is not None else []
        self.bias = bias_init_with_prob(bias_prob) if bias_prob is not None else bias

    def __call__(self, module: nn.Module) -> None:
        names = {self.layer} if isinstance(self.layer, str) else set(self.layer)

        def touch(one: nn.Module) -> None:
            if self.wholemodule or names & {type(one).__name__, *_get_bases_name(one)}:
                self._fill(one)

        module.apply(touch)
        if hasattr(module, "_params_init_info"):
            update_init_info(module, init_info=self._get_init_info())

    def _fill(self, module: nn.Module) -> None:
        self.function(module, **self._arguments(), bias=self.bias)

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.arguments}

    def _get_init_info(self) -> str:
        said = ", ".join(f"{name}={value}" for name, value in {**self._arguments(), "bias": self.bias}.items())
        return f"{type(self).__name__}: {said}"


class ConstantInit(BaseInit):
    function = staticmethod(constant_init)
    arguments = ("val",)

    def __init__(self, val: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.val = val


class XavierInit(BaseInit):
    function = staticmethod(xavier_init)
    arguments = ("gain", "distribution")

    def __init__(self, gain: float = 1, distribution: str = "normal", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gain, self.distribution = gain, distribution


class NormalInit(BaseInit):
    function = staticmethod(normal_init)
    arguments = ("mean", "std")

    def __init__(self, mean: float = 0, std: float = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mean, self.std = mean, std


class TruncNormalInit(BaseInit):
    function = staticmethod(trunc_normal_init)
    arguments = ("a", "b", "mean", "std")

    def __init__(self, mean: float = 0, std: float = 1, a: float = -2, b: float = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mean, self.std, self.a, self.b = mean, std, a, b


class UniformInit(BaseInit):
    function = staticmethod(uniform_init)
    arguments = ("a", "b")

    def __init__(self, a: float = 0, b: float = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.a, self.b = a, b


class KaimingInit(BaseInit):
    function = staticmethod(kaiming_init)
    arguments = ("a", "mode", "nonlinearity", "distribution")

    def __init__(
        self,
        a: float = 0,
        mode: str = "fan_out",
        nonlinearity: str = "relu",
        distribution: str = "normal",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.a, self.mode, self.nonlinearity, self.distribution = a, mode, nonlinearity, distribution

    def _get_init_info(self) -> str:
        # The originals log a blank behind this name.
        return super()._get_init_info().replace("distribution=", "distribution =")


class Caffe2XavierInit(KaimingInit):
    """Initialises as "XavierFill" of Caffe2 does, which is Kaiming initialisation with a uniform distribution."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(a=1, mode="fan_in", nonlinearity="leaky_relu", distribution="uniform", **kwargs)


def update_init_info(module: nn.Module, init_info: str) -> None:
    """Record ``init_info`` for every parameter of ``module`` whose mean has changed since the last check."""
    assert hasattr(module, "_params_init_info"), f"Can not find `_params_init_info` in {module}"
    notes: Any = module._params_init_info
    for name, parameter in module.named_parameters():
        if parameter not in notes:
            raise AssertionError(
                f"Find a new :obj:`Parameter` named `{name}` during executing the `init_weights` of "
                f"`{type(module).__name__}`. Do not add or replace parameters there."
            )
        mean = parameter.data.mean().cpu()
        # As in the originals, a parameter counts as changed if its mean has changed.
        if notes[parameter]["tmp_mean_value"] != mean:
            notes[parameter]["init_info"] = init_info
            notes[parameter]["tmp_mean_value"] = mean


def _get_bases_name(module: nn.Module) -> list[str]:
    return [base.__name__ for base in type(module).__bases__]


class NoWeights(UserError, FileNotFoundError):
    """The weights of a ``Pretrained`` rule do not exist."""


class PretrainedRule:
    """Loads weights from a checkpoint, or from the part of it below ``prefix``."""

    def __init__(self, checkpoint: str, prefix: str | None = None, map_location: Any = None) -> None:
        self.checkpoint, self.prefix, self.map_location = checkpoint, prefix, map_location

    def load_into(self, module: nn.Module, files: Any, print_log: Callable[..., None], logger: Any) -> None:
        """Load with the functions of ``files``, the checkpoint module of mmcv 1.x or of MMEngine."""
        if lack := missing_weights(self.checkpoint):
            raise NoWeights("; ".join(filter(None, (f"checkpoint of a Pretrained init_cfg: {lack[0]}", lack[1]))))
        if self.prefix is None:
            print_log(f"load model from: {self.checkpoint}", logger=logger)
            files.load_checkpoint(module, self.checkpoint, self.map_location, strict=False, logger=logger)
        else:
            print_log(f"load {self.prefix} in model from: {self.checkpoint}", logger=logger)
            state = files._load_checkpoint_with_prefix(self.prefix, self.checkpoint, self.map_location)
            files.load_state_dict(module, state, strict=False, logger=logger)
        if hasattr(module, "_params_init_info"):
            update_init_info(module, init_info=self._get_init_info())

    def _get_init_info(self) -> str:
        return f"{type(self).__name__}: load from {self.checkpoint}"


#: Builds an initialiser from its config.
Make = Callable[[dict[str, Any]], Any]


def apply_init_cfg(module: nn.Module, init_cfg: Any, make: Make) -> None:
    """Apply every rule of ``init_cfg`` in order."""
    if not isinstance(init_cfg, dict | list):
        raise ConfigTypeError(f"init_cfg must be a dict or a list of dict, but got {type(init_cfg)}")
    for rule in [init_cfg] if isinstance(init_cfg, dict) else init_cfg:
        outer = copy.deepcopy(rule)
        override = outer.pop("override", None)
        _apply(module, outer, make, whole=False)
        if override is not None:
            outer.pop("layer", None)
            _apply_override(module, override, outer, make)


def _apply(module: nn.Module, rule: dict[str, Any], make: Make, *, whole: bool) -> None:
    initialiser = make(rule)
    initialiser.wholemodule = whole
    initialiser(module)


def _apply_override(module: nn.Module, override: Any, outer: dict[str, Any], make: Make) -> None:
    if not isinstance(override, dict | list):
        raise ConfigTypeError(f"override must be a dict or a list of dict, but got {type(override)}")
    for one in [override] if isinstance(override, dict) else override:
        rule = copy.deepcopy(one)
        name = rule.pop("name", None)
        if name is None:
            raise ConfigValueError(f'`override` must contain the key "name", but got {rule}')
        if not rule:
            rule.update(outer)
        elif "type" not in rule:
            raise ConfigValueError(f'`override` need "type" key, but got {rule}')
        if not hasattr(module, name):
            raise ConfigRuntimeError(
                f"module did not have attribute {name}, but init_cfg is {rule}.",
                hint=f"it has: {', '.join(child for child, _ in module.named_children())}",
            )
        _apply(getattr(module, name), rule, make, whole=True)


class InitModule(nn.Module):
    """The common part of both ``BaseModule`` classes. Subclasses define ``init_weights``."""

    def __init__(self, init_cfg: Any = None) -> None:
        super().__init__()
        self._is_init = False
        self.init_cfg = copy.deepcopy(init_cfg)

    @property
    def is_init(self) -> bool:
        return self._is_init

    @is_init.setter
    def is_init(self, value: bool) -> None:
        self._is_init = value

    def __repr__(self) -> str:
        text = super().__repr__()
        return f"{text}\ninit_cfg={self.init_cfg}" if self.init_cfg else text


def init_child(child: Any) -> None:
    """Call ``init_weights`` of ``child``, and record that."""
    child.init_weights()
    update_init_info(child, init_info=f"Initialized by user-defined `init_weights` in {type(child).__name__} ")


class SequentialModule(InitModule, nn.Sequential):
    """``nn.Sequential`` with an ``init_cfg``."""

    def __init__(self, *args: Any, init_cfg: Any = None) -> None:
        InitModule.__init__(self, init_cfg)
        nn.Sequential.__init__(self, *args)


class ModuleListModule(InitModule, nn.ModuleList):
    """``nn.ModuleList`` with an ``init_cfg``."""

    def __init__(self, modules: Iterable[nn.Module] | None = None, init_cfg: Any = None) -> None:
        InitModule.__init__(self, init_cfg)
        nn.ModuleList.__init__(self, modules)


class ModuleDictModule(InitModule, nn.ModuleDict):
    """``nn.ModuleDict`` with an ``init_cfg``."""

    def __init__(self, modules: Any = None, init_cfg: Any = None) -> None:
        InitModule.__init__(self, init_cfg)
        nn.ModuleDict.__init__(self, modules)
