"""The store against a naive oracle, on real PostgreSQL."""
