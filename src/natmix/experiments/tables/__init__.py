"""The paper's tables: runs with its hyperparameters, compared with the printed numbers."""

from natmix.experiments.tables.cells import TableCell, cells_to_run
from natmix.experiments.tables.collection import Collection, collect
from natmix.experiments.tables.paper import ALL, MAIN, PaperNumber, paper_number
from natmix.experiments.tables.running import Report, run_missing
from natmix.experiments.tables.summary import Summary, summarise
from natmix.experiments.tables.writing import write_table3

__all__ = [
    "ALL",
    "MAIN",
    "Collection",
    "PaperNumber",
    "Report",
    "Summary",
    "TableCell",
    "cells_to_run",
    "collect",
    "paper_number",
    "run_missing",
    "summarise",
    "write_table3",
]
