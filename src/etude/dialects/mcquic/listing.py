"""What a McQuic config can name by ``key``, for ``etude list --dialect mcquic``."""

from __future__ import annotations

from etude.scan import first_line


def tables() -> dict[str, dict[str, str]]:
    """Registry → key → where it comes from and a line about it. Registering imports torch."""
    from etude.dialects.mcquic.live import builtin
    from etude.dialects.mcquic.live.registry import REGISTRIES

    builtin.registerBuiltinFunctions()
    model = {"Compressor": "encoder, residual multi-codebook quantization, decoder; any registered or dotted class too"}
    return {"model": model} | {
        registry.__name__: {
            key: f"{value.__module__}.{value.__qualname__}  {first_line(value.__doc__ or '')}"
            for key, value in sorted(registry.items())
        }
        for registry in REGISTRIES
    }
