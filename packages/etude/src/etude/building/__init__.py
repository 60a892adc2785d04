"""Builds the parts of a run, each from what the plan says about it. :func:`etude.build.assemble` puts them together."""
