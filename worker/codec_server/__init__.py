"""The codec server: lets Temporal's UI and command line read what is encrypted at Temporal."""
