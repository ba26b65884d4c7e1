"""`python -m slicegraph` is the `slicegraph` command."""

import sys

from slicegraph.cli import main

if __name__ == "__main__":
    sys.exit(main())
