"""``mmengine.dist``: one process until ``init_dist`` was called, then torch's collectives."""
