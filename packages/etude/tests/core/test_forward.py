"""How a batch is taken apart, what the model is called with, and which losses come of it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from etude.core.forward import Forward, named_losses, takes
from etude.errors import UserCodeError


def test_a_loss_that_fails_notes_its_name_and_what_it_was_given():
    def broken(output, target):
        raise ValueError("no")

    batch = torch.ones(2), torch.zeros(2)
    with pytest.raises(ValueError) as caught:
        Forward(nn.Identity(), {"good": nn.MSELoss(), "broken": broken})(batch)
    name, output, target = caught.value.etude_loss
    assert name == "broken" and output is batch[0] and target is batch[1]


def test_a_model_without_a_loss_that_does_not_take_the_batch_is_told_to_name_one():
    with pytest.raises(UserCodeError, match=r"no `loss` is named.*\(a tuple of 2\).*; Identity does not take it"):
        Forward(nn.Identity())((torch.ones(2), torch.ones(2)))


def test_an_error_inside_a_model_with_its_own_loss_stays_as_it_is():
    class Broken(nn.Module):
        def forward(self, x, target):
            raise TypeError("inside")

    with pytest.raises(TypeError, match="^inside$"):
        Forward(Broken())((torch.ones(2), torch.ones(2)))


@pytest.mark.parametrize(
    ("batch", "parts"),
    [
        ((1, 2), ((1,), 2)), ([1, 2, 3], ([1, 2], 3)), ({"x": 1, "y": 2}, ({"x": 1}, 2)),
        ({"label": 1, "y": 2}, ({"y": 2}, 1)),
    ],
)  # fmt: skip
def test_a_batch_is_inputs_and_a_target(batch, parts):
    assert Forward(nn.Identity()).split(batch) == parts


@pytest.mark.parametrize(
    ("batch", "words"), [((1,), "a tuple of 1"), ({"x": 1}, "a dict with keys x"), (torch.ones(2), "a tensor of shape")]
)
def test_a_batch_without_a_target_is_refused_where_a_loss_needs_one(batch, words):
    with pytest.raises(UserCodeError, match=f"a loss needs batches of .*one of target, .*; this batch is {words}"):
        Forward(nn.Identity()).split(batch)


def test_a_model_that_is_written_in_c_may_take_anything():
    class Native(nn.Module):
        forward = type  # has no signature

    assert takes(Native(), (1, 2, 3, 4))


@pytest.mark.parametrize("output", [{"acc": torch.ones(())}, {"loss": None}, "text", torch.ones(2)])
def test_an_output_without_a_loss_is_refused(output):
    with pytest.raises(UserCodeError, match="the model returned no loss"):
        named_losses(output)


@pytest.mark.parametrize("value", [1.0, [torch.ones(()), 1.0], "text"])
def test_a_loss_that_is_no_tensor_is_refused(value):
    with pytest.raises(UserCodeError, match="a loss must be a tensor or a list of tensors, not a "):
        named_losses({"loss": value})
