"""The ledger: 32 bytes per training step, from which any step of a run can be found, replayed and compared.

.. code-block:: text

    rows       the file: its rows, their rolling digest, reading and verifying
    writer     notes each step and writes rows in a thread; cut at the checkpoint when a run resumes
    replay     runs a step again from the checkpoint before it, and shows what happened in it
"""
