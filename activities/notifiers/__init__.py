"""How people and their systems are told: one module per kind of destination, all behind one protocol."""
