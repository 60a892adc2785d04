"""Which releases of the originals the faces follow: what code that asks for ``__version__`` is reported."""

from __future__ import annotations

LIBAI = "0.3.0"
DETECTRON2 = "0.6"
FVCORE = "0.1.5.post20221221"
