"""What mmcv 1.x and MMEngine share. Modules without a suffix speak MMEngine; ``*_v1`` speak mmcv 1.x.

.. code-block:: text

    config.py       Config, DictAction, read_base, ConfigParsingError      config_v1.py      Config, DictAction
    configdict.py   ConfigDict (both dialects' flavours derive from it)    configdict_v1.py  ConfigDict
    lazy.py         LazyObject, LazyAttr: stand-ins in pure-Python configs
    source.py  places.py  merge.py  pretty.py   how a config file becomes values, places and text again
    tree.py         read_tree(): the same loader, as a Tree with file and line of every key
    registry.py     Registry, build_from_cfg, DefaultScope, …              registry_v1.py    Registry, build_from_cfg
    root.py         the 23 root registries of MMEngine (HOOKS, MODELS …)
    build_functions.py  build_model_from_cfg, build_runner_from_cfg, build_scheduler_from_cfg, tree walks
    init.py         ConstantInit … PretrainedInit, initialize, *_init      init_v1.py        the same over INITIALIZERS
    base_module.py  BaseModule, Sequential, ModuleList, ModuleDict         base_module_v1.py  the same, mmcv's order
    checkpoint.py   load_checkpoint, CheckpointLoader, save_checkpoint …   checkpoint_v1.py  the same, mmcv's arguments
    logging.py      print_log, and the seam where MMLogger plugs in        logging_v1.py     get_logger, print_log
    utils.py        is_str … to_ntuple, Timer, ProgressBar, paths, versions: one face for both
    managers.py     ManagerMixin, ManagerMeta
    fileio.py       load, dump, list_from_file, dict_from_file
    scanning.py     file and line of keys; lowering helpers of both dialects

The modules up to ``build_functions.py``, ``utils.py``, ``managers.py`` and ``logging*.py`` need no torch.
"""
