"""What runs inside the jail. Standard library only: the jail's Python gets these sources as text, never our package."""
