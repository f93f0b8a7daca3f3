"""Other processes that the recorder starts: uploads to MLflow, live scalars, limited commands.

They import and wait for what training must not: other packages and servers.
"""
