"""`python -m todome` is the command `todome`."""

from .cli import main

main()
