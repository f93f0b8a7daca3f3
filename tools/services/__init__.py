"""Real servers on this machine that tests of collecting talk to; ``make services`` starts them by hand.

Every server is a process of its own on a free port of 127.0.0.1, with its files and its log in one
folder, and is ended by its process id. Standard library only: what they are made of is in an
environment of its own (``tools/services-env.sh``).
"""
