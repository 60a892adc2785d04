"""The ledger: 32 bytes per training step, from which any step of a run can be found, replayed and compared.

.. code-block:: text

    rows       the file: its rows, their rolling digest, reading and verifying
    writer     notes each step and writes rows in a thread; cut at the checkpoint when a run resumes
    rebuild    builds a run again from its folder, runs it forward, and compares each step with the ledger
    replay     shows what happened in a step that was run again
    anatomy    outputs, gradients and updates of each module in one step
    code       the code that a run was started with, put back for a replay
    trace      one step down to its operators, each with digests of what goes in and comes out
    bisect     the first step and operator at which two runs part
    statement  which config, code and data made which checkpoints: written, and checked by hashes and replays
"""
