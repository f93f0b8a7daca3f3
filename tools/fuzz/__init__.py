"""Search for input that breaks a parser, guided by code coverage (``make fuzz``)."""
