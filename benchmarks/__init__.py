"""Measures the whole of Seam on real parts: `python -m benchmarks --help`. May import everything; nothing imports it."""
