"""What mmcv 1.x and MMEngine share. Modules without a suffix speak MMEngine; ``*_v1`` speak mmcv 1.x.

.. code-block:: text

    config/       Config, ConfigDict, DictAction; merging and printing them
    reading/      one config file: text, substitutions, ``_base_``, ``read_base()``, file and line of every key
    checks/       findings about names, arguments and typos, without importing anything
    registries/   Registry, build_from_cfg, scopes, MMEngine's 23 root registries
    init/         rules and functions of weight initialisation, BaseModule
    file_io/      load, dump, list_from_file, file backends, pickles that execute nothing
    utils/        is_str … to_ntuple, Timer, ProgressBar, paths, versions: one face for both
    live/         checkpoints, positions in data, and the adapters of converted configs

What ends in ``_v1`` is mmcv 1.x's way where it differs; ``_v2`` is MMEngine's.
Configs, registries, ``utils``, ``managers`` and ``logging*`` need no torch.
"""
