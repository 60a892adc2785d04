"""Recognises configs of MMEngine by their keys and their place."""

from __future__ import annotations

import re

#: Keys that no other dialect has.
OWN_KEYS = {
    "optim_wrapper", "train_dataloader", "val_evaluator", "default_hooks", "default_scope", "param_scheduler",
    "env_cfg", "randomness", "log_processor", "visualizer", "test_evaluator", "data_preprocessor",
}  # fmt: skip
#: A config that lies in an installed project.
_IN_PACKAGE = re.compile(r"[/\\](mmpretrain|mmselfsup)[/\\]\.mim[/\\]configs[/\\]")


def package_of(path: str) -> str:
    """Return the package whose installed configs ``path`` is one of; empty for others."""
    found = _IN_PACKAGE.search(path)
    return found[1] if found else ""
