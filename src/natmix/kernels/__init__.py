"""Numeric operations: one file each, with all its forms (implementations that give the same result)."""
