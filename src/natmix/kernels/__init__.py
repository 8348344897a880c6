"""Numeric operations: one file each, with all its forms."""
