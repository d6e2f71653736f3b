"""``python -m flightschool``: the command, where no console script is installed."""

import sys

from flightschool.cli.main import main

if __name__ == "__main__":  # worker processes import this module again, and must not run it
    sys.exit(main())
