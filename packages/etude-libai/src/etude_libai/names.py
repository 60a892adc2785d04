"""Maps the import names of LiBai, OneFlow and detectron2 (``names.json``) to Étude's modules. Imports no torch."""

from __future__ import annotations

from etude.dialects.name_tables import NameTables, Table

#: The versions that Étude behaves like, for code that reads ``__version__``.
LIBAI = "0.3.0"
DETECTRON2 = "0.6"

_TABLES = NameTables(__file__, __name__)
MODULES: Table = _TABLES.modules
OUT_OF_SCOPE: dict[str, str] = _TABLES.out_of_scope
#: Package or module → another one with the same names, for names that are not in the table.
FALLBACK = {
    "oneflow": "torch",
    "oneflow._C": "etude_libai.live.oneflow.kernels",
    "flowvision": "torchvision",
}
#: Compiled modules of the original that Étude replaces if they were not built.
COMPILED = ("libai.data.data_utils.helpers",)
#: Modules that Étude provides even if the original is installed or checked out. Models, layers, datasets and tokenizers
#: are the original's.
ENGINE = (
    "detectron2.checkpoint", "detectron2.config", "detectron2.engine", "detectron2.evaluation.evaluator",
    "detectron2.evaluation.testing", "detectron2.solver", "detectron2.utils.comm", "detectron2.utils.events",
    "oneflow", "libai.config", "libai.data.build", "libai.data.samplers", "libai.data.structures", "libai.engine",
    "libai.evaluation", "libai.models.utils.graph_base", "libai.optim", "libai.scheduler", "libai.utils.checkpoint",
    "libai.utils.distributed", "libai.utils.events", "libai.utils.file_utils", "libai.utils.history_buffer",
    "libai.utils.logger", "libai.utils.timer",
)  # fmt: skip
#: Package → files by which the original is told from a folder of the user.
MARKS = {
    "detectron2": ("__init__.py", "modeling/meta_arch/build.py"),
    "libai": ("__init__.py", "models/vision_transformer.py"),
}
