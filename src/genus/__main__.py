import sys

from genus.cli import main

sys.argv[0] = "genus"
main()
