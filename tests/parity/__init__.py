"""Scores generated replies with a user's own checkout of NeMo Gym and with Gymnast, and lists every difference.

python -m tests.parity CHECKOUT --python PYTHON
"""
