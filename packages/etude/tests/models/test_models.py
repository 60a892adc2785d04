"""The small models: shapes, options, and that each can learn."""

from __future__ import annotations

import pytest

from etude.data.datasets.text import Characters
from etude.errors import ConfigError


def test_characters_come_with_the_next_ones(tmp_path):
    path = tmp_path / "text"
    path.write_text("0123456789" * 4)
    data = Characters(str(path), length=5, split="all", stride=5)
    inputs, targets = data[1]
    assert bytes(inputs.tolist()) == b"56789" and bytes(targets.tolist()) == b"67890"
    assert len(data) == 7 and len(Characters(str(path), length=50)) == 0
    with pytest.raises(ConfigError, match="there is no file .*none"):
        Characters(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="did you mean 'train'"):
        Characters(split="trian")
