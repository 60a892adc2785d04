"""Describes McQuic's checkpoints to Étude's tools: ``latest/saved.ckpt``, and a folder per older run."""

from __future__ import annotations

from collections.abc import Mapping

from etude.checkpoint.formats.layouts import Layout

MCQUIC = Layout(
    name="mcquic",
    holds=lambda state: isinstance(state.get("trainer"), Mapping) and state["trainer"].get("_model") is not None,
    steps=(("trainer", "_step", 0),),
    epochs=(("trainer", "_epoch"),),
    weights="trainer._model",
    optimizer="trainer._optimizer",
    final=("last.",),
    bookkeeping=r"config\.train\.saveDir$",
    runs=r"\d{6}-\d{6}|latest",
)
