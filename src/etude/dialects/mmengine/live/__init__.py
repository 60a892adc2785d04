"""The running half of MMEngine. Whatever is imported from here finds its registries filled."""

from etude.dialects.mmengine.live import registry  # noqa: F401
