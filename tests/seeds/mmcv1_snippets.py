"""Snippets that the two documents of mmcv 1.x's time share, to the letter."""

WORKFLOW = """
workflow = [('train', 1)]
"""

WORKFLOW_WITH_VAL = "[('train', 1), ('val', 1)]"

MY_HOOK = """
from mmcv.runner import HOOKS, Hook


@HOOKS.register_module(force=True)
class MyHook(Hook):

    def __init__(self, a, b):
        pass

    def before_run(self, runner):
        pass

    def after_run(self, runner):
        pass

    def before_epoch(self, runner):
        pass

    def after_epoch(self, runner):
        pass

    def before_iter(self, runner):
        pass

    def after_iter(self, runner):
        pass
"""

IMPORT_MY_HOOK = """
from .my_hook import MyHook
"""

CUSTOM_HOOKS = """
custom_hooks = [
    dict(type='MyHook', a=a_value, b=b_value)
]
"""

CHECKPOINT = """
checkpoint_config = dict(interval=1)
"""

LOG = """
log_config = dict(
    interval=50,
    hooks=[
        dict(type='TextLoggerHook'),
        dict(type='TensorboardLoggerHook')
    ])
"""
