"""Match patterns of lines, with the text of each place in columns."""
