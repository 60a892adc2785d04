"""What messages about a step name: the loss that is wrong, with its line in the config."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from etude.core.describe import (
    FORWARD,
    batch_ids,
    describe,
    last_good,
    shapes,
    step_of,
    where_of,
)
from etude.core.returned import note_step, wrong_loss
from etude.errors import UserCodeError
from etude.plan import Place, Spec


@pytest.mark.parametrize(
    ("name", "place"), [("MSELoss", "config.yaml:3"), ("L1Loss#1", "config.yaml:4"), ("Other", "")]
)
def test_a_loss_that_is_not_one_number_is_named_with_its_line(name, place):
    losses = [
        Spec(kind="loss", name="torch.nn.MSELoss", at=Place("config.yaml", 3)),
        Spec(kind="loss", name="L1Loss", at=Place("config.yaml", 4)),
    ]
    run = SimpleNamespace(plan=SimpleNamespace(losses=losses))
    text = wrong_loss(run, {"good": torch.tensor(1.0, requires_grad=True), name: torch.ones(2, 3)})
    said = f"the loss {name} returned a tensor of shape (2, 3)"
    assert text.startswith(f"{place}: {said}" if place else said)
    assert wrong_loss(SimpleNamespace(plan=None), {name: torch.ones(2)}).startswith(f"the loss {name} ")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.ones(2, 3), "a tensor of shape (2, 3)"), ({"x": 1, "y": 2}, "a dict with keys x, y"),
        ({}, "a dict with keys none"), ([1, 2], "a list of 2"), ("text", "a str"), (3, "a int"),
    ],
)  # fmt: skip
def test_values_are_described_by_kind_and_size(value, words):
    assert describe(value) == words


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ((torch.ones(2, 3), torch.ones(2)), "batch of (2, 3) and (2,)"), (torch.ones(4), "batch of (4,)"),
        ({"x": torch.ones(1), "name": "a"}, "batch of x (1,)"), ("text", "batch of str"),
    ],
)  # fmt: skip
def test_batches_are_described_by_the_shapes_of_their_tensors(batch, words):
    assert shapes(batch) == words


def failed(error: Exception, *, plan=None, model=None, step: int = 4) -> str:
    run = SimpleNamespace(plan=plan, model=model or torch.nn.Linear(1, 1), step=step, batch=(torch.ones(2, 3), "x"))
    return where_of(error, run, run.batch)


def test_an_error_of_a_loss_names_it_with_what_it_was_given():
    error = ValueError("no")
    error.etude_loss = "L1Loss", torch.ones(2, 3), "cat"
    assert failed(error) == "loss L1Loss, step 5, output (2, 3) float32, target a str"
    plan = SimpleNamespace(losses=[Spec(kind="loss", name="torch.nn.L1Loss", at=Place("c.yaml", 4))])
    assert failed(error, plan=plan).startswith("c.yaml:4: loss L1Loss, step 5")


def test_an_error_of_the_model_names_its_line_in_the_config_where_there_is_one():
    words = "model Linear, step 5, batch of (2, 3)"
    assert failed(ValueError("no")) == words
    for place, at in ((Place("c.yaml", 2), "c.yaml:2: "), (Place(""), "")):
        plan = SimpleNamespace(model=Spec(kind="model", name="Linear", at=place), losses=())
        assert failed(ValueError("no"), plan=plan) == at + words
    told = UserCodeError("the loss says itself what is wrong")
    told.etude_loss = "L1Loss", torch.ones(1), torch.ones(1)
    assert failed(told) == words


def test_a_step_is_named_by_the_model_that_a_wrapper_holds():
    for model in (torch.nn.Linear(1, 1), torch.nn.DataParallel(torch.nn.Linear(1, 1))):
        assert step_of(SimpleNamespace(model=model, step=4)) == "model Linear, step 5"


@pytest.mark.parametrize(("acting", "where"), [(FORWARD, True), ("update", False), (None, False)])
def test_only_an_error_of_the_forward_pass_tells_what_the_batch_was(acting, where):
    own = {"runner": None, "train_fn": None, "outputs": None}
    run = SimpleNamespace(plan=None, model=torch.nn.Linear(1, 1), step=0, batch=torch.ones(2), acting=acting, **own)
    note_step(error := ValueError("no"), run)
    assert error.etude_step == "model Linear, step 1" and hasattr(error, "etude_where") == where


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, ""), (2, ", batch ids 0, 1"), (8, ", batch ids 0, 1, 2, 3, 4, 5, 6, 7"),
        (9, ", batch ids 0, 1, 2, 3, 4, 5, 6, 7, …"),
    ],
)  # fmt: skip
def test_the_first_samples_of_a_batch_are_named(count, words):
    loader = SimpleNamespace(sample_ids=lambda: list(range(count)))
    assert batch_ids(SimpleNamespace(data={"train": loader})) == words
    assert batch_ids(SimpleNamespace(data={})) == ""


@pytest.mark.parametrize(
    ("store", "words"),
    [
        (None, "no checkpoint was saved yet"), (SimpleNamespace(newest=lambda: None), "no checkpoint was saved yet"),
        (SimpleNamespace(newest=lambda: "a/3"), "last good checkpoint: a/3"),
    ],
)  # fmt: skip
def test_the_last_good_checkpoint_is_named(store, words):
    assert last_good(SimpleNamespace(store=store)) == words
