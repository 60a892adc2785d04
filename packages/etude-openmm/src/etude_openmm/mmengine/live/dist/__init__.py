"""``mmengine.dist``: rank, world size and collectives. Without ``init_dist`` there is one process."""
