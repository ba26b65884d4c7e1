"""The page of a training run: data, figures, the worst molecules and the settings in one HTML file.

All content comes from the files of the run folder; the model is not run again. A table that was
only checked has a page with the data alone.
"""

from slicegraph.extras import needs

with needs(__name__, "mol", "train"):
    from slicegraph.report.page import write_check, write_report

__all__ = ["write_check", "write_report"]
