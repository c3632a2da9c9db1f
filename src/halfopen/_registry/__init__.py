"""The parts of a registry; `halfopen.registry` puts them together."""
