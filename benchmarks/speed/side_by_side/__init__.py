"""natmix and the reference `gmmvi` 1.1 side by side on a CPU: `python benchmarks/speed/side_by_side`."""
