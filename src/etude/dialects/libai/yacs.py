"""Recognises detectron2's yacs configs (YAML), and raises an error: they only change defaults of a script's CfgNode."""

from __future__ import annotations

import re

from etude.config.files import display
from etude.errors import ConfigError

#: Sections of yacs configs, which only their script can use.
_SECTION = r"(?m)^(?:MODEL|SOLVER|DATASETS|DATALOADER|_BASE_)[ \t]*:"


def is_yacs(text: str) -> bool:
    return re.search(_SECTION, text) is not None


def refuse_yacs(path: str) -> None:
    """Raise an error for a yacs config, because only its script says what is trained."""
    with open(path, encoding="utf-8") as file:
        found = re.search(_SECTION, file.read())
    if found is None:
        return
    text = f"{found[0].rstrip(' :')} is a section of detectron2's configs, which a script reads"
    hint = f"run your script: etude exec tools/train_net.py --config-file {display(path)}"
    raise ConfigError(text, at=f"{display(path)}:{found.string.count(chr(10), 0, found.start()) + 1}", hint=hint)
