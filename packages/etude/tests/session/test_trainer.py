"""The engine from Python: what ``Trainer`` takes, refuses and saves."""

from __future__ import annotations

import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import etude
from etude.data import Digits, TensorData
from etude.errors import ConfigError, ReturnError, UserCodeError, UserError
from etude.metrics import RMSE, Accuracy
from etude.schedules.curves import Cosine, Linear


def make(**extra):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return etude.Trainer(model, **{"optimizer": optimizer, "loss": nn.CrossEntropyLoss(), "quiet": True, **extra})


class Rates(etude.Hook):
    """The learning rate of every step."""

    def __init__(self):
        self.seen = []

    def before_update(self, run):
        self.seen.append(round(run.optimizers[""].param_groups[0]["lr"], 6))


def data(count=40):
    generator = torch.Generator().manual_seed(1)
    return TensorData(torch.randn(count, 64, generator=generator), torch.arange(count) % 10)


def test_a_schedule_is_a_curve_phases_or_a_mapping():
    one, two, three = Rates(), Rates(), Rates()
    make(schedule=Cosine(), hooks=[one]).fit(data(), epochs=2, batch_size=10)
    make(schedule=[(Linear(0.0, 1.0), "4step"), "Cosine"], hooks=[two]).fit(data(), epochs=2, batch_size=10)
    make(schedule={"lr": lambda share: 1 - share}, hooks=[three]).fit(data(), epochs=2, batch_size=10)
    assert one.seen[0] == 0.1 and one.seen == sorted(one.seen, reverse=True) and one.seen[4] == 0.05
    assert two.seen[:5] == [0.0, 0.025, 0.05, 0.075, 0.1] and two.seen[6] == 0.05
    assert three.seen == [0.1, 0.0875, 0.075, 0.0625, 0.05, 0.0375, 0.025, 0.0125]
    with pytest.raises(ConfigError, match="is not a curve"):
        make(schedule=3)


def torch_scheduler(kind, optimizer):
    return {
        "epoch": lambda: lr_scheduler.StepLR(optimizer, 1, gamma=0.5),
        "step": lambda: lr_scheduler.StepLR(optimizer, 3, gamma=0.5),
        "loss": lambda: lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10.0, factor=0.5),
    }[kind]()


@pytest.mark.parametrize("kind", ["epoch", "step", "loss"])
def test_a_scheduler_of_torch_is_stepped_and_resumed(kind, tmp_path):
    def trained(folder, *lengths):
        for epochs in lengths:
            rates, trainer = Rates(), make(folder=folder)
            scheduler = torch_scheduler(kind, trainer.optimizers[""])
            model, optimizer = trainer.model, trainer.optimizers[""]
            trainer = etude.Trainer(
                model, optimizer=optimizer, loss=nn.CrossEntropyLoss(), schedule=scheduler, schedule_by=kind,
                hooks=[rates], folder=folder, quiet=True, seed=3,
            )  # fmt: skip
            trainer.fit(data(), val=data(), epochs=epochs, batch_size=10, checkpoint="1ep", resume=epochs != lengths[0])
        return rates.seen, [p.clone() for p in model.parameters()]

    whole, weights = trained(tmp_path / "whole", 4)
    rest, resumed = trained(tmp_path / "parts", 2, 4)
    assert whole[8:] == rest and whole[0] == 0.1 and whole[-1] < 0.1
    assert all(torch.equal(a, b) for a, b in zip(weights, resumed, strict=True))


def test_an_update_of_ones_own_gets_the_run_and_the_batch():
    seen = []

    def update(run, batch):
        loss = nn.functional.cross_entropy(run.model(batch[0]), batch[1])
        loss.backward()
        run.optimizers[""].step()
        run.optimizers[""].zero_grad()
        seen.append(loss.item())

    run = make(update=update).fit(data(), epochs=5, batch_size=10)
    assert run.step == 20 and seen[-1] < seen[0]
    for given in ({"accumulate": 2}, {"precision": "bf16"}, {"clip_norm": 1.0}):
        with pytest.raises(UserError, match="does nothing: the update .*update decides itself"):
            make(update=update, **given)


def test_two_optimizers_learn_apart_with_the_engines_step(tmp_path):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.generator, self.judge = nn.Linear(4, 64), nn.Linear(64, 1)

    def trained(folder, *lengths):
        for epochs in lengths:
            torch.manual_seed(0)
            model = Pair()
            optimizers = {
                name: torch.optim.Adam(getattr(model, name).parameters(), lr=1e-2) for name in ("generator", "judge")
            }

            def update(run, batch, step):
                real, made = batch[0], run.model.generator(torch.randn(len(batch[0]), 4))
                tell = nn.functional.binary_cross_entropy_with_logits
                ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
                judge = run.model.judge
                step.only("judge").learn(run, tell(judge(real), ones) + tell(judge(made.detach()), zeros))
                step.only("generator").learn(run, tell(judge(made), ones))

            trainer = etude.Trainer(
                model,
                optimizer=optimizers,
                update=update,
                accumulate=2,
                clip_norm=1.0,
                seed=1,
                quiet=True,
                folder=folder,
            )
            run = trainer.fit(data(), epochs=epochs, batch_size=10, checkpoint="1ep", resume=epochs != lengths[0])
        return run, [p.clone() for p in model.parameters()]

    run, weights = trained(tmp_path / "whole", 3)
    _, resumed = trained(tmp_path / "parts", 1, 3)
    assert {"loss/judge", "loss/generator"} <= set(run.events.latest)
    assert all(torch.equal(a, b) for a, b in zip(weights, resumed, strict=True))


def test_a_loop_of_ones_own_decides_what_comes():
    from etude.core.loop import train_epoch

    def twice(run):
        for _ in range(2):
            train_epoch(run, run.data["train"])

    assert make(loop=twice).fit(data(), epochs=7, batch_size=10).epoch == 2


def test_seed_makes_two_runs_the_same():
    def trained(seed):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 16), nn.Dropout(0.5), nn.Linear(16, 10))
        trainer = etude.Trainer(
            model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            loss=nn.CrossEntropyLoss(),
            seed=seed,
            quiet=True,
        )
        torch.rand(seed + 1)
        trainer.fit(data(), epochs=1, batch_size=10)
        return model[0].weight.detach().clone()

    assert torch.equal(trained(5), trained(5)) and not torch.equal(trained(5), trained(6))


def test_functions_act_at_any_point_and_on_time():
    trainer, seen = make(), []

    @trainer.on("after_epoch", every="2ep")
    def note(run):
        seen.append(run.epochs_done)

    trainer.fit(data(), epochs=5, batch_size=20)
    assert seen == [2, 4]
    with pytest.raises(ConfigError, match="did you mean 'after_epoch'"):
        trainer.on("after_epok")(print)


@pytest.mark.parametrize(
    ("method", "meant"),
    [("after_stepp", "after_step"), ("on_train_epoch_end", "after_epoch"), ("on_exception", "on_error")],
)
def test_methods_that_would_never_be_called_are_found(method, meant):
    hook = type("Mine", (etude.Hook,), {method: lambda self, run: None})()
    with pytest.raises(
        ConfigError, match=f"hook Mine has a method {method}, which is not a point; did you mean '{meant}'"
    ):
        make(hooks=[hook])


class Careless(etude.Hook):
    def after_step(self):
        pass


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hooks": [Careless]}, "Careless is a class; make an object of it"),
        ({"hooks": [Careless()]}, r"Careless.after_step is called with the run; write def after_step\(self, run\)"),
        ({"hooks": [object()]}, "object is neither a function nor a hook"),
        ({"hooks": [lambda: None]}, "is called with the run"),
        ({"update": lambda run: None}, "is called with the run and the batch"),
        ({"loop": lambda: None}, "is called with the run"),
        ({"precision": "bf16-mixed"}, "precision must be one of .*, not the string 'bf16-mixed'; did you mean 'bf16'"),
        ({"nonfinite": "sotp"}, "did you mean 'stop'"),
    ],
)
def test_what_would_fail_or_be_misread_later_is_refused_at_once(given, message):
    with pytest.raises(UserError, match=message):
        make(**given)


def test_words_of_other_trainers_are_answered_with_ours():
    with pytest.raises(TypeError, match="no parameter 'callbacks'; did you mean 'hooks'"):
        make(callbacks=[])
    with pytest.raises(TypeError, match=r"no parameter 'max_epochs'; did you mean trainer.fit\(epochs=…\)"):
        make(max_epochs=3)
    with pytest.raises(TypeError, match="no parameter 'max_epochs'; did you mean 'epochs'"):
        make().fit(data(), max_epochs=3)
    with pytest.raises(ConfigError, match="no point is called 'on_train_epoch_end'; did you mean 'after_epoch'"):
        make().on("on_train_epoch_end")(print)
    with pytest.raises(ConfigError, match="'2 foo' is not an amount"):
        make().on("after_epoch", every="2 foo")(print)
    with pytest.raises(UserError, match="overrides is a list"):
        etude.load_plan("c.yaml", "train.epochs=1")


def test_data_that_is_no_data_is_refused():
    class Endless(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return torch.zeros(64), 0

    with pytest.raises(UserError, match="Endless has no __len__"):
        make().fit(Endless(), epochs=1)
    with pytest.raises(UserError, match=r"wrap it: torch.utils.data.TensorDataset"):
        make().fit((torch.zeros(4, 64), torch.zeros(4)), epochs=1)
    with pytest.raises(UserError, match="its first item looks like one sample"):
        make().fit([(torch.zeros(64), torch.tensor(1))] * 4, epochs=1)


def test_a_scheduler_that_would_never_act_is_refused():
    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    own = {"optimizer": optimizer, "loss": nn.CrossEntropyLoss(), "quiet": True}
    with pytest.raises(ConfigError, match="needs the metric that it watches"):
        etude.Trainer(model, schedule=lr_scheduler.ReduceLROnPlateau(optimizer, mode="max"), **own)
    with pytest.warns(UserWarning, match="waits for the accuracy to fall"):
        etude.Trainer(model, schedule=lr_scheduler.ReduceLROnPlateau(optimizer), schedule_by="accuracy", **own)
    with pytest.raises(ConfigError, match="there is no validation data"):
        etude.Trainer(model, schedule=lr_scheduler.ReduceLROnPlateau(optimizer), **own).fit(data(), epochs=1)
    with pytest.raises(ConfigError, match="drives an optimizer that is not the trainer's"):
        make(schedule=lr_scheduler.StepLR(optimizer, 1))


def test_each_of_several_optimizers_has_a_scheduler():
    model = nn.ModuleDict({"a": nn.Linear(64, 10), "b": nn.Linear(64, 10)})
    optimizers = {name: torch.optim.SGD(part.parameters(), lr=0.1) for name, part in model.items()}

    def update(run, batch, step):
        for name, part in run.model.items():
            step.only(name).learn(run, nn.functional.cross_entropy(part(batch[0]), batch[1]))

    schedules = {"a": lr_scheduler.StepLR(optimizers["a"], 1, 0.5), "b": lr_scheduler.StepLR(optimizers["b"], 1, 0.1)}
    trainer = etude.Trainer(model, optimizer=optimizers, update=update, schedule=schedules, quiet=True)
    trainer.fit(data(), epochs=2, batch_size=20)
    assert [round(one.param_groups[0]["lr"], 4) for one in optimizers.values()] == [0.025, 0.001]


def test_an_update_without_a_loss_is_evaluated_by_metrics():
    def update(run, batch, step):
        step.learn(run, nn.functional.cross_entropy(run.model(batch[0]), batch[1]))

    run = make(update=update, loss=None, metrics=[Accuracy()]).fit(data(), val=data(), epochs=1, batch_size=10)
    assert set(run.metrics) == {"accuracy"}
    assert repr(run).startswith("<Run: Sequential, step 4 of 4, accuracy 0.")


def test_the_best_weights_of_a_trainer_are_loaded_into_a_model(tmp_path):
    trainer = make(folder=tmp_path / "run", seed=0, metrics=[Accuracy()])
    trainer.fit(data(), val=data(), epochs=3, batch_size=10, checkpoint="1ep", best="accuracy")
    best = etude.load(tmp_path / "run", best=True, model=make().model)
    accuracy = float((best(data().tensors[0]).argmax(1) == data().tensors[1]).double().mean())
    assert accuracy == best.etude.metrics["accuracy"]
    assert etude.load(tmp_path / "run", best=8, model=make().model).etude.step == 8
    assert etude.load(tmp_path / "run", best="latest", model=make().model).etude.step == 12
    with pytest.raises(UserError, match=r"was not trained from a config; etude.load\(folder, model=…\)"):
        etude.load(tmp_path / "run")
    with pytest.raises(UserError, match="was not trained from a config"):
        etude.load_plan(tmp_path / "run")
    with pytest.raises(UserError, match="goes with checkpoint='1ep'"):
        trainer.fit(data(), val=data(), epochs=3, best="accuracy")


def test_checkpoints_need_a_folder():
    for asked in ({"checkpoint": "1ep"}, {"resume": True}):
        with pytest.raises(UserError, match="needs a folder"):
            make().fit(data(), epochs=1, **asked)


def test_options_take_a_folder_as_a_string():
    assert etude.Options(folder="x").folder.name == "x"


class Queue:
    """Something with a state that is no scheduler."""

    def state_dict(self):
        return {}

    def load_state_dict(self, state): ...


def test_state_that_no_checkpoint_holds_is_told(tmp_path):
    queue = Queue()

    class User(etude.Hook):
        def __init__(self):
            self.queues = [queue]

    def update(run, batch, step):
        step.learn(run, nn.functional.cross_entropy(run.model(batch[0]), batch[1]))
        queue.state_dict()

    trainer = make(folder=tmp_path / "a")
    trainer.on("after_epoch")(lambda run: queue.state_dict())
    with pytest.warns(UserWarning, match="uses queue .Queue., whose state is in no checkpoint"):
        trainer.fit(data(), epochs=1, checkpoint="1ep")
    with pytest.warns(UserWarning, match="hook User uses queues .Queue."):
        make(folder=tmp_path / "c", hooks=[User()]).fit(data(), epochs=1, checkpoint="1ep")
    with pytest.warns(UserWarning, match="the update update uses queue .Queue."):
        make(folder=tmp_path / "d", update=update).fit(data(), epochs=1, checkpoint="1ep")
    kept = make(folder=tmp_path / "b", parts={"queue": queue})
    kept.on("after_epoch")(lambda run: queue.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = kept.fit(data(), epochs=1, checkpoint="1ep")
    assert "queue" in run.parts()


def _hidden_schedulers(scheduler):
    """Ways to step a scheduler that a checkpoint does not see."""

    def by_name(run):
        scheduler.step()

    class Stepper(etude.Hook):
        def after_step(self, run):
            scheduler.step()

    class Holder:
        def __init__(self):
            self.inner = scheduler

        def act(self, run):
            self.inner.step()

    def of(one, run):
        one.step()

    def rate(at):
        return scheduler.get_last_lr()[0]

    yield {"hooks": [lambda run: scheduler.step()]}, "hook <lambda> uses scheduler"
    yield {"hooks": [lambda run, one=scheduler: one.step()]}, "hook <lambda> uses one"
    yield {"hooks": [partial(of, scheduler)]}, "uses StepLR"
    yield {"hooks": [lambda run: by_name(run)]}, "hook <lambda> uses scheduler"
    yield {"hooks": [Stepper()]}, "hook Stepper uses scheduler"
    yield {"hooks": [Holder().act]}, "hook act uses inner"
    yield {"schedule": lambda at: rate(at)}, "the schedule uses scheduler"


def test_a_hidden_scheduler_is_refused_with_the_remedy_or_resumed_exactly(tmp_path):
    trainer = make()
    scheduler = lr_scheduler.StepLR(trainer.optimizers[""], 3, gamma=0.5)
    own = {"model": trainer.model, "optimizer": trainer.optimizers[""], "loss": nn.CrossEntropyLoss(), "quiet": True}
    for number, (given, said) in enumerate(_hidden_schedulers(scheduler)):
        refused = etude.Trainer(**own, **given, folder=tmp_path / str(number))
        with pytest.raises(ConfigError, match=f"{said} .StepLR.*Trainer.schedule=.*which also steps it"):
            refused.fit(data(), epochs=1, batch_size=10, checkpoint="1ep")
        assert not (tmp_path / str(number)).exists()
    for wrong in (scheduler, scheduler.step):
        with pytest.raises(UserError, match=r"hooks: StepLR is a scheduler of torch; pass it as Trainer\(schedule="):
            etude.Trainer(**own, hooks=[wrong])

    def trained(folder, *lengths):
        for epochs in lengths:
            rates, made = Rates(), make()
            scheduler = lr_scheduler.StepLR(made.optimizers[""], 3, gamma=0.5)
            trainer = etude.Trainer(
                made.model, optimizer=made.optimizers[""], loss=nn.CrossEntropyLoss(), quiet=True, seed=3,
                hooks=[rates, lambda run: scheduler.step()], parts={"scheduler": scheduler}, folder=folder,
            )  # fmt: skip
            trainer.fit(data(), epochs=epochs, batch_size=10, checkpoint="1ep", resume=epochs != lengths[0])
        return rates.seen

    assert trained(tmp_path / "whole", 4)[8:] == trained(tmp_path / "parts", 2, 4)


def test_an_output_in_a_column_fits_a_target_in_a_row():
    from torchmetrics import MeanSquaredError  # slow to import, and every process of pytest-xdist imports this module

    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(200, 3, generator=generator)
    targets = inputs @ torch.tensor([1.0, -2.0, 3.0])
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    trainer = etude.Trainer(
        model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=nn.MSELoss(), metrics=[RMSE()], quiet=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = trainer.fit(TensorData(inputs, targets), val=TensorData(inputs, targets), epochs=10, batch_size=20)
    assert run.metrics["rmse"] < 0.01

    def trained(loss):
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trainer = etude.Trainer(model, optimizer=optimizer, loss=loss, metrics=[MeanSquaredError()], quiet=True)
        return trainer.fit(TensorData(inputs, targets), val=TensorData(inputs, targets), epochs=10, batch_size=20)

    assert trained(nn.functional.mse_loss).metrics["mean_squared_error"] < 1e-4

    def squares(output, target):
        return ((output - target) ** 2).mean()

    with pytest.raises(
        ReturnError, match=r"loss squares gets an output of shape \(20, 1\) and a target .* squares.broad"
    ):
        trained(squares)
    squares.broadcasts = True  # it is taken at its word
    assert trained(squares).metrics["mean_squared_error"] > 1e-4
    wrong = nn.Linear(3, 2)
    trainer = etude.Trainer(wrong, optimizer=torch.optim.SGD(wrong.parameters(), lr=0.1), loss=nn.MSELoss(), quiet=True)
    before = wrong.weight.detach().clone()
    with pytest.raises(UserCodeError, match=r"shape \(20, 2\)"):
        trainer.fit(TensorData(inputs, targets), epochs=1, batch_size=20)
    assert torch.equal(wrong.weight, before)


def test_predictions_come_in_the_order_of_the_data():
    trainer = make()
    samples = data()
    found = trainer.predict(samples, batch_size=7)
    assert torch.equal(found, trainer.model(samples.tensors[0]).detach())
    assert torch.equal(trainer.predict(TensorData(samples.tensors[0]), batch_size=16), found)


def test_outputs_of_hugging_face_models_work_with_losses_and_metrics():
    from dataclasses import dataclass

    @dataclass
    class Output:
        loss: torch.Tensor | None = None
        logits: torch.Tensor | None = None

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 10)

        def forward(self, inputs, labels=None):
            logits = self.layer(inputs)
            return Output(None if labels is None else nn.functional.cross_entropy(logits, labels), logits)

    class Named:
        def __len__(self):
            return 360

        def __getitem__(self, index, digits=Digits("val")):
            inputs, label = digits[index]
            return {"inputs": inputs, "labels": label}

    for loss in (None, nn.CrossEntropyLoss()):
        torch.manual_seed(0)
        model = Classifier()
        trainer = etude.Trainer(
            model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.05), loss=loss, metrics=[Accuracy()], quiet=True
        )
        run = trainer.fit(Named(), val=Named(), epochs=5, batch_size=64)
        assert run.metrics["accuracy"] > 0.9
        assert trainer.predict(Named())["logits"].shape == (360, 10)


def test_names_and_classes_are_refused_where_objects_are_due():
    model = nn.Linear(64, 10)
    good = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loss": nn.CrossEntropyLoss(), "quiet": True}
    for wrong in (
        {"loss": "CrossEntropyLoss"},
        {"loss": nn.CrossEntropyLoss},
        {"optimizer": "SGD"},
        {"optimizer": torch.optim.SGD},
    ):
        with pytest.raises(UserError, match=f"{next(iter(wrong))}='.*' is no"):
            etude.Trainer(model, **good | wrong)
    with pytest.raises(UserError, match="epochs must be a whole number, not 1.5"):
        etude.Trainer(model, **good).fit(Digits("train"), epochs=1.5)
    with pytest.raises(UserError, match="config is the path of a file or of a run, not a dict"):
        etude.train({"model": "MLP"})


def test_what_a_step_raises_says_where_and_with_what():
    def boom(output, target):
        raise RuntimeError("boom")

    model = nn.Linear(64, 10)
    trainer = etude.Trainer(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=boom, quiet=True)
    data = torch.utils.data.TensorDataset(torch.zeros(8, 64), torch.zeros(8))
    with pytest.raises(RuntimeError) as caught:
        trainer.fit(data, epochs=1, batch_size=8)
    assert caught.value.__notes__ == ["in loss loss, step 1, output (8, 10) float32, target (8,) float32"]


def test_an_optimizer_of_another_model_is_refused():
    model, other = torch.nn.Linear(64, 10), torch.nn.Linear(64, 10)
    with pytest.raises(ConfigError, match="holds no parameter of the model"):
        etude.Trainer(model, optimizer=torch.optim.SGD(other.parameters()), loss=torch.nn.CrossEntropyLoss())


def test_a_profiler_that_begins_behind_the_end_says_so(workdir):
    model = torch.nn.Linear(64, 10)
    trainer = etude.Trainer(
        model,
        optimizer=torch.optim.SGD(model.parameters()),
        loss=torch.nn.CrossEntropyLoss(),
        hooks=[etude.HOOKS.build({"type": "Profiler", "first": 50})],
        quiet=True,
    )
    with pytest.warns(UserWarning, match="Profiler traced nothing: it begins at step 50, and the run ended at step 2"):
        trainer.fit(Digits("train"), steps=2)
