"""Tells detectron2's configs in YAML, which only change the defaults of a script's ``CfgNode``, and refuses them."""

from __future__ import annotations

import re

from etude.config.files import display
from etude.errors import ConfigError

#: Their sections, which say nothing without the script that they are for.
_SECTION = r"(?m)^(?:MODEL|SOLVER|DATASETS|DATALOADER|_BASE_)[ \t]*:"


def is_yacs(text: str) -> bool:
    return re.search(_SECTION, text) is not None


def refuse_yacs(path: str) -> None:
    """Raise for a file of those: what is trained is in a script."""
    with open(path, encoding="utf-8") as file:
        found = re.search(_SECTION, file.read())
    if found is None:
        return
    text = f"{found[0].rstrip(' :')} is a section of detectron2's configs, which a script reads"
    hint = f"run your script: etude exec tools/train_net.py --config-file {display(path)}"
    raise ConfigError(text, at=f"{display(path)}:{found.string.count(chr(10), 0, found.start()) + 1}", hint=hint)
