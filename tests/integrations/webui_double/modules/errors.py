"""The webui notes what goes wrong in scripts and callbacks, and goes on."""

noted: list[Exception] = []
