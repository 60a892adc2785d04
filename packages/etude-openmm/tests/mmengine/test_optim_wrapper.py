from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.mmengine import toy  # isort: skip  (serves the names below)
from mmengine.optim import AmpOptimWrapper, OptimWrapper, OptimWrapperDict


def model_and_sgd(**options: Any) -> tuple[nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, **options)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_accumulation_equals_one_batch_of_all(count: int) -> None:
    torch.manual_seed(1)
    batches = [torch.randn(4, 2) for _ in range(count)]
    model, optimizer = model_and_sgd()
    wrapper = OptimWrapper(optimizer, accumulative_counts=count)
    wrapper.initialize_count_status(model, 0, count)
    for batch in batches:
        with wrapper.optim_context(model):
            loss = model(batch).pow(2).mean()
        wrapper.update_params(loss)
    whole, plain = model_and_sgd()
    whole(torch.cat(batches)).pow(2).mean().backward()
    plain.step()
    assert torch.allclose(model.weight, whole.weight, atol=1e-6)
    assert model.weight.grad is None


@pytest.mark.parametrize("done", [0, 4, 9])
def test_the_last_group_is_as_large_after_a_resume(done: int) -> None:
    model, optimizer = model_and_sgd()
    wrapper = OptimWrapper(optimizer, accumulative_counts=3)
    wrapper.initialize_count_status(model, done, 11)
    sizes = []
    for _ in range(done, 11):
        sizes.append(round(1 / wrapper.scale_loss(torch.tensor(1.0)).item()))
        wrapper.update_params(model(torch.ones(1, 2)).sum())
    assert sizes == [3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2][done:]


def test_the_text_of_a_wrapper_is_followed_by_that_of_its_optimizer() -> None:
    _, optimizer = model_and_sgd()
    text = f"Type: OptimWrapper\n_accumulative_counts: 2\noptimizer: \n{optimizer!r}\n"
    assert repr(OptimWrapper(optimizer, accumulative_counts=2)) == text


def test_a_group_of_several_groups_shows_the_schedule_without_multipliers() -> None:
    model, _ = model_and_sgd()
    groups = [{"params": [model.weight], "lr": 0.2}, {"params": [model.bias]}]
    wrapper = OptimWrapper(torch.optim.SGD(groups, lr=0.1, momentum=0.9))
    assert wrapper.get_lr() == {"base_lr": [0.1], "lr": [0.2, 0.1]}
    assert len(wrapper.param_groups) == 3 and wrapper.get_momentum() == {"momentum": [0.9, 0.9]}
    state = wrapper.state_dict()
    state["base_param_settings"] = {**state["base_param_settings"], "lr": 0.5}
    wrapper.load_state_dict(state)
    assert wrapper.get_lr()["base_lr"] == [0.5] and "base_param_settings" in state


@pytest.mark.parametrize(
    ("options", "error"),
    [({"accumulative_counts": 0}, AssertionError), ({"clip_grad": {}}, AssertionError), ({"clip_grad": []}, AssertionError),
     ({"clip_grad": {"type": "norm"}}, AssertionError), ({"clip_grad": {"type": "x", "a": 1}}, ValueError)],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        OptimWrapper(model_and_sgd()[1], **options)


@pytest.mark.parametrize("loss_scale", ["dynamic", 8.0, {"init_scale": 4.0, "growth_interval": 1}])
def test_mixed_precision_works_on_the_cpu(loss_scale: Any) -> None:
    model, optimizer = model_and_sgd()
    wrapper = AmpOptimWrapper(optimizer=optimizer, loss_scale=loss_scale, clip_grad={"max_norm": 10.0})
    before = model.weight.detach().clone()
    for _ in range(3):
        with wrapper.optim_context(model):
            out = model(torch.ones(4, 2))
        assert out.dtype == torch.bfloat16
        wrapper.update_params(out.float().pow(2).mean())
    assert not torch.equal(before, model.weight) and torch.isfinite(model.weight).all()
    scale = wrapper.loss_scaler.get_scale()
    assert scale == {"dynamic": 65536.0, "8.0": 8.0}.get(str(loss_scale), 32.0)
    other = AmpOptimWrapper(optimizer=model_and_sgd()[1])
    other.load_state_dict(wrapper.state_dict())
    assert other.loss_scaler.get_scale() == scale


def test_mixed_precision_refuses_what_it_does_not_know() -> None:
    with pytest.raises(TypeError):
        AmpOptimWrapper(optimizer=model_and_sgd()[1], loss_scale="fast")
    with pytest.raises(AssertionError):
        AmpOptimWrapper(optimizer=model_and_sgd()[1], dtype="int8")


def test_several_wrappers_are_used_one_by_one() -> None:
    one, other = OptimWrapper(model_and_sgd()[1]), OptimWrapper(model_and_sgd(momentum=0.5)[1])
    both = OptimWrapperDict(gen=one, disc=other)
    assert list(both.keys()) == ["gen", "disc"] and both["gen"] is one and "disc" in both and len(both) == 2
    assert both.get_momentum() == {"gen.momentum": [0], "disc.momentum": [0.5]}
    for verb, given in (("update_params", [None]), ("backward", [None]), ("step", []), ("optim_context", [None])):
        with pytest.raises(NotImplementedError):
            getattr(both, verb)(*given)
    both.load_state_dict(both.state_dict())
    with pytest.raises(AssertionError):
        both.load_state_dict({"unknown": {}})
    with pytest.raises(AssertionError):
        OptimWrapperDict(a=1)


def test_adam_uses_the_kernels_of_the_original_unless_the_config_asks_for_others(tmp_path: Any) -> None:
    runner = toy.make(tmp_path)
    made = runner.build_optim_wrapper({"optimizer": {"type": "AdamW", "lr": 0.1}})
    assert not made.optimizer.param_groups[0]["fused"]
    asked = runner.build_optim_wrapper({"optimizer": {"type": "AdamW", "lr": 0.1, "fused": True}})
    assert asked.optimizer.param_groups[0]["fused"] is True


@pytest.mark.parametrize("options", [{"max_norm": 0.1}, {"max_norm": 9.0}, {"max_norm": 0.1, "norm_type": "inf"}])
@pytest.mark.parametrize("mixed", [False, True])
def test_clipping_gives_the_numbers_of_torch(options: dict[str, Any], mixed: bool) -> None:
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(size)) for size in (1, 7, 33)]
    if mixed:
        params.append(nn.Parameter(torch.randn(3, dtype=torch.float64)))
    for param in params:
        param.grad = torch.randn_like(param)
    others = [nn.Parameter(param.detach().clone()) for param in params]
    for other, param in zip(others, params, strict=True):
        other.grad = param.grad.clone()
    norm = torch.nn.utils.clip_grad_norm_(others, **options)
    wrapper = OptimWrapper(torch.optim.SGD(params, lr=0.1), clip_grad=options)
    wrapper._clip_grad()
    assert all(torch.equal(param.grad, other.grad) for param, other in zip(params, others, strict=True))
    assert wrapper.message_hub.get_scalar("train/grad_norm").current() == norm.item()


def test_gradients_are_forgotten_in_the_way_of_the_optimizer() -> None:
    class Keeps(torch.optim.SGD):
        def zero_grad(self, set_to_none: bool = False) -> None:
            super().zero_grad(set_to_none)

    for kind, forgotten in ((torch.optim.SGD, None), (Keeps, 0.0)):
        param = nn.Parameter(torch.ones(1))
        param.grad = torch.ones(1)
        OptimWrapper(kind([param], lr=0.1)).zero_grad()
        assert (None if param.grad is None else param.grad.item()) == forgotten
