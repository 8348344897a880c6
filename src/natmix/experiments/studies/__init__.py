"""Studies: many trials of many algorithms on many problems, chosen, run and compared."""

from natmix.experiments.studies.client import run_study
from natmix.experiments.studies.definition import Study, StudyChanges
from natmix.experiments.studies.pools import InProcess, LocalProcesses
from natmix.experiments.studies.shipped_studies import find_study, shipped_names
from natmix.experiments.studies.study_file import read_study
from natmix.experiments.studies.study_results import StudyResults, load_results
from natmix.experiments.studies.trial_runner import AbstractTrialRunner, Trial, TrialProgress, TrialTerms

__all__ = [
    "AbstractTrialRunner",
    "InProcess",
    "LocalProcesses",
    "Study",
    "StudyChanges",
    "StudyResults",
    "Trial",
    "TrialProgress",
    "TrialTerms",
    "find_study",
    "load_results",
    "read_study",
    "run_study",
    "shipped_names",
]
