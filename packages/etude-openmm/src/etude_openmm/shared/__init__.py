"""Code that the dialects of mmcv 1.x and MMEngine share.

.. code-block:: text

    config/       Config, ConfigDict, DictAction; merging and printing them
    reading/      one config file: text, substitutions, ``_base_``, ``read_base()``, file and line of every key
    checks/       finds wrong names, arguments and typos, without importing anything
    registries/   Registry, build_from_cfg, scopes, MMEngine's 23 root registries
    init/         rules and functions of weight initialisation, BaseModule
    live/         checkpoints, process groups, and adapters for converted configs

Modules that end in ``_v1`` are mmcv 1.x's where the two differ; ``_v2``, or no suffix, are MMEngine's.
Configs, registries and ``logging*`` import neither torch nor mmengine.
"""
