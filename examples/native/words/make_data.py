"""Write sentences.parquet beside this file:  python examples/native/words/make_data.py"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

WEATHER = ["rain", "snow", "wind", "sun", "cloud", "storm", "cold", "warm", "fog", "hail"]
FOOD = ["bread", "soup", "rice", "cheese", "apple", "salt", "spoon", "dinner", "baked", "sweet"]
COMMON = ["the", "a", "was", "and", "very", "today", "we", "had", "some", "with"]


def main(path: Path, count: int = 400) -> None:
    draw = random.Random(0)
    rows = []
    for number in range(count):
        words = (WEATHER, FOOD)[number % 2]
        text = " ".join(draw.choice(COMMON if draw.random() < 0.6 else words) for _ in range(draw.randint(4, 20)))
        rows.append({"text": text, "label": number % 2})
    pq.write_table(pa.Table.from_pylist(rows), path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("sentences.parquet"))
