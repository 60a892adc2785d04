"""A dialect of somebody else: ``hidden = 16`` per line."""

from etude.dialect_api import add_package

add_package(__name__)
