"""The page of a training run: figures, the worst molecules and the settings in one HTML file.

All content comes from the files of the run folder; the model is not run again.
"""

from slicegraph.report.page import write_report

__all__ = ["write_report"]
