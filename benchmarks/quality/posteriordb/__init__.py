"""natmix and Stan's NUTS on posteriordb."""
