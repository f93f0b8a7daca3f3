"""Start real servers on this machine for tests of collecting; ``make services`` starts them by hand.

Every server is a separate process on a free port of 127.0.0.1, with its files and its log in one
folder, and is ended by its process id. The code needs the standard library only; the servers are
in a separate environment (``tools/services-env.sh``).
"""
