"""The paper: exemplar models, their smoothing, and the densities that follow from them."""
