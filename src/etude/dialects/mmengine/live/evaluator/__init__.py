"""Metrics, and the evaluator that asks several of them."""
