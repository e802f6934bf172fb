"""Where instances live: in this process, in a child process, or at a URL; the head server; supervision."""
