"""`python -m slicegraph` is the `slicegraph` command."""

import sys

if __name__ == "__main__":
    try:
        from slicegraph.cli import main
    except KeyboardInterrupt:  # torch takes seconds to import
        print("slicegraph: stopped", file=sys.stderr)
        sys.exit(130)
    sys.exit(main())
