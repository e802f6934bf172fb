"""Datasets: validate, prepare, render and download them. Reads files and configurations; starts nothing."""
