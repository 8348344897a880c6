"""The paper's tables again: runs with its hyperparameters, and the numbers beside the printed ones."""

from natmix.reproduce._collect import Collection, collect
from natmix.reproduce._jobs import Job, plan
from natmix.reproduce._paper import ALL, MAIN, PaperNumber, paper_number
from natmix.reproduce._run import Report, run_missing
from natmix.reproduce._summary import Summary, summarise
from natmix.reproduce._write import write_table3

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
