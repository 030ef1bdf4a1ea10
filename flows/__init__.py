"""Prefect flows and the `seam` command: wiring only."""
