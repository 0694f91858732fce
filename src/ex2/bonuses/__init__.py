"""Every bonus: the exemplar models in `exemplar`, and the methods that they are compared with, one file each."""
