"""A study whose trials advance at once, as on an accelerator: ``python batched_study.py FILE OUT SLOTS``."""

import sys

from natmix.experiments.studies import batch_form, trial_batch
from natmix.experiments.studies.client import run_study
from natmix.experiments.studies.pools import InProcess
from natmix.experiments.studies.study_file import read_study
from natmix.modules.hyperparameters import ShapeBounds

TOGETHER = batch_form.BatchForm(True, ShapeBounds(32, 4), ShapeBounds(16, 4))


def main(file, out, slots):
    vars(trial_batch)["batch_form"] = lambda limits: TOGETHER
    with InProcess(out, slots=slots) as pool:
        run_study(out, read_study(file), pool)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
