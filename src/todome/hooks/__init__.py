"""How a module is changed without a trace."""
