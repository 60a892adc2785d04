"""Ties the server that ranks are forked from to the launcher. Only that server imports this module."""

from etude.dist.jobs import tether

tether.die_with_parent()
