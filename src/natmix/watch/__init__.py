"""A page in the browser that shows running fits: what `natmix watch` serves."""
