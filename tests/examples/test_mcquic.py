from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from PIL import Image

EXAMPLE = Path(__file__).parents[2] / "examples" / "mcquic" / "photos.py"


@pytest.mark.thorough  # tests/projects trains the real compressor, too
def test_the_compressor_learns_and_is_measured_beside_jpeg(tmp_path, capfd):
    main = runpy.run_path(str(EXAMPLE))["main"]
    rows = main(epochs=1, out=str(tmp_path / "out"), side=64)
    assert [row[0] for row in rows] == ["china", "flower"]
    assert all(0 < bpp < 2 and psnr > 5 for _, bpp, psnr, _, _ in rows)
    with Image.open(tmp_path / "out" / "china-etude.png") as picture:
        assert picture.size == (64, 64)
    assert "JPEG" in capfd.readouterr().out
