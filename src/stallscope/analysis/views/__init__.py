"""Figures that single pages and reports ask for."""
