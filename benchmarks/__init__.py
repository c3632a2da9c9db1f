"""What halfopen costs, beside a bare call and the other libraries."""
