"""The seam protocol: all that must agree lives in one PostgreSQL schema per line, behind these modules."""
