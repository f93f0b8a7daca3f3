"""What gpu_check.py trains and checks."""
