"""Property tests are judged by what they find, not by how fast a busy machine runs them."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
