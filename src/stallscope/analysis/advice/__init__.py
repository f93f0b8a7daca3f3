"""Give advice, with a line to paste for the user's framework, and the exceptions."""
