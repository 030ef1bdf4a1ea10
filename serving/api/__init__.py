"""The HTTP interface: routes, keys, limits and errors over `serving.store`. Start it with `python -m serving.api`."""
