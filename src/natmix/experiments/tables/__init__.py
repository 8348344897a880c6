"""The paper's tables again: runs with its hyperparameters, and the numbers beside the printed ones."""

from natmix.experiments.tables.collection import Collection, collect
from natmix.experiments.tables.jobs import Job, plan
from natmix.experiments.tables.paper import ALL, MAIN, PaperNumber, paper_number
from natmix.experiments.tables.running import Report, run_missing
from natmix.experiments.tables.summary import Summary, summarise
from natmix.experiments.tables.writing import write_table3

__all__ = [
    "ALL",
    "MAIN",
    "Collection",
    "Job",
    "PaperNumber",
    "Report",
    "Summary",
    "collect",
    "paper_number",
    "plan",
    "run_missing",
    "summarise",
    "write_table3",
]
