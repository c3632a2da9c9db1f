"""halfopen in other libraries: one module for each, and none is imported before it is asked for."""
