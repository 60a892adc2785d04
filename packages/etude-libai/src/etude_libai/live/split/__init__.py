"""OneFlow's global tensors on torch's DTensor: tensor and pipeline parallelism, and ZeRO, for LiBai's own models.

.. code-block:: text

    placement(type, ranks)          DeviceMesh
    sbp.split(d), broadcast, …      Shard(d), Replicate(), Partial()
    x.to_global(sbp=…)              x.redistribute(…)
    x.to_global(placement=…)        sends the pieces to the ranks of another stage, and their gradients back

Every process runs the whole program, as in OneFlow: an operation on tensors of other ranks does nothing here. A run of
one process, or of data-parallel ones without ZeRO, does not import this package.
"""
