"""States of two coordinates: lattices that are chosen anew at every step."""
