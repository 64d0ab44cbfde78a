"""JSON as it goes out."""

import json
from typing import Final

# One encoder for all: json.dumps makes a new one per call once separators are given.
encode_json: Final = json.JSONEncoder(separators=(",", ":")).encode
