# %% [markdown]
# # A long fit with checkpoints
#
# A batch system may end a job at any time. `fit(checkpoint="folder")` saves its whole state at
# intervals, and the same call goes on where it stopped, bit for bit. Here a fit is killed without
# warning, started again, and compared with one that was never disturbed.

# %%
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import natmix

folder = Path(tempfile.mkdtemp())
script = folder / "fit.py"
code = script.write_text("""
import sys

import jax.numpy as jnp
import natmix

means = jnp.stack([6 * jnp.eye(5)[i] * s for i in range(5) for s in (-1, 1)])


def log_density(x):  # ten modes
    return jnp.log(jnp.sum(jnp.exp(-0.5 * jnp.sum((x - means) ** 2, axis=1))) + 1e-30)


folder = sys.argv[1]
result = natmix.fit(log_density, dim=5, init_scale=5.0, checkpoint=folder, checkpoint_seconds=0.5)
result.mixture.save(folder + ".safetensors")
""")

# %% [markdown]
# The first attempt is killed as soon as it has written a checkpoint.

# %%
job = subprocess.Popen([sys.executable, script, folder / "killed"], stderr=subprocess.DEVNULL)
while job.poll() is None and not list((folder / "killed").glob("state*")):
    time.sleep(0.01)
was_running = job.poll() is None
os.kill(job.pid, signal.SIGKILL)
print("killed while running:", was_running, "- exit status", job.wait())

# %% [markdown]
# The same command again goes on. A third one, in another folder, is not disturbed.

# %%
for name in ("killed", "whole"):
    done = subprocess.run([sys.executable, script, folder / name], stderr=subprocess.DEVNULL, check=True)

killed, whole = (natmix.Mixture.load(folder / f"{name}.safetensors") for name in ("killed", "whole"))
same = np.array_equal(np.asarray(killed.means), np.asarray(whole.means))
print("the same means, bit for bit:", same)

# %% [markdown]
# ## With Slurm
#
# Slurm announces the end of a job by SIGTERM. natmix writes a checkpoint then, and `result.stopped`
# is `"interrupted"`. This script asks to be put into the queue again until the fit has ended.
#
# ```bash
# #SBATCH --time=04:00:00 --cpus-per-task=8 --signal=TERM@120 --requeue
# srun python fit.py "$SCRATCH/my-fit" || scontrol requeue "$SLURM_JOB_ID"
# ```
#
# In `fit.py`, `sys.exit(result.stopped == "interrupted")` tells Slurm's script that there is more to
# do.

# %%
assert was_running
assert same
