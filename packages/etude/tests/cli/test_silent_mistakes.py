"""Settings that run and do something else than they say: refused, or warned of with what was probably meant."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import etude
from etude.data import Digits
from etude.errors import ReturnError
from tests.cli.commands import CONFIG, Commands

TEST = CONFIG.replace("optim:", "  test: {dataset: {type: Digits, split: val}, batch_size: 90}\noptim:")


@pytest.mark.parametrize(
    ("text", "override", "code", "said"),
    [
        (TEST, "+hooks=[{type: Evaluate, split: test}]", 2, "Checkpoint judges by best, and test and val are both evaluated"),
        (CONFIG, "+checkpoint.mode=min", 0, "Checkpoint: mode 'min' takes the worst accuracy for the best; leave `mode` out"),
        (CONFIG, "+hooks=[{type: EarlyStop, metric: loss, mode: max}]", 0, "mode 'max' takes the worst loss for the best"),
        (CONFIG, "+hooks=[{type: EMA, momentum: 0.999}]", 0, "momentum 0.999 is the share of the new weights"),
        (CONFIG, "optim.groups=[{match: '*.weight', lr_mult: -1}]", 2, "lr_mult is -1; it cannot be negative"),
        (CONFIG, "data.val.dataset.split=train", 0, "data.val is the data of data.train (Digits with the same arguments)"),
        (CONFIG.replace("checkpoint: {", "checkpoint: false #"), "train.nonfinite=rollback", 2, "rollback needs checkpoints"),
        (CONFIG, "loss=NLLLoss", 2, "NLLLoss takes log-probabilities, and the model's outputs reach"),
    ],
)  # fmt: skip
def test_it_is_told(command: Commands, text, override, code, said):
    done = command("train", "s.yaml", override, "--folder", "run", s_yaml=text)
    assert done.code == code, done.err
    assert said in done.err


def test_probabilities_and_logits_are_told_apart_in_python():
    def trained(last, loss):
        model = nn.Sequential(nn.Linear(64, 10), last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return etude.Trainer(model, optimizer=optimizer, loss=loss, quiet=True).fit(Digits("train"), steps=2)

    with pytest.raises(ReturnError, match="NLLLoss takes log-probabilities"):
        trained(nn.Identity(), nn.NLLLoss())
    with pytest.warns(UserWarning, match="outputs are probabilities, and CrossEntropyLoss takes logits"):
        trained(nn.Softmax(1), nn.CrossEntropyLoss())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(nn.LogSoftmax(1), nn.NLLLoss())
        run = trained(nn.Identity(), nn.CrossEntropyLoss())
    assert not [hook for hook in run.hooks if type(hook).__module__ == "etude.session.first_step.own_update"]
