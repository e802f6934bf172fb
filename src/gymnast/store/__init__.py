"""The files of a run: their names, crash-safe appending, reading by line."""
