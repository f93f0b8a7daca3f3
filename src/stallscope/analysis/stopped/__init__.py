"""Find out whether a job hangs, and which ranks the others wait for."""
