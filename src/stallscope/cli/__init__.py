"""The commands, one file each, with ``add_arguments(parser)`` and ``run(options)``."""
