from __future__ import annotations

import torch

import etude


def test_a_summary_changes_nothing():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(), torch.nn.Linear(4, 2))
    model[2].bias.requires_grad_(False)
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    found = etude.summary(model, torch.randn(5, 4))
    after = torch.rand(1)
    torch.manual_seed(1)
    torch.randn(5, 4)
    assert torch.equal(after, torch.rand(1))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training and model[1].training and not model[2]._forward_hooks
    assert found.parameters == 18 and found.trainable == 16 and "5×2" in str(found) and "16 trainable" in str(found)


def test_batches_of_several_inputs_and_outputs():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(3, 3)

        def forward(self, a, b):
            return {"sum": self.inner(a + b), "both": (a, b)}

    shapes = {layer.name: layer.output for layer in etude.summary(Two(), (torch.zeros(2, 3), torch.zeros(2, 3))).layers}
    assert shapes == {"": "2×3, 2×3, 2×3", "inner": "2×3"}
    assert "<script>" not in etude.summary(Two())._repr_html_()
