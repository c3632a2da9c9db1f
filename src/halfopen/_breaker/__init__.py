"""The parts of the shell around `_core.circuit`; `halfopen.circuit_breaker` puts them together."""
