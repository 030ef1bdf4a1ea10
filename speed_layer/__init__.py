"""Kafka to epochs to speed rows: counts the log within seconds, with its state managed by hand.

Imports `views`, `serving.store`, `serving.errors` and `infra`; never the batch layer.
"""
