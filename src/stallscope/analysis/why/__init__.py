"""Explain why a rank or a stage is slow: compare the kernel's counters between ranks."""
