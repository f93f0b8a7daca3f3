"""Everything that makes or fetches logs: the recorder and the sources."""
