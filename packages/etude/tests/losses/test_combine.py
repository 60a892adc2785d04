"""Several losses as one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from etude.errors import ConfigError
from etude.losses import SumLoss


def test_losses_are_added_with_their_weights():
    output, target = torch.randn(4), torch.randn(4)
    loss = SumLoss([nn.MSELoss(), nn.L1Loss()], weights=[1.0, 0.5])
    expected = nn.functional.mse_loss(output, target) + 0.5 * nn.functional.l1_loss(output, target)
    torch.testing.assert_close(loss(output, target), expected)
    torch.testing.assert_close(SumLoss([nn.MSELoss()])(output, target), nn.functional.mse_loss(output, target))


def test_weights_and_losses_go_together():
    with pytest.raises(ConfigError, match="2 weights for 1 losses"):
        SumLoss([nn.MSELoss()], weights=[1.0, 2.0])
    with pytest.raises(ConfigError, match="at least one"):
        SumLoss([])
