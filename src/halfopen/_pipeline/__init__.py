"""The parts of a pipeline; `halfopen.pipeline` puts them together."""
