"""The deciding part: data and rules, handed the time, free of I/O, locks, chance and user code."""
