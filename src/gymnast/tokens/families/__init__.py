"""Model families: their formats of thoughts and tool calls, and the tokens that end their turns."""
