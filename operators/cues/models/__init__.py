"""Linear models of a sample, fitted to its halves, and weights of any strength tried on the other half."""
