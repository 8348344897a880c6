"""Run the example of the README: it prints the verdict and makes docs/example.png."""

import os
import re
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
HERE = Path(__file__).resolve().parent

readme = (HERE.parent / "README.md").read_text(encoding="utf-8")
code = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)[0]
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    exec(code)
    Path("orbit.png").replace(HERE / "example.png")
