"""Why a rank or a stage is slow: what the kernel counted there, compared with the others."""
