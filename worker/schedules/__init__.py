"""Schedules: a file says what is to be billed when, and Temporal and the ledger are held against it."""
