"""Looks for input that breaks a parser, guided by what code it reaches (``make fuzz``)."""
