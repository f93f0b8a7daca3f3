"""All formats: one module or package each, which ``registry`` lists."""
