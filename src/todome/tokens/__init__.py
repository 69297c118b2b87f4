"""Which tokens: grids, orders, matching and tables, as pure tensor functions."""
