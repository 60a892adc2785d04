"""Graph mode: on, with one graph to train and one to evaluate."""

from etude.dialects.libai.lazy.load import LazyCall

graph = {
    "enabled": True,
    "debug": -1,
    "auto_parallel": {
        "enabled": False,
        "enable_auto_parallel_ignore_user_sbp_config": False,
        "trunk_algo": True,
        "sbp_collector": False,
    },
    "train_graph": LazyCall("libai.models.utils.graph_base.GraphBase")(is_train=True),
    "global_mode": {"enabled": False},
    "eval_graph": LazyCall("libai.models.utils.graph_base.GraphBase")(is_train=False),
}
