"""Gymnast: rollouts of language-model agents in RL environments, collected without losing one.

Importing this package starts nothing, patches nothing and loads no heavy library.
"""

__version__ = "0.1.0"
