"""`python -m genus` is the `genus` command."""

import sys

from genus.cli import main

sys.argv[0] = "genus"
main()
