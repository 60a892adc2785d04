"""The dialect of LiBai's and detectron2's lazy configs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etude.config.files import display, imported_file
from etude.dialects.base import Flag, Packaged
from etude.errors import ConfigError

if TYPE_CHECKING:
    from etude.config.tree import Tree
    from etude.core.run import Run

_LAZY = re.compile(r"^\s*(?:from|import)\s+(?:libai|detectron2|etude\.dialects\.libai)\b|\bLazyCall\b", re.MULTILINE)
_RELATIVE = re.compile(r"^\s*from\s+(\.+)([\w.]+)\s+import\b", re.MULTILINE)
#: Sections of detectron2's yacs configs, which only their script can use.
_YACS = re.compile(r"^(?:MODEL|SOLVER|DATASETS|DATALOADER|_BASE_)[ \t]*:", re.MULTILINE)
_PLAIN_RELATIVE = re.compile(r"^from\s+\.", re.MULTILINE)


class LiBai(Packaged):
    """Reads lazy configs, in Python or as YAML that a run has saved."""

    name = "libai"
    title = "LiBai, detectron2"
    asked = 20
    best_keys = (("train", "evaluation", "eval_metric"), ("train", "evaluation", "eval_mode"))
    idle_flags = ("allow_change",)
    launchers = os.path.join(os.path.dirname(__file__), "shell")
    flags = (
        Flag("--eval-only", "evaluate, do not train", {"action": "store_true"}),
        Flag("--config-file", "the config, instead of CONFIG", {"metavar": "FILE"}, ignorable=True),
    )

    def recognise(self, path: str, text: str) -> bool:
        """Return whether a file is a lazy config: it imports LiBai or detectron2, also through relative imports.

        So are saved configs, and yacs configs of detectron2, which get an error with a reason later.
        """
        if path.endswith((".yaml", ".yml")):
            saved = re.search(r"^dataloader:", text, re.MULTILINE) is not None and "_target_:" in text
            return saved or _YACS.search(text) is not None
        # Only lazy configs have relative imports outside ``with read_base():``.
        alone = _PLAIN_RELATIVE.search(text) is not None and "read_base" not in text
        return path.endswith(".py") and (alone or _imports_lazy(path, text, 3))

    def read(self, path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any]) -> Tree:
        if path.endswith((".yaml", ".yml")):
            _refuse_yacs(path)
        return super().read(path, overrides, options=options)

    def bytes_beside(self, run: Run) -> int:
        return int(run.runner.bytes_beside)


def _imports_lazy(path: str, text: str, depth: int) -> bool:
    if _LAZY.search(text):
        return True
    for dots, module in _RELATIVE.findall(text) if depth else ():
        other = imported_file(path, len(dots), module)
        try:
            with open(other, encoding="utf-8") as file:
                if _imports_lazy(other, file.read(), depth - 1):
                    return True
        except (OSError, UnicodeDecodeError):
            continue
    return False


def _refuse_yacs(path: str) -> None:
    """Raise an error for a yacs config, because only its script says what is trained."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    found = _YACS.search(text)
    if found is not None:
        message = f"{found[0].rstrip(' :')} is a section of detectron2's configs, which a script reads"
        hint = f"run your script: etude exec tools/train_net.py --config-file {display(path)}"
        raise ConfigError(message, at=f"{display(path)}:{text.count(chr(10), 0, found.start()) + 1}", hint=hint)
