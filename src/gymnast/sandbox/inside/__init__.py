"""Code that runs inside the jail. Standard library only: the jail's Python gets these sources as text."""
