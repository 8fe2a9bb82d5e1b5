"""Servers that come as wheels and run beside the worker: Temporal on SQLite, and PostgreSQL.

They are for `relight up`, the demo and the tests. A site that wants more runs its own and names them in its settings.
"""
