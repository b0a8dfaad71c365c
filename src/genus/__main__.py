"""`python -m genus` is the `genus` command."""

from genus.cli import main

main()
