"""Reports: one HTML file about a fit, to be read by anybody with a browser."""

from natmix.report.figure_data import SeedCurve
from natmix.report.page import RunContext, report_html, write_report

__all__ = ["RunContext", "SeedCurve", "report_html", "write_report"]
