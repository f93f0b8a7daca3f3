"""What fixing each fault gains, and the verdict that follows."""
