"""The hub of scalars and infos, their histories, the logger, and the text of log lines."""

from etude.dialects.mmengine.live.logging.history_buffer import HistoryBuffer
from etude.dialects.mmengine.live.logging.logger import MMLogger, print_log
from etude.dialects.mmengine.live.logging.message_hub import MessageHub

__all__ = ["HistoryBuffer", "MMLogger", "MessageHub", "print_log"]
