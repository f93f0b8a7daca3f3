"""From the contents of files to runs."""
