"""What differs between ledger and Stripe, shown: in a terminal, as JSON, as CSV, and as one HTML file."""
