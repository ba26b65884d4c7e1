"""Make the page of a run again: report.html and figures/ in its folder.

A run that failed or has not ended has a page, too, with its state.
"""

import argparse

EPILOG = """\
examples:
  slicegraph report runs/one
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder of the run."""
    parser.add_argument("run_folder", metavar="RUN", help="folder that slicegraph train wrote")


def run(args: argparse.Namespace) -> None:
    """Print the path of the page."""
    from slicegraph.report import write_report

    print(f"report {write_report(args.run_folder)}")
