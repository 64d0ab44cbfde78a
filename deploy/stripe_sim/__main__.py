"""`python -m deploy.stripe_sim`."""

from deploy.stripe_sim.cli import app

app()
