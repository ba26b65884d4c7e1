"""The page of a training run: figures, the worst molecules, the settings, in one HTML file.

Everything comes from the files of the run folder; nothing is computed again with the model.
"""

from slicegraph.report.write import write_report

__all__ = ["write_report"]
