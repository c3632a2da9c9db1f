"""The known half-open faults, played against halfopen and the other Python circuit breakers."""
