"""Model families: how each writes thoughts and tool calls, and which tokens end its turns."""
