"""Answers: the seam protocol (`store`), the merged read, HTTP, the client and the audit.

Imports `views` and neither layer; knows no Spark, no Delta and no Prefect.
"""
