"""Everything that needs more than torch: the command line, pictures, measuring, training, the page, installing."""
