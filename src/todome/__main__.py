"""`python -m todome` is the command `todome`."""

from .tools.cli import main

main()
