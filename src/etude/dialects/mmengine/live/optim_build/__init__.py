"""From a model and an ``optim_wrapper`` dict to parameter groups, optimizer and wrapper."""
