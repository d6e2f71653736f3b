"""``python -m flightschool.cli``: the command, where no console script is installed."""

import sys

from flightschool.cli.main import main

sys.exit(main())
