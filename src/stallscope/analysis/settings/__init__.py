"""What the ranks recorded of their settings and CPU cores."""
