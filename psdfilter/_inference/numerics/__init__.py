"""What several engines compute with: quadrature, masses, laws of observations, compiled calls."""
