"""What mmcv 1.x and MMEngine share. Modules without a suffix speak MMEngine; ``*_v1`` speak mmcv 1.x.

.. code-block:: text

    config.py       Config, DictAction, read_base, ConfigParsingError      config_v1.py       Config, DictAction
    configdict.py   ConfigDict                                             configdict_v1.py   ConfigDict
    source.py       one config file: text, substitutions, own values       textstyle.py       with ``_base_``
    lazy.py         LazyObject, LazyAttr: stand-ins for imports            lazystyle.py       with ``read_base()``
    places.py       file and line of every key                             merge.py           child over base
    pretty.py       values as Python source                                raw.py             old configs in native ones
    tree.py         the loader as a Tree                                   lowering.py        specs and findings
    registry.py     Registry, build_from_cfg                               registry_v1.py     the same, mmcv's look-up
    scope.py        DefaultScope, init_default_scope                       root.py            MMEngine's 23 registries
    build_functions.py  build_model_from_cfg, build_runner_from_cfg, build_scheduler_from_cfg, walks through the tree
    init.py         ConstantInit … PretrainedInit, initialize, *_init      init_v1.py         over INITIALIZERS
    base_module.py  BaseModule, Sequential, ModuleList, ModuleDict         base_module_v1.py  the same, mmcv's order
    logging.py      print_log, and the seam where MMLogger plugs in        logging_v1.py      get_logger, print_log
    utils/          is_str … to_ntuple, Timer, ProgressBar, paths, versions: one face for both
    managers.py     ManagerMixin, ManagerMeta                              priority.py        the levels of hooks
    fileio.py       load, dump, list_from_file …                           storage.py         file backends
    wrappers.py     what is a wrapper of a model                           torch_utils.py     helpers that need torch
    live/           load_checkpoint, CheckpointLoader, save_checkpoint …, and where checkpoints come from

Configs, registries, ``utils``, ``managers`` and ``logging*`` need no torch.
"""
